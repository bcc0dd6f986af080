"""Calibration of CPU ranks: small trials on two ranks of this computer, each of which measures one cost.

Everything is measured through the backend on both ranks at once, as trials run. So the numbers include the cost of
another busy core (shared caches, memory, clock).
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median, quantiles
from typing import Any

from kernels.fabric import Fabric, parse
from kernels.files import Failed
from kernels.machine import Costs, Machine, Rate, toml
from kernels.operators import operator, problem
from kernels.outcome import Failure, Measurement, Outcome
from kernels.problem import Problem
from kernels.schedule import Value
from kernels.schemes import COMPARED, schedule
from kernels.trial import Protocol, Trial
from workbench.machines import DISTRUSTED, distrusted
from workbench.results.quiet import is_busy
from workbench.simulator.predict import predict, resolved
from workbench.simulator.price.rates import copy_seconds
from workbench.simulator.price.tiles import tile_width, work_share

Ask = Callable[[Sequence[Trial]], Iterable[object]]
"""Measures trials on CPU ranks of this computer, and returns an outcome for each."""

QUICK_SECONDS, FULL_SECONDS = 3.0, 45.0
WORLD = 2
SHARED = Fabric(kind="shared_memory")
THROUGH_MEMORY = "blocks between 2 ranks through shared memory"
LATENCY_SECONDS = 1e-3
"""Latency of the link on which the wait for a signal is measured: long enough for the waiting rank to fall asleep."""
CHECK = "spread"
"""The key of the value that the check of a fit yields."""
MAX_ERROR = 0.15
"""A fit whose check has a larger median error was disturbed while it was measured."""
ONE_OPERATOR = ("gemm_all_to_all",)
OPERATORS = (*ONE_OPERATOR, "all_gather_gemm", "gemm_reduce_scatter", "embedding_all_to_all")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedMachine:
    """A machine file with the result of its check."""

    text: str
    ratio: float
    """Measured over estimated times of the last check, the median."""
    distrusted: Mapping[str, str]
    """By the key of each value that was measured while others used the cores: who, and how many of how many."""

    @property
    def sound(self) -> bool:
        """Whether its estimates are good enough to be called calibrated."""
        return _is_sound(self.ratio)


def calibrate(
    ask: Ask, machine: Machine, seconds_budget: float = FULL_SECONDS, where: str = "", others: str = ""
) -> FittedMachine:
    """*machine*'s file, fitted in about *seconds_budget* (QUICK_SECONDS or more) to the ranks on *where*.

    Values for which there was no time stay as they were, and their provenance says so; so does that of values that
    were measured while others used the cores. *others*: who used them when it began, which the file's date then says.
    If the check finds errors, the values are measured again while there is time. ValueError if the ranks cannot
    measure.
    """
    fit = _CpuFit(ask, machine, time.monotonic() + seconds_budget, quick=seconds_budget < FULL_SECONDS / 2,
               where=where or platform.node())  # fmt: skip
    _until_sound(fit, (_fixed_costs, _gemm_curve, _copies), ONE_OPERATOR)
    for curve_points in (_gemvs, _gathers):
        if fit.has_time:
            _curve(fit, curve_points("float32", fit.quick))
    if fit.has_time:
        _curve(fit, _gemms("bfloat16", fit.quick))
    if not fit.quick:
        _rest(fit)
    _peaks(fit)
    load = f"on a busy computer: {others}" if others else ""
    if not others and (marked := len(distrusted(fit.machine))):
        load = f"{marked} values not trusted"
    if load:
        fit.machine = replace(fit.machine, calibrated=f"{fit.machine.calibrated}, {load}")
    return FittedMachine(text=toml(fit.machine), ratio=fit.ratio, distrusted=distrusted(fit.machine))


def _until_sound(fit: _CpuFit, steps: Sequence[Callable[[_CpuFit], None]], operators: Sequence[str]) -> None:
    """Run the *steps* and a check by *operators*; repeat both while the check fails and there is time."""
    while True:
        for step in steps:
            step(fit)
        _check(fit, operators)
        if _is_sound(fit.ratio) or not fit.has_time:
            return


def _is_sound(ratio: float) -> bool:
    return abs(ratio - 1) <= MAX_ERROR


def _gemm_curve(fit: _CpuFit) -> None:
    _curve(fit, _gemms("float32", fit.quick))


def _gather_curve(fit: _CpuFit) -> None:
    _curve(fit, _gathers("float32", fit.quick))


def _rest(fit: _CpuFit) -> None:
    """The measurements for which only a full calibration has time."""
    for curve_points in (_gemvs, _gathers):
        if fit.has_time:
            _curve(fit, curve_points("bfloat16", False))
    if fit.has_time:
        _library(fit)
    if fit.has_time:
        _check(fit, OPERATORS)
    if fit.has_time and not _is_sound(fit.ratio):
        _until_sound(fit, (_fixed_costs, _gemm_curve, _gather_curve, _copies), OPERATORS)


@dataclass
class _CpuFit:
    """A CPU machine during its fit."""

    ask: Ask
    machine: Machine
    deadline: float
    quick: bool
    where: str
    """The computer of its ranks."""
    ratio: float = 1.0
    """Measured over estimated times of the last check, the median."""

    def __post_init__(self) -> None:
        self.machine = replace(self.machine, rates=(), spread=None)

    @property
    def has_time(self) -> bool:
        return time.monotonic() < self.deadline

    @property
    def costs(self) -> Costs:
        return self.machine.costs

    def protocol(self) -> Protocol:
        return Protocol(name="calibration", warmups=1, repeats=3 if self.quick else 7)

    def trial(self, of: Problem, scheme: str, part: str, values: Mapping[str, Value], fabric: Fabric = SHARED) -> Trial:
        chosen = schedule(of, scheme, values, self.machine, fabric)
        return Trial(problem=of, schedule=chosen, backend="cpu", machine=self.machine.name, fabric=fabric,
                     protocol=self.protocol(), part=part)  # fmt: skip

    def measure(self, trials: Sequence[Trial]) -> list[Measurement]:
        """Measurements in the order of *trials*; raises Failed with the first failure's message."""
        outcomes = {outcome.trial.key: outcome for outcome in self.ask(trials) if isinstance(outcome, Outcome)}
        for outcome in outcomes.values():
            if isinstance(outcome, Failure):
                raise Failed(f"The calibration could not measure {outcome.trial.schedule}: {outcome.message}")
        measured = [each for each in (outcomes.get(trial.key) for trial in trials) if isinstance(each, Measurement)]
        if len(measured) < len(trials):
            raise Failed(f"The calibration ended with {len(measured)} of {len(trials)} trials measured. Try again.")
        return measured

    def timed(self, trials: Sequence[Trial]) -> list[tuple[float, str]]:
        """Undisturbed time of an iteration of each trial, and the mark of what others used meanwhile."""
        return [(_undisturbed(measured), _mark([measured])) for measured in self.measure(trials)]

    def keep(self, source: str, mark: str = "", **costs: Any) -> None:
        """Set measured *costs*, in seconds; *mark* says why they are not trusted."""
        known = {f"costs.{name}": f"calibrated: {source}{mark}" for name in costs}
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        self.machine = replace(
            self.machine, costs=replace(self.costs, **costs), provenance={**self.machine.provenance, **known},
            calibrated=f"{stamp} on {self.where}" + (", quick" if self.quick else ""),
        )  # fmt: skip

    def forget_rates(self, works: Iterable[str], dtype: str) -> None:
        """Drop the curves of *works*, which are measured again."""
        kept = tuple(rate for rate in self.machine.rates if rate.dtype != dtype or rate.work not in works)
        points = tuple(f"rate.{work}.{dtype}." for work in works)
        provenance = {key: how for key, how in self.machine.provenance.items() if not key.startswith(points)}
        self.machine = replace(self.machine, rates=kept, provenance=provenance)

    def add_rate(self, rate: Rate, source: str, mark: str = "") -> None:
        """Add a point of a curve; *mark* says why this point is not trusted."""
        curve = f"rate.{rate.work}.{rate.dtype}"
        known = {curve: f"calibrated: {source}"}
        if mark:
            known[f"{curve}.{rate.width:g}.{rate.size:g}"] = f"calibrated: {source}{mark}"
        provenance = {**self.machine.provenance, **known}
        self.machine = replace(self.machine, rates=(*self.machine.rates, rate), provenance=provenance)

    def mark_of(self, rate: Rate) -> str:
        """The mark of the point *rate* of a curve; empty if it is trusted."""
        how = self.machine.provenance_of(f"rate.{rate.work}.{rate.dtype}.{rate.width:g}.{rate.size:g}")
        _, is_marked, others = how.partition(DISTRUSTED)
        return is_marked + others


def _fixed_costs(fit: _CpuFit) -> None:
    """Fit costs of tiles, steps, starts and signals to trials with hardly any arithmetic."""
    small = problem("gemm_all_to_all", {"m": 256, "n": 2, "k": 8}, world=WORLD)
    link = Fabric(bandwidth_bytes_per_second=1e12, latency_seconds=LATENCY_SECONDS)
    trials = [
        fit.trial(small, "sequential", "compute", {"tile": "128x2x8"}),
        fit.trial(small, "sequential", "compute", {"tile": "2x2x8"}),
        fit.trial(small, "fused", "whole", {"tile": "2x2x8", "slice_tiles": 4, "write": "zero_copy"}),
        fit.trial(small, "sequential", "communication", {"tile": "2x2x8"}, link),
    ]
    protocol = Protocol(name="calibration of fixed costs", warmups=3, repeats=25)
    measured = fit.measure([replace(trial, protocol=protocol) for trial in trials])
    two, many, steps, wait = map(_undisturbed, measured)
    tile_s = max(0.0, many - two) / 126
    step_s = max(0.0, steps - many) / 47
    begin_s = max(0.0, two - 2 * tile_s - step_s)
    fit.keep("timed on 2 ranks by trials of next to no arithmetic", _mark(measured),
             tile_seconds=tile_s, step_seconds=step_s, barrier_seconds=begin_s,
             signal_seconds=max(0.0, wait - LATENCY_SECONDS - step_s - begin_s))  # fmt: skip


def _undisturbed(measured: Measurement) -> float:
    """The lower quartile of iterations: other load only makes them slower."""
    slowest = [max(ranks) for ranks in zip(*measured.samples, strict=True)]
    return quantiles(slowest, n=4)[0]


def _mark(measured: Iterable[Measurement]) -> str:
    """The end of a value's provenance if others used too much of the cores while it was *measured*; else empty."""
    busy = [each for each in measured if is_busy(each.others_share)]
    worst = max(busy, key=lambda each: each.others_share or 0.0, default=None)
    return "" if worst is None else f"{DISTRUSTED}{worst.others}"


def _curve(fit: _CpuFit, points: Sequence[tuple[Problem, int, int]]) -> None:
    """Add the speeds at *points* (problem, tile rows, tile columns), from computation alone in one step per rank."""
    trials = [fit.trial(of, "sequential", "compute", {"tile": f"{m}x{n}x{_extent(of)[2]}"}) for of, m, n in points]
    times = fit.timed(trials)
    fit.forget_rates({work_share(of)[0] for of, *_ in points}, points[0][0].dtype)
    for (of, rows, columns), (seconds, mark) in zip(points, times, strict=True):
        work, share = work_share(of)
        height, width, depth = _extent(of)
        tiles = -(-height // WORLD // rows) * WORLD * -(-width // columns)
        fixed = fit.costs.barrier_seconds + fit.costs.step_seconds + tiles * fit.costs.tile_seconds
        part = rows * columns / (height * width)
        rate = _rate(work, of.dtype, share * rows * columns * depth, (seconds - fixed) * part, seconds * part)
        rate = replace(rate, width=float(tile_width(of, rows, columns)))
        fit.add_rate(rate, f"tiles of {work} computed by 2 ranks at once, through the backend's own call", mark)


def _extent(of: Problem) -> tuple[int, int, int]:
    extent = operator(of.operator).extent(of)
    return extent.rows, extent.columns, extent.contraction


def _gemms(dtype: str, quick: bool) -> list[tuple[Problem, int, int]]:
    tiles = [(16, 128), (16, 512), (64, 128), (64, 512), (256, 128), (256, 512)] if quick else \
            [(rows, columns) for rows in (8, 16, 32, 64, 128, 256) for columns in (64, 256, 1024)]  # fmt: skip
    of = problem("gemm_all_to_all", {"m": 512, "n": 1024, "k": 1024}, dtype=dtype, world=WORLD)
    return [(of, rows, columns) for rows, columns in tiles]


def _gemvs(dtype: str, quick: bool) -> list[tuple[Problem, int, int]]:
    tokens, heights = ((1, 8), (128,)) if quick else ((1, 2, 4, 8), (32, 128, 256))
    cases = [problem("gemv_all_reduce", {"n": 2048, "k": 4096 * WORLD, "tokens": each}, dtype=dtype, world=WORLD)
             for each in tokens]  # fmt: skip
    return [(of, rows, of["tokens"]) for of in cases for rows in heights]


def _gathers(dtype: str, quick: bool) -> list[tuple[Problem, int, int]]:
    """Enough lookups to touch most of the tables, which no private cache holds: all iterations repeat their indices."""
    shapes = [(64, 64)] if quick else [(dim, pooling) for dim in (32, 64, 128) for pooling in (16, 100)]
    points = []
    for dim, pooling in shapes:
        sizes = {"tables_per_rank": 4, "rows": 4_000_000 // dim, "dim": dim, "batch": 1024, "pooling": pooling}
        points.append((problem("embedding_all_to_all", sizes, dtype=dtype, world=WORLD), 128, 2 * dim))
    return points


def _copies(fit: _CpuFit) -> None:
    """Add speeds of copies into a peer's memory and of sums; communication alone, in pieces to hide the call's cost."""
    every = ((4, 64), (16, 32), (64, 16), (256, 8), (1024, 4))
    costs = fit.costs
    for dtype in ("float32", "bfloat16"):
        fit.forget_rates(("copy", "reduce"), dtype)
    for rows, pieces in ((4, 32), (1024, 2)) if fit.quick else every:
        sizes = {"m": WORLD * rows * pieces, "n": 1024, "k": 8}
        sending, summing = (problem(name, sizes, world=WORLD) for name in ("gemm_all_to_all", "gemm_reduce_scatter"))
        values: dict[str, Value] = {"pieces": pieces, "split": "rows", "engine": "sm"}
        trials = [fit.trial(of, "decomposed", "communication", values) for of in (sending, summing)]
        (copied, mark), (summed, mark_of_sum) = fit.timed(trials)
        puts_s = copied - costs.barrier_seconds - costs.signal_seconds
        copy_s = puts_s / pieces - costs.step_seconds
        sum_s = (summed - costs.barrier_seconds - puts_s) / pieces - costs.step_seconds
        num_bytes = rows * 1024 * sending.itemsize
        fit.add_rate(_rate("copy", "float32", 2 * num_bytes, copy_s, copied / pieces), THROUGH_MEMORY, mark)
        fit.add_rate(_rate("reduce", "float32", (WORLD + 1) * num_bytes, sum_s, summed / pieces), THROUGH_MEMORY,
                     mark_of_sum or mark)  # fmt: skip
    for rate in [rate for rate in fit.machine.rates if rate.work in ("copy", "reduce")]:
        fit.add_rate(replace(rate, dtype="bfloat16"), "as measured in float32: bytes are bytes", fit.mark_of(rate))
    _peaks(fit)


def _rate(work: str, dtype: str, size: float, seconds: float, measured: float) -> Rate:
    """A point of a curve, with at least a tenth of the *measured* time: subtracted times are noisy."""
    return Rate(work, dtype, size, size / max(seconds, measured / 10))


def _peaks(fit: _CpuFit) -> None:
    """Set the device's peak speeds from the curves."""
    best = {rate.dtype: rate for rate in sorted(fit.machine.rates, key=lambda rate: rate.per_second)
            if rate.work == "gemm"}  # fmt: skip
    largest = max((rate for rate in fit.machine.rates if rate.work == "copy"), key=lambda rate: rate.size)
    device, stream = fit.machine.device, largest.per_second
    peaks = {**device.matrix_flops_per_second, **{dtype: rate.per_second for dtype, rate in best.items()}}
    dimension = replace(fit.machine.dimensions[0], bandwidth_bytes_per_second=stream / 2)
    of = {f"device.matrix_flops_per_second.{dtype}": rate for dtype, rate in best.items()}
    of |= dict.fromkeys(("device.memory_bytes_per_second", "dimension.0.bandwidth_bytes_per_second"), largest)
    known = {key: f"calibrated: the best of the measured curves{fit.mark_of(rate)}" for key, rate in of.items()}
    fit.machine = replace(
        fit.machine, device=replace(device, matrix_flops_per_second=peaks, memory_bytes_per_second=stream),
        dimensions=(dimension, *fit.machine.dimensions[1:]), provenance={**fit.machine.provenance, **known},
    )  # fmt: skip


def _library(fit: _CpuFit) -> None:
    """Set the library's fixed cost and its share of a copy's bandwidth from two sizes of one all-to-all."""
    sizes = [{"m": WORLD * rows, "n": 1024, "k": 8} for rows in (4, 1024)]
    problems = [problem("gemm_all_to_all", each, world=WORLD) for each in sizes]
    try:
        measured = fit.measure(
            [fit.trial(of, "sequential", "communication", {"collective": "library"}) for of in problems]
        )
    except ValueError:
        return  # a gang without a library keeps the assumed values
    times = map(_undisturbed, measured)
    num_bytes = [of["m"] // WORLD * of["n"] * of.itemsize for of in problems]
    copies = copy_seconds(fit.machine, "float32", [WORLD * each for each in num_bytes])
    fixed = fit.costs.barrier_seconds + fit.costs.step_seconds
    small, large = (seconds - fixed - float(copy) for seconds, copy in zip(times, copies, strict=True))
    ideal = (num_bytes[1] - num_bytes[0]) / fit.machine.dimensions[0].bandwidth_bytes_per_second
    share = min(1.0, ideal / max(large - small, ideal))
    fit.keep(
        "all-to-alls of 16 kB and 4 MB through gloo",
        _mark(measured),
        library_share=share,
        library_seconds=max(0.0, small),
    )


def _check(fit: _CpuFit, operators: Sequence[str]) -> None:
    """Compare whole trials of all schemes with their estimates; the file's spread is of single iterations."""
    ratios: list[float] = []
    checked: list[Measurement] = []
    for name in operators:
        of = _check_problem(name)
        fabric = resolved(parse("emulated:wire_to_compute=1"), of, fit.machine)
        trials = [fit.trial(of, scheme, "whole", {}, fabric) for scheme in COMPARED]
        for measured in fit.measure(trials):
            checked.append(measured)
            estimated = predict(measured.trial, fit.machine, with_spans=False).time_s
            ratios += [max(ranks) / estimated for ranks in zip(*measured.samples, strict=True)]
    tenths = quantiles(ratios, n=10)
    fit.ratio = median(ratios)
    how = f"calibrated: {len(ratios)} iterations of {', '.join(operators)}{_mark(checked)}"
    provenance = {**fit.machine.provenance, CHECK: how}
    fit.machine = replace(fit.machine, spread=(tenths[0], tenths[-1]), provenance=provenance)


_CHECKED_SIZES = {
    "gather": {"tables_per_rank": 4, "rows": 50_000, "dim": 64, "batch": 1024, "pooling": 32},
    "gemm": {"m": 512, "n": 768, "k": 768},
}
"""Sizes of the check by the work of an operator."""


def _check_problem(name: str) -> Problem:
    return problem(name, _CHECKED_SIZES[operator(name).work], world=WORLD)
