"""Which schedules are worth trying: whole spaces by closed form first, the best of those that ranks run played."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

import numpy as np

from kernels.backends.capabilities import MeasuringRanks, fitting
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.outcome import Estimate
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import axes, axis_rules, refusal, schedule
from kernels.trial import Protocol, Trial
from workbench.experiment.space import EVERY, MOST_POINTS, Choice, Space, columns, once, values
from workbench.simulator.closed_form import grid
from workbench.simulator.predict import predict, resolved

PLAYED = 4
"""So many times more schedules are played than are recommended: closed form and play may disagree about neighbours."""
SAME = 1e-6
"""Estimates that differ by less, relative to each other, are one."""
LOOKED_AT_MOST = 100
"""Schedules of one estimate among which one is sought that is legal and runs."""
NEAR = 0.4
"""Closed form and play are seldom further apart: what is, is not played to see whether it is the same."""
UNSEEN = ("group_rows",)
"""Axes of GPU kernels that the closed form does not read: their defaults are recommended, measuring tells more."""


@dataclass(frozen=True, slots=True)
class RecommendedSchedule:
    """One estimate that no other recommended schedule has."""

    estimate: Estimate
    alike: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Axis -> the other values with which it would be estimated the same, all else being equal."""


def recommend(problem: Problem, ranks: MeasuringRanks, space: Space, protocol: Protocol, count: int, *,
              measured: bool = True) -> tuple[list[RecommendedSchedule], int]:  # fmt: skip
    """The *count* schedules that `fastest` has, each with what does not matter to it, and how many points it saw."""
    best, num_points = fastest(problem, ranks, space, protocol, count, measured=measured)
    looked = _looked(problem, ranks, protocol, measured)
    return [RecommendedSchedule(estimate, looked.alike(estimate, space)) for estimate in best], num_points


def fastest(problem: Problem, ranks: MeasuringRanks, space: Space, protocol: Protocol, count: int, *,
            measured: bool = True) -> tuple[list[Estimate], int]:  # fmt: skip
    """The *count* schedules estimated fastest, fastest first, and how many points were looked at.

    They are to be *measured*: what the *ranks*' backend does not run is left out. Else whatever is legal counts.
    Refusal where nothing is left, and one value of an axis, or the ranks, are to blame.
    """
    looked = _looked(problem, ranks, protocol, measured)
    num_points, favourites = 0, list[tuple[float, Schedule]]()
    for choice in space.choices:
        crossed, seconds = looked.at(choice)
        num_points += len(seconds)
        favourites += islice(looked.fastest(choice.scheme, crossed, seconds), PLAYED * count)
    if not favourites:
        for choice in space.choices:
            _refuse(choice, problem, ranks, measured)
    favourites = sorted(favourites, key=lambda entry: entry[0])[: PLAYED * count]
    played = sorted((looked.played(schedule) for _, schedule in favourites), key=lambda estimate: estimate.time_s)
    return [next(same) for _, same in groupby(played, key=_Steps())][:count], num_points


def _refuse(choice: Choice, problem: Problem, ranks: MeasuringRanks, measured: bool) -> None:
    """Refusal where the ranks run nothing of *choice*'s scheme, or a stated value alone makes it illegal."""
    if measured:
        fitting(problem, choice.scheme, ranks)
    for name, wanted in choice.values:
        if EVERY not in wanted:
            schedule(problem, choice.scheme, {name: wanted[0]}, ranks.machine, ranks.fabric)


def every(schemes: Sequence[str], problem: Problem, machine: Machine, fabric: Fabric) -> dict[str, tuple[str, ...]]:
    """Settings that ask for all values of all axes of *schemes* that an estimate depends on."""
    names = dict.fromkeys(axis.name for name in schemes for axis in axes(problem, name, machine, fabric))
    return {name: (EVERY,) for name in names if name not in UNSEEN}


class _Steps:
    """Numbers rising times, given one after the other, by those that differ."""

    def __init__(self) -> None:
        self._last, self._number = 0.0, 0

    def __call__(self, estimate: Estimate) -> int:
        if not _same(estimate.time_s, self._last):
            self._last, self._number = estimate.time_s, self._number + 1
        return self._number


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME * max(one, other)


def _looked(problem: Problem, ranks: MeasuringRanks, protocol: Protocol, measured: bool) -> _ProblemSpace:
    return _ProblemSpace(problem, ranks.machine, resolved(ranks.fabric, problem, ranks.machine), protocol, measured)


@dataclass(frozen=True, slots=True)
class _ProblemSpace:
    """One problem, and who would measure it."""

    problem: Problem
    machine: Machine
    fabric: Fabric
    protocol: Protocol
    measured: bool

    @property
    def _ranks(self) -> MeasuringRanks | None:
        return MeasuringRanks(self.machine, self.fabric) if self.measured else None

    def _runs(self, schedule: Schedule) -> bool:
        return self._ranks is None or self._ranks.refusal(self.problem, schedule) is None

    def at(self, choice: Choice) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Every combination of the values that ranks run, and its estimate by closed form; nan where it cannot be."""
        lists = values(choice, self.problem, self.machine, self.fabric, MOST_POINTS, self._ranks)
        if not all(lists.values()):
            return {}, np.zeros(0)
        crossed = columns(lists)
        seconds = grid.times(self.problem, choice.scheme, crossed, self.machine, self.fabric)
        return crossed, np.where(once(self.problem, choice.scheme, crossed, self.machine), seconds, np.nan)

    def fastest(self, scheme: str, crossed: Mapping[str, np.ndarray],
                seconds: np.ndarray) -> Iterator[tuple[float, Schedule]]:  # fmt: skip
        """One schedule per estimate, fastest first: of those that share it, the one with the most defaults."""
        defaults = {axis.name: axis.default for axis in axes(self.problem, scheme, self.machine, self.fabric)}
        changed = sum((column != defaults[name] for name, column in crossed.items()), np.zeros(len(seconds), dtype=int))
        rounded = np.round(np.log(seconds) / SAME)
        order = np.lexsort((changed, rounded))[: np.count_nonzero(np.isfinite(seconds))]
        for _, numbers in groupby(order, key=lambda number: rounded[number]):
            made = (self._made(scheme, crossed, int(number)) for number in islice(numbers, LOOKED_AT_MOST))
            first = next(((number, schedule) for number, schedule in made if schedule is not None), None)
            if first is not None:
                yield float(seconds[first[0]]), first[1]

    def _made(self, scheme: str, crossed: Mapping[str, np.ndarray], number: int) -> tuple[int, Schedule | None]:
        """Point *number* as a schedule; None where only the scheme itself, or the ranks' backend, knows better."""
        point = {name: column[number].item() for name, column in crossed.items()}
        wanted = axis_rules.effective(self.problem, Schedule(scheme, tuple(point.items())), self.machine.backend)
        try:
            legal = schedule(self.problem, scheme, dict(wanted.axes), self.machine, self.fabric)
        except Refusal:
            return number, None
        return number, legal if self._runs(legal) else None

    def played(self, schedule: Schedule) -> Estimate:
        """Its estimate, step by step."""
        trial = Trial(problem=self.problem, schedule=schedule, backend=self.machine.backend, machine=self.machine.name,
                      fabric=self.fabric, protocol=self.protocol)  # fmt: skip
        return predict(trial, self.machine, with_spans=False)

    def alike(self, estimate: Estimate, space: Space) -> dict[str, tuple[Value, ...]]:
        """What does not matter to *estimate*, axis by axis, of what *space* asks about."""
        best = estimate.trial.schedule
        wanted = dict(next(choice.values for choice in space.choices if choice.scheme == best.scheme))
        known = axes(self.problem, best.scheme, self.machine, self.fabric)
        alike = {axis.name: tuple(self._alike(estimate, axis.name, self._offered(axis.values, wanted[axis.name])))
                 for axis in known if axis.name in wanted and best.get(axis.name) is not None}  # fmt: skip
        return {name: others for name, others in alike.items() if others}

    @staticmethod
    def _offered(offered: Sequence[Value], wanted: Sequence[Value]) -> Sequence[Value]:
        return offered if EVERY in wanted else wanted

    def _alike(self, estimate: Estimate, name: str, offered: Iterable[Value]) -> Iterator[Value]:
        best = estimate.trial.schedule
        for value in offered:
            other = Schedule(best.scheme, tuple({**dict(best.axes), name: value}.items()))
            if value == best[name] or refusal(self.problem, other, self.machine, self.fabric) is not None:
                continue
            column = {key: np.array([each]) for key, each in other.axes}
            near = grid.times(self.problem, best.scheme, column, self.machine, self.fabric)[0]
            if (
                self._runs(other)
                and abs(near / estimate.time_s - 1) < NEAR
                and _same(self.played(other).time_s, estimate.time_s)
            ):
                yield value
