"""A Block is timed in turns in one grant: at most eight schedules of one problem beside what they are compared with.

A sweep is a row of blocks. A run cuts them here to ask for them, and the forecast cuts them here to count them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kernels.axes import Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, schedule
from kernels.trial import Trial

MOST = 8
"""Schedules of one block, the baseline not counted."""
LONGEST_SECONDS = 8.0
"""A block that is expected to take longer holds fewer schedules, so that others get their turn."""
PARTS = ("none", "baseline", "each")
"""What stands beside the schedules: nothing; the sequential baseline, its computation and its communication alone; or
these and the computation of each schedule alone."""

Seconds = Callable[[Sequence[Trial], Sequence[Trial]], float]
"""How long trials are expected to take, all together, after others of their block: these may have compiled for them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Everything that is timed in turns; ratios are formed inside it and nowhere else."""

    baselines: tuple[Trial, ...]
    schedules: tuple[Trial, ...]
    """Those that were asked for; the baseline is among them where it was."""
    parts: tuple[Trial, ...] = ()
    """The computation of each schedule alone."""

    @property
    def trials(self) -> list[Trial]:
        """Each of them once: what the schedules are compared with comes first, so that ratios are there at once."""
        return list({trial.key: trial for trial in (*self.baselines, *self.schedules, *self.parts)}.values())


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside the schedules of one problem in every block."""

    base: Trial
    """The sequential schedule that the others are compared with."""
    parts: str
    machine: Machine

    def block(self, schedules: Sequence[Trial]) -> Block:
        """*schedules* and what they are compared with: every tile is computed alone, or the floor would not hold."""
        if self.parts == "none" or not schedules:
            return Block((), tuple(schedules))
        plain = [self._sequential(trial.schedule) for trial in schedules]
        communication = [self.base.of_part("communication")] if self.base.world > 1 else []
        alone = [compute_alone(trial) for trial in (self.base, *plain)]
        each = [compute_alone(trial) for trial in schedules] if self.parts == "each" else []
        return Block((*alone, *communication, self.base), tuple(schedules), tuple(each))

    def _sequential(self, other: Schedule) -> Trial:
        """The sequential schedule with the tile of *other*."""
        if other["tile"] == self.base.schedule["tile"]:
            return self.base
        problem, fabric = self.base.problem, self.base.fabric
        return replace(self.base, schedule=schedule(problem, BASELINE, {"tile": other["tile"]}, self.machine, fabric))

    def others(self, schedules: Sequence[Trial]) -> list[Trial]:
        """*schedules* but for the baseline, where that stands in every block anyway."""
        return [trial for trial in schedules if self.parts == "none" or trial.key != self.base.key]

    def blocks(
        self, schedules: Sequence[Trial], seconds: Seconds, longest_s: float = LONGEST_SECONDS
    ) -> Iterator[Block]:
        """*schedules*, each in exactly one block but for the baseline, which stands in all of them.

        *seconds* is asked anew for every block: what was measured until then corrects what is expected.
        """
        rest = self.others(schedules)
        base = [trial for trial in schedules if trial not in rest]
        if not rest and base:
            yield self.block(base)
        while rest:
            alone = self.block(rest[:1]).trials
            baselines_s = seconds([trial for trial in alone if trial.key != rest[0].key], rest[:1])
            costs_s = [seconds([trial], rest[:number]) for number, trial in enumerate(rest[:MOST])]
            count = fit(costs_s, baselines_s, longest_s)
            yield self.block([*base, *rest[:count]])
            rest = rest[count:]


def fit(schedules_s: Sequence[float], baselines_s: float, longest_s: float = LONGEST_SECONDS) -> int:
    """How many of the next schedules go into one block with baselines that take *baselines_s*.

    At least one, at most MOST. Where baselines take long, schedules may take as long as they do: otherwise baselines
    would be most of what is measured.
    """
    room_s = max(longest_s - baselines_s, baselines_s)
    taken_s = 0.0
    for count, schedule_s in enumerate(schedules_s[:MOST]):
        taken_s += schedule_s
        if count and taken_s > room_s:
            return count
    return min(len(schedules_s), MOST)


def beside(base: Trial, schedules: Sequence[Schedule], parts: str, machine: Machine) -> Beside:
    """For a run of *schedules*, whose *base* has everything at its default but the tile."""
    assert parts in PARTS, parts
    made = baseline((one["tile"] for one in schedules), base.problem, machine, base.fabric)
    return Beside(replace(base, schedule=made), parts, machine)


def baseline(tiles: Iterable[Value], problem: Problem, machine: Machine, fabric: Fabric) -> Schedule:
    """The sequential schedule beside schedules with *tiles*: where all of them have one tile, it has it, too."""
    several = set(tiles)
    return schedule(problem, BASELINE, {"tile": several.pop()} if len(several) == 1 else {}, machine, fabric)


def older_block(sitting: str, number: int) -> str:
    """The block of problem *number* of a *sitting* (a run, a recorded file) from before there were blocks."""
    return f"{sitting}.p{number}"


def is_baseline(trial: Trial) -> bool:
    """Whether schedules are compared with *trial*: a part, or a whole of the sequential scheme."""
    return trial.part != "whole" or trial.schedule.scheme == BASELINE


def compute_alone(trial: Trial) -> Trial:
    """The computation of *trial* alone. No emulated link is crossed, so that one trial serves all of them."""
    fabric = Fabric(kind="shared_memory") if trial.fabric.emulated else trial.fabric
    return replace(trial, fabric=fabric, part="compute")
