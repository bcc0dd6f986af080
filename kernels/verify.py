"""Whether a result is right: its error against float64 within a bound that follows from dtype and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt

import torch
from torch import Tensor

from kernels.operators import OPERATORS
from kernels.plan import Kind, Plan
from kernels.problem import Problem

ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of each dtype; bfloat16's is 2^-9 for round to nearest, doubled for kernels that truncate."""
SIGMAS = 8.0
"""Operands are standard normal, so an output beyond this many standard deviations is not to be expected."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far a result is from the truth, in standard deviations of the truth."""

    error: float
    bound: float
    stale: bool = False
    """Whether it is the result that an earlier call had to leave, of other operands."""

    @property
    def correct(self) -> bool:
        """Not `error > bound`: an error that is NaN is wrong."""
        return self.error <= self.bound

    def sentence(self, rank: int) -> str:
        if self.stale:
            return (
                f"The result on rank {rank} is wrong. It is that of an earlier call, on other operands, which the last "
                "call left in place. It was not timed."
            )
        return (
            f"The result on rank {rank} is wrong. Its largest error is {self.error:.3g} of the output's standard "
            f"deviation, and the limit is {self.bound:.3g}. It was not timed."
        )


def badness(found: Verdict) -> float:
    """Orders verdicts: the worst one has the most; NaN is worse than any error."""
    share = found.error / found.bound
    return share if share == share else inf


def roundings(plan: Plan) -> int:
    """How often *plan* rounds a value to the problem's dtype on its way to the output, before the output itself."""
    pieces = len(set(plan.k_start[plan.kind == Kind.COMPUTE].tolist()))
    return pieces + (plan.problem.world if OPERATORS[plan.problem.operator].reduces else 0)


def bound(problem: Problem, roundings: int) -> float:
    """Accepted error in standard deviations of the output.

    Sums of K random terms err by about sqrt(K) float32 roundings of the running sum; each time a value is stored
    in the problem's dtype (the result, and *roundings* times before: partial sums that travel, pieces of the
    contraction) it adds one rounding of a value that may be SIGMAS deviations large. Roundings are independent, so they
    add up as a random walk: counted one by one, 64 of them would hide a piece that is missing.
    """
    k = OPERATORS[problem.operator].extent(problem).contraction * problem.world
    return SIGMAS * (ROUNDING[problem.dtype] * (1 + sqrt(roundings)) + 4 * ROUNDING["float32"] * sqrt(k))


def verdict(problem: Problem, got: Tensor, expected: Tensor, roundings: int) -> Verdict:
    """*got* [any dtype] against *expected* [float64], equal shapes. NaN anywhere in *got* is wrong."""
    assert got.shape == expected.shape, f"{tuple(got.shape)} is not {tuple(expected.shape)}"
    scale = expected.square().mean().sqrt().item() or 1.0
    error = (got.double() - expected).abs().max().item() / scale
    return Verdict(error if not torch.isnan(got).any() else float("nan"), bound(problem, roundings))
