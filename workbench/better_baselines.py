"""Which ratios are none: those of blocks without a baseline that is known to be faster than the ones they hold.

A ratio is over the best that anybody could have picked. A block of a drawn space holds whatever was drawn, perhaps NCCL
alone, where another block tells that our own stores beat NCCL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels.outcome import row
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, reads
from kernels.units import seconds_text
from workbench.known import Known
from workbench.metrics import apart
from workbench.naming import baseline_title

Place = tuple[str, str | None, Problem]
"""A block of a run or of a recording, and what was timed in it."""


@dataclass(frozen=True, slots=True)
class Better:
    """A block's best baseline, and a faster one that the block does not hold; None: it holds no baseline at all."""

    best: Known | None
    better: Known | None = None

    def __str__(self) -> str:
        """Why there is no speed-up, both baselines named."""
        if self.best is None or self.better is None:
            return "no sequential schedule was timed in the same block"
        return (
            f"the best sequential schedule of its block is {words(self.best)}, but {words(self.better)} is known to be "
            f"faster ({self.better.where})"
        )


@dataclass(frozen=True, slots=True)
class Baselines:
    """The baselines of each block of what is known of one operator on one hardware."""

    blocks: Mapping[Place, Mapping[Schedule, Known]]
    _lacking: dict[Place, Better | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, trials: Iterable[Known]) -> Baselines:
        blocks: dict[Place, dict[Schedule, Known]] = {}
        for each in trials:
            if each.trial.schedule.scheme == BASELINE:
                blocks.setdefault(_place(each), {})[_today(each)] = each
        return cls(blocks)

    def best(self, each: Known) -> Known | None:
        """The fastest baseline of the block of *each*: what its ratio is over."""
        return min(self.blocks.get(_place(each), {}).values(), key=lambda one: one.time_s, default=None)

    def lacking(self, each: Known) -> Better | None:
        """What the block of *each* lacks; None where its ratio is one.

        A baseline is faster if every block says so that timed it beside one of this block's. Blocks of the same
        sitting are asked before those of others: clocks differ from day to day.
        """
        place = _place(each)
        if place not in self._lacking:
            best, better = self.best(each), self._better(place)
            lacks = best is None or better is not None
            self._lacking[place] = Better(best, better) if lacks else None
        return self._lacking[place]

    def _better(self, place: Place) -> Known | None:
        """The fastest of the baselines that the block at *place* does not hold, and that beat its best one."""
        here = self.blocks.get(place, {})
        others = {other: there for other, there in self.blocks.items() if other[2] == place[2] and here.keys() & there}
        better: list[Known] = []
        for schedule in dict.fromkeys(one for there in others.values() for one in there if one not in here):
            both = {other: there for other, there in others.items() if schedule in there}
            telling = [there for other, there in both.items() if other[0] == place[0]] or list(both.values())
            if all(_beats_all(there[schedule], there, here) for there in telling):
                better.append(telling[-1][schedule])
        return min(better, key=lambda one: one.time_s, default=None)


def _beats_all(other: Known, there: Mapping[Schedule, Known], here: Mapping[Schedule, Known]) -> bool:
    """Whether *other*, of the block *there*, beats the best *here*, in shares of a baseline that both blocks hold."""
    common = min(here.keys() & there, key=lambda schedule: here[schedule].time_s)
    best = min(here.values(), key=lambda one: one.time_s)
    return beats(other, best, here[common].time_s / there[common].time_s)


def beats(one: Known, other: Known, scale: float = 1.0) -> bool:
    """Whether *scale* times *one* is faster than *other*, and not by their spread alone."""
    if scale * one.time_s >= other.time_s:
        return False
    values = row(one.measurement())
    scaled = {key: values[key] and scale * values[key] for key in ("time_s", "low_s", "high_s")}
    return apart(scaled, row(other.measurement()))


def _place(each: Known) -> Place:
    return each.where, each.block, each.trial.problem


def _today(each: Known) -> Schedule:
    """Its schedule with all axes that are read today: what older versions named is the same schedule."""
    trial = each.trial
    axes: Mapping[str, Any] = reads.all_axes(trial.problem, trial.schedule, trial.backend)
    return Schedule(trial.schedule.scheme, tuple(sorted(axes.items())))


def words(baseline: Known) -> str:
    """`collective library with 304 µs`."""
    how = baseline_title(dict(baseline.trial.schedule.axes))
    return " with ".join(filter(None, (how, seconds_text(baseline.time_s))))
