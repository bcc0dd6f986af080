"""Does overlap pay on CPU ranks as it should? A balanced expert GEMM: schemes in one run, pieces, world 4."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernels.axes import Value
from kernels.fabric import Fabric, parse
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.outcome import Failure, Measurement, Sample
from kernels.problem import Problem
from kernels.protocol import protocol
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, COMPARED, schedule, tile_order
from workbench import presets
from workbench.answer import FromCluster
from workbench.benchmark.rows import Row, Target, spread
from workbench.benchmark.setting import WORLD, Setting
from workbench.experiment import Experiment
from workbench.run import run
from workbench.simulator.predict import predict
from workbench.space import Choice, Space
from workbench.store import Store

OPERATOR = "gemm_all_to_all"
SLICES = 8
TO_LIMIT, TO_SEQUENTIAL, TO_PLAY = Target(most=1.2), Target(most=0.75), Target(least=0.85, most=1.15)
NOT_WORSE = Target(most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sat:
    """What one sitting measured."""

    problem: Problem
    fabric: Fabric
    """Resolved."""
    whole: Mapping[Schedule, Measurement]
    alone: Mapping[Schedule, Measurement]
    """The computation alone: of every schedule in `schemes`, else of the sequential one."""

    @property
    def compute(self) -> Measurement:
        """The sequential schedule's computation alone."""
        return next(measurement for of, measurement in self.alone.items() if of.scheme == BASELINE)

    @property
    def wire_s(self) -> float:
        """The least bytes of one rank over its link."""
        rate = self.fabric.rate(self.problem.world)
        return OPERATORS[self.problem.operator].wire_bytes(self.problem) / rate if rate else 0.0


def schemes(setting: Setting) -> Iterator[Row]:
    """Sequential, decomposed and fused, iteration by iteration in turns."""
    (problem,) = presets.preset(setting.effort.preset, OPERATOR, world=WORLD)
    with _sitting(setting) as sit:
        sat = sit(problem, compared(problem, setting.machine), parts="each")
    how = f"{_words(problem, setting)}, all schemes in turns in one run"
    yield from _times("overlap", sat, f"{how}; the slowest rank's median.")
    limit_s = max(sat.compute.time_s, sat.wire_s)
    yield Row(name="overlap_limit", value=limit_s, unit="s", n=len(sat.compute.samples[0]), spread=_spread(sat.compute),
              how=f"{how}: the longer of compute alone ({sat.compute.time_s * 1e3:.1f} ms, measured) and wire alone "
              f"({sat.wire_s * 1e3:.1f} ms, least bytes over bandwidth); the spread is compute's.")  # fmt: skip
    whole = {of.scheme: measurement for of, measurement in sat.whole.items()}
    sequential = whole.pop(BASELINE)
    yield _ratio(
        "fused_to_limit", whole["fused"], limit_s, f"{how}: fused with {SLICES} slices over the limit.", TO_LIMIT
    )
    for name, measurement in whole.items():
        ratio = _ratio(f"{name}_to_sequential", measurement, sequential.time_s, f"{how}: {name} over sequential.",
                       TO_SEQUENTIAL)  # fmt: skip
        pairs = zip(_slowest(measurement), _slowest(sequential), strict=True)
        yield replace(ratio, spread=spread([seconds / base for seconds, base in pairs]))
    for of in list(sat.whole)[1:]:
        alone = f"{how}: the computation of {of.scheme} alone over that of sequential alone: what cutting costs."
        yield _ratio(f"{of.scheme}_compute_alone", sat.alone[of], sat.compute.time_s, alone, None)
    yield from _to_play(sat, setting.fitted(), how)


def pieces(setting: Setting) -> Iterator[Row]:
    """Decomposed over its pieces: too few leave much to fill and drain, too many cost more than they hide."""
    (problem,) = presets.preset(setting.effort.preset, OPERATOR, world=WORLD)
    with _sitting(setting) as sit:
        sat = sit(problem, [schedule(problem, "decomposed", {"pieces": count}, setting.machine, parse("emulated"))
                          for count in setting.effort.pieces])  # fmt: skip
    how = f"{_words(problem, setting)}, all pieces in turns in one run"
    by_count = {of.count("pieces"): measured for of, measured in sat.whole.items()}
    for count, measured in by_count.items():
        yield _time(f"pieces_{count}", measured, f"{how}: decomposed, pieces = {count}; the slowest rank's median.")
    first, *inner, last = (measured.time_s for measured in by_count.values())
    yield Row(name="pieces_curve", value=min(inner) / min(first, last), unit="ratio", target=NOT_WORSE, n=len(by_count),
              how=f"{how}: the best between the ends over the better end; below 1 the curve is a U.")  # fmt: skip


def world_4(setting: Setting) -> Iterator[Row]:
    """The same at world 4, which on fewer cores than ranks measures the cores: without targets."""
    (problem,) = presets.preset(setting.effort.preset, OPERATOR, world=4)
    with _sitting(setting) as sit:
        sat = sit(problem, compared(problem, setting.machine))
    yield from _times("world_4", sat, f"{_words(problem, setting)}, all schemes in turns in one run; the slowest "
                      "rank's median. Reported, not bounded: ranks share cores where there are fewer.")  # fmt: skip


def compared(problem: Problem, machine: Machine) -> list[Schedule]:
    """All schemes as they are by default, but fused with SLICES slices."""
    link = parse("emulated")
    first = schedule(problem, "fused", {}, machine, link)
    tiles = len(tile_order(problem, first, 0))
    values: dict[str, dict[str, Value]] = {"fused": {"slice_tiles": max(1, -(-tiles // SLICES))}}
    return [schedule(problem, scheme, values.get(scheme, {}), machine, link) for scheme in COMPARED]


class _Sitting:
    """Measures schedules of one problem in one run; runs of one sitting share their resolved link."""

    def __init__(self, setting: Setting, store: Store) -> None:
        self._setting, self._store = setting, store

    def __call__(self, problem: Problem, schedules: Sequence[Schedule], parts: str = "baseline") -> Sat:
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
        return Sat(problem=problem, fabric=next(iter(whole.values())).trial.fabric, alone=alone,
                   whole={one: whole[one] for one in schedules})  # fmt: skip


@contextmanager
def _sitting(setting: Setting) -> Iterator[_Sitting]:
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder, Store(Path(folder) / "store.sqlite") as store:
        yield _Sitting(setting, store)


def _choice(one: Schedule) -> Choice:
    return Choice(one.scheme, tuple((name, (value,)) for name, value in one.axes))


def _words(problem: Problem, setting: Setting) -> str:
    return f"{problem.operator} of preset {setting.effort.preset}, world {problem.world}, wire as long as compute"


def _times(name: str, sat: Sat, how: str) -> Iterator[Row]:
    for of, measured in sat.whole.items():
        yield _time(f"{name}_{of.scheme}", measured, how)


def _time(name: str, measured: Measurement, how: str) -> Row:
    return Row(name=name, value=measured.time_s, unit="s", how=how, spread=_spread(measured),
               n=len(measured.samples[0]))  # fmt: skip


def _ratio(name: str, measured: Measurement, to_s: float, how: str, target: Target | None) -> Row:
    around = spread([seconds / to_s for seconds in _slowest(measured)])
    return Row(name=name, value=measured.time_s / to_s, unit="ratio", how=how, target=target, spread=around,
               n=len(measured.samples[0]))  # fmt: skip


def _to_play(sat: Sat, machine: Machine, how: str) -> Iterator[Row]:
    """Measured over simulated: by the machine's file, and by a machine that computes as fast as this run did."""
    same = _as_fast(machine, sat.compute.time_s / predict(sat.compute.trial, machine, with_spans=False).time_s)
    for of, measured in sat.whole.items():
        played, alike = (predict(measured.trial, other, with_spans=False).time_s for other in (machine, same))
        name = f"{of.scheme}_to_play"
        by_file = f"{how}: {of.scheme} over what play says ({machine.name}, calibrated {machine.calibrated})."
        by_run = f"{how}: {of.scheme} over what play says, its computation as fast as this run's compute alone."
        yield _ratio(name, measured, played, by_file, TO_PLAY)
        yield _ratio(f"{name}_same_compute", measured, alike, by_run, None)


def _as_fast(machine: Machine, slower: float) -> Machine:
    """*machine*, its tiles taking *slower* times as long."""
    peaks: dict[str, Any] = {name: peak / slower for name, peak in machine.device.matrix_flops_per_second.items()}
    rates = tuple(replace(rate, per_second=rate.per_second / slower) if rate.work == "gemm" else rate
                  for rate in machine.rates)  # fmt: skip
    return replace(machine, device=replace(machine.device, matrix_flops_per_second=peaks), rates=rates)


def _slowest(measured: Measurement) -> list[float]:
    """By iteration, the slowest rank."""
    return [max(ranks) for ranks in zip(*measured.samples, strict=True)]


def _spread(measured: Measurement) -> tuple[float, float]:
    return spread(_slowest(measured))
