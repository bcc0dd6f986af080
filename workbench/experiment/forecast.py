"""The forecast of a run: how much of it is known, how many blocks remain, and about how long they take.

The message before Run, the progress of explorer and command line, and the deadline of a grant share this arithmetic.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, pairwise
from math import fsum, inf, isfinite, prod
from typing import Any

import numpy as np

from cluster.cpu_use import SHORTEST_S
from cluster.hosts import local_ranks
from cluster.seating import Ranks
from kernels.backends.capabilities import MeasuringRanks
from kernels.backends.triton.recipes import AXES, compilations
from kernels.fabric import SLICE_SECONDS, Fabric
from kernels.hardware import Execution, Hardware
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import Schedule, Value
from kernels.schemes import BASELINE
from kernels.schemes.axis_rules import DECIDED_BY
from kernels.schemes.concurrent import MICRO_BATCHES, problems
from kernels.steady import TURNS
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
from workbench.experiment.space import MOST_POINTS, Choice, columns, first_occurrences, values
from workbench.results.comparison import MAX_BLOCK_SCHEDULES
from workbench.results.store import Store
from workbench.simulator.closed_form import grid
from workbench.simulator.closed_form.points import Floats
from workbench.simulator.predict import compute_alone_seconds

# Durations of trials on the ranks' clock, including set-up: from the closed form, before anything is measured.

SETTING_UP_SECONDS = {"cpu": 0.02, "triton": 0.4}
"""Set-up of one trial on ready ranks. CPU ranks without verification, which `Durations` has; GPU ranks with it, on an
H100's host (2026-11-22): 12 trials of six tiles took 4.8 s in addition to their timing, timelines included."""
GRANT_SECONDS = {"cpu": 0.1, "triton": 0.0}
"""Seconds of each block before its trials and after them. GPU ranks have them in SETTING_UP_SECONDS."""
ROUND_SECONDS = {"cpu": 0.0, "triton": 5e-3}
"""Seconds of a sample in addition to one call: GPU ranks replay a graph of some milliseconds (12 x 18 samples took 1.2
s)."""
PREPARING_SECONDS = 0.01
"""Seconds of set-up per trial that all trials of a block take one after the other, while the ranks report nothing."""
OPERAND_BYTES_PER_SECOND = 5e8
"""The rate at which one core makes random operands in fresh memory: 0.4 to 1.2 GB/s on an EPYC's core, 2026-11-24."""
COMPARED_PER_SECOND = 1e8
"""Elements of a result that one core compares with the reference: 45 to 200 million on the same core."""
CONVERTED_BYTES_PER_SECOND = 4e9
"""The rate at which one core converts operands to float64 for the reference."""
DOUBLE = 2.0
"""A product in float64, as the reference computes it, takes this many times as long as in float32."""
UNKNOWN_ITERATION_SECONDS = 1.5
"""Seconds of one iteration of a trial that cannot be estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTime:
    """The expected seconds of a list of trials."""

    total_s: float
    """All trials together."""
    silent_s: float
    """The longest single stage in which a rank reports nothing: one iteration, or the making of operands."""


def expected(trials: Sequence[Trial], iterations_s: Sequence[float | None]) -> ExpectedTime:
    """The expected time of *trials*, whose iterations take *iterations_s*; None where unknown."""
    known = [(seconds or 0.0) * rounds(trial.protocol) for seconds, trial in zip(iterations_s, trials, strict=True)]
    slowest_s = max(
        (UNKNOWN_ITERATION_SECONDS if seconds is None else seconds for seconds in iterations_s), default=0.0
    )
    making_s = max(map(_making_s, {trial.problem for trial in trials}), default=0.0)
    set_up_s = max((SETTING_UP_SECONDS[trial.backend] for trial in trials), default=0.0)
    beginning_s = making_s + set_up_s + PREPARING_SECONDS * len(trials)
    overheads_s = sum(overhead_s(trial.backend, trial.protocol) for trial in trials)
    return ExpectedTime(total_s=sum(known) + overheads_s, silent_s=max(slowest_s, beginning_s))


def rounds(protocol: Protocol) -> int:
    """The number of calls of a trial: to verify, to warm up, to time."""
    return 1 + protocol.warmups + protocol.repeats


def overhead_s(backend: str, protocol: Protocol) -> float:
    """Seconds that a trial takes in addition to its calls."""
    return SETTING_UP_SECONDS[backend] + ROUND_SECONDS[backend] * rounds(protocol) + TURNS * protocol.load_seconds


def _making_s(problem: Problem) -> float:
    """Seconds in which a rank makes its own operands, and those of all ranks for the reference."""
    return (1 + problem.world) * _operand_bytes(problem) / OPERAND_BYTES_PER_SECOND


def _operand_bytes(problem: Problem) -> float:
    """Bytes of one rank's operands."""
    shapes = OPERATORS[problem.operator].local(problem)
    return problem.itemsize * sum(prod(shape) for name, shape in shapes.items() if name != "output")


def crowd(hardware: Hardware | None) -> float:
    """How many ranks of *hardware* share one core, at least 1."""
    cores = None if hardware is None else hardware.cores
    return max(1.0, 1 / cores) if cores else 1.0


def crowded(machine: Machine, crowd: float) -> Machine:
    """*machine* whose ranks share each core with *crowd* in all: they compute and copy as much more slowly.

    Emulated links are as fast as before: their bytes take no core.
    """
    if crowd == 1.0:
        return machine
    device, costs = machine.device, machine.costs
    return replace(
        machine,
        device=replace(
            device, memory_bytes_per_second=device.memory_bytes_per_second / crowd,
            matrix_flops_per_second={name: flops / crowd for name, flops in device.matrix_flops_per_second.items()}),
        costs=replace(costs, step_seconds=costs.step_seconds * crowd, tile_seconds=costs.tile_seconds * crowd,
                      signal_seconds=costs.signal_seconds * crowd, barrier_seconds=costs.barrier_seconds * crowd),
        rates=tuple(replace(rate, per_second=rate.per_second / crowd) for rate in machine.rates),
        dimensions=tuple(replace(each, bandwidth_bytes_per_second=each.bandwidth_bytes_per_second / crowd)
                         for each in machine.dimensions),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Durations:
    """Estimated seconds of one call of any trial of one problem over one resolved link."""

    problem: Problem
    fabric: Fabric
    machine: Machine = field(hash=False)
    crowd: float = 1.0
    """Ranks that share one core; *machine* is already slower by it (`crowded`)."""

    @property
    def reference_s(self) -> float:
        """Seconds in which a CPU rank draws its operands, and computes its references; 0 for GPU ranks.

        Lookups have two, for both sets of their indices; the reference of products is scaled.
        """
        if self.machine.backend != "cpu":
            return 0.0
        problem, operator = self.problem, OPERATORS[self.problem.operator]
        flops = operator.flops(problem) * (problem.world if operator.flow is Flow.BROADCAST else 1)
        products_s = DOUBLE * flops / self.machine.device.matrix_flops_per_second["float32"]
        converted_s = problem.world * _operand_bytes(problem) / CONVERTED_BYTES_PER_SECOND
        sets = 2 if operator.work == "gather" else 1
        return sets * (_making_s(problem) * self.crowd + products_s + converted_s * self.crowd)

    def verifying_s(self, count: int = 1) -> float:
        """Seconds in which a CPU rank compares the results of *count* micro-batches of a whole trial.

        The reference of products is kept and scaled. Lookups have other indices in each micro-batch, and so another
        reference; those of a single one are kept.
        """
        if self.machine.backend != "cpu":
            return 0.0
        operator = OPERATORS[self.problem.operator]
        compared_s = prod(operator.local(self.problem)["output"]) / COMPARED_PER_SECOND * self.crowd
        looks_up_again = operator.work == "gather" and count > 1
        return count * (compared_s + (self.reference_s / 2 if looks_up_again else 0.0))

    def whole_s(self, schedules: Sequence[Schedule]) -> list[float]:
        """Seconds of one problem by each of *schedules*; infinite where the closed form refuses the schedule."""
        seconds = np.full(len(schedules), np.inf)
        alike: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for number, schedule in enumerate(schedules):
            alike.setdefault((schedule.scheme, tuple(name for name, _ in schedule.axes)), []).append(number)
        for (scheme, names), numbers in alike.items():
            columns = {name: np.array([schedules[number][name] for number in numbers]) for name in names}
            seconds[numbers] = grid.times(self.problem, scheme, columns, self.machine, self.fabric)
        return [float(value) for value in np.nan_to_num(seconds, nan=np.inf)]

    def compute_s(self, tile: object) -> float:
        """Seconds of the computation alone with *tile*."""
        return _compute_s(self, tile)

    @property
    def communication_s(self) -> float:
        """Seconds of the communication alone of the sequential schedule."""
        return _communication_s(self)

    def sequential_s(self, tile: object) -> float:
        """Seconds of the computation, then the communication."""
        return self.compute_s(tile) + self.communication_s

    def of(self, trials: Iterable[Trial]) -> list[float | None]:
        """Seconds of one call of each of *trials*; None where it cannot be estimated."""
        listed = list(trials)
        wholes = list(dict.fromkeys(trial.schedule for trial in listed if trial.part == "whole"))
        whole_s = dict(zip(wholes, self.whole_s(wholes), strict=True))
        # ranks that share a GPU wait for a time slice of each other in every call
        least_s = SLICE_SECONDS * self.problem.world if self.fabric.shares_gpu else 0.0
        seconds = [max(least_s, self._problem_s(trial, whole_s) * problems(trial.schedule)) for trial in listed]
        return list(map(_finite, seconds))

    def _problem_s(self, trial: Trial, whole_s: dict[Schedule, float]) -> float:
        match trial.part:
            case "compute":
                return self.compute_s(trial.schedule["tile"])
            case "communication":
                return self.communication_s
        return whole_s[trial.schedule]


def _finite(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None


@lru_cache(maxsize=1024)
def _sequential_s(durations: Durations, tile: object) -> float:
    values = {} if tile is None else {"tile": np.array([tile])}
    return float(grid.times(durations.problem, BASELINE, values, durations.machine, durations.fabric)[0])


@lru_cache(maxsize=1024)
def _compute_s(durations: Durations, tile: object) -> float:
    usual_s = compute_alone_seconds(durations.problem, durations.machine, durations.fabric)
    if durations.problem.world == 1 or tile is None:
        return usual_s
    return max(0.0, _sequential_s(durations, tile) - _communication_s(durations))


@lru_cache(maxsize=256)
def _communication_s(durations: Durations) -> float:
    if durations.problem.world == 1:
        return 0.0
    return max(
        0.0,
        _sequential_s(durations, None) - compute_alone_seconds(durations.problem, durations.machine, durations.fabric),
    )


# The legal points of a space as numbers: their estimates, and which of them share compiled kernels.


@dataclass(frozen=True, slots=True)
class LegalPoints:
    """The legal points of one choice."""

    scheme: str
    lists: Mapping[str, tuple[Value, ...]]
    seconds: Floats
    """Seconds of one problem at each point."""
    problems: np.ndarray
    """Number of problems in one call at each point."""
    tiles: list[Any]
    places: np.ndarray
    """The number of each combination among the legal ones, or -1."""

    def _indices(self) -> tuple[np.ndarray, ...]:
        """The numbers of the values of all legal points, by axis."""
        return np.unravel_index(np.flatnonzero(self.places >= 0), [len(offered) for offered in self.lists.values()])

    def forms(self) -> np.ndarray:
        """A number for each legal point; points with equal numbers share their compiled kernels."""
        form = np.zeros(len(self.seconds), dtype=np.int64)
        if not len(form):
            return form
        for (name, offered), index in zip(self.lists.items(), self._indices(), strict=True):
            form = form * len(offered) + index if name in AXES else form
        return form

    def schedule(self, place: int) -> Schedule:
        """The schedule of legal point number *place*."""
        indices = self._indices()
        named = zip(self.lists.items(), indices, strict=True)
        return Schedule(self.scheme, tuple((name, offered[int(index[place])]) for (name, offered), index in named))

    def place(self, schedule: Schedule) -> int | None:
        """The number of *schedule* among the legal points, or None."""
        if schedule.scheme != self.scheme or not all(self.lists.values()):
            return None
        named = {name: value for name in self.lists if (value := schedule.get(name)) is not None}
        if dict(schedule.axes).keys() - self.lists.keys() or self.lists.keys() - named.keys() - DECIDED_BY.keys():
            return None
        values = {name: offered[0] for name, offered in self.lists.items()} | named  # any value of an ignored axis
        if any(values[name] not in offered for name, offered in self.lists.items()):
            return None
        where = [offered.index(values[name]) for name, offered in self.lists.items()]
        number = int(np.ravel_multi_index(where, [len(offered) for offered in self.lists.values()])) if where else 0
        return place if (place := int(self.places[number])) >= 0 else None


@lru_cache(maxsize=32)
def legal_points(durations: Durations, choice: Choice, most: int, by_ranks: bool) -> LegalPoints:
    """The legal points of *choice*, or with *by_ranks* those that ranks run; Refusal of more points than *most*."""
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    lists = values(choice, problem, machine, fabric, most, MeasuringRanks(machine, fabric) if by_ranks else None)
    if not all(lists.values()):
        return LegalPoints(choice.scheme, lists, np.zeros(0), np.zeros(0), [], np.zeros(0, dtype=int))
    crossed = columns(lists)
    seconds = grid.times(problem, choice.scheme, crossed, machine, fabric)
    is_legal = np.isfinite(seconds) & first_occurrences(problem, choice.scheme, crossed, machine)
    places = np.where(is_legal, np.cumsum(is_legal) - 1, -1)
    count = crossed.get(MICRO_BATCHES, np.ones(len(seconds), dtype=int))[is_legal]
    return LegalPoints(choice.scheme, lists, seconds[is_legal], count, crossed["tile"][is_legal].tolist(), places)


def all_forms(choices: Sequence[LegalPoints]) -> np.ndarray:
    """`LegalPoints.forms` of all *choices*, with different numbers for different choices."""
    forms = [choice.forms() for choice in choices]
    ends = np.cumsum([0, *(int(choice_forms.max()) + 1 if len(choice_forms) else 0 for choice_forms in forms)])
    return np.concatenate([choice_forms + start for choice_forms, start in zip(forms, ends, strict=False)])


# Compilation times: each kernel counts once, for the first trial that needs it.

COMPILE_SECONDS = {"send": 0.7, "send and sum": 2.8, "receive": 1.7, "gathered": 1.7, "scattered": 2.8, "gemv": 0.8,
                   "lookup": 0.4, "pieces": 1.2, "lookup that puts": 2.9, "courier": 1.3, "ring": 1.4,
                   "relay": 2.0}  # fmt: skip
"""Compilation of one kernel of each family for sm_90 on one core, measured on 2026-11-22, pieces on 2026-11-23, what
puts between hosts (5 MB of bitcode are linked) on 2026-11-27, *ring* and *relay* on 2026-11-29. The form with time
stamps takes as long. *gathered* and *scattered* were not measured: assumed to take what *receive* and *send and sum*
do."""


class CompiledKernels:
    """The kernels that ranks have compiled, in this run or before."""

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self._kernels = {kernel for trial in trials for kernel in compilations(trial)}

    def add(self, trials: Iterable[Trial]) -> None:
        """Records that *trials* were compiled."""
        self._kernels |= {kernel for trial in trials for kernel in compilations(trial)}

    def seconds(self, trials: Sequence[Trial], before: Sequence[Trial] = ()) -> float:
        """Seconds to compile what *trials* need after those *before* them; ranks of one host share the work."""
        needed = {kernel: trial.world for trial in trials for kernel in compilations(trial)}
        present = {kernel for trial in before for kernel in compilations(trial)} if needed else set()
        return fsum(COMPILE_SECONDS[kernel.family] / world for kernel, world in needed.items()
                    if kernel not in self._kernels and kernel not in present)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FirstCompilations:
    """Seconds of compilation; each kernel counts at the first schedule that needs it."""

    base_s: float
    """The baseline, where nothing else is measured."""
    schedules_s: tuple[float, ...]
    """Each schedule."""
    parts_s: tuple[float, ...]
    """The parts of each schedule; for the first one also the baseline."""

    def seconds(self, some: slice) -> float:
        """Seconds for the blocks of *some* schedules."""
        return sum(self.schedules_s[some]) + sum(self.parts_s[some])


def first_compilations(
    compiled: CompiledKernels, plan: BaselinePlan, forms: Sequence[int], trial: Callable[[int], Trial]
) -> FirstCompilations:
    """The compilations of schedules in order; *trial* returns that at a place. Only the first of a form compiles."""
    base_s = compiled.seconds(plan.block([plan.base]).trials)
    schedules_s, parts_s = [0.0] * len(forms), [0.0] * len(forms)
    firsts: dict[int, int] = {}
    for place, form in enumerate(forms):
        firsts.setdefault(form, place)
    for place in firsts.values():
        first = trial(place)
        others = plan.block([first]).trials
        schedules_s[place] = compiled.seconds([first])
        parts_s[place] = compiled.seconds(others, [first])
        compiled.add(others)
    return FirstCompilations(base_s, tuple(schedules_s), tuple(parts_s))


# The remaining blocks of a run: how many, of how many trials, and about how long they take.


@dataclass(frozen=True, slots=True)
class WorkTotals:
    """The totals of several blocks."""

    blocks: int = 0
    trials: int = 0
    overhead_s: float = 0.0
    calls_s: float = 0.0
    """As estimated; `seconds` corrects it by recent measurements."""

    def seconds(self, correction: float = 1.0) -> float:
        return self.overhead_s + correction * self.calls_s

    def and_also(self, more: WorkTotals) -> WorkTotals:
        return WorkTotals(self.blocks + more.blocks, self.trials + more.trials, self.overhead_s + more.overhead_s,
                   self.calls_s + more.calls_s)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """The remaining schedules of one problem, as numbers."""

    durations: Durations
    experiment: Experiment
    base_tile: Any
    schedules: Mapping[str, int]
    """The number of schedules by scheme, with the baseline if it was requested."""
    known: int
    whole_s: tuple[float, ...]
    """One call of each schedule, without the baseline, which is in every block."""
    tiles: tuple[Any, ...]
    base_alone: bool
    """Whether only the baseline remains."""
    compiling: FirstCompilations | None
    """The compilation of kernels that the ranks do not have; None where nothing is compiled."""
    resolves: bool
    """Whether the computation alone is timed first, to resolve the link."""
    verifying_s: tuple[float, ...] = ()
    """Verification of each schedule of `whole_s`."""
    base_s: tuple[float, ...] = ()
    """One call of each baseline and part of every block."""
    first_s: tuple[float, ...] = ()
    """One call of each trial of a first block of all baselines; empty without such a block."""
    first_compiling_s: float = 0.0

    @property
    def base_verifying_s(self) -> float:
        """Seconds to verify the baseline of a block; a CPU rank has one."""
        return 0.0 if self.experiment.parts == "none" else self.durations.verifying_s()

    @property
    def start(self) -> int:
        """The position of the first block; -1: a block of all baselines comes before the schedules."""
        return -1 if self.first_s else 0

    @property
    def count(self) -> int:
        return sum(self.schedules.values())

    def totals(self, position: int = 0, correction: float = 1.0) -> WorkTotals:
        """The totals of the blocks from schedule number *position* on; *correction* decides how they are cut."""
        if position < 0:
            return self._first().and_also(self.totals(0, correction))
        start = position
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        base_s, whole_s, tiles = self.base_s, self.whole_s, self.tiles
        block_s = GRANT_SECONDS[self.experiment.backend] + self.base_verifying_s
        total = (
            WorkTotals(1, len(base_s), len(base_s) * overhead + self._compiling_s(None) + block_s, calls * sum(base_s))
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
            compiled_s += self._compiling_s(slice(position, end)) + block_s + sum(self.verifying_s[position:end])
            position = end
        compiled_s += self.durations.reference_s if blocks and not start else 0.0
        return WorkTotals(blocks, trials, trials * overhead + compiled_s, called_s)

    def fits(self, position: int, correction: float = 1.0) -> int:
        """How many schedules the block from number *position* on holds."""
        calls, each = rounds(self.experiment.protocol), self.experiment.parts == "each"
        overhead = overhead_s(self.experiment.backend, self.experiment.protocol)
        others_s = [*self.base_s, *self._others_s(self.tiles[position : position + 1], each)]
        baselines_s = len(others_s) * overhead + correction * calls * sum(others_s) + self.base_verifying_s
        next_ones = slice(position, position + MAX_BLOCK_SCHEDULES)
        next_s = zip(self.whole_s[next_ones], self.verifying_s[next_ones], strict=True)
        costs_s = [overhead + verifying_s + correction * calls * whole_s for whole_s, verifying_s in next_s]
        if self.compiling is not None:
            baselines_s += self.compiling.parts_s[position]
            costs_s = [cost + self.compiling.schedules_s[position + number] for number, cost in enumerate(costs_s)]
        return fit(costs_s, baselines_s, longest(self.experiment, len(self.whole_s)))

    def _compiling_s(self, some: slice | None) -> float:
        """Seconds of compilation for the blocks of *some* schedules; None: for a block of the baseline alone."""
        if self.compiling is None:
            return 0.0
        return self.compiling.base_s if some is None else self.compiling.seconds(some)

    def _first(self) -> WorkTotals:
        count, protocol = len(self.first_s), self.experiment.protocol
        overheads_s = count * overhead_s(self.experiment.backend, protocol) + self.first_compiling_s
        return WorkTotals(1, count, overheads_s, rounds(protocol) * sum(self.first_s))

    def _others_s(self, tiles: Sequence[Any], each: bool) -> list[float]:
        """Seconds of the computations alone of schedules with *tiles*, without the baseline's."""
        if self.experiment.parts == "none":
            return []
        plain = [tile for tile in dict.fromkeys(tiles) if tile != self.base_tile]
        return [self.durations.compute_s(tile) for tile in (*plain, *(tiles if each else ()))]

    def resolving_s(self) -> float:
        """Seconds of timing the computation alone that resolves a relative link."""
        if not self.resolves:
            return 0.0
        alone_s = self.durations.compute_s(None)
        grant_s = GRANT_SECONDS[self.experiment.backend]
        return grant_s + overhead_s(self.experiment.backend, RESOLVING) + rounds(RESOLVING) * alone_s


MOST_OFF = 2.0
"""Calls that take longer than this many times their estimate have blocks cut anew: other clients wait for their
turn."""


def cutting(correction: float) -> float:
    """The factor of estimates by which blocks are cut: 1, as the forecast said, or a much larger *correction*."""
    return correction if correction > MOST_OFF else 1.0


def longest(experiment: Experiment, count: int) -> float:
    """The most expected seconds of a block of *experiment*, which has *count* schedules.

    There is no limit for schedules compared together, nor for a few schedules that are measured again on request.
    """
    return inf if experiment.together or (experiment.fresh and count <= MAX_BLOCK_SCHEDULES) else LONGEST_SECONDS


# The forecast of a whole run.

COUNTED_MOST = 200_000
"""The most points that are examined while a person moves a slider, in about 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run of an experiment would do now."""

    schedules: Mapping[str, int]
    """The number of schedules to measure or simulate, by scheme."""
    known: int = 0
    blocks: int = 0
    trials: int = 0
    """Schedules, baselines and parts together."""
    samples: int = 0
    seconds: float | None = None
    """None where nothing is timed."""
    remaining: tuple[RemainingWork, ...] = field(default=(), repr=False, compare=False)
    """The work by problem that was looked at, from which the remaining time is counted."""
    problems: int = 1
    looked: tuple[int, ...] = (0,)
    """The numbers of the problems that were looked at; all, unless they are many."""
    interval_s: tuple[float, float] | None = None
    """The 95 % interval of `seconds` where not all problems were looked at."""

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
        others = self.trials - self.count
        baselines = f" and {others:,} {'baseline' if others == 1 else 'baselines'}" if others else ""
        blocks = "1 block" if self.blocks == 1 else f"{self.blocks:,} blocks"
        verb = "is" if self.trials == 1 else "are"
        sentence = f"{known}{what}{baselines} in {blocks} {verb} measured, {about(self.seconds)}."
        if self.interval_s is None:
            return sentence
        low, high = (about(end).removeprefix("about ") for end in self.interval_s)
        within = f", {low} to {high}" if low != high else ""
        return f"About {sentence[:-1]}{within}, as {len(self.looked)} of {self.problems:,} problems tell."


def forecast(experiment: Experiment, machine: Machine, store: Store, *, measured: bool = True,
             most: int = MOST_POINTS, ranks: Callable[[int, str], Ranks | None] = local_ranks) -> Forecast:  # fmt: skip
    """What a run of *experiment* on *machine* would do now; Refusal of more points than *most*.

    *ranks* returns the ranks of a world and a backend, by default those of the local cluster. Of more than SAMPLED
    problems, as many are looked at; counts and seconds are then those of all, as far as these tell.
    """
    by_world = {world: ranks(world, experiment.backend) for world in {each.world for each in experiment.problems}}
    looked, count = sampled(len(experiment.problems)), len(experiment.problems)
    remaining = [_of_problem(experiment, problem, (machine, by_world[problem.world]), store, (measured, most))
                 for problem in (experiment.problems[number] for number in looked)]  # fmt: skip
    schedules = Counter[str]()
    for work in remaining:
        schedules.update(work.schedules)
    totals = [work.totals(work.start) for work in remaining]
    repeats = experiment.protocol.repeats
    resolving = sum(work.durations.problem.world for work in remaining if work.resolves) * RESOLVING.repeats
    timed = zip(totals, remaining, strict=True)

    def of_all(number: int) -> int:
        return round(number * count / len(looked))

    each_s = [one.seconds() + work.resolving_s() for one, work in zip(totals, remaining, strict=True)]
    blocks = of_all(sum(each.blocks for each in totals))
    # however short the first block is: a shorter reading of the cores says nothing
    seconds = max(fsum(each_s) * count / len(looked), SHORTEST_S if blocks else 0.0)
    return Forecast(
        schedules={scheme: of_all(number) for scheme, number in schedules.items()},
        known=of_all(sum(work.known for work in remaining)), blocks=blocks,
        trials=of_all(sum(each.trials for each in totals)), remaining=tuple(remaining),
        samples=of_all(resolving + sum(each.trials * repeats * work.durations.problem.world for each, work in timed)),
        seconds=seconds if measured else None, problems=count, looked=tuple(looked),
        interval_s=_interval(each_s, count) if measured else None,
    )  # fmt: skip


SAMPLED = 24
"""The most problems that a forecast looks at: 20 ms each. Of more, one is drawn from each of as many equal parts."""


def sampled(count: int) -> Sequence[int]:
    """The numbers of the problems that a forecast of *count* looks at: all, or SAMPLED in order, always the same."""
    if count <= SAMPLED:
        return range(count)
    draw, ends = random.Random(count), [part * count // SAMPLED for part in range(SAMPLED + 1)]
    return [draw.randrange(start, end) for start, end in pairwise(ends)]


def _interval(each_s: Sequence[float], count: int) -> tuple[float, float] | None:
    """The 95 % interval of the seconds of *count* problems of which some take *each_s*; None if these are all."""
    if count == len(each_s):
        return None
    mean_s = fsum(each_s) / len(each_s)
    # two standard errors of the mean, without replacement
    off_s = 2 * float(np.std(each_s, ddof=1)) * ((1 - len(each_s) / count) / len(each_s)) ** 0.5
    return count * max(0.0, mean_s - off_s), count * (mean_s + off_s)


def work_of(experiment: Experiment, problem: Problem, machine: Machine, store: Store,
            ranks: Ranks | None) -> RemainingWork:  # fmt: skip
    """The remaining work of one *problem* that the forecast did not look at."""
    return _of_problem(experiment, problem, (machine, ranks), store, (True, MOST_POINTS))


def _of_problem(experiment: Experiment, problem: Problem, machine_and_ranks: tuple[Machine, Ranks | None], store: Store,
                measured_and_most: tuple[bool, int]) -> RemainingWork:  # fmt: skip
    (machine, ranks), (measured, most) = machine_and_ranks, measured_and_most
    hardware = ranks.hardware if ranks else None
    ranks_per_core = crowd(hardware)
    slowed = crowded(machine, ranks_per_core)
    fabric = known_link(experiment.fabric, problem, slowed, store, hardware)
    durations = Durations(problem, fabric, slowed, ranks_per_core)
    known: frozenset[Schedule] = frozenset()
    times: frozenset[tuple[Schedule, float]] = frozenset()
    if measured and not experiment.fresh and ranks is not None:
        trials = frozenset(store.known_trials(problem, ranks.execution(experiment.backend)))
        wholes = [trial for trial in trials if trial == experiment.trial(problem, trial.schedule, fabric)]
        known = frozenset(trial.schedule for trial in wholes if experiment.parts != "each"
                          or not has_parts(trial) or compute_alone(trial) in trials)  # fmt: skip
        times = _baseline_times(wholes, store, ranks.execution(experiment.backend))
    resolves = measured and not experiment.fabric.resolved and (
        experiment.fresh or store.compute_seconds(machine.name, problem, hardware) is None)  # fmt: skip
    execution = ranks.execution(experiment.backend) if measured and ranks else None
    compiled = frozenset(compiled_before(experiment, problem, store, execution))
    before = known, compiled, times
    return _remaining_work(replace(experiment, problems=(), title=""), durations, before, (resolves, measured, most))


def _baseline_times(wholes: Sequence[Trial], store: Store, ran: Execution) -> frozenset[tuple[Schedule, float]]:
    """Known times of the baselines that GPU ranks choose from."""
    baselines = [trial for trial in wholes if trial.backend != "cpu" and trial.schedule.scheme == BASELINE]
    measured = ((trial.schedule, store.known(trial.key, ran)) for trial in baselines)
    return frozenset((schedule, known[0].time_s) for schedule, known in measured if known is not None)


def compiled_before(experiment: Experiment, problem: Problem, store: Store, ran: Execution | None) -> tuple[Trial, ...]:
    """The trials of *problem* that GPU ranks like *ran* have measured, whose compiled kernels are in files on their
    hosts."""
    return () if experiment.backend == "cpu" or ran is None else store.known_trials(problem, ran)


@lru_cache(maxsize=32)
def _remaining_work(experiment: Experiment, durations: Durations,
           before: tuple[frozenset[Schedule], frozenset[Trial], frozenset[tuple[Schedule, float]]],
           how: tuple[bool, bool, int]) -> RemainingWork:  # fmt: skip
    """The remaining work of one problem; cached, as a slider of a swept axis does not change it and 40 ms are
    noticeable."""
    (known, compiled, times), (resolves, by_ranks, most) = before, how
    problem, fabric, machine = durations.problem, durations.fabric, durations.machine
    choices = [legal_points(durations, choice, most, by_ranks) for choice in experiment.space.choices]
    seconds = np.concatenate([choice.seconds for choice in choices])
    tiles = list(chain.from_iterable(choice.tiles for choice in choices))
    schemes = list(chain.from_iterable([choice.scheme] * len(choice.seconds) for choice in choices))
    starts = np.cumsum([0, *(len(choice.seconds) for choice in choices)])
    plan = experiment.baseline_plan_of_tiles(problem, tiles, fabric, machine)

    def numbers(schedules: Iterable[Schedule]) -> set[int]:
        starting = list(zip(starts, choices, strict=False))
        places = ((start, choice.place(schedule)) for schedule in schedules for start, choice in starting)
        return {int(start) + place for start, place in places if place is not None}

    chosen = order(experiment.search, len(seconds), lambda: seconds.tolist())
    is_known = numbers(known)
    if experiment.together and not is_known.issuperset(chosen):
        is_known = set()
    plan, first = _choose_baselines(plan, durations, dict(times), missing=by_ranks and not is_known.issuperset(chosen))
    firsts = numbers(trial.schedule for trial in first.schedules) if first else set()
    bases = numbers(trial.schedule for trial in plan.baselines) if experiment.parts != "none" else set()
    rest = [number for number in chosen if number not in is_known | bases | firsts]
    requested_bases = [number for number in chosen if number in bases | firsts]
    base_alone = not first and not rest and any(number not in is_known for number in requested_bases)
    measured = [*requested_bases, *rest] if rest or base_alone or first else []
    counts = np.concatenate([choice.problems for choice in choices])
    calls_s = seconds * counts
    whole_s = calls_s[rest]

    def trial(place: int) -> Trial:
        choice = int(np.searchsorted(starts, rest[place], side="right")) - 1
        return experiment.trial(problem, choices[choice].schedule(rest[place] - int(starts[choice])), fabric)

    forms = [] if experiment.backend == "cpu" else all_forms(choices)[rest].tolist()
    if experiment.search.proposes and len(rest):  # which schedules it will propose is not known yet
        whole_s = np.full(len(rest), calls_s.mean())
    before_first, in_first = CompiledKernels(compiled), first.trials if first else []
    first_compiling_s = before_first.seconds(in_first)
    before_first.add(in_first)
    return RemainingWork(
        durations=durations, experiment=experiment, base_tile=plan.base.schedule["tile"],
        schedules=Counter(schemes[number] for number in measured), whole_s=tuple(whole_s.tolist()),
        tiles=tuple(plan.tile_alone(trial(place).schedule) if schemes[number] == BASELINE else tiles[number]
                    for place, number in enumerate(rest)),
        verifying_s=tuple(durations.verifying_s(int(count)) for count in counts[rest]),
        base_alone=base_alone, resolves=resolves and len(seconds) > 0, known=len(chosen) - len(measured),
        compiling=None if experiment.backend == "cpu" else first_compilations(before_first, plan, forms, trial),
        base_s=_baselines_s(plan, durations), first_s=tuple(seconds or 0.0 for seconds in durations.of(in_first)),
        first_compiling_s=first_compiling_s,
    )  # fmt: skip


def _choose_baselines(plan: BaselinePlan, durations: Durations, known_s: Mapping[Schedule, float], *,
            missing: bool) -> tuple[BaselinePlan, Block | None]:  # fmt: skip
    """*plan* with the expected baselines of every block, and the first block if they are not known yet."""
    if not plan.legal:
        return plan, None
    measured_s = {trial.key: known_s[trial.schedule] for trial in plan.legal if trial.schedule in known_s}
    if len(measured_s) == len(plan.legal):
        return plan.chosen(measured_s), None
    guesses = durations.whole_s([trial.schedule for trial in plan.legal])
    expected = plan.chosen({trial.key: guess_s for trial, guess_s in zip(plan.legal, guesses, strict=True)})
    return expected, plan.first() if missing else None


def _baselines_s(plan: BaselinePlan, durations: Durations) -> tuple[float, ...]:
    """Seconds of one call of each baseline and part of every block."""
    if plan.parts == "none":
        return ()
    if plan.legal:
        baselines = {trial.key: trial for trial in plan.block(plan.baselines).baselines}
        return tuple(seconds or 0.0 for seconds in durations.of(baselines.values()))
    tile = plan.base.schedule["tile"]
    communication_s = [durations.communication_s] if durations.problem.world > 1 else []
    return durations.compute_s(tile), durations.sequential_s(tile), *communication_s
