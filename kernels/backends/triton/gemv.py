"""GEMV and all-reduce in one kernel: what `gemv_all_reduce` is called with, and which form suits how many values."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.axes import Tile, tile
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.gemv import gemv_all_reduce
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.send import TRITON_DTYPES
from kernels.backends.triton.tiles import FEWEST_K
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schemes.base import above

ONE_SHOT_VALUES = 64 * 1024
"""Up to so many values of the output everybody sends all partial sums to all; above, only to the owner of their rows.

At world 4 one shot puts 24 bytes a value on the wire and two shots 12, which pays for a second flight of about 1.5 us.
"""
FEWEST_TAKEN = 32
"""Values that a program takes at least: a warp's worth of packets from each rank."""
SHARES = 256
"""Programs that take packets: no more than are resident on any data-center GPU, so that each takes one share."""


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """`gemv_all_reduce` for one trial; *alone*: partial sums into `context.local`, nothing sent or awaited."""
    problem, schedule = context.problem, context.plan.schedule
    extent, size = OPERATORS[problem.operator].extent(problem), tile(schedule["tile"])
    num_warps, num_stages, values = schedule.count("num_warps"), schedule.count("num_stages"), problem_values(problem)
    table = first_values(context.plan, context.rank).to(context.device)
    around = [(context.rank + 1 + near) % problem.world for near in range(problem.world)]
    packets = tuple(context.of(rank, "packets") for rank in around)
    one = min(size.n, extent.columns) == 1
    return Kernel(
        function=gemv_all_reduce,
        arguments=(
            operands["weights"], operands["activations"], table, len(table), extent.rows // problem.world,
            extent.contraction, context.local if alone else context.result(), packets,
            context.epoch, context.arrived, context.error, context.limit_ns, context.rank, None,
        ),
        constants={
            "WORLD": problem.world, "COLUMNS": extent.columns, "BLOCK_M": size.m, "BLOCK_N": 1 if one else size.n,
            "BLOCK_K": size.k, "SPLIT": 0 if one else min(num_warps, size.k // FEWEST_K),
            "WIDE": 16 // problem.itemsize, "TAKE": taken(values), "PART": taken(values // problem.world),
            "DTYPE": TRITON_DTYPES[problem.dtype],
            "EVEN": even(problem, size),
            # with the tensor cores' operand as a further step, the compiler shares its stages between the two
            "STAGES": num_stages if one else 2 * num_stages - 1,
            "TWO_SHOT": two_shots(problem), "COMPUTE_ONLY": alone,
        },
        num_warps=num_warps,
        num_stages=num_stages,
        items=len(table),
        asked=schedule.count("grid"),
        records=len(table) + -(-summed(problem) // taken(summed(problem))),
    )  # fmt: skip


def problem_values(problem: Problem) -> int:
    """Values of the output."""
    extent = OPERATORS[problem.operator].extent(problem)
    return extent.rows * extent.columns


def even(problem: Problem, size: Tile) -> bool:
    """Whether tiles cover the rows of a chunk, the tokens and the contraction exactly: nothing has to be masked."""
    stated = OPERATORS[problem.operator]
    extent = stated.extent(problem)
    rests = (stated.chunk_rows(problem) % size.m, extent.columns % size.n, extent.contraction % size.k)
    return not any(rests)


def first_values(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles] in the order of the plan: number of each tile's first value in the row-major output."""
    stated, tiles = OPERATORS[plan.problem.operator], plan.tiles[rank]
    row = tiles.chunk * stated.chunk_rows(plan.problem) + tiles.row_start
    return torch.from_numpy((row * stated.extent(plan.problem).columns + tiles.col_start).astype(np.int32))


def taken(values: int) -> int:
    """Values of the output that a program takes at once: a power of two that leaves one share for each."""
    return max(FEWEST_TAKEN, above(-(-values // SHARES)))


def two_shots(problem: Problem) -> bool:
    """Whether partial sums go to the owner of their rows only, who sends the sums to all."""
    return problem_values(problem) > ONE_SHOT_VALUES


def summed(problem: Problem) -> int:
    """Values that one rank sums: all, or in two shots those of its own rows."""
    return problem_values(problem) // (problem.world if two_shots(problem) else 1)


def shares_of(plan: Plan, rank: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of the shares of what *rank* sums in which values of its tiles *at* lie."""
    problem, tiles = plan.problem, plan.tiles[rank]
    stated = OPERATORS[problem.operator]
    columns, above_them = stated.extent(problem).columns, tiles.chunk[at] * stated.chunk_rows(problem)
    low = ((above_them + tiles.row_start[at]) * columns + tiles.col_start[at]).min()
    high = ((above_them + tiles.row_stop[at] - 1) * columns + tiles.col_stop[at]).max()
    begin, each = rank * summed(problem) if two_shots(problem) else 0, taken(summed(problem))
    return np.arange((low - begin) // each, -(-(high - begin) // each))
