"""A GEMV and its all-reduce, fused: partial sums leave as packets, which say themselves that they are there."""

from __future__ import annotations

from typing import Any

from kernels.backends.triton import limits
from kernels.backends.triton.recipes.fused import OneKernel
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes.packets import shots


def _facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    """Constants of the problem are compiled into it."""
    return "gemv", (problem, schedule["num_warps"], schedule["num_stages"], shots(problem, schedule))


KERNEL = OneKernel(refusal=limits.of_tile, facts=_facts,
                   module="kernels.backends.triton.kernels.gemv")  # fmt: skip
