"""Recordings of two streams as the table of docs/results/streams.md: a row a scenario, all modes of one block.

Microseconds of one problem, of as many as one call holds: the slowest rank's median. Ratios are formed in the last
block of each scenario. Behind the table stands what each control brings over the same streams without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from kernels.problem import Problem
from kernels.schemes import BASELINE, stream_controls
from tests.gpu import scenarios
from tests.gpu.summary import (
    COLLECTIVES,
    NO_GAIN,
    NONE,
    NUMBERS,
    Column,
    Row,
    baseline_words,
    bold,
    fastest,
    last_blocks,
    number,
    small_print,
    table,
    wrapped,
)
from workbench.results import metrics
from workbench.results.recordings import Recorded

INTRO = """
Computation and collective of sixteen independent problems on two streams (`concurrent`, arXiv:2606.09200): microseconds
of one of them, bfloat16. T_c and T_comm are the fastest computation and the fastest collective of a baseline alone.
*Streams* are cuBLAS and NCCL on two streams. *Shaping* is our kernel in tiles of 64x128x64, padded so that an SM holds
one block of it. *Priority* is that of the stream that communicates. *SM share*: the fastest way to leave SMs to the
collective, or to have copy engines move the bytes, of those that were tried. All numbers of a row are of one block.
"""
OURS = "streams, ours"
"""Two streams alone whose computation is our kernel: what shaping is compared with."""
TO_REACH, NEAR, MIDDLE = 0.75, 0.12, (0.7, 1.4)
"""What is to be reached of the best sequential schedule, and above the longer half, where T_comm / T_c is so."""
MODES = (stream_controls.SHAPING, stream_controls.PRIORITISED, stream_controls.BOTH, stream_controls.SHARED)


@dataclass(frozen=True)
class Line:
    """One scenario: the right rows of its last block."""

    rows: Sequence[Row]

    @cached_property
    def problem(self) -> Problem:
        row = self.rows[0]
        return Problem(row["operator"], tuple(row["shape"].items()), row["dtype"], row["world"])

    @cached_property
    def baseline(self) -> Row | None:
        return fastest(row for row in self.rows if row["scheme"] == BASELINE)

    @cached_property
    def modes(self) -> dict[str, Row]:
        """By mode, the fastest schedule of it; copy engines take no SM, and count as setting SMs aside."""
        of: dict[str, list[Row]] = {}
        for row in self.rows:
            if row["part"] == "whole" and (mode := _mode(row)):
                of.setdefault(mode, []).append(row)
        known = {mode: fastest(some) for mode, some in of.items()}
        return {mode: row for mode, row in known.items() if row is not None}

    @property
    def best(self) -> Row | None:
        return fastest(self.modes.values())

    @property
    def halves(self) -> tuple[float | None, float | None]:
        """T_c and T_comm."""
        return self.rows[0]["compute_s"], self.rows[0]["comm_s"]

    @property
    def balance(self) -> float | None:
        """T_comm / T_c, as measured."""
        compute_s, comm_s = self.halves
        return comm_s / compute_s if compute_s and comm_s else None

    @property
    def ratio(self) -> float | None:
        """Of the best mode, to the best sequential schedule."""
        return self.best and self.best["time_ratio"]

    @property
    def above(self) -> float | None:
        """What the best mode takes more than the longer half alone, as a share of it."""
        if self.best is None or self.balance is None:
            return None
        return metrics.above_longer(self.best["time_s"], self.rows[0]["compute_s"], self.rows[0]["comm_s"])


def _mode(row: Row) -> str | None:
    axes = row["axes"]
    mode = stream_controls.mode(axes)
    if mode == stream_controls.STREAMS and axes.get("kernel") == "ours":
        return OURS
    apart = mode in (stream_controls.STREAMS, stream_controls.PRIORITISED) and axes["collective"] != "library"
    return stream_controls.SHARED if apart else mode


def lines(entries: Sequence[Recorded]) -> list[Line]:
    """A line for each scenario whose last block has a right baseline and a right mode, in the workloads' order."""
    known = [line for line in map(Line, last_blocks(entries)) if line.baseline and line.best]
    order = [each.name for each in scenarios.WORKLOADS]
    return sorted(known, key=lambda line: (order.index(scenarios.workload_of(line.problem)), line.balance or 0.0))


def _time(mode: str) -> Callable[[Line], str]:
    return lambda line: number(line.modes[mode]["time_s"]) if mode in line.modes else NONE


def _share(line: Line) -> str:
    """The time of the fastest way to set SMs aside, and which it is."""
    row = line.modes.get(stream_controls.SHARED)
    if row is None:
        return NONE
    count, partner = row["axes"].get(stream_controls.SHARE, 0), COLLECTIVES[row["axes"]["collective"]]
    return f"{number(row['time_s'])}, {f'{count} SMs, ' if count else ''}{partner}"


def _baseline(line: Line) -> str:
    assert line.baseline is not None
    return f"{number(line.baseline['time_s'])}, {baseline_words(line.baseline)}"


COLUMNS: tuple[Column[Line], ...] = (
    ("workload and shape", lambda line: f"{scenarios.workload_of(line.problem)} "
     + " x ".join(str(line.problem[key]) for key in "mnk")),
    ("T_c", lambda line: number(line.halves[0])), ("T_comm", lambda line: number(line.halves[1])),
    ("best sequential", _baseline), ("streams", _time(stream_controls.STREAMS)), (OURS, _time(OURS)),
    *((mode, _time(mode)) for mode in MODES[:3]), ("SM share", _share),
    ("best of these", lambda line: NONE if line.ratio is None else bold(line.ratio)),
    ("above the longer half", lambda line: NONE if line.above is None else f"{line.above * 100:.0f} %"),
    ("regime", lambda line: line.rows[0]["regime"]),
)  # fmt: skip


def sentences(some: Sequence[Line]) -> str:
    """What was gained and lost, and what each control brings over the same streams without it."""
    lost = sum(line.ratio is not None and line.ratio >= NO_GAIN for line in some)
    gained = f"In {lost} of {len(some)} scenarios no mode beats the best sequential schedule: their ratio is bold."
    said = [gained if lost else f"In all {len(some)} scenarios a mode beats the best sequential schedule."]
    return " ".join([*said, *_reached(some), *_of_controls(some)])


def _reached(some: Sequence[Line]) -> Iterator[str]:
    """How many of those that have most to gain are where they should be."""
    middle = [line for line in some if line.balance and MIDDLE[0] <= line.balance <= MIDDLE[1]]
    if not middle:
        return
    much = sum(line.ratio is not None and line.ratio <= TO_REACH for line in middle)
    near = sum(line.above is not None and line.above <= NEAR for line in middle)
    yield (
        f"Where T_comm / T_c is {MIDDLE[0]} to {MIDDLE[1]}, {much} of {len(middle)} take at most {TO_REACH} of it, and "
        f"{near} are within {NEAR * 100:.0f} % of the longer half."
    )


def _of_controls(some: Sequence[Line]) -> Iterator[str]:
    for mode in MODES:
        rows = [line.modes[mode] for line in some if mode in line.modes]
        if against := [row["against_streams"] for row in rows if row["against_streams"]]:
            yield (
                f"*{mode}*: {_range(against)} of the time of the same streams without it, {median(against):.2f} in the "
                f"middle of {len(against)}."
            )


def _range(values: Iterable[float]) -> str:
    several = list(values)
    return f"{min(several):.2f} to {max(several):.2f}"


def text(entries: Sequence[Recorded]) -> str | None:
    """The table of each world with its small print; None where no scenario has a line."""
    worlds = sorted({entry.measurement.trial.world for entry in entries})
    parts = []
    for world in worlds:
        of_world = [entry for entry in entries if entry.measurement.trial.world == world]
        if some := lines(of_world):
            title = f"**{NUMBERS.get(world, str(world)).capitalize()} GPUs, two streams: microseconds of one problem**"
            parts += [
                title,
                "\n".join(table(COLUMNS, some)),
                wrapped(sentences(some)),
                wrapped(small_print(of_world, [])),
            ]
    return "\n\n".join([wrapped(INTRO), *parts]) if parts else None
