"""A GEMM that sends, fused: each tile leaves for its owner as soon as it is done, and is summed there where asked."""

from __future__ import annotations

from typing import Any

from kernels.backends.triton import limits
from kernels.backends.triton.recipes.fused import OneKernel, kinds
from kernels.operators import OPERATORS, Flow
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import hints
from kernels.schemes.base import num_tiles


def _facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    operator = OPERATORS[problem.operator]
    extent, sums = operator.extent(problem), operator.reduces and not alone
    rows = extent.rows if alone else operator.chunk_rows(problem)
    return "send and sum" if sums else "send", (
        schedule["store"], hints.modifier(schedule), schedule["num_warps"], schedule["num_stages"],
        1 if alone else problem.world, sums, operator.flow is Flow.BROADCAST and not alone,
        *kinds(num_tiles(problem, schedule["tile"]), rows, extent.columns, extent.contraction),
    )  # fmt: skip


KERNEL = OneKernel(refusal=limits.of_gemm, ranks_most=limits.RANKS_MOST, facts=_facts,
                   module="kernels.backends.triton.kernels.gemm_send")  # fmt: skip
