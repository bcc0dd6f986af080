"""GEMM operators whose tiles leave as they are done: what `gemm_send` is called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.axes import Tile, tile
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.gemm_send import gemm_send
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.refusals import RANKS_MOST
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


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """`gemm_send` for one trial: *operands* a [m, k] and b [k, n] lie on the rank's device."""
    problem, schedule = context.problem, context.plan.schedule
    stated, size = OPERATORS[problem.operator], tile(schedule["tile"])
    extent, (a, b) = stated.extent(problem), operands.values()
    table = tile_table(context.plan, context.rank).to(context.device)
    return Kernel(
        function=gemm_send,
        arguments=(
            TensorDescriptor.from_tensor(a, [size.m, size.k]), TensorDescriptor.from_tensor(b, [size.k, size.n]),
            *(_for_itself(context, table, size) if alone else _for_peers(context, table, size)),
            extent.columns, extent.contraction, *_places(context, alone),
            context.epoch, context.arrived, context.error, context.limit_ns, 0 if alone else context.rank,
            None,
        ),
        constants={
            "WORLD": 1 if alone else problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "DTYPE": TRITON_DTYPES[problem.dtype], "REDUCES": stated.reduces and not alone,
            "BROADCASTS": stated.flow is Flow.BROADCAST and not alone, "TMA": schedule["store"] == "tma",
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=len(table),
        asked=schedule.count("grid"),
        records=2 * len(table),
    )  # fmt: skip


def _for_peers(context: Context, table: Tensor, size: Tile) -> tuple[Any, ...]:
    """Targets by owner, then tiles, their number, rows of a chunk."""
    stated = OPERATORS[context.problem.operator]
    chunk = stated.chunk_rows(context.problem)
    slots = [_slot(context, owner, chunk, stated.reduces) for owner in range(context.world)]
    return *descriptors(slots, size.m, size.n), table, len(table), chunk


def _for_itself(context: Context, table: Tensor, size: Tile) -> tuple[Any, ...]:
    """The same as if one rank owned all rows: results stay here."""
    chunk, mine = OPERATORS[context.problem.operator].chunk_rows(context.problem), table.clone()
    mine[:, 1] += mine[:, 0] * chunk
    mine[:, 0] = 0
    return *descriptors([context.local], size.m, size.n), mine, len(mine), context.local.shape[0]


def descriptors(slots: list[Tensor], rows: int, columns: int) -> list[TensorDescriptor]:
    """One per possible rank, for blocks of *rows* x *columns*: the last one again beyond the world."""
    made = [TensorDescriptor.from_tensor(slot, [rows, columns]) for slot in slots]
    return made + made[-1:] * (RANKS_MOST - len(made))


def _places(context: Context, alone: bool) -> list[Tensor]:
    """Addresses by rank: out, stage, tile counters, credits, ends."""
    if alone:
        own = torch.tensor([context.local.data_ptr()], dtype=torch.int64, device=context.device)
        return [own] * 5
    stage = "stage" if OPERATORS[context.problem.operator].reduces else "out"
    return [context.addresses(name) for name in ("out", stage, "counters", "credits", "done")]


def _slot(context: Context, owner: int, chunk: int, reduces: bool) -> Tensor:
    """Where this rank's tiles go on *owner*."""
    if reduces:
        return context.of(owner, "stage")[context.rank]
    return context.of(owner, "out")[context.rank * chunk : (context.rank + 1) * chunk]
