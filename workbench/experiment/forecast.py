"""What a run has before it: how much of it is known, how many blocks are left, and how long they take about.

One arithmetic for the sentence before Run, the progress of explorer and command line, and the deadline of a grant.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import fsum, inf, isfinite, prod
from typing import Any

import numpy as np

from cluster.hosts import local_ranks
from cluster.seating import Ranks
from kernels.backends.capabilities import MeasuringRanks
from kernels.backends.triton.recipes import AXES, compilations
from kernels.fabric import Fabric
from kernels.hardware import Execution
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Schedule, Value
from kernels.schemes import BASELINE
from kernels.schemes.axis_rules import DECIDED_BY
from kernels.schemes.concurrent import MICRO_BATCHES, problems
from kernels.trial import Protocol, Trial
from kernels.units import about
from workbench.experiment.experiment import (
    LONGEST_SECONDS,
    RESOLVING,
    BaselinePlan,
    Block,
    Experiment,
    compute_alone,
    fit,
    has_parts,
    order,
)
from workbench.experiment.links import known_link
from workbench.experiment.space import MOST_POINTS, Choice, columns, once, values
from workbench.results.comparison import MAX_BLOCK_SCHEDULES
from workbench.results.store import Store
from workbench.simulator.closed_form import grid
from workbench.simulator.closed_form.points import Floats
from workbench.simulator.predict import compute_alone_seconds

# How long trials take on the ranks' clock, set-up and all: from the closed form, before anything is measured.

SETTING_UP_SECONDS = {"cpu": 0.08, "triton": 0.4}
"""Operands, compilation and verification of one trial on a warm gang. CPU ranks as found on two cores; GPU ranks on an
H100's host (2026-11-22): 12 trials of six tiles took 4.8 s beside their timing, timelines included."""
ROUND_SECONDS = {"cpu": 0.0, "triton": 5e-3}
"""What a sample takes beside one call: GPU ranks replay a graph of some milliseconds (12 x 18 samples took 1.2 s)."""
PREPARING_SECONDS = 0.01
"""The share of setting up that all trials of a block take one after the other, in silence."""
OPERAND_BYTES_PER_SECOND = 5e8
"""Random operands are made at this speed by one core."""
UNKNOWN_ITERATION_SECONDS = 1.5
"""Of a trial that cannot be estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTime:
    """Of a list of trials, as far as it can be estimated."""

    total_s: float
    """Of all trials."""
    silent_s: float
    """The longest single stage, in which a rank has nothing to report: one iteration, or the making of operands."""


def expected(trials: Sequence[Trial], iterations_s: Sequence[float | None]) -> ExpectedTime:
    """Of *trials*, one iteration of each of which takes *iterations_s*; None where nobody knows."""
    known = [(seconds or 0.0) * rounds(trial.protocol) for seconds, trial in zip(iterations_s, trials, strict=True)]
    slowest_s = max((UNKNOWN_ITERATION_SECONDS if one is None else one for one in iterations_s), default=0.0)
    making_s = max(map(_making_s, {trial.problem for trial in trials}), default=0.0)
    set_up_s = max((SETTING_UP_SECONDS[trial.backend] for trial in trials), default=0.0)
    beginning_s = making_s + set_up_s + PREPARING_SECONDS * len(trials)
    overheads_s = sum(overhead_s(trial.backend, trial.protocol) for trial in trials)
    return ExpectedTime(total_s=sum(known) + overheads_s, silent_s=max(slowest_s, beginning_s))


def rounds(protocol: Protocol) -> int:
    """How often a trial is called: verified, warmed up, timed."""
    return 1 + protocol.warmups + protocol.repeats


def overhead_s(backend: str, protocol: Protocol) -> float:
    """What a trial takes beside its calls."""
    return SETTING_UP_SECONDS[backend] + ROUND_SECONDS[backend] * rounds(protocol)


def _making_s(problem: Problem) -> float:
    """A rank makes its own operands, and those of all for the reference."""
    shapes = OPERATORS[problem.operator].local(problem).values()
    return (1 + problem.world) * problem.itemsize * sum(map(prod, shapes)) / OPERAND_BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class Durations:
    """One call of each trial of one problem over one resolved link."""

    problem: Problem
    fabric: Fabric
    machine: Machine = field(hash=False)

    def whole_s(self, schedules: Sequence[Schedule]) -> list[float]:
        """One problem by each of many schedules; not finite where the closed form finds one illegal."""
        seconds = np.full(len(schedules), np.inf)
        alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for number, one in enumerate(schedules):
            alike.setdefault((one.scheme, tuple(name for name, _ in one.axes)), []).append(number)
        for (scheme, names), numbers in alike.items():
            columns = {name: np.array([schedules[number][name] for number in numbers]) for name in names}
            seconds[numbers] = grid.times(self.problem, scheme, columns, self.machine, self.fabric)
        return [float(one) for one in np.nan_to_num(seconds, nan=np.inf)]

    def compute_s(self, tile: object) -> float:
        """The computation alone with *tile*: what the sequential schedule takes without its communication."""
        return _compute_s(self, tile)

    @property
    def communication_s(self) -> float:
        """The communication of the sequential schedule alone."""
        return _communication_s(self)

    def sequential_s(self, tile: object) -> float:
        """Computation, then communication."""
        return self.compute_s(tile) + self.communication_s

    def of(self, trials: Iterable[Trial]) -> list[float | None]:
        """One call of each of *trials*; None where it cannot be estimated."""
        given = list(trials)
        wholes = list(dict.fromkeys(trial.schedule for trial in given if trial.part == "whole"))
        whole_s = dict(zip(wholes, self.whole_s(wholes), strict=True))
        return [_finite(self._of(trial, whole_s) * problems(trial.schedule)) for trial in given]

    def _of(self, trial: Trial, whole_s: dict[Schedule, float]) -> float:
        match trial.part:
            case "compute":
                return self.compute_s(trial.schedule["tile"])
            case "communication":
                return self.communication_s
        return whole_s[trial.schedule]


def _finite(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None


@lru_cache(maxsize=1024)
def _sequential_s(of: Durations, tile: object) -> float:
    values = {} if tile is None else {"tile": np.array([tile])}
    return float(grid.times(of.problem, BASELINE, values, of.machine, of.fabric)[0])


@lru_cache(maxsize=1024)
def _compute_s(of: Durations, tile: object) -> float:
    usual_s = compute_alone_seconds(of.problem, of.machine, of.fabric)
    if of.problem.world == 1 or tile is None:
        return usual_s
    return max(0.0, _sequential_s(of, tile) - _communication_s(of))


@lru_cache(maxsize=256)
def _communication_s(of: Durations) -> float:
    if of.problem.world == 1:
        return 0.0
    return max(0.0, _sequential_s(of, None) - compute_alone_seconds(of.problem, of.machine, of.fabric))


# The legal points of a space as numbers: their estimates, and which of them share their compiled kernels.


@dataclass(frozen=True, slots=True)
class LegalPoints:
    """The legal points of one choice."""

    scheme: str
    lists: Mapping[str, tuple[Value, ...]]
    seconds: Floats
    """Of one problem."""
    problems: np.ndarray
    """In one call."""
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
        """The number of *schedule* among the legal points, or None."""
        if schedule.scheme != self.scheme or not all(self.lists.values()):
            return None
        named = {name: value for name in self.lists if (value := schedule.get(name)) is not None}
        if dict(schedule.axes).keys() - self.lists.keys() or self.lists.keys() - named.keys() - DECIDED_BY.keys():
            return None
        values = {name: some[0] for name, some in self.lists.items()} | named  # of what is not read: any
        if any(values[name] not in some for name, some in self.lists.items()):
            return None
        where = [some.index(values[name]) for name, some in self.lists.items()]
        number = int(np.ravel_multi_index(where, [len(some) for some in self.lists.values()])) if where else 0
        return place if (place := int(self.places[number])) >= 0 else None


@lru_cache(maxsize=32)
def legal(durations: Durations, choice: Choice, most: int, by_ranks: bool) -> LegalPoints:
    """The points of *choice* that are legal, or that ranks run; Refusal of more points than *most*."""
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    lists = values(choice, problem, machine, fabric, most, MeasuringRanks(machine, fabric) if by_ranks else None)
    if not all(lists.values()):
        return LegalPoints(choice.scheme, lists, np.zeros(0), np.zeros(0), [], np.zeros(0, dtype=int))
    crossed = columns(lists)
    seconds = grid.times(problem, choice.scheme, crossed, machine, fabric)
    is_legal = np.isfinite(seconds) & once(problem, choice.scheme, crossed, machine)
    places = np.where(is_legal, np.cumsum(is_legal) - 1, -1)
    count = crossed.get(MICRO_BATCHES, np.ones(len(seconds), dtype=int))[is_legal]
    return LegalPoints(choice.scheme, lists, seconds[is_legal], count, crossed["tile"][is_legal].tolist(), places)


def all_forms(choices: Sequence[LegalPoints]) -> np.ndarray:
    """Of all legal points, choice by choice: a number that those share whose kernels are compiled alike."""
    each = [one.forms() for one in choices]
    ends = np.cumsum([0, *(int(some.max()) + 1 if len(some) else 0 for some in each)])
    return np.concatenate([some + start for some, start in zip(each, ends, strict=False)])


# How long kernels take to compile that were not compiled before: each once, for whichever trial comes first.

SECONDS = {"send": 0.7, "send and sum": 2.8, "receive": 1.7, "gemv": 0.8, "lookup": 0.4, "pieces": 1.2}
"""One kernel of each family, for sm_90 on one core, as measured on 2026-11-22; pieces on 2026-11-23. The form that is
watched takes as long."""


class CompiledKernels:
    """The kernels that ranks have: those that they have compiled in a run, and those of what is known from before."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._kernels = {one for trial in trials for one in compilations(trial)}

    def add(self, trials: Iterable[Trial]) -> None:
        """*trials* were compiled."""
        self._kernels |= {one for trial in trials for one in compilations(trial)}

    def seconds(self, trials: Sequence[Trial], before: Sequence[Trial] = ()) -> float:
        """What is to be compiled for *trials* after those *before* them; ranks of one host share the work."""
        needed = {one: trial.world for trial in trials for one in compilations(trial)}
        had = {one for trial in before for one in compilations(trial)} if needed else set()
        return fsum(SECONDS[one.family] / world for one, world in needed.items()
                    if one not in self._kernels and one not in had)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FirstNeeded:
    """Seconds to compile what is new to the ranks: each kernel counts where it is needed first."""

    base_s: float
    """Of the baseline, when it is all that is measured."""
    own_s: tuple[float, ...]
    """Of each schedule."""
    beside_s: tuple[float, ...]
    """Of the parts beside each schedule; before the first of them also of the baseline."""

    def seconds(self, some: slice) -> float:
        """Of the blocks that hold *some* schedules."""
        return sum(self.own_s[some]) + sum(self.beside_s[some])


def first_needed(
    compiled: CompiledKernels, around: BaselinePlan, forms: Sequence[int], trial: Callable[[int], Trial]
) -> FirstNeeded:
    """Of schedules in order: *trial* makes one by its place. Those of one form are compiled alike: its first counts."""
    base_s = compiled.seconds(around.block([around.base]).trials)
    own_s, beside_s = [0.0] * len(forms), [0.0] * len(forms)
    firsts: dict[int, int] = {}
    for place, form in enumerate(forms):
        firsts.setdefault(form, place)
    for place in firsts.values():
        one = trial(place)
        others = around.block([one]).trials
        own_s[place] = compiled.seconds([one])
        beside_s[place] = compiled.seconds(others, [one])
        compiled.add(others)
    return FirstNeeded(base_s, tuple(own_s), tuple(beside_s))


# The blocks that a run has before it: how many, of how many trials, and how long they take about.


@dataclass(frozen=True, slots=True)
class WorkTotals:
    """Some blocks, added up."""

    blocks: int = 0
    trials: int = 0
    overhead_s: float = 0.0
    calls_s: float = 0.0
    """As estimated: what was measured lately corrects it."""

    def seconds(self, correction: float = 1.0) -> float:
        return self.overhead_s + correction * self.calls_s

    def and_also(self, more: WorkTotals) -> WorkTotals:
        return WorkTotals(self.blocks + more.blocks, self.trials + more.trials, self.overhead_s + more.overhead_s,
                   self.calls_s + more.calls_s)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
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

    def cut(self, position: int = 0, correction: float = 1.0) -> WorkTotals:
        """The blocks from schedule number *position* on."""
        if position < 0:
            return self._first().and_also(self.cut(0, correction))
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        base_s, whole_s, tiles = self.base_s, self.whole_s, self.tiles
        total = (
            WorkTotals(1, len(base_s), len(base_s) * overhead + self._compiling_s(None), calls * sum(base_s))
            if self.base_alone and not position
            else WorkTotals()
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
        return WorkTotals(blocks, trials, trials * overhead + compiled_s, called_s)

    def fits(self, position: int, correction: float = 1.0) -> int:
        """How many schedules the block from number *position* on holds."""
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        beside_s = [*self.base_s, *self._others_s(self.tiles[position : position + 1], each)]
        baselines_s = len(beside_s) * overhead + correction * calls * sum(beside_s)
        costs_s = [
            overhead + correction * calls * one for one in self.whole_s[position : position + MAX_BLOCK_SCHEDULES]
        ]
        if self.compiling is not None:
            baselines_s += self.compiling.beside_s[position]
            costs_s = [cost + self.compiling.own_s[position + number] for number, cost in enumerate(costs_s)]
        return fit(costs_s, baselines_s, longest(self.experiment, len(self.whole_s)))

    def _compiling_s(self, some: slice | None) -> float:
        """Of the blocks that hold *some* schedules, or of one with the baseline alone."""
        if self.compiling is None:
            return 0.0
        return self.compiling.base_s if some is None else self.compiling.seconds(some)

    def _first(self) -> WorkTotals:
        count, protocol = len(self.first_s), self.experiment.protocol
        overheads_s = count * overhead_s(self.experiment.backend, protocol) + self.first_compiling_s
        return WorkTotals(1, count, overheads_s, rounds(protocol) * sum(self.first_s))

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
    return inf if experiment.together or (experiment.fresh and count <= MAX_BLOCK_SCHEDULES) else LONGEST_SECONDS


# How long a run still takes: what is left of its blocks, at the pace that it has, told without jumps.

PRIOR_SECONDS = 3.0
"""So much of a run must be done before its own pace counts for as much as what was expected."""
PRIOR_SHARE = 0.1
"""The same for a long run, as a share of it."""
MOST_GROWTH = 1.5
"""What is told grows or shrinks at most by this factor in a second, whatever turns out."""
LEAST_SECONDS = 1.0
"""What is told may always grow from here: nobody counts parts of a second."""


class TimeLeft:
    """A run tells it of blocks and samples; anybody may ask it, from any thread."""

    def __init__(
        self, ahead: Sequence[RemainingWork], starting_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """*starting_s*: what ranks of one's own take to start, from now on."""
        self._ahead, self._clock = ahead, clock
        self._started_at = clock() + starting_s
        """When the ranks are expected to begin."""
        self._lock = threading.Lock()
        self._left = [one.cut(one.start) for one in ahead]
        self._resolving_s = sum(one.resolving_s() for one in ahead)
        self._at = 0, self._start(0)
        """The problem, and the number of its schedule that the next block begins with; -1: all baselines."""
        self.correction = 1.0
        """Measured over estimated time of a call, lately."""
        self.block = 0
        """The number of the block that is timed now, or was last."""
        self._done = WorkTotals()
        self._now: _RunningBlock | None = None
        self._first_at: float | None = None
        self._opening_s: float | None = None
        """What passed before the ranks began, who start and open their benches once."""
        self._told: tuple[float, float] | None = None

    @property
    def blocks(self) -> int:
        """All blocks of the run, as far as they can be counted now."""
        return self.block + sum(cut.blocks for cut in self._left)

    def begin(self, problem: int, cut: WorkTotals, schedules: int, samples: int, timed: float) -> None:
        """A block of *cut* begins: so many schedules that were left, so many samples in all, and which share of the
        calls is *timed*. A block that runs again has none that were left."""
        with self._lock:
            now = self._clock()
            self._first_at = self._first_at or now
            self.block += 1
            self._resolving_s = 0.0
            start = self._at[1] if self._at[0] == problem else self._start(problem)
            self._at = problem, start + schedules
            self._count_left()
            begins_at = now if self._opening_s is not None else max(now, self._started_at)
            self._now = _RunningBlock(cut, begins_at, samples, timed)

    def sample(self) -> None:
        """One came back of the block that is timed."""
        running = self._now
        self._opens(0.0 if running is None else running.before_sample_s(self.correction))
        if running is not None:
            running.samples += 1

    def opened(self) -> None:
        """Ranks have begun, and compile."""
        if self._opening_s is None and self._now is not None:
            self._now.began_at = self._clock()
        self._opens(0.0)

    def _opens(self, expected_s: float) -> None:
        """Something came back, the first time after *expected_s* of work; what is resolved first counts as nothing."""
        if self._opening_s is None:
            passed_s = 0.0 if self._first_at is None else self._clock() - self._first_at
            self._opening_s = max(0.0, passed_s - expected_s)

    def end(self, correction: float) -> None:
        """The block is done; calls take *correction* times what was estimated."""
        with self._lock:
            self.correction = correction
            if self._now is not None:
                cut, done = self._now.cut, self._done
                self._done = WorkTotals(done.blocks + 1, done.trials + cut.trials, done.overhead_s + cut.overhead_s,
                                 done.calls_s + cut.calls_s)  # fmt: skip
            self._now = None
            self._count_left()

    def _start(self, problem: int) -> int:
        return self._ahead[problem].start if problem < len(self._ahead) else 0

    def _count_left(self) -> None:
        problem, position = self._at
        left = [WorkTotals()] * min(problem, len(self._ahead))
        if problem < len(self._ahead):
            left.append(self._ahead[problem].cut(position, self.correction))
        later = self._ahead[problem + 1 :]
        self._left = [*left, *(one.cut(one.start, self.correction) for one in later)] if self._ahead else []

    def _both(self, now: float) -> tuple[float, float]:
        """Seconds as expected: of what is done, and of what is left."""
        done_s = self._done.seconds(self.correction)
        left_s = self._resolving_s + sum(cut.seconds(self.correction) for cut in self._left) + self._starts_s(now)
        if self._now is not None:
            of_block_s = self._now.done_s(now, self.correction)
            done_s += of_block_s
            left_s += self._now.cut.seconds(self.correction) - of_block_s
        return done_s, left_s

    def _starts_s(self, now: float) -> float:
        """Of the start of the ranks, as long as nothing came back of them."""
        return max(0.0, self._started_at - now) if self._opening_s is None else 0.0

    def _spent_s(self, now: float) -> float:
        """With blocks, once the ranks had begun."""
        if self._first_at is None:
            return 0.0
        opening_s = max(0.0, self._started_at - self._first_at) if self._opening_s is None else self._opening_s
        return max(0.0, now - self._first_at - opening_s)

    def share(self) -> float:
        """How much of all is done."""
        with self._lock:
            done_s, left_s = self._both(self._clock())
            return done_s / (done_s + left_s) if done_s + left_s > 0 else 1.0

    def seconds(self) -> float:
        """What is to be told now."""
        with self._lock:
            now = self._clock()
            done_s, left_s = self._both(now)
            spent_s = self._spent_s(now)
            prior_s = max(PRIOR_SECONDS, PRIOR_SHARE * (done_s + left_s))
            found_s = left_s * (prior_s + spent_s) / (prior_s + done_s)
            if self._told is not None:
                told_at, told_s = self._told
                found_s = bounded(found_s, told_s, now - told_at)
            self._told = now, found_s
            return found_s


class _RunningBlock:
    """The block that is timed now."""

    def __init__(self, cut: WorkTotals, began_at: float, samples_due: int, timed: float) -> None:
        self.cut, self.began_at = cut, began_at
        self._samples_due, self._timed = samples_due, timed
        self.samples = 0

    def before_sample_s(self, correction: float) -> float:
        """What passes before the first sample: setting up, verifying, warming up."""
        return self.cut.overhead_s + correction * self.cut.calls_s * (1 - self._timed)

    def done_s(self, now: float, correction: float) -> float:
        """As expected; before its first sample it is taken to be on time."""
        before_s = self.before_sample_s(correction)
        if self.samples == 0:
            return min(max(0.0, now - self.began_at), before_s)
        share = min(1.0, self.samples / max(1, self._samples_due))
        return before_s + share * (self.cut.seconds(correction) - before_s)


def bounded(found_s: float, told_s: float, passed_s: float) -> float:
    """*found_s*, as far as it may be from the *told_s* that was told *passed_s* ago."""
    factor = MOST_GROWTH ** min(1.0, passed_s)
    least_s = max(0.0, told_s - passed_s) / factor
    return float(min(max(found_s, least_s), max(told_s, LEAST_SECONDS) * factor))


# What a run has before it: how much of it is known, how many blocks are left, and how long they take about.

COUNTED_MOST = 200_000
"""Points that are looked at while somebody moves a slider: ten milliseconds' worth."""


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
    ahead: tuple[RemainingWork, ...] = field(default=(), repr=False, compare=False)
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
                how: tuple[bool, int]) -> RemainingWork:  # fmt: skip
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


def _baseline_times(wholes: Sequence[Trial], store: Store, ran: Execution) -> frozenset[tuple[Schedule, float]]:
    """What the store knows of the baselines that GPU ranks choose from."""
    baselines = [trial for trial in wholes if trial.backend != "cpu" and trial.schedule.scheme == BASELINE]
    measured = ((trial.schedule, store.known(trial.key, ran)) for trial in baselines)
    return frozenset((schedule, known[0].time_s) for schedule, known in measured if known is not None)


def compiled_before(experiment: Experiment, problem: Problem, store: Store, ran: Execution | None) -> tuple[Trial, ...]:
    """What GPU ranks such as *ran* measured of *problem*: its kernels lie in files on their hosts."""
    return () if experiment.backend == "cpu" or ran is None else store.known_trials(problem, ran)


@lru_cache(maxsize=32)
def _ahead(experiment: Experiment, durations: Durations,
           before: tuple[frozenset[Schedule], frozenset[Trial], frozenset[tuple[Schedule, float]]],
           how: tuple[bool, bool, int]) -> RemainingWork:  # fmt: skip
    """Kept: a slider of a swept axis changes nothing here, and forty milliseconds are felt."""
    (known, compiled, times), (resolves, by_ranks, most) = before, how
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    choices = [legal(durations, choice, most, by_ranks) for choice in experiment.space.choices]
    seconds = np.concatenate([one.seconds for one in choices])
    tiles = list(chain.from_iterable(one.tiles for one in choices))
    schemes = list(chain.from_iterable([one.scheme] * len(one.seconds) for one in choices))
    starts = np.cumsum([0, *(len(one.seconds) for one in choices)])
    around = experiment.beside_tiles(problem, tiles, fabric, machine)

    def numbers(schedules: Iterable[Schedule]) -> set[int]:
        places = ((start, one.place(each)) for each in schedules for start, one in zip(starts, choices, strict=False))
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
    calls_s = seconds * np.concatenate([one.problems for one in choices])
    whole_s = calls_s[rest]

    def trial(place: int) -> Trial:
        choice = int(np.searchsorted(starts, rest[place], side="right")) - 1
        return experiment.trial(problem, choices[choice].schedule(rest[place] - int(starts[choice])), fabric)

    forms = [] if experiment.backend == "cpu" else all_forms(choices)[rest].tolist()
    if experiment.search.proposes and len(rest):  # which it will come to is not known yet
        whole_s = np.full(len(rest), calls_s.mean())
    before_first, in_first = CompiledKernels(compiled), first.trials if first else []
    first_compiling_s = before_first.seconds(in_first)
    before_first.add(in_first)
    return RemainingWork(
        durations=durations, experiment=experiment, base_tile=around.base.schedule["tile"],
        schedules=Counter(schemes[number] for number in measured), whole_s=tuple(whole_s.tolist()),
        tiles=tuple(around.tile_alone(trial(place).schedule) if schemes[number] == BASELINE else tiles[number]
                    for place, number in enumerate(rest)),
        base_alone=base_alone, resolves=resolves and len(seconds) > 0, known=len(chosen) - len(measured),
        compiling=None if experiment.backend == "cpu" else first_needed(before_first, around, forms, trial),
        base_s=_standing_s(around, durations), first_s=tuple(one or 0.0 for one in durations.of(in_first)),
        first_compiling_s=first_compiling_s,
    )  # fmt: skip


def _chosen(around: BaselinePlan, durations: Durations, known_s: Mapping[Schedule, float], *,
            missing: bool) -> tuple[BaselinePlan, Block | None]:  # fmt: skip
    """*around* with the baselines that will stand in every block, and the first block where they are not known."""
    if not around.legal:
        return around, None
    measured_s = {trial.key: known_s[trial.schedule] for trial in around.legal if trial.schedule in known_s}
    if len(measured_s) == len(around.legal):
        return around.chosen(measured_s), None
    guesses = durations.whole_s([trial.schedule for trial in around.legal])
    expected = around.chosen({trial.key: one for trial, one in zip(around.legal, guesses, strict=True)})
    return expected, around.first() if missing else None


def _standing_s(around: BaselinePlan, of: Durations) -> tuple[float, ...]:
    """One call of each that stands in every block."""
    if around.parts == "none":
        return ()
    if around.legal:
        stand = {trial.key: trial for trial in around.block(around.baselines).baselines}
        return tuple(one or 0.0 for one in of.of(stand.values()))
    tile = around.base.schedule["tile"]
    return of.compute_s(tile), of.sequential_s(tile), *([of.communication_s] if of.problem.world > 1 else [])
