"""Of each scenario its last block: what tables of scenarios have in common that a committed seed drew."""

from __future__ import annotations

from collections.abc import Sequence

from kernels.outcome import BLOCK_KIND
from tests.gpu.sittings import LAST
from tests.gpu.summary import Row, joined
from workbench.results.recordings import Recorded
from workbench.results.rows import question_of


def last_blocks(entries: Sequence[Recorded]) -> list[list[Row]]:
    """The right rows of the newest last block of each problem, all numbers of that block joined."""
    blocks: dict[object, dict[str, list[Row]]] = {}
    for row in joined(entries):
        if row[BLOCK_KIND] == LAST and row["time_s"] and row["correct"] is not False:
            blocks.setdefault(question_of(row), {}).setdefault(row["block"], []).append(row)
    return [max(each.values(), key=lambda rows: max(row["at"] for row in rows)) for each in blocks.values()]
