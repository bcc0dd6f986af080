"""Schedules worth measuring: the closed form ranks whole spaces, and the simulator plays the best of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from math import prod

import numpy as np

from kernels.backends.capabilities import MeasuringRanks, fitting
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.outcome import Estimate
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value
from kernels.schemes import axes, axis_rules, refusal, schedule
from kernels.trial import Protocol, Trial
from workbench.experiment.space import EVERY, MOST_POINTS, Choice, Space, choices, columns, first_occurrences, values
from workbench.simulator.closed_form import grid
from workbench.simulator.predict import no_estimate, predict, resolved

PLAYED = 4
"""Schedules played per recommended one: closed form and play may order similar schedules differently."""
EQUAL_TOLERANCE = 1e-6
"""Relative difference below which two estimates count as equal."""
EQUALS_TRIED_MOST = 100
"""The most schedules of equal estimate that are tried until one is legal and runs."""
CLOSED_FORM_ERROR_MOST = 0.4
"""Relative difference of a closed form beyond which a schedule is not played to check whether its estimate is equal."""
OMITTED_AXES = ("group_rows",)
"""Axes of GPU kernels that the closed form ignores: their defaults are recommended, and only measuring shows more."""


@dataclass(frozen=True, slots=True)
class RecommendedSchedule:
    """A recommended schedule; no other one has an equal estimate."""

    estimate: Estimate
    alike: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The other values, by axis, that leave the estimate unchanged if no other axis changes."""


def recommend(problem: Problem, ranks: MeasuringRanks, space: Space, protocol: Protocol, count: int, *,
              measured: bool = True) -> tuple[list[RecommendedSchedule], int]:  # fmt: skip
    """The *count* schedules of `fastest`, each with the axis values that do not change its estimate; the points
    examined."""
    best, num_points = fastest(problem, ranks, space, protocol, count, measured=measured)
    in_space = _problem_space(problem, ranks, protocol, measured)
    return [RecommendedSchedule(estimate, in_space.alike(estimate, space)) for estimate in best], num_points


def fastest(problem: Problem, ranks: MeasuringRanks, space: Space, protocol: Protocol, count: int, *,
            measured: bool = True) -> tuple[list[Estimate], int]:  # fmt: skip
    """The *count* schedules with the lowest estimates, fastest first, and the number of points examined.

    *measured*: schedules that the backend of *ranks* does not run are left out; otherwise every legal one counts.
    Refusal where none remains because of one axis value or of the ranks. Of a scheme with more than MOST_POINTS points
    the axes of `SELDOM_READ` are tried around the best of the others alone.
    """
    in_space = _problem_space(problem, ranks, protocol, measured)
    num_points, favourites = 0, list[tuple[float, Schedule]]()
    for choice in space.choices:
        of_scheme, examined = in_space.searched(choice, PLAYED * count)
        num_points += examined
        favourites += of_scheme
    if not favourites:
        for choice in space.choices:
            _refuse(choice, problem, ranks, measured)
    favourites = sorted(favourites, key=lambda entry: entry[0])[: PLAYED * count]
    played = sorted((in_space.played(schedule) for _, schedule in favourites), key=lambda estimate: estimate.time_s)
    return [next(same) for _, same in groupby(played, key=_TieNumbers())][:count], num_points


# The leaders of each scheme, in a tenth of a second: what an answer needs, and no more.

NO_LIMIT = 10**12
"""More points than any space has: they are only counted, and what is looked through then is limited as any space is."""
FEW_POINTS = 20_000
"""A space with more points than these is looked through without `comm_sms` first, else without `SELDOM_READ`."""
SELDOM_READ = ("store_hint", "load_hint", "num_stages", "grid", "comm_sms", "grouping")
"""Axes that change few estimates, and those by little: their values are tried around the best of a few tiles alone."""
TILES_TRIED, NEAR_TIMES, LOOKED_AT = 2, 1.1, 16
"""The most tiles around which they are tried, how much slower than the best these are at most, and among how many."""
PLAYED_OF_SCHEME = 3
"""Schedules played per scheme."""


def leaders(problem: Problem, ranks: MeasuringRanks, schemes: Sequence[str], settings: Mapping[str, Sequence[str]],
            protocol: Protocol) -> dict[str, list[Estimate]]:  # fmt: skip
    """By scheme of *schemes* that the ranks run, the few best estimates, fastest first; *settings* fix axes.

    Refusal where the ranks run none.
    """
    in_space = _problem_space(problem, ranks, protocol, measured=True)
    known = {name: axes(problem, name, ranks.machine, ranks.fabric) for name in schemes}
    space = choices(schemes, {**every_value(schemes, problem, ranks.machine, ranks.fabric), **settings}, known)
    best = {choice.scheme: in_space.leaders(choice, set(settings)) for choice in space.choices}
    if not any(best.values()):
        for choice in space.choices:
            _refuse(choice, problem, ranks, measured=True)
        raise Refusal(
            f"No schedule of {', '.join(schemes)} runs {problem.operator} of this shape on {ranks.machine.name}. "
            "Accepted: other sizes, another --scheme or another --machine."
        )
    return {name: estimates for name, estimates in best.items() if estimates}


def _refuse(choice: Choice, problem: Problem, ranks: MeasuringRanks, measured: bool) -> None:
    """Raises Refusal where the ranks do not run the scheme of *choice*, or one of its values alone makes it illegal."""
    if measured:
        fitting(problem, choice.scheme, ranks)
    for name, wanted in choice.values:
        if EVERY not in wanted:
            schedule(problem, choice.scheme, {name: wanted[0]}, ranks.machine, ranks.fabric)


def every_value(
    schemes: Sequence[str], problem: Problem, machine: Machine, fabric: Fabric
) -> dict[str, tuple[str, ...]]:
    """Settings that request all values of all axes of *schemes* that an estimate depends on."""
    names = dict.fromkeys(axis.name for name in schemes for axis in axes(problem, name, machine, fabric))
    return {name: (EVERY,) for name in names if name not in OMITTED_AXES}


class _TieNumbers:
    """Numbers rising times, one call each; equal times get the same number."""

    def __init__(self) -> None:
        self._last, self._number = 0.0, 0

    def __call__(self, estimate: Estimate) -> int:
        if not _are_equal(estimate.time_s, self._last):
            self._last, self._number = estimate.time_s, self._number + 1
        return self._number


def _are_equal(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL_TOLERANCE * max(one, other)


def _rounded(seconds: float | np.ndarray) -> np.ndarray:
    """Numbers that are equal where times are, but for EQUAL_TOLERANCE."""
    return np.asarray(np.round(np.log(seconds) / EQUAL_TOLERANCE))


def _left_out(lengths: Mapping[str, int], seldom: Sequence[str]) -> Sequence[str]:
    """The axes of *seldom* without which a space of so many values by axis has FEW_POINTS: none, `comm_sms`, or all."""
    for names in ((), [name for name in seldom if name == axis_rules.COMM_SMS]):
        if prod(count for name, count in lengths.items() if name not in names) <= FEW_POINTS:
            return names
    return seldom


def _problem_space(problem: Problem, ranks: MeasuringRanks, protocol: Protocol, measured: bool) -> _ProblemSpace:
    if (message := no_estimate(ranks.fabric)) is not None:
        raise Refusal(message)
    return _ProblemSpace(problem, ranks.machine, resolved(ranks.fabric, problem, ranks.machine), protocol, measured)


@dataclass(frozen=True, slots=True)
class _ProblemSpace:
    """One problem on one machine, whose spaces are searched for fast schedules."""

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
        """Every combination of values that the ranks run, as columns, and its closed-form estimate; nan where
        illegal."""
        lists = values(choice, self.problem, self.machine, self.fabric, MOST_POINTS, self._ranks)
        if not all(lists.values()):
            return {}, np.zeros(0)
        crossed = columns(lists)
        seconds = grid.times(self.problem, choice.scheme, crossed, self.machine, self.fabric)
        return crossed, np.where(first_occurrences(self.problem, choice.scheme, crossed, self.machine), seconds, np.nan)

    def fastest(self, scheme: str, crossed: Mapping[str, np.ndarray],
                seconds: np.ndarray) -> Iterator[tuple[float, Schedule]]:  # fmt: skip
        """Yields one schedule per estimate, fastest first: of equal ones, that with the most default values."""
        defaults = {axis.name: axis.default for axis in axes(self.problem, scheme, self.machine, self.fabric)}
        changed = sum((column != defaults[name] for name, column in crossed.items()), np.zeros(len(seconds), dtype=int))
        rounded = _rounded(seconds)
        order = np.lexsort((changed, rounded))[: np.count_nonzero(np.isfinite(seconds))]
        for _, numbers in groupby(order, key=lambda number: rounded[number]):
            tried = (self._legal(scheme, crossed, int(number)) for number in islice(numbers, EQUALS_TRIED_MOST))
            first = next(((number, schedule) for number, schedule in tried if schedule is not None), None)
            if first is not None:
                yield float(seconds[first[0]]), first[1]

    def searched(self, choice: Choice, count: int) -> tuple[list[tuple[float, Schedule]], int]:
        """The *count* fastest of *choice* by the closed form, and how many points were examined.

        Of more than MOST_POINTS points, those without its free axes of `SELDOM_READ`, then these around each of the
        fastest; Refusal where there are more without them, too.
        """
        wanted = dict(choice.values)
        lists = values(choice, self.problem, self.machine, self.fabric, NO_LIMIT, self._ranks)
        seldom = [name for name in SELDOM_READ if EVERY in wanted.get(name, ())]
        if prod(map(len, lists.values())) <= MOST_POINTS or not seldom:
            crossed, seconds = self.at(choice)
            return list(islice(self.fastest(choice.scheme, crossed, seconds), count)), len(seconds)
        crossed, seconds = self.at(Choice(choice.scheme, tuple((n, v) for n, v in choice.values if n not in seldom)))
        best, num_points = list(islice(self.fastest(choice.scheme, crossed, seconds), count)), len(seconds)
        for _, made in tuple(best):
            crossed, seconds = self._around(made, wanted, seldom)
            best += islice(self.fastest(choice.scheme, crossed, seconds), count)
            num_points += len(seconds)
        best.sort(key=lambda entry: entry[0])
        return [next(same) for _, same in groupby(best, key=lambda entry: _rounded(entry[0]))][:count], num_points

    def leaders(self, choice: Choice, fixed: Container[str]) -> list[Estimate]:
        """The best of *choice*, played; of a large space, what the axes of `SELDOM_READ` that are not *fixed* add."""
        wanted = dict(choice.values)
        seldom = [name for name in SELDOM_READ if name in wanted and name not in fixed]
        lists = values(choice, self.problem, self.machine, self.fabric, NO_LIMIT, self._ranks)
        left_out = _left_out({name: len(some) for name, some in lists.items()}, seldom)
        is_large = bool(left_out)
        first = Choice(choice.scheme, tuple((n, v) for n, v in choice.values if n not in left_out))
        crossed, seconds = self.at(first)
        several = list(
            islice(self.fastest(choice.scheme, crossed, seconds), LOOKED_AT if is_large else PLAYED_OF_SCHEME)
        )
        best = [made for _, made in several[:PLAYED_OF_SCHEME]]
        if is_large:
            near = [made for time_s, made in several if time_s <= NEAR_TIMES * several[0][0]]
            of_tiles = {made.get("tile"): made for made in reversed(near)}  # of each tile its fastest
            nearest = sorted(of_tiles.values(), key=near.index)[:TILES_TRIED]
            finer = (self._finer(made, wanted, seldom) for made in nearest)
            best = list(dict.fromkeys([*filter(None, finer), *best]))
        played = sorted(map(self.played, best), key=lambda estimate: estimate.time_s)
        return [next(same) for _, same in groupby(played, key=_TieNumbers())][:PLAYED_OF_SCHEME]

    def _finer(self, around: Schedule, wanted: Container[str], seldom: Sequence[str]) -> Schedule | None:
        """The fastest schedule that differs from *around* in the axes *seldom* alone."""
        crossed, seconds = self._around(around, wanted, seldom)
        return next((made for _, made in self.fastest(around.scheme, crossed, seconds)), None)

    def _around(self, schedule: Schedule, wanted: Container[str],
                seldom: Sequence[str]) -> tuple[dict[str, np.ndarray], np.ndarray]:  # fmt: skip
        """`at` the points that differ from *schedule* in the axes *seldom* alone, of those *wanted*."""
        values_of = {name: (value,) for name, value in schedule.axes if name in wanted}
        values_of |= {name: (EVERY,) for name in seldom if name in values_of}
        return self.at(Choice(schedule.scheme, tuple(values_of.items())))

    def _legal(self, scheme: str, crossed: Mapping[str, np.ndarray], number: int) -> tuple[int, Schedule | None]:
        """Point *number* as a schedule; None where the scheme refuses it or the ranks' backend does not run it."""
        point = {name: column[number].item() for name, column in crossed.items()}
        wanted = axis_rules.effective(self.problem, Schedule(scheme, tuple(point.items())), self.machine.backend)
        try:
            legal = schedule(self.problem, scheme, dict(wanted.axes), self.machine, self.fabric)
        except Refusal:
            return number, None
        return number, legal if self._runs(legal) else None

    def played(self, schedule: Schedule) -> Estimate:
        """The estimate of *schedule* by playing its plan."""
        trial = Trial(problem=self.problem, schedule=schedule, backend=self.machine.backend, machine=self.machine.name,
                      fabric=self.fabric, protocol=self.protocol)  # fmt: skip
        return predict(trial, self.machine, with_spans=False)

    def alike(self, estimate: Estimate, space: Space) -> dict[str, tuple[Value, ...]]:
        """The other values in *space*, by axis, that leave *estimate* unchanged."""
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
                and abs(near / estimate.time_s - 1) < CLOSED_FORM_ERROR_MOST
                and _are_equal(self.played(other).time_s, estimate.time_s)
            ):
                yield value
