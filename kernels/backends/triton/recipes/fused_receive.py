"""A GEMM whose operand rows come in, fused: some of its programs push rows while the others compute what is there."""

from __future__ import annotations

from typing import Any

from kernels.axes import tile
from kernels.backends.triton import limits
from kernels.backends.triton.pieces import piece
from kernels.backends.triton.recipes.fused import OneKernel, kinds
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes.base import num_tiles
from kernels.schemes.fused import slice_rows


def _facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    operator = OPERATORS[problem.operator]
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    return "receive", (
        schedule["store"], schedule["num_warps"], schedule["num_stages"], 1 if alone else problem.world,
        *kinds(num_tiles(problem, schedule["tile"]), chunk, extent.columns, extent.contraction),
        *_of_puts(problem, schedule, 0 if alone or problem.world == 1 else schedule.count("comm_sms")),
    )  # fmt: skip


def _of_puts(problem: Problem, schedule: Schedule, comm: int) -> tuple[Any, ...]:
    """What the kernel is told of the rows that leave."""
    operator, size, slices = OPERATORS[problem.operator], tile(schedule["tile"]), slice_rows(problem, schedule)
    chunk, contraction = operator.chunk_rows(problem), operator.extent(problem).contraction
    put = piece(problem, size)
    pieces = -(-slices[0][1] // put.m) * -(-contraction // put.k)
    return (operator.collective, chunk % size.m == 0, put.k,
            *kinds((problem.world - 1) * len(slices), pieces, comm))  # fmt: skip


KERNEL = OneKernel(refusal=limits.of_gemm, ranks_most=limits.RANKS_MOST, facts=_facts,
                   module="kernels.backends.triton.kernels.gemm_receive")  # fmt: skip
