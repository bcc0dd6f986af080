"""Where a number comes from: four words, each with its own sign, so that they are told apart without colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from workbench.naming import PUBLISHED, source_title
from workbench.reports.tables import Cell, Column, Table

MEANINGS = {
    "measured": "timed in this run, on the machine named above, after its result was found correct",
    "recorded": "timed in an earlier run, here or elsewhere, and played back from its recording",
    "estimated": "computed by the simulator; nothing was run for it",
    "published": "copied from a publication; neither run nor computed here",
}
"""In the order in which they are trusted about this machine."""


def legend(rows: Iterable[Mapping[str, Any]], num_published: int = 0) -> Table:
    """What each word means and how many rows of this report it stands for; *num_published* stand beside them."""
    counts = Counter(row.get("source") for row in rows if row.get("time_s") is not None)
    counts[PUBLISHED] += num_published
    strange = [source for source in counts if source not in MEANINGS and source is not None]
    lines = [(source_title(name), meaning, counts[name]) for name, meaning in MEANINGS.items()]
    lines += [(str(name), "a source that this report does not know", counts[name]) for name in strange]
    return Table(
        columns=(Column(heading="Source"), Column(heading="What it means"), Column(heading="Rows", figure=True)),
        rows=tuple(
            (Cell(name), Cell(meaning), Cell(str(count) if count else "none")) for name, meaning, count in lines
        ),
    )
