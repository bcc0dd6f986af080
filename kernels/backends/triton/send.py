"""GEMM operators whose tiles leave as they are done: what `gemm_send` is called with."""

from __future__ import annotations

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.axes import tile
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.gemm_send import gemm_send
from kernels.backends.triton.launch import Kernel
from kernels.operators import OPERATORS, Flow
from kernels.plan import Plan
from kernels.reference import Operands

TRITON_DTYPES = {"float32": tl.float32, "float16": tl.float16, "bfloat16": tl.bfloat16}


def tile_table(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles, 4] in the order of the plan: owner, first row inside its chunk, first column, number there."""
    tiles, size = plan.tiles[rank], tile(plan.schedule["tile"])
    across = -(-OPERATORS[plan.problem.operator].extent(plan.problem).columns // size.n)
    number = tiles.row_start // size.m * across + tiles.col_start // size.n
    columns = np.stack([tiles.chunk, tiles.row_start, tiles.col_start, number], axis=1)
    return torch.from_numpy(columns.astype(np.int32))


def kernel(context: Context, operands: Operands) -> Kernel:
    """`gemm_send` for one trial: *operands* a [m, k] and b [k, n] lie on the rank's device."""
    problem, schedule, rank = context.problem, context.plan.schedule, context.rank
    stated, size = OPERATORS[problem.operator], tile(schedule["tile"])
    extent, chunk = stated.extent(problem), stated.chunk_rows(problem)
    a, b = operands.values()
    slots = [_slot(context, owner, chunk, stated.reduces) for owner in range(problem.world)]
    targets = tuple(TensorDescriptor.from_tensor(slot, [size.m, size.n]) for slot in slots)
    stage = "stage" if stated.reduces else "out"
    return Kernel(
        function=gemm_send,
        arguments=(
            TensorDescriptor.from_tensor(a, [size.m, size.k]), TensorDescriptor.from_tensor(b, [size.k, size.n]),
            targets, tile_table(context.plan, rank).to(context.device), len(context.plan.tiles[rank]), chunk,
            extent.columns, extent.contraction, context.addresses("out"), context.addresses(stage),
            context.addresses("counters"), context.addresses("credits"), context.addresses("done"),
            context.epoch, context.arrived, context.error, context.limit_ns, rank,
        ),
        constants={
            "WORLD": problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "DTYPE": TRITON_DTYPES[problem.dtype], "REDUCES": stated.reduces,
            "BROADCASTS": stated.flow is Flow.BROADCAST, "TMA": schedule.get("store") != "registers",
        },
        num_warps=schedule.count("num_warps") if schedule.get("num_warps") else 8,
        num_stages=schedule.count("num_stages") if schedule.get("num_stages") else 3,
        items=len(context.plan.tiles[rank]),
        asked=schedule.count("grid"),
    )  # fmt: skip


def _slot(context: Context, owner: int, chunk: int, reduces: bool) -> Tensor:
    """Where this rank's tiles go on *owner*."""
    if reduces:
        return context.of(owner, "stage")[context.rank]
    return context.of(owner, "out")[context.rank * chunk : (context.rank + 1) * chunk]
