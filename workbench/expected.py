"""What a list of trials may well take, said before it is asked for: in all, and without a word from a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.trial import Trial

SETTING_UP_SECONDS = 0.08
"""Operands, compilation and verification of one trial on a warm gang of CPU ranks, as found on two cores."""
PREPARING_SECONDS = 0.01
"""The share of it that all trials of a sitting take one after the other, in silence."""
OPERAND_BYTES_PER_SECOND = 5e8
"""Random operands are made at this speed by one core."""
UNKNOWN_ITERATION_SECONDS = 1.5
"""Of a trial that cannot be estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """As far as it can be estimated."""

    total_s: float
    """Of all trials."""
    silent_s: float
    """The longest single stage, in which a rank has nothing to report: one iteration, or the making of operands."""


def expected(trials: Sequence[Trial], iterations_s: Sequence[float | None]) -> Expected:
    """Of *trials*, one iteration of each of which takes *iterations_s*; None where nobody knows."""
    rounds = [1 + trial.protocol.warmups + trial.protocol.repeats for trial in trials]
    known = [(seconds or 0.0) * count for seconds, count in zip(iterations_s, rounds, strict=True)]
    slowest_s = max((UNKNOWN_ITERATION_SECONDS if one is None else one for one in iterations_s), default=0.0)
    making_s = max(map(_making_s, {trial.problem for trial in trials}), default=0.0)
    beginning_s = making_s + SETTING_UP_SECONDS + PREPARING_SECONDS * len(trials)
    return Expected(total_s=sum(known) + SETTING_UP_SECONDS * len(trials), silent_s=max(slowest_s, beginning_s))


def _making_s(problem: Problem) -> float:
    """A rank makes its own operands, and those of all for the reference."""
    shapes = OPERATORS[problem.operator].local(problem).values()
    return (1 + problem.world) * problem.itemsize * sum(map(prod, shapes)) / OPERAND_BYTES_PER_SECOND
