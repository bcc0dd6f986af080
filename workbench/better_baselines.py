"""What winners have no speed-up: those of blocks without a baseline that any sitting tells to be faster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kernels.outcome import row
from kernels.problem import Problem
from kernels.schemes import BASELINE, reads
from kernels.units import seconds_text
from workbench import outdone
from workbench.known import Known
from workbench.naming import baseline_title
from workbench.outdone import better

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

    blocks: Mapping[Place, Mapping[str, Known]]
    _lacking: dict[Place, Better | None] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, trials: Iterable[Known]) -> Baselines:
        blocks: dict[Place, dict[str, Known]] = {}
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
        of_problem = {other: there for other, there in self.blocks.items() if other[2] == place[2]}
        of_sitting = [there for other, there in of_problem.items() if other[0] == place[0]]
        compared_there = {
            schedule for there in of_sitting if here.keys() & there for schedule in there if schedule not in here
        }
        others = [{schedule: one for schedule, one in there.items() if schedule not in compared_there}
                  for other, there in of_problem.items() if other[0] != place[0]]  # fmt: skip
        known = (better(here, blocks, lambda one: one.time_s, beats) for blocks in (of_sitting, others))
        return min(filter(None, known), key=lambda one: one.time_s, default=None)


def beats(one: Known, other: Known, scale: float = 1.0) -> bool:
    """Whether *scale* times *one* is faster than *other*, and not by their spread alone: samples are asked for it."""
    is_faster = scale * one.time_s < other.time_s
    return is_faster and outdone.beats(row(one.measurement()), row(other.measurement()), scale)


def _place(each: Known) -> Place:
    return each.where, each.block, each.trial.problem


def _today(each: Known) -> str:
    """Its schedule with all axes that are read today: what older versions named is the same schedule."""
    trial = each.trial
    return str(sorted(reads.all_axes(trial.problem, trial.schedule, trial.backend).items()))


def words(baseline: Known) -> str:
    """`collective library with 304 µs`."""
    how = baseline_title(dict(baseline.trial.schedule.axes))
    return " with ".join(filter(None, (how, seconds_text(baseline.time_s))))
