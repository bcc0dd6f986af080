"""What a run has before it: how much of it is known, how many blocks are left, and how long they take about.

One arithmetic for the sentence before Run, the progress of explorer and command line, and the deadline of a grant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import inf
from typing import Any

import numpy as np

from cluster.devices import local_ranks
from cluster.seating import Ranks
from kernels.axes import Value
from kernels.backends.offers import Runner
from kernels.backends.triton.compilations import AXES
from kernels.machine import Machine
from kernels.prints import Ran
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE
from kernels.trial import Trial
from kernels.units import about
from workbench.blocks import LONGEST_SECONDS, MOST, Beside, Block, compute_alone, fit, has_parts
from workbench.compile_time import Compiled, FirstNeeded, first_needed
from workbench.durations import Durations, overhead_s, rounds
from workbench.experiment import RESOLVING, Experiment
from workbench.links import known_link
from workbench.search import order
from workbench.simulator import grid
from workbench.simulator.points import Floats
from workbench.space import MOST_POINTS, Choice, columns, once, values
from workbench.store import Store

COUNTED_MOST = 200_000
"""Points that are looked at while somebody moves a slider: ten milliseconds' worth."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Some blocks, added up."""

    blocks: int = 0
    trials: int = 0
    overhead_s: float = 0.0
    calls_s: float = 0.0
    """As estimated: what was measured lately corrects it."""

    def seconds(self, correction: float = 1.0) -> float:
        return self.overhead_s + correction * self.calls_s

    def and_also(self, more: Cut) -> Cut:
        return Cut(self.blocks + more.blocks, self.trials + more.trials, self.overhead_s + more.overhead_s,
                   self.calls_s + more.calls_s)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """The schedules of one problem that are to be measured, as numbers."""

    durations: Durations
    experiment: Experiment
    base_tile: Any
    schedules: Mapping[str, int]
    """How many of each scheme, the baseline counted where it was asked for."""
    known: int
    whole_s: tuple[float, ...]
    """One call of each, the baseline left out: it stands in every block."""
    tiles: tuple[Any, ...]
    base_alone: bool
    """Nothing but the baseline is to be measured."""
    compiling: FirstNeeded | None
    """Of kernels that the ranks do not have; None where nothing is compiled."""
    resolves: bool
    """The link is resolved first, with the computation alone."""
    base_s: tuple[float, ...] = ()
    """One call of each that stands in every block."""
    first_s: tuple[float, ...] = ()
    """One call of each trial of a first block of all baselines; empty where there is none."""
    first_compiling_s: float = 0.0

    @property
    def start(self) -> int:
        """The position of the first block: -1, where all baselines come before the schedules."""
        return -1 if self.first_s else 0

    @property
    def count(self) -> int:
        return sum(self.schedules.values())

    def cut(self, position: int = 0, correction: float = 1.0) -> Cut:
        """The blocks from schedule number *position* on."""
        if position < 0:
            return self._first().and_also(self.cut(0, correction))
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        base_s, whole_s, tiles = self.base_s, self.whole_s, self.tiles
        total = (
            Cut(1, len(base_s), len(base_s) * overhead + self._compiling_s(None), calls * sum(base_s))
            if self.base_alone and not position
            else Cut()
        )
        blocks, trials, called_s, compiled_s = total.blocks, total.trials, total.calls_s, total.overhead_s
        compiled_s -= trials * overhead
        while position < len(whole_s):
            end = position + self.fits(position, correction)
            alone_s = [*base_s, *self._others_s(tiles[position:end], each)]
            blocks += 1
            trials += len(alone_s) + end - position
            called_s += calls * (sum(alone_s) + sum(whole_s[position:end]))
            compiled_s += self._compiling_s(slice(position, end))
            position = end
        return Cut(blocks, trials, trials * overhead + compiled_s, called_s)

    def fits(self, position: int, correction: float = 1.0) -> int:
        """How many schedules the block from number *position* on holds."""
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        beside_s = [*self.base_s, *self._others_s(self.tiles[position : position + 1], each)]
        baselines_s = len(beside_s) * overhead + correction * calls * sum(beside_s)
        costs_s = [overhead + correction * calls * one for one in self.whole_s[position : position + MOST]]
        if self.compiling is not None:
            baselines_s += self.compiling.beside_s[position]
            costs_s = [cost + self.compiling.own_s[position + number] for number, cost in enumerate(costs_s)]
        return fit(costs_s, baselines_s, longest(self.experiment, len(self.whole_s)))

    def _compiling_s(self, some: slice | None) -> float:
        """Of the blocks that hold *some* schedules, or of one with the baseline alone."""
        if self.compiling is None:
            return 0.0
        return self.compiling.base_s if some is None else self.compiling.seconds(some)

    def _first(self) -> Cut:
        count, protocol = len(self.first_s), self.experiment.protocol
        overheads_s = count * overhead_s(self.experiment.backend, protocol) + self.first_compiling_s
        return Cut(1, count, overheads_s, rounds(protocol) * sum(self.first_s))

    def _others_s(self, tiles: Sequence[Any], each: bool) -> list[float]:
        """The computations alone of schedules with *tiles*, beside the baseline's."""
        if self.experiment.parts == "none":
            return []
        plain = [tile for tile in dict.fromkeys(tiles) if tile != self.base_tile]
        return [self.durations.compute_s(tile) for tile in (*plain, *(tiles if each else ()))]

    def resolving_s(self) -> float:
        """What timing the computation takes that a relative link is resolved with."""
        if not self.resolves:
            return 0.0
        alone_s = self.durations.compute_s(None)
        return overhead_s(self.experiment.backend, RESOLVING) + rounds(RESOLVING) * alone_s


def longest(experiment: Experiment, count: int) -> float:
    """How long a block of *experiment*, of *count* schedules, may be expected to take.

    What is compared together is not cut for time, nor are a few schedules that a person wants measured again.
    """
    return inf if experiment.together or (experiment.fresh and count <= MOST) else LONGEST_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run would do now."""

    schedules: Mapping[str, int]
    """How many of each scheme are to be measured, or simulated."""
    known: int = 0
    blocks: int = 0
    trials: int = 0
    """Schedules with the baselines and parts that are timed beside them."""
    samples: int = 0
    seconds: float | None = None
    """None where nothing is timed."""
    ahead: tuple[Ahead, ...] = field(default=(), repr=False, compare=False)
    """By problem: what the time left is counted from."""

    @property
    def count(self) -> int:
        return sum(self.schedules.values())

    def __str__(self) -> str:
        known = f"{self.known:,} known, " if self.known else ""
        if not self.count:
            return f"{known}nothing to measure.".capitalize()
        named = [f"{count:,} {scheme}" for scheme, count in self.schedules.items() if count]
        noun = "schedule" if self.count == 1 else "schedules"
        what = f"{named[0]} {noun}" if len(named) == 1 else f"{self.count:,} {noun} ({', '.join(named)})"
        if self.seconds is None:
            return f"{what}, nothing is timed."
        beside = self.trials - self.count
        baselines = f" and {beside:,} {'baseline' if beside == 1 else 'baselines'}" if beside else ""
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks:,} blocks"
        verb = "is" if self.trials == 1 else "are"
        return f"{known}{what}{baselines} in {blocks} {verb} measured, {about(self.seconds)}."


def forecast(experiment: Experiment, machine: Machine, store: Store, *, measured: bool = True,
             most: int = MOST_POINTS, ranks: Callable[[int, str], Ranks | None] = local_ranks) -> Forecast:  # fmt: skip
    """What a run of *experiment* on *machine* would do now; Refusal of more points than *most*.

    *ranks*: what so many ranks of a backend would run on, by default those of the local cluster.
    """
    by_world = {world: ranks(world, experiment.backend) for world in {each.world for each in experiment.problems}}
    ahead = [_of_problem(experiment, problem, (machine, by_world[problem.world]), store, (measured, most))
             for problem in experiment.problems]  # fmt: skip
    schedules = Counter[str]()
    for one in ahead:
        schedules.update(one.schedules)
    cuts = [one.cut(one.start) for one in ahead]
    repeats = experiment.protocol.repeats
    resolving = sum(one.durations.problem.world for one in ahead if one.resolves) * RESOLVING.repeats
    timed = zip(cuts, ahead, strict=True)
    return Forecast(
        schedules=dict(schedules), known=sum(one.known for one in ahead), blocks=sum(cut.blocks for cut in cuts),
        trials=sum(cut.trials for cut in cuts), ahead=tuple(ahead),
        samples=resolving + sum(cut.trials * repeats * one.durations.problem.world for cut, one in timed),
        seconds=sum(cut.seconds() for cut in cuts) + sum(one.resolving_s() for one in ahead) if measured else None,
    )  # fmt: skip


def _of_problem(experiment: Experiment, problem: Problem, where: tuple[Machine, Ranks | None], store: Store,
                how: tuple[bool, int]) -> Ahead:  # fmt: skip
    (machine, ranks), (measured, most) = where, how
    hardware = ranks.hardware if ranks else None
    fabric = known_link(experiment.fabric, problem, machine, store, hardware)
    durations = Durations(problem, fabric, machine)
    known: frozenset[Schedule] = frozenset()
    times: frozenset[tuple[Schedule, float]] = frozenset()
    if measured and not experiment.fresh and ranks is not None:
        trials = frozenset(store.known_trials(problem, ranks.ran(experiment.backend)))
        wholes = [trial for trial in trials if trial == experiment.trial(problem, trial.schedule, fabric)]
        known = frozenset(trial.schedule for trial in wholes if experiment.parts != "each"
                          or not has_parts(trial) or compute_alone(trial) in trials)  # fmt: skip
        times = _baseline_times(wholes, store, ranks.ran(experiment.backend))
    resolves = measured and not experiment.fabric.resolved and (
        experiment.fresh or store.compute_seconds(machine.name, problem, hardware) is None)  # fmt: skip
    ran = ranks.ran(experiment.backend) if measured and ranks else None
    compiled = frozenset(compiled_before(experiment, problem, store, ran))
    before = known, compiled, times
    return _ahead(replace(experiment, problems=(), title=""), durations, before, (resolves, measured, most))


def _baseline_times(wholes: Sequence[Trial], store: Store, ran: Ran) -> frozenset[tuple[Schedule, float]]:
    """What the store knows of the baselines that GPU ranks choose from."""
    found = {trial.schedule: store.known(trial.key, ran) for trial in wholes
             if trial.backend != "cpu" and trial.schedule.scheme == BASELINE}  # fmt: skip
    return frozenset((asked, known[0].time_s) for asked, known in found.items() if known is not None)


def compiled_before(experiment: Experiment, problem: Problem, store: Store, ran: Ran | None) -> tuple[Trial, ...]:
    """What GPU ranks such as *ran* measured of *problem*: its kernels lie in files on their hosts."""
    return () if experiment.backend == "cpu" or ran is None else store.known_trials(problem, ran)


@lru_cache(maxsize=32)
def _ahead(experiment: Experiment, durations: Durations,
           before: tuple[frozenset[Schedule], frozenset[Trial], frozenset[tuple[Schedule, float]]],
           how: tuple[bool, bool, int]) -> Ahead:  # fmt: skip
    """Kept: a slider of a swept axis changes nothing here, and forty milliseconds are felt."""
    (known, compiled, times), (resolves, by_ranks, most) = before, how
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    legal = [_legal(durations, choice, most, by_ranks) for choice in experiment.space.choices]
    seconds = np.concatenate([one.seconds for one in legal])
    tiles = list(chain.from_iterable(one.tiles for one in legal))
    schemes = list(chain.from_iterable([one.scheme] * len(one.seconds) for one in legal))
    starts = np.cumsum([0, *(len(one.seconds) for one in legal)])
    around = experiment.beside_tiles(problem, tiles, fabric, machine)

    def numbers(schedules: Iterable[Schedule]) -> set[int]:
        places = ((start, one.place(each)) for each in schedules for start, one in zip(starts, legal, strict=False))
        return {int(start) + place for start, place in places if place is not None}

    chosen = order(experiment.search, len(seconds), lambda: seconds.tolist())
    is_known = numbers(known)
    if experiment.together and not is_known.issuperset(chosen):
        is_known = set()
    around, first = _chosen(around, durations, dict(times), missing=by_ranks and not is_known.issuperset(chosen))
    firsts = numbers(trial.schedule for trial in first.schedules) if first else set()
    bases = numbers(trial.schedule for trial in around.baselines) if experiment.parts != "none" else set()
    rest = [number for number in chosen if number not in is_known | bases | firsts]
    asked_bases = [number for number in chosen if number in bases | firsts]
    base_alone = not first and not rest and any(number not in is_known for number in asked_bases)
    measured = [*asked_bases, *rest] if rest or base_alone or first else []
    whole_s = seconds[rest]

    def trial(place: int) -> Trial:
        choice = int(np.searchsorted(starts, rest[place], side="right")) - 1
        return experiment.trial(problem, legal[choice].schedule(rest[place] - int(starts[choice])), fabric)

    forms = [] if experiment.backend == "cpu" else _forms(legal)[rest].tolist()
    if experiment.search.proposes and len(rest):  # which it will come to is not known yet
        whole_s = np.full(len(rest), seconds.mean())
    before_first, in_first = Compiled(compiled), first.trials if first else []
    first_compiling_s = before_first.seconds(in_first)
    before_first.add(in_first)
    return Ahead(
        durations=durations, experiment=experiment, base_tile=around.base.schedule["tile"],
        schedules=Counter(schemes[number] for number in measured), whole_s=tuple(whole_s.tolist()),
        tiles=tuple(around.tile_alone(trial(place).schedule) if schemes[number] == BASELINE else tiles[number]
                    for place, number in enumerate(rest)),
        base_alone=base_alone, resolves=resolves and len(seconds) > 0, known=len(chosen) - len(measured),
        compiling=None if experiment.backend == "cpu" else first_needed(before_first, around, forms, trial),
        base_s=_standing_s(around, durations), first_s=tuple(one or 0.0 for one in durations.of(in_first)),
        first_compiling_s=first_compiling_s,
    )  # fmt: skip


def _chosen(around: Beside, durations: Durations, known_s: Mapping[Schedule, float], *,
            missing: bool) -> tuple[Beside, Block | None]:  # fmt: skip
    """*around* with the baselines that will stand in every block, and the first block where they are not known."""
    if not around.legal:
        return around, None
    found = {trial.key: known_s[trial.schedule] for trial in around.legal if trial.schedule in known_s}
    if len(found) == len(around.legal):
        return around.chosen(found), None
    guesses = durations.whole_s([trial.schedule for trial in around.legal])
    expected = around.chosen({trial.key: one for trial, one in zip(around.legal, guesses, strict=True)})
    return expected, around.first() if missing else None


def _standing_s(around: Beside, of: Durations) -> tuple[float, ...]:
    """One call of each that stands in every block."""
    if around.parts == "none":
        return ()
    if around.legal:
        stand = {trial.key: trial for trial in around.block(around.baselines).baselines}
        return tuple(one or 0.0 for one in of.of(stand.values()))
    tile = around.base.schedule["tile"]
    return of.compute_s(tile), of.sequential_s(tile), *([of.communication_s] if of.problem.world > 1 else [])


def _forms(legal: Sequence[_Legal]) -> np.ndarray:
    """Of all legal points, choice by choice: a number that those share whose kernels are compiled alike."""
    each = [one.forms() for one in legal]
    ends = np.cumsum([0, *(int(some.max()) + 1 if len(some) else 0 for some in each)])
    return np.concatenate([some + start for some, start in zip(each, ends, strict=False)])


@dataclass(frozen=True, slots=True)
class _Legal:
    """The legal points of one choice."""

    scheme: str
    lists: Mapping[str, tuple[Value, ...]]
    seconds: Floats
    tiles: list[Any]
    places: np.ndarray
    """Of every combination: its number among the legal ones, or -1."""

    def _indices(self) -> tuple[np.ndarray, ...]:
        """Of every legal point: by axis, the number of its value."""
        return np.unravel_index(np.flatnonzero(self.places >= 0), [len(some) for some in self.lists.values()])

    def forms(self) -> np.ndarray:
        """Of every legal point: a number that those share whose kernels are compiled alike."""
        form = np.zeros(len(self.seconds), dtype=np.int64)
        if not len(form):
            return form
        for (name, some), index in zip(self.lists.items(), self._indices(), strict=True):
            form = form * len(some) + index if name in AXES else form
        return form

    def schedule(self, place: int) -> Schedule:
        """The legal point number *place*."""
        indices = self._indices()
        named = zip(self.lists.items(), indices, strict=True)
        return Schedule(self.scheme, tuple((name, some[int(index[place])]) for (name, some), index in named))

    def place(self, schedule: Schedule) -> int | None:
        if schedule.scheme != self.scheme or not all(self.lists.values()):
            return None
        named = {name: value for name in self.lists if (value := schedule.get(name)) is not None}
        if dict(schedule.axes).keys() - self.lists.keys() or not {"slice_tiles"} >= self.lists.keys() - named.keys():
            return None
        values = {name: some[0] for name, some in self.lists.items()} | named  # of what is not read: any
        if any(values[name] not in some for name, some in self.lists.items()):
            return None
        where = [some.index(values[name]) for name, some in self.lists.items()]
        number = int(np.ravel_multi_index(where, [len(some) for some in self.lists.values()])) if where else 0
        return place if (place := int(self.places[number])) >= 0 else None


@lru_cache(maxsize=32)
def _legal(durations: Durations, choice: Choice, most: int, by_ranks: bool) -> _Legal:
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    lists = values(choice, problem, machine, fabric, most, Runner(machine, fabric) if by_ranks else None)
    if not all(lists.values()):
        return _Legal(choice.scheme, lists, np.zeros(0), [], np.zeros(0, dtype=int))
    crossed = columns(lists)
    seconds = grid.times(problem, choice.scheme, crossed, machine, fabric)
    is_legal = np.isfinite(seconds) & once(problem, choice.scheme, crossed, machine)
    places = np.where(is_legal, np.cumsum(is_legal) - 1, -1)
    return _Legal(choice.scheme, lists, seconds[is_legal], crossed["tile"][is_legal].tolist(), places)
