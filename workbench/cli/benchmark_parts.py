"""One client of the fairness benchmark: `python -m workbench.cli.benchmark_parts '{"address": ..., "list_s": ...}'`.

The client prints its name when it has met its ranks, sweeps for the seconds it reads, prints how many lists it got, and
stays connected until its standard input is closed: the broker forgets the granted seconds of clients that have left.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.client import Cluster
from kernels.events import ProgressEvent
from kernels.fabric import Fabric, parse
from kernels.machine import Machine, load
from kernels.operators import OPERATORS, operator, problem
from kernels.outcome import Failure, Measurement, Sample
from kernels.problem import Problem
from kernels.schedule import Schedule, Value
from kernels.schemes import BASELINE, COMPARED, PLANS, axes, schedule, tile_order
from kernels.trial import PROTOCOLS, Protocol, Trial, protocol
from workbench import machines, resources
from workbench.experiment.calibration import is_calibrated_here
from workbench.experiment.experiment import Experiment
from workbench.experiment.run import run
from workbench.experiment.sources import FromCluster
from workbench.experiment.space import Choice, Space
from workbench.machines import presets
from workbench.machines.calibrate_cpu import FULL_SECONDS, calibrate
from workbench.results.store import Store
from workbench.simulator.closed_form import grid
from workbench.simulator.predict import predict, resolved

# Rows of benchmarks: a number with its unit, its spread, how it was measured, and its target.


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkTarget:
    """The bounds of a value; None: no bound."""

    least: float | None = None
    most: float | None = None

    def met(self, value: float) -> bool:
        """Whether *value* is within both bounds; nan is not."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        if self.least is not None and self.most is not None:
            return f"{self.least:g} to {self.most:g}"
        return f"<= {self.most:g}" if self.least is None else f">= {self.least:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of one benchmark."""

    name: str
    value: float | None
    """None: it could not be measured, and `how` says why."""
    unit: str
    """`s`, `1/s`, or `ratio`."""
    how: str
    """The procedure, in one sentence."""
    target: BenchmarkTarget | None = None
    spread: tuple[float, float] | None = None
    """The values below and above which a tenth of the samples lies."""
    n: int = 0
    """The number of samples."""

    @property
    def met(self) -> bool | None:
        """Whether the value meets its target; None without a target, False without a value."""
        if self.target is None:
            return None
        return self.value is not None and self.target.met(self.value)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "value": self.value, "unit": self.unit, "target": self.target and str(self.target),
            "met": self.met, "spread": self.spread and list(self.spread), "n": self.n, "how": self.how,
        }  # fmt: skip


def typical(name: str, samples: Sequence[float], unit: str, how: str, target: BenchmarkTarget | None = None) -> Row:
    """A row with the median and the spread of *samples*."""
    return Row(name=name, value=median(samples), unit=unit, how=how, target=target, spread=spread(samples),
               n=len(samples))  # fmt: skip


def spread(samples: Sequence[float]) -> tuple[float, float]:
    """The values below and above which a tenth of *samples* lies; with fewer than ten, all of them."""
    return quantile(samples, 0.1), quantile(samples, 0.9)


def quantile(samples: Sequence[float], share: float) -> float:
    """The sample below which *share* of all lie."""
    ordered = sorted(samples)
    return ordered[round(share * (len(ordered) - 1))]


# The setting of all benchmarks: effort, cluster, and small trials.

if TYPE_CHECKING:
    from cluster.client import Cluster

WORLD = 2
RANKS = 4
"""Ranks of a private cluster: enough for world 4, and for two gangs of world 2 at once."""
DEADLINE_S = 30.0
ONCE = Protocol(name="once", warmups=0, repeats=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The size of the benchmarks. The targets are for `Effort()`; tests use less."""

    gangs: int = 20
    """Lists sent one after the other to a warm gang."""
    trials: int = 100
    """Trials of the list that measures the overhead."""
    samples: int = 300
    """Samples sent from a rank to this process."""
    sweep_s: float = 30.0
    """Seconds in which all clients sweep at the same time."""
    lists_s: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    """Seconds of one list of each client: clients with longer lists must not get more time in total."""
    plays: int = 200
    points: int = 10_800_000
    """Points of the closed form."""
    outcomes: int = 1_000
    appends: int = 100
    preset: str = "laptop_overlap"
    protocol: str = "default"
    calibration_s: float = FULL_SECONDS
    """Seconds of fitting the machine of CPU ranks, if it was not yet fitted to this computer."""
    pieces: tuple[int, ...] = (2, 4, 8, 16, 32)
    folder: Path | None = None
    """The folder for stores; None: next to this person's runs, on the same disk."""


@dataclass(slots=True)
class BenchmarkSetting:
    """The cluster, machine and effort of benchmarks; the `with` ends the private cluster that the first one started."""

    effort: Effort
    given: Cluster | None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _private: Cluster | None = None
    _fitted: Machine | None = None

    def __enter__(self) -> BenchmarkSetting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._stack.close()

    @property
    def cluster(self) -> Cluster:
        """The given cluster, or a private one on this host."""
        if self.given is not None:
            return self.given
        if self._private is None:
            from cluster import launch
            from cluster.client import Cluster

            record = self._stack.enter_context(launch.local(RANKS, published=False))
            self._private = self._stack.enter_context(Cluster.connect(record.address))
        return self._private

    @property
    def machine(self) -> Machine:
        """The machine of CPU ranks, as calibrated on this computer if it was."""
        return machines.machine(machines.LAPTOP)

    def fitted(self) -> Machine:
        """The machine calibrated on this host, or else now, for these benchmarks alone."""
        if self._fitted is None:
            self._fitted = self.machine if is_calibrated_here() else self._fit()
        return self._fitted

    def _fit(self) -> Machine:
        home, never = FromCluster(self.cluster), threading.Event()
        fitted = calibrate(
            lambda trials: home.answer(trials, never),
            machines.shipped_machine(machines.LAPTOP),
            self.effort.calibration_s,
        )
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            path = Path(folder) / f"{machines.LAPTOP}.toml"
            path.write_text(fitted.text)
            return load(path)

    @property
    def folder(self) -> Path:
        folder = self.effort.folder or resources.runs_directory()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def await_ranks(self) -> None:
        """Waits until a gang of WORLD ranks is free: starting a rank process takes seconds."""
        give_up_at = time.monotonic() + DEADLINE_S
        while self._free_ranks() < WORLD:
            if time.monotonic() > give_up_at:
                raise ValueError(f"{WORLD} free ranks did not come within {DEADLINE_S:g} s at "
                                 f"{self.cluster.address}. Accepted: a cluster that nobody else uses.")  # fmt: skip
            time.sleep(0.05)

    def _free_ranks(self) -> int:
        workers = self.cluster.describe()["workers"]
        return sum(worker["ready"] and not worker["busy"] for worker in workers)


def small(machine: Machine, protocol: Protocol = ONCE, iteration_s: float | None = None, scheme: str = "fused",
          **values: Value) -> Trial:  # fmt: skip
    """A tiny trial for two ranks; with *iteration_s* its transfer, which needs no core, takes that long."""
    usual = problem("gemm_all_to_all", {"m": 64, "n": 64, "k": 64}, world=WORLD)
    fast = Fabric(bandwidth_bytes_per_second=1e9)
    sent = 64 // WORLD * 64 * usual.itemsize
    fabric = replace(fast, bandwidth_bytes_per_second=sent / iteration_s) if iteration_s else fast
    return Trial(problem=usual, schedule=schedule(usual, scheme, values, machine, fabric), backend="cpu",
                 machine=machine.name, fabric=fabric, protocol=protocol)  # fmt: skip


# The overhead of a gang: cold and warm, per trial inside a grant, per sample on its way to this process.

Events = Sequence[ProgressEvent]

COLD_GANGS = 5
LISTS = 5
TIMED = Protocol(name="timed", warmups=0, repeats=3)
SAMPLE_S = 0.01


def gangs(setting: BenchmarkSetting) -> Iterator[Row]:
    """The wall time of a list of one tiny trial, from its request to its last result."""
    setting.await_ranks()
    trial = small(setting.machine)
    # benches belong to a world, a heap and a deadline: a new deadline has none yet
    cold = [_wall_s(setting, [trial], DEADLINE_S + 1 + number) for number in range(COLD_GANGS)]
    how = "World 2, rank processes up, benches not opened: from the request of a list of one trial to its last result."
    yield typical("gang_cold", cold, "s", how)
    _wall_s(setting, [trial])
    warm = [_wall_s(setting, [trial]) for _ in range(setting.effort.gangs)]
    yield typical("gang_warm", warm, "s", "The same list to a gang whose benches are open, one after the other.",
                  BenchmarkTarget(most=0.1))  # fmt: skip


def overhead(setting: BenchmarkSetting) -> Iterator[Row]:
    """The overhead per trial of a list in one grant: its wall time without the timed iterations."""
    trials = different(setting.machine, setting.effort.trials)
    _wall_s(setting, trials)
    seconds = []
    for _ in range(LISTS):
        began = time.perf_counter()
        events = _events(setting, trials)
        seconds.append((time.perf_counter() - began - timed_s(events)) / len(trials))
    how = (
        f"World 2, lists of {len(trials)} real trials of three schemes: wall time minus timed iterations, by the "
        "number of trials. Verification counts; there are no warm-ups."
    )
    yield typical("overhead_per_trial", seconds, "s", how, BenchmarkTarget(most=0.015))


def latency(setting: BenchmarkSetting) -> Iterator[Row]:
    """The age of a sample when it arrives in this process; both ends read one clock, on one host."""
    paced = small(setting.machine, Protocol(name="paced", warmups=0, repeats=setting.effort.samples), SAMPLE_S)
    ages = []
    for event in setting.cluster.stream([paced], world=WORLD, shares_heap=True, deadline_s=DEADLINE_S):
        if event["kind"] == "sample":
            ages.append(time.time() - event["at"])
    how = f"World 2, an iteration each {SAMPLE_S * 1e3:.0f} ms: from its end on its rank until its sample is here."
    yield typical("sample_latency", ages, "s", how)
    yield Row(name="sample_latency_p95", value=quantile(ages, 0.95), unit="s", how=f"{how} 95 of 100 are younger.",
              spread=spread(ages), n=len(ages))  # fmt: skip


def timed_s(events: Events) -> float:
    """Seconds of all timed iterations, each as long as its slowest rank."""
    slowest: dict[tuple[str, int], float] = {}
    for event in events:
        if event["kind"] == "sample":
            iteration = event["trial"], event["index"]
            slowest[iteration] = max(event["seconds"], slowest.get(iteration, 0.0))
    return sum(slowest.values())


def different(machine: Machine, count: int) -> list[Trial]:
    """*count* different trials of one problem and three schemes."""
    return list(islice(_short_trials(machine), count))


def _short_trials(machine: Machine) -> Iterator[Trial]:
    tiles = [f"{m}x{n}x64" for m in (8, 16, 32) for n in (8, 16, 32, 64)]
    for number, tile in enumerate(cycle(tiles)):
        iteration_s = 1e-3 + 1e-6 * number
        for scheme in COMPARED:
            yield small(machine, TIMED, iteration_s, scheme, tile=tile)


def _wall_s(setting: BenchmarkSetting, trials: Sequence[Trial], deadline_s: float = DEADLINE_S) -> float:
    began = time.perf_counter()
    _events(setting, trials, deadline_s)
    return time.perf_counter() - began


def _events(setting: BenchmarkSetting, trials: Sequence[Trial], deadline_s: float = DEADLINE_S) -> Events:
    events = list(setting.cluster.stream(trials, world=WORLD, shares_heap=True, deadline_s=deadline_s))
    if failed := [event for event in events if event["kind"] == "failure"]:
        raise ValueError(str(failed[0]["message"]))
    return events


# Estimates per second: plans played one by one, and the closed form over whole spaces.

SPACES = (("laptop_overlap", machines.LAPTOP, "emulated"), ("mixtral_8x7b_experts_8192", "h200_nvl8", "nvlink"))
"""Preset, machine and fabric of the spaces of the closed form."""
UNLIKE_FEWER = 27
"""The factor by which the points with hardly any repeats are fewer."""

Entry = tuple[Problem, str, Machine, Fabric]
Draw = Callable[[Problem, str, Machine, Fabric, int, np.random.Generator], dict[str, np.ndarray]]


def plays(setting: BenchmarkSetting) -> Iterator[Row]:
    """Times the estimates of trials of all operators and schemes, with plans expanded anew."""
    trials = list(islice(_preset_trials(setting.machine), setting.effort.plays))
    rates = []
    for trial in trials:
        PLANS.clear()
        began = time.perf_counter()
        predict(trial, setting.machine)
        rates.append(1 / (time.perf_counter() - began))
    how = "laptop_overlap at worlds 2 and 4, all operators x schemes: a plan made, priced and played with its spans."
    yield typical("play_estimates", rates, "1/s", how)


def _preset_trials(machine: Machine) -> Iterator[Trial]:
    """Endless trials of all operators and schemes of the laptop's preset."""
    link = parse("emulated")
    trials = []
    for world in (2, 4):
        for case in presets.preset("laptop_overlap", world=world):
            fabric = resolved(link, case, machine)
            trials += [Trial(problem=case, schedule=schedule(case, scheme, {}, machine, fabric), backend="cpu",
                            machine=machine.name, fabric=fabric, protocol=PROTOCOLS["default"])
                      for scheme in COMPARED]  # fmt: skip
    return cycle(trials)


def points(setting: BenchmarkSetting) -> Iterator[Row]:
    """Times random points of the whole spaces of all operators and schemes, legal or not.

    Choices repeat, as in the spaces that people explore; sizes drawn from a range hardly ever repeat.
    """
    spaces = [entry for preset, machine, fabric in SPACES
             for entry in _spaces(preset, machines.machine(machine), parse(fabric))]  # fmt: skip
    each = max(1, setting.effort.points // len(spaces))
    yield _rate(
        "grid_estimates",
        spaces,
        each,
        _choices,
        BenchmarkTarget(least=5e6),
        "values of all axes and three of each size",
    )
    least = max(1, each // UNLIKE_FEWER)
    yield _rate("grid_estimates_unlike", spaces, least, _unlike, None, "values of all axes, and sizes hardly two alike")


def _rate(name: str, spaces: Sequence[Entry], each: int, draw: Draw, target: BenchmarkTarget | None, what: str) -> Row:
    """Points per second of one core, over *each* points that *draw* makes of every one of *spaces*."""
    random, rates, seconds = np.random.default_rng(0), [], 0.0
    for case, scheme, machine, fabric in spaces:
        columns = draw(case, scheme, machine, fabric, each, random)
        began = time.thread_time()  # one thread does it; what other processes do meanwhile is not counted
        grid.times(case, scheme, columns, machine, fabric)
        took = time.thread_time() - began
        rates.append(each / took)
        seconds += took
    how = (
        f"{len(spaces)} spaces of {each:,} random points on CPU ranks and H200s, legality included: {what}. Points per "
        "second of one core; the spread is the slowest and the fastest space."
    )
    total = each * len(spaces)
    return Row(name=name, value=total / seconds, unit="1/s", target=target, n=total, spread=(min(rates), max(rates)),
               how=how)  # fmt: skip


def _spaces(preset: str, machine: Machine, fabric: Fabric) -> Iterator[Entry]:
    offered = {entry.operator for entry in presets.preset_named(preset).entries}
    for name in (name for name in OPERATORS if name in offered):
        (problem,) = presets.preset(preset, name)
        for scheme in COMPARED:
            yield problem, scheme, machine, resolved(fabric, problem, machine)


def _choices(problem: Problem, scheme: str, machine: Machine, fabric: Fabric, count: int,
             random: np.random.Generator) -> dict[str, np.ndarray]:  # fmt: skip
    """Random points of all values of every axis, and of every size halved, kept and doubled."""
    sizes = {key: (max(1, size // 2), size, 2 * size) for key, size in problem.shape if isinstance(size, int)}
    values = {axis.name: axis.values for axis in axes(problem, scheme, machine, fabric)}
    return {name: random.choice(np.array(each), count) for name, each in {**values, **sizes}.items()}


def _unlike(problem: Problem, scheme: str, machine: Machine, fabric: Fabric, count: int,
            random: np.random.Generator) -> dict[str, np.ndarray]:  # fmt: skip
    """Random points of all values of every axis, and of any shared size from its half to its double."""
    columns = _choices(problem, scheme, machine, fabric, count, random)
    sizes = {key: size for key, size in problem.shape if isinstance(size, int)}
    shares = {key.name: problem.world if key.shared else 1 for key in operator(problem.operator).keys}
    return columns | {key: share * random.integers(max(1, size // share // 2), 2 * size // share + 1, count)
                      for key, size in sizes.items() for share in (shares[key],)}  # fmt: skip


# The gain of overlap on CPU ranks: a balanced expert GEMM, schemes in one run, pieces, world 4.

OPERATOR = "gemm_all_to_all"
SLICES = 8
TO_LIMIT, TO_SEQUENTIAL, TO_PLAY = (
    BenchmarkTarget(most=1.2),
    BenchmarkTarget(most=0.75),
    BenchmarkTarget(least=0.85, most=1.15),
)
NOT_WORSE = BenchmarkTarget(most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapResult:
    """The measurements of one run."""

    problem: Problem
    fabric: Fabric
    """Resolved."""
    whole: Mapping[Schedule, Measurement]
    alone: Mapping[Schedule, Measurement]
    """The computation alone of every schedule in `schemes`, otherwise of the sequential one."""

    @property
    def compute(self) -> Measurement:
        """The sequential schedule's computation alone."""
        return next(measurement for of, measurement in self.alone.items() if of.scheme == BASELINE)

    @property
    def wire_s(self) -> float:
        """Seconds of the fewest bytes of one rank over its link."""
        rate = self.fabric.rate(self.problem.world)
        return OPERATORS[self.problem.operator].wire_bytes(self.problem) / rate if rate else 0.0


def schemes(setting: BenchmarkSetting) -> Iterator[Row]:
    """Times sequential, decomposed and fused, interleaved iteration by iteration."""
    (problem,) = presets.preset(setting.effort.preset, OPERATOR, world=WORLD)
    with _overlap_runs(setting) as measure:
        result = measure(problem, compared(problem, setting.machine), parts="each")
    how = f"{_setting_text(problem, setting)}, all schemes interleaved in one run"
    yield from _times("overlap", result, f"{how}; the slowest rank's median.")
    limit_s = max(result.compute.time_s, result.wire_s)
    yield Row(name="overlap_limit", value=limit_s, unit="s", n=len(result.compute.samples[0]),
              spread=_spread(result.compute),
              how=f"{how}: the longer of compute alone ({result.compute.time_s * 1e3:.1f} ms, measured) and wire alone "
              f"({result.wire_s * 1e3:.1f} ms, least bytes over bandwidth); the spread is compute's.")  # fmt: skip
    whole = {of.scheme: measurement for of, measurement in result.whole.items()}
    sequential = whole.pop(BASELINE)
    yield _ratio(
        "fused_to_limit", whole["fused"], limit_s, f"{how}: fused with {SLICES} slices over the limit.", TO_LIMIT
    )
    for name, measurement in whole.items():
        ratio = _ratio(f"{name}_to_sequential", measurement, sequential.time_s, f"{how}: {name} over sequential.",
                       TO_SEQUENTIAL)  # fmt: skip
        pairs = zip(_slowest(measurement), _slowest(sequential), strict=True)
        yield replace(ratio, spread=spread([seconds / base for seconds, base in pairs]))
    for of in list(result.whole)[1:]:
        alone = f"{how}: the computation of {of.scheme} alone over that of sequential alone: what cutting costs."
        yield _ratio(f"{of.scheme}_compute_alone", result.alone[of], result.compute.time_s, alone, None)
    yield from _to_play(result, setting.fitted(), how)


def pieces(setting: BenchmarkSetting) -> Iterator[Row]:
    """Times decomposed over its pieces: too few take long to fill and drain, too many cost more than they hide."""
    (problem,) = presets.preset(setting.effort.preset, OPERATOR, world=WORLD)
    with _overlap_runs(setting) as measure:
        link = parse("emulated")
        result = measure(problem, [schedule(problem, "decomposed", {"pieces": count}, setting.machine, link)
                                   for count in setting.effort.pieces])  # fmt: skip
    how = f"{_setting_text(problem, setting)}, all pieces interleaved in one run"
    by_count = {of.count("pieces"): measured for of, measured in result.whole.items()}
    for count, measured in by_count.items():
        yield _time(f"pieces_{count}", measured, f"{how}: decomposed, pieces = {count}; the slowest rank's median.")
    first, *inner, last = (measured.time_s for measured in by_count.values())
    yield Row(name="pieces_curve", value=min(inner) / min(first, last), unit="ratio", target=NOT_WORSE, n=len(by_count),
              how=f"{how}: the best between the ends over the better end; below 1 the curve is a U.")  # fmt: skip


def world_4(setting: BenchmarkSetting) -> Iterator[Row]:
    """Times all schemes at world 4 without targets, as fewer cores than ranks are shared."""
    (problem,) = presets.preset(setting.effort.preset, OPERATOR, world=4)
    with _overlap_runs(setting) as measure:
        result = measure(problem, compared(problem, setting.machine))
    yield from _times("world_4", result, f"{_setting_text(problem, setting)}, all schemes interleaved in one run; "
                      "the slowest rank's median. Without targets: ranks share cores if there are fewer.")  # fmt: skip


def compared(problem: Problem, machine: Machine) -> list[Schedule]:
    """The default schedules of all schemes, but fused with SLICES slices."""
    link = parse("emulated")
    first = schedule(problem, "fused", {}, machine, link)
    tiles = len(tile_order(problem, first, 0))
    values: dict[str, dict[str, Value]] = {"fused": {"slice_tiles": max(1, -(-tiles // SLICES))}}
    return [schedule(problem, scheme, values.get(scheme, {}), machine, link) for scheme in COMPARED]


class _OverlapRuns:
    """Measures schedules of one problem in one run; runs of one store share their resolved link."""

    def __init__(self, setting: BenchmarkSetting, store: Store) -> None:
        self._setting, self._store = setting, store

    def __call__(self, problem: Problem, schedules: Sequence[Schedule], parts: str = "baseline") -> OverlapResult:
        setting = self._setting
        experiment = Experiment(
            problems=(problem,), space=Space(tuple(_choice(one) for one in schedules)), backend="cpu",
            machine=setting.machine.name, fabric=parse("emulated:wire_to_compute=1"), together=True, fresh=True,
            protocol=protocol(setting.effort.protocol), title="benchmark", parts=parts,
        )  # fmt: skip
        outcomes = [outcome for outcome in run(experiment, self._store, FromCluster(setting.cluster), setting.machine)
                    if not isinstance(outcome, Sample)]  # fmt: skip
        if failed := [outcome for outcome in outcomes if isinstance(outcome, Failure)]:
            raise ValueError(failed[0].message)
        measured = [outcome for outcome in outcomes if isinstance(outcome, Measurement)]
        whole = {outcome.trial.schedule: outcome for outcome in measured if outcome.trial.part == "whole"}
        alone = {outcome.trial.schedule: outcome for outcome in measured if outcome.trial.part == "compute"
                 and outcome.trial.protocol == experiment.protocol}  # fmt: skip
        return OverlapResult(problem=problem, fabric=next(iter(whole.values())).trial.fabric, alone=alone,
                   whole={one: whole[one] for one in schedules})  # fmt: skip


@contextmanager
def _overlap_runs(setting: BenchmarkSetting) -> Iterator[_OverlapRuns]:
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder, Store(Path(folder) / "store.sqlite") as store:
        yield _OverlapRuns(setting, store)


def _choice(one: Schedule) -> Choice:
    return Choice(one.scheme, tuple((name, (value,)) for name, value in one.axes))


def _setting_text(problem: Problem, setting: BenchmarkSetting) -> str:
    return f"{problem.operator} of preset {setting.effort.preset}, world {problem.world}, wire as long as compute"


def _times(name: str, result: OverlapResult, how: str) -> Iterator[Row]:
    for of, measured in result.whole.items():
        yield _time(f"{name}_{of.scheme}", measured, how)


def _time(name: str, measured: Measurement, how: str) -> Row:
    return Row(name=name, value=measured.time_s, unit="s", how=how, spread=_spread(measured),
               n=len(measured.samples[0]))  # fmt: skip


def _ratio(name: str, measured: Measurement, to_s: float, how: str, target: BenchmarkTarget | None) -> Row:
    around = spread([seconds / to_s for seconds in _slowest(measured)])
    return Row(name=name, value=measured.time_s / to_s, unit="ratio", how=how, target=target, spread=around,
               n=len(measured.samples[0]))  # fmt: skip


def _to_play(result: OverlapResult, machine: Machine, how: str) -> Iterator[Row]:
    """Measured over simulated time: by the machine's file, and by a machine that computes as fast as this run did."""
    same = _as_fast(machine, result.compute.time_s / predict(result.compute.trial, machine, with_spans=False).time_s)
    for of, measured in result.whole.items():
        played, alike = (predict(measured.trial, other, with_spans=False).time_s for other in (machine, same))
        name = f"{of.scheme}_to_play"
        by_file = f"{how}: {of.scheme} over what play says ({machine.name}, calibrated {machine.calibrated})."
        by_run = f"{how}: {of.scheme} over what play says, its computation as fast as this run's compute alone."
        yield _ratio(name, measured, played, by_file, TO_PLAY)
        yield _ratio(f"{name}_same_compute", measured, alike, by_run, None)


def _as_fast(machine: Machine, slower: float) -> Machine:
    """*machine* with tiles that take *slower* times as long."""
    peaks: dict[str, Any] = {name: peak / slower for name, peak in machine.device.matrix_flops_per_second.items()}
    rates = tuple(replace(rate, per_second=rate.per_second / slower) if rate.work == "gemm" else rate
                  for rate in machine.rates)  # fmt: skip
    return replace(machine, device=replace(machine.device, matrix_flops_per_second=peaks), rates=rates)


def _slowest(measured: Measurement) -> list[float]:
    """The time of the slowest rank by iteration."""
    return [max(ranks) for ranks in zip(*measured.samples, strict=True)]


def _spread(measured: Measurement) -> tuple[float, float]:
    return spread(_slowest(measured))


# The fairness of the cluster: clients in processes of their own sweep it at the same time.

PATIENCE_S = 90.0
"""Seconds for starting a client and ending its last list; after them and the sweep it is killed."""

END_S = 10.0


def fairness(setting: BenchmarkSetting) -> Iterator[Row]:
    """Measures the ratio of the most to the fewest granted seconds."""
    with ExitStack() as stack:
        lists_s, most_s = setting.effort.lists_s, setting.effort.sweep_s + PATIENCE_S
        clients = [stack.enter_context(Client(setting.cluster.address, list_s, most_s)) for list_s in lists_s]
        names = [client.line() for client in clients]
        before = _granted_s(setting)
        for client in clients:
            client.say(f"{setting.effort.sweep_s}")
        lists = [int(client.line()) for client in clients]
        after = _granted_s(setting)
        shares = [after[name] - before[name] for name in names]
    shares_text = ", ".join(f"{share:.1f} s in {count} lists of {length:g} s"
                      for share, count, length in zip(shares, lists, lists_s, strict=True))  # fmt: skip
    if min(shares) <= 0:
        raise ValueError(f"A client got nothing in {setting.effort.sweep_s:g} s: {shares_text}.")
    how = (
        f"{len(names)} client processes sweep {setting.effort.sweep_s:g} s at world 2: most over fewest granted seconds"
    )
    yield Row(
        name="fairness",
        value=max(shares) / min(shares),
        unit="ratio",
        target=BenchmarkTarget(most=1.5),
        n=sum(lists),
        how=f"{how} ({shares_text}).",
    )


def _granted_s(setting: BenchmarkSetting) -> dict[str, float]:
    seconds: dict[str, float] = setting.cluster.describe()["granted_seconds"]
    return seconds


class Client:
    """A process that runs this file: it connects, waits for its order, sweeps and reports."""

    def __init__(self, address: str, list_s: float, most_s: float) -> None:
        # it imports what we import, however this process was started
        path = os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "workbench.cli.benchmark_parts", json.dumps({"address": address, "list_s": list_s})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        self._deadline = threading.Timer(most_s, self._process.kill)
        self._deadline.start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._deadline.cancel()
        self._process.stdout.close()

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line that it prints; ValueError if it ended instead."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline().strip()
        if not text:
            raise ValueError("A client of the fairness benchmark did not come to its end; its error is above.")
        return text


# The client process of the fairness benchmark.

ITERATION_S = 0.01


def main() -> None:
    """Connects, sweeps, reports."""
    order = json.loads(sys.argv[1])
    machine = machines.machine(machines.LAPTOP)
    repeats = max(1, round(order["list_s"] / ITERATION_S))
    trial = small(machine, Protocol(name="sweep", warmups=0, repeats=repeats), ITERATION_S)
    with Cluster.connect(order["address"]) as cluster:
        _measure(cluster, small(machine))
        print(cluster.client.id, flush=True)
        ends = time.monotonic() + float(sys.stdin.readline() or 0)
        _measure(cluster, trial)
        count = 1
        while time.monotonic() < ends:
            _measure(cluster, trial)
            count += 1
        print(count, flush=True)
        sys.stdin.read()


def _measure(cluster: Cluster, trial: Trial) -> None:
    for event in cluster.stream([trial], world=WORLD, shares_heap=True, deadline_s=DEADLINE_S):
        if event["kind"] == "failure":
            raise ValueError(event["message"])


if __name__ == "__main__":
    main()
