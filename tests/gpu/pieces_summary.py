"""Recordings of pieces as a table: a row a scenario, the best pieces beside what anybody could have picked.

Microseconds of one call: the slowest rank's median. Every number of a row is of the scenario's last block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernels.schemes import BASELINE
from kernels.schemes.axis_rules import LAUNCHES, ONE
from tests.gpu.last_blocks import last_blocks
from tests.gpu.pieces_limits import Limits, limits
from tests.gpu.sittings import PIECES
from tests.gpu.summary import Column, Row, fastest, named, number, percent, spread, table
from tests.gpu.summary_text import NUMBERS, small_print, wrapped
from tests.gpu.summary_words import ORDER, problem_words
from workbench.results import metrics
from workbench.results.recordings import Recorded

EVEN = 0.5
"""Where the shorter of T_c and T_comm is at least this share of the longer, there is most to hide."""
ABOVE, BEYOND_S = 1.05, 8e-6
"""Elsewhere: so many times the longer of both, and so many seconds."""
NO_GAIN = 1.005
"""What is written 1.00 or less is no gain."""
INTRO = """
A computation in pieces (`decomposed`, arXiv:2512.10236): microseconds of one call, bfloat16. T_c is the best whole
GEMM, T_comm the fastest transfer of the minimal bytes in which nothing is added. *Best baseline* is the fastest of
cuBLAS or our GEMM with NCCL, NCCL tuned, our own stores, copy engines or torch's symmetric all-reduces, and torch's
overlapped operators. *Fused* is ours with its defaults. *Pieces* is the fastest of four decomposed schedules, all moved
by copy engines, with the number of pieces to a peer. Share of ideal is (S - 1) / (S_ideal - 1), S = (T_c + T_comm) / T.
All numbers of a row are of one block.
"""


@dataclass(frozen=True)
class Line:
    """One scenario: the right rows of its last block, among them a baseline, a fused schedule and pieces."""

    rows: Sequence[Row]
    baseline: Row
    fused: Row
    pieces: Row

    @property
    def operator(self) -> str:
        return str(self.pieces["operator"])

    @property
    def halves(self) -> tuple[float, float]:
        """T_c and T_comm."""
        return self.pieces["whole_s"], self.pieces["transfer_s"]

    @property
    def balance(self) -> float:
        """T_comm / T_c, as measured."""
        return self.halves[1] / self.halves[0]

    @property
    def is_even(self) -> bool:
        return min(self.halves) / max(self.halves) >= EVEN

    @property
    def share(self) -> float:
        return float(self.pieces["share_of_ideal"])

    @property
    def speed_up(self) -> float:
        """Over the best baseline."""
        return metrics.speed_up(self.pieces["time_s"], self.baseline["time_s"])

    @property
    def over_fused_too(self) -> float:
        """Over the best of all others, our fused kernel included."""
        return metrics.speed_up(self.pieces["time_s"], min(self.baseline["time_s"], self.fused["time_s"]))

    @property
    def of_ours(self) -> float:
        """The speed-up of the faster of pieces and fused over the best baseline."""
        return metrics.speed_up(min(self.pieces["time_s"], self.fused["time_s"]), self.baseline["time_s"])

    @property
    def beyond_s(self) -> float:
        """What it takes more than the longer of both halves."""
        return float(self.pieces["time_s"]) - max(self.halves)

    @property
    def is_near(self) -> bool:
        """Whether it is as near to the longer half as it was to be where halves are uneven."""
        return bool(self.pieces["time_s"] <= ABOVE * max(self.halves) + BEYOND_S)

    @cached_property
    def limits(self) -> Limits | None:
        return limits(self.pieces)


def of_block(rows: Sequence[Row]) -> Line | None:
    """The line of one block; None where a baseline, a fused schedule, pieces, T_c or T_comm is missing."""
    best = [fastest(row for row in rows if row["scheme"] == scheme) for scheme in (BASELINE, "fused", PIECES)]
    baseline, fused, pieces = best
    known = baseline and fused and pieces and pieces["share_of_ideal"] is not None
    return Line(rows, baseline, fused, pieces) if known else None  # type: ignore[arg-type]


def lines(entries: Sequence[Recorded]) -> list[Line]:
    """A line for each scenario, operator by operator, by T_comm / T_c."""
    known = [line for line in map(of_block, last_blocks(entries)) if line]
    return sorted(known, key=lambda line: (ORDER.index(line.operator), line.balance))


def cut(row: Row) -> str:
    """How *row* cuts: its pieces to a peer, in one launch of ours, along the contraction."""
    axes = row["axes"]
    words = [f"{axes['pieces']} piece{'s' if axes['pieces'] > 1 else ''}"]
    words += ["one launch"] if axes.get(LAUNCHES) == ONE else []
    words += [f"by {axes['split']}"] if axes.get("split", "rows") != "rows" else []
    return ", ".join(words)


def gained(ratio: float) -> str:
    """A speed-up; one that is no gain stands out."""
    return f"{ratio:.2f}" if ratio >= NO_GAIN else f"**{ratio:.2f}**"


COLUMNS: tuple[Column[Line], ...] = (
    ("operator and shape", lambda line: problem_words(line.pieces)),
    ("T_c", lambda line: number(line.halves[0])), ("T_comm", lambda line: number(line.halves[1])),
    ("T_comm / T_c", lambda line: f"{line.balance:.2f}"), ("best baseline", lambda line: named(line.baseline)),
    ("fused", lambda line: number(line.fused["time_s"])),
    ("pieces", lambda line: f"{spread(line.pieces)}, {cut(line.pieces)}"),
    ("speed-up", lambda line: gained(line.speed_up)),
    ("over fused, too", lambda line: gained(line.over_fused_too)),
    ("share of ideal", lambda line: percent(line.share)),
)  # fmt: skip


def by_world(entries: Sequence[Recorded]) -> Iterator[tuple[str, Sequence[Recorded], list[Line]]]:
    """Each number of GPUs with its words, recordings and lines, where there are any."""
    for world in sorted({entry.measurement.trial.world for entry in entries}):
        of_world = [entry for entry in entries if entry.measurement.trial.world == world]
        if some := lines(of_world):
            yield NUMBERS.get(world, str(world)).capitalize(), of_world, some


def text(entries: Sequence[Recorded]) -> str | None:
    """The table of each world with its small print; None where no scenario has a line."""
    parts = [wrapped(INTRO)]
    for words, of_world, some in by_world(entries):
        title = f"**{words} GPUs, pieces: {len(some)} scenarios, microseconds of one call**"
        parts += [title, "\n".join(table(COLUMNS, some)), wrapped(small_print(of_world, []))]
    return "\n\n".join(parts) if parts[1:] else None
