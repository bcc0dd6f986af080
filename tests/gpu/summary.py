"""Recordings of GPUs as the tables of docs/results/: `python -m tests.gpu.summary RECORDING ...`, a row a problem.

Microseconds of one call: the slowest rank's median, with the tenth and nine tenths of its samples. All numbers of a
row are of one block of one file: the last block that tests/gpu/sittings.py keeps for the winner. It has to hold a
right baseline and a right fused schedule: without such a block there is no row. What recordings from before there were
blocks hold of one problem counts as one block for each file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from kernels.outcome import BLOCK_KIND
from kernels.schemes import BASELINE
from kernels.schemes.axis_rules import LAUNCHES
from kernels.schemes.library import CALLS
from tests.gpu.sittings import LAST
from tests.gpu.summary_words import ORDER, baseline_words, problem_words
from workbench import machines
from workbench.results import metrics, recordings
from workbench.results.recordings import Recorded
from workbench.results.rows import question_of

NONE = "–"
MANY, ONCE = "device", "device_latency"
"""Protocols of tests/gpu/tables.py: as many calls in a graph as fill some milliseconds, and one."""
CUT = "decomposed"
"""The scheme that older recordings have torch's overlapped operators as, without LAUNCHES: our own came with it."""

NO_GAIN = 0.995
"""What is written 1.00 or more is no gain."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One problem by one protocol: all of one block."""

    rows: Sequence[Row]
    """Of the block, joined (workbench/results/metrics.py)."""
    baseline: Row
    fused: Row
    others: tuple[float, ...] = ()
    """The ratios of the same two schedules in the problem's earlier blocks."""

    @property
    def world(self) -> int:
        return int(self.fused["world"])

    @property
    def ratio(self) -> float:
        return metrics.time_ratio(self.fused["time_s"], self.baseline["time_s"])

    @property
    def compute(self) -> Row | None:
        """The faster of cuBLAS and our kernel, alone."""
        return fastest(self.rows, "compute")

    @property
    def floor_s(self) -> float | None:
        return self.fused["pipeline_floor_s"]

    @property
    def library(self) -> Row | None:
        """NCCL's fastest sequential schedule, whoever computes."""
        return fastest(row for row in baselines(self.rows) if row["axes"].get("collective") in CALLS)

    def exposed_s(self, row: Row | None) -> float | None:
        """What communication adds to the computation alone."""
        if row is None or self.compute is None:
            return None
        return metrics.exposed_communication(row["time_s"], self.compute["time_s"])

    @property
    def share(self) -> float | None:
        """Of NCCL's exposed communication, what the fused schedule exposes."""
        if self.library is None or self.compute is None:
            return None
        return metrics.exposed_share(self.fused["time_s"], self.library["time_s"], self.compute["time_s"])


def joined(entries: Sequence[Recorded]) -> list[dict[str, Any]]:
    """*entries* as rows with the numbers of their own block, their spans, when each was measured, the block's kind.

    Recordings that name no kind have whole sittings: the later one counts, as a last block does.
    """
    known = {entry.measurement.trial.machine for entry in entries}
    places = {name: machines.shipped_machine(name) for name in known}
    return metrics.fill([
        metrics.row_of(entry.measurement, None, places[entry.measurement.trial.machine])
        | {"at": max(sample.at for sample in entry.samples), BLOCK_KIND: entry.measurement.facts.get(BLOCK_KIND, LAST),
           "spans": entry.measurement.spans}
        for entry in entries
    ])  # fmt: skip


def fastest(rows: Iterable[Row], part: str = "whole") -> Row | None:
    """The right one of *part* that takes least."""
    right = [row for row in rows if row["part"] == part and row["time_s"] and row["correct"] is not False]
    return min(right, key=lambda row: float(row["time_s"]), default=None)


def baselines(rows: Iterable[Row]) -> list[Row]:
    """Those that anybody could have picked: sequential ones, and torch's own overlapped operators."""
    return [row for row in rows if row["scheme"] == BASELINE or is_torchs(row)]


def is_torchs(row: Row) -> bool:
    """Whether it is torch's overlapped operator as older recordings have it, and no pieces of ours."""
    return row["scheme"] == CUT and LAUNCHES not in row["axes"]


def of_block(rows: Sequence[Row]) -> Line | None:
    """The line of one block; None where it holds no baseline or no fused schedule."""
    baseline, fused = fastest(baselines(rows)), fastest(row for row in rows if row["scheme"] == "fused")
    return Line(rows, baseline, fused) if baseline and fused else None


def lines(rows: Iterable[Row]) -> dict[str, list[Line]]:
    """By protocol, a line a problem in the order of ORDER."""
    blocks: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in rows:
        blocks.setdefault((row["protocol"], question_of(row)), {}).setdefault(row["block"], []).append(row)
    found: dict[str, list[Line]] = {}
    for (protocol, _), by_block in blocks.items():
        in_time = sorted(by_block.values(), key=lambda mine: max(row["at"] for row in mine))
        known = [line for line in map(of_block, in_time) if line]
        if lasts := [line for line in known if line.rows[0][BLOCK_KIND] == LAST]:
            last = lasts[-1]
            again = (same_pair(line.rows, last) for line in known[: known.index(last)])
            others = tuple(ratio for ratio in again if ratio is not None)
            found.setdefault(protocol, []).append(replace(last, others=others))
    return {protocol: sorted(mine, key=_place) for protocol, mine in found.items()}


def same_pair(rows: Iterable[Row], line: Line) -> float | None:
    """The ratio of the two schedules of *line* among *rows*; None where one of them is missing."""
    times = {row["key"]: row["time_s"] for row in rows if row["time_s"]}
    fused_s, baseline_s = times.get(line.fused["key"]), times.get(line.baseline["key"])
    return metrics.time_ratio(fused_s, baseline_s) if fused_s and baseline_s else None


def _place(line: Line) -> int:
    return ORDER.index(line.fused["operator"])


def spread(row: Row | None) -> str:
    """The median with the tenth and nine tenths of the samples."""
    if row is None:
        return NONE
    return f"{number(row['time_s'])} ({number(row['low_s'])} to {number(row['high_s'])})"


def number(seconds: float | None) -> str:
    """Microseconds with three digits."""
    if seconds is None:
        return NONE
    micro = seconds * 1e6
    return f"{micro:.0f}" if abs(micro) >= 100 else f"{micro:.1f}"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share * 100:.0f} %"


def bold(ratio: float) -> str:
    """A ratio; one that is no gain stands out."""
    return f"**{ratio:.2f}**" if ratio >= NO_GAIN else f"{ratio:.2f}"


def named(row: Row) -> str:
    """A baseline's time and what it is."""
    return f"{spread(row)}, {baseline_words(row)}"


Of = TypeVar("Of")
"""What a row of a table is of."""
Column = tuple[str, Callable[[Of], str]]
PROBLEM: Column[Line] = ("operator and shape", lambda line: problem_words(line.fused))
RATIO: Column[Line] = ("ratio", lambda line: bold(line.ratio))
TIMES: tuple[Column[Line], ...] = (
    PROBLEM,
    ("compute alone", lambda line: number(line.compute and line.compute["time_s"])),
    ("pipeline floor", lambda line: number(line.floor_s)),
    ("best baseline", lambda line: named(line.baseline)),
    ("fused", lambda line: spread(line.fused)),
    RATIO,
)
EXPOSED: tuple[Column[Line], ...] = (
    PROBLEM,
    ("NCCL exposes", lambda line: number(line.exposed_s(line.library))),
    ("best baseline exposes", lambda line: number(line.exposed_s(line.baseline))),
    ("fused exposes", lambda line: number(line.exposed_s(line.fused))),
    ("share of NCCL's", lambda line: percent(line.share)),
)


def table(columns: Sequence[Column[Of]], some: Sequence[Of]) -> list[str]:
    """Lines of Markdown; a column that nobody has a number in is left out."""
    cells = [[of(each) for _, of in columns] for each in some]
    kept = [at for at in range(len(columns)) if any(row[at] != NONE for row in cells)]
    heads = [columns[at][0] for at in kept]
    body = ["| " + " | ".join(row[at] for at in kept) + " |" for row in cells]
    return [f"| {' | '.join(heads)} |", "|---" + "|---:" * (len(heads) - 1) + "|", *body]


def once(many: Sequence[Line], single: Sequence[Line]) -> tuple[Column[Line], ...]:
    """Columns of one call in each graph, with the ratio of many calls beside."""
    beside = {question_of(line.fused): line for line in many}

    def ratio_of_many(line: Line) -> str:
        other = beside.get(question_of(line.fused))
        return f"{other.ratio:.2f}" if other else NONE

    return (*TIMES[:2], *TIMES[3:5], ("ratio, one call", RATIO[1]), ("ratio, many calls", ratio_of_many))


def read(paths: Sequence[Path]) -> list[Recorded]:
    """All that *paths* recorded."""
    return [entry for path in paths for entry in recordings.read(path)]


def main() -> int:
    from tests.gpu.summary_text import text

    print(text(read([Path(name) for name in sys.argv[1:]])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
