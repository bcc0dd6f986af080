"""How long trials take on the ranks' clock, set-up and all: from the closed form, before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite, prod

import numpy as np

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.protocol import Protocol
from kernels.schedule import Schedule
from kernels.schemes import BASELINE, problems
from kernels.trial import Trial
from workbench.simulator import grid
from workbench.simulator.predict import compute_alone_seconds

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
class Expected:
    """Of a list of trials, as far as it can be estimated."""

    total_s: float
    """Of all trials."""
    silent_s: float
    """The longest single stage, in which a rank has nothing to report: one iteration, or the making of operands."""


def expected(trials: Sequence[Trial], iterations_s: Sequence[float | None]) -> Expected:
    """Of *trials*, one iteration of each of which takes *iterations_s*; None where nobody knows."""
    known = [(seconds or 0.0) * rounds(trial.protocol) for seconds, trial in zip(iterations_s, trials, strict=True)]
    slowest_s = max((UNKNOWN_ITERATION_SECONDS if one is None else one for one in iterations_s), default=0.0)
    making_s = max(map(_making_s, {trial.problem for trial in trials}), default=0.0)
    set_up_s = max((SETTING_UP_SECONDS[trial.backend] for trial in trials), default=0.0)
    beginning_s = making_s + set_up_s + PREPARING_SECONDS * len(trials)
    overheads_s = sum(overhead_s(trial.backend, trial.protocol) for trial in trials)
    return Expected(total_s=sum(known) + overheads_s, silent_s=max(slowest_s, beginning_s))


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
