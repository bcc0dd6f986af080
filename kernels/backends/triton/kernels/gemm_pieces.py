"""A GEMM in one launch: its tiles wait for the pieces that they read, or count themselves for the copies behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.axes import tile
from kernels.backends.triton import device
from kernels.backends.triton.branches import Op, Order, puts_most
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.gemm_send import rectangle
from kernels.backends.triton.launch import TRITON_DTYPES, Kernel
from kernels.backends.triton.rectangles import Rectangles
from kernels.operators import OPERATORS
from kernels.plan import Kind, Plan
from kernels.reference import Operands
from kernels.schemes import fused
from kernels.schemes.reads import ONE

GROUP_ROWS = 8
"""Rows of tiles that are computed together, column by column, so that operands are found in the L2."""
TILE_WORDS = tl.constexpr(9)
"""Of a tile, as `gemm_pieces` lists them."""
NONE = -1


@triton.jit(do_not_specialize=["rank", "limit_ns", "most"])
def gemm_pieces(
    shard, operand, b, local, out, stage, tiles, num_tiles, spans, columns, slot, most,
    counters_at, epoch_at, error, limit_ns, rank, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    RANGES: tl.constexpr, DTYPE: tl.constexpr, RECEIVES: tl.constexpr, SUMS: tl.constexpr,
):  # fmt: skip
    """Rows of *shard* or *operand* [.., k] x *b* [k, n]: a table of tiles, each when what it reads is here.

    *tiles* [num_tiles, TILE_WORDS] int32: whether its rows are the shard's, first row there, first column, whether it
    goes to *out* instead of *local*, first row there, the row and the column at which it ends, the put that brings it
    what it waits for (index of that put of every sender, -1: none), the counter that it raises when done (-1: none).
    A sender's counters begin at its number times *most*.

    RECEIVES: operand rows come from the rank that follows from the tile's row, in RANGES pieces of the contraction,
    whose ends *spans* [RANGES + 1] holds: an outer loop that waits, an inner one that is pipelined. SUMS: in *stage*,
    *slot* elements for each rank, lie the peers' contributions to a tile that waits.
    """
    epoch, deadline = tl.load(epoch_at), device.deadline_after(limit_ns)
    counters = device.peer(counters_at, rank, tl.int32)
    here = tl.full((), -1, tl.int32)  # the counter whose pieces were all seen
    for at in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        entry = tiles + TILE_WORDS * at
        row, column = tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
        awaited = tl.load(entry + 7)
        left = operand
        if tl.load(entry) != 0:
            left = shard
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for piece in range(RANGES):
            if RECEIVES:
                if (awaited >= 0) & (awaited != here):
                    device.wait(counters + awaited + piece, epoch, deadline, error, rank, device.PIECE, awaited + piece)
                    device.fence_proxy()
            begin, end = tl.load(spans + piece), tl.load(spans + piece + 1)
            for k in range(begin, end, BLOCK_K):
                total = tl.dot(left.load([row, k]), b.load([k, column]), total)
        if RECEIVES:
            here = awaited
        top, bottom, right = tl.load(entry + 4), tl.load(entry + 5), tl.load(entry + 6)
        place, mask = rectangle(top, column, bottom, right, columns, BLOCK_M, BLOCK_N)
        if SUMS:
            if awaited >= 0:
                for other in tl.static_range(WORLD):
                    if other != rank:
                        number = other * most + awaited
                        device.wait(counters + number, epoch, deadline, error, rank, device.PIECE, number)
                chunk = slot // columns
                inside = tl.cast(tl.load(entry + 1) - rank * chunk - top, tl.int64) * columns  # from place to the slot
                for other in tl.static_range(WORLD):
                    if other != rank:
                        contribution = stage + tl.cast(other, tl.int64) * slot + inside + place
                        total += tl.load(contribution, mask=mask, other=0.0).to(tl.float32)
        if tl.load(entry + 3) != 0:
            tl.store(out + place, total.to(DTYPE), mask=mask)
        else:
            tl.store(local + place, total.to(DTYPE), mask=mask)
        raised = tl.load(entry + 8)
        if raised >= 0:
            device.signal(counters + raised)


def is_one(plan: Plan) -> bool:
    """Whether one launch computes all."""
    return plan.schedule.get("launches") == ONE


def unit(plan: Plan, op: Op) -> tuple[int, int]:
    """The counter that tells that what the put *op* moves is computed, and how many tiles raise it in one call."""
    rank, begin = int(plan.rank[op.step]), int(plan.tile_start[op.step])
    return plan.problem.world * puts_most(plan) + _units(plan, rank)[begin], int(plan.tile_stop[op.step]) - begin


def _units(plan: Plan, rank: int) -> Mapping[int, int]:
    """By the first tile of what is moved together, its number."""
    puts = (plan.rank == rank) & (plan.kind == Kind.PUT) & (plan.tile_stop > plan.tile_start)
    return {int(begin): number for number, begin in enumerate(np.unique(plan.tile_start[puts]))}


def kernel(context: Context, places: Rectangles, order: Order, operands: Operands) -> Kernel:
    """`gemm_pieces` for the compute steps of *order*."""
    problem, plan = context.problem, context.plan
    operator, size = OPERATORS[problem.operator], tile(plan.schedule["tile"])
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    usual = fused.alone(problem, plan.schedule["tile"])
    table, computes = tile_table(context, order), order.of(Kind.COMPUTE)
    spans = sorted({block.k_start for op in computes for block in op.blocks} | {extent.contraction})
    first, right = operands.values()
    shard, operand = first, first
    if context.receives:
        shard = places.source(operands)[context.rank % len(places.source(operands))]
        operand = context.of(context.rank, "operand")
    sums = operator.reduces and any(op.awaits for op in computes)
    stage = context.of(context.rank, "stage") if operator.reduces else context.local
    out = context.local if context.receives else context.of(context.rank, "out")
    words = torch.from_numpy(table).to(context.device)
    return Kernel(
        function=gemm_pieces,
        arguments=(
            *(TensorDescriptor.from_tensor(side, [size.m, size.k]) for side in (shard, operand)),
            TensorDescriptor.from_tensor(right, [size.k, size.n]), context.local, out, stage, words, len(table),
            torch.tensor(spans, dtype=torch.int32, device=context.device), extent.columns, chunk * extent.columns,
            puts_most(plan), context.addresses("counters"), context.epoch, context.error, context.limit_ns,
            context.rank, None,
        ),
        constants={
            "WORLD": problem.world if sums else 1, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "RANGES": len(spans) - 1, "DTYPE": TRITON_DTYPES[problem.dtype], "RECEIVES": context.receives,
            "SUMS": sums,
        },
        num_warps=usual.count("num_warps"),
        num_stages=usual.count("num_stages"),
        items=len(table),
        spared=problem.world - 1 + int(plan.schedule.get("comm_sms") or 0),
    )  # fmt: skip


def tile_table(context: Context, order: Order) -> NDArray[np.int32]:
    """[tiles, TILE_WORDS] in the order of the Plan; inside a step GROUP_ROWS rows of tiles together."""
    plan, rank = context.plan, context.rank
    chunk = OPERATORS[plan.problem.operator].chunk_rows(plan.problem)
    whole_out = OPERATORS[plan.problem.operator].local(plan.problem)["output"][0] > chunk
    most, entries = puts_most(plan), []
    counted = _counters_of_tiles(plan, rank) if any(op.kind is Kind.PUT for op in order.ops) else {}
    for op in order.of(Kind.COMPUTE):
        if op.blocks[0].k_start:
            continue  # a tile takes all ranges of the contraction
        for at in _grouped(plan, rank, op):
            tiles = plan.tiles[rank]
            source, row, stop = int(tiles.chunk[at]), int(tiles.row_start[at]), int(tiles.row_stop[at])
            is_own = source == rank
            if context.receives:
                left, to_out, base = (row if is_own else source * chunk + row), 0, source * chunk
            else:
                left, to_out = source * chunk + row, int(is_own)
                base = source * chunk if not is_own or whole_out else 0
            awaited = _awaited(op, source, most, context.receives)
            entries.append((
                int(is_own), left, int(tiles.col_start[at]), to_out, base + row, base + stop,
                int(tiles.col_stop[at]), awaited, counted.get(at, NONE),
            ))  # fmt: skip
    return np.array(entries, dtype=np.int32)


def _awaited(op: Op, source: int, most: int, receives: bool) -> int:
    """What tiles of *source*'s rows wait for: a counter of that sender, or of sums the index of every peer's put."""
    if receives:
        return next((counter for counter in op.awaits if counter // most == source), NONE)
    indices = {counter % most for counter in op.awaits}
    assert len(indices) <= 1, f"step {op.step} waits for puts {indices} of different peers"
    return next(iter(indices), NONE)


def _counters_of_tiles(plan: Plan, rank: int) -> dict[int, int]:
    """By tile of *rank*, the counter of what it leaves with."""
    start, units = plan.problem.world * puts_most(plan), _units(plan, rank)
    puts = np.flatnonzero((plan.rank == rank) & (plan.kind == Kind.PUT))
    return {
        at: start + units[int(plan.tile_start[step])]
        for step in puts for at in range(int(plan.tile_start[step]), int(plan.tile_stop[step]))
    }  # fmt: skip


def _grouped(plan: Plan, rank: int, op: Op) -> Sequence[int]:
    """Tiles of one step, GROUP_ROWS rows of them together."""
    at = np.arange(int(plan.tile_start[op.step]), int(plan.tile_stop[op.step]))
    tiles = plan.tiles[rank]
    new_row = (np.diff(tiles.row_start[at], prepend=-1) != 0) | (np.diff(tiles.chunk[at], prepend=-1) != 0)
    row = np.cumsum(new_row) - 1
    return [int(number) for number in at[np.lexsort((row, tiles.col_start[at], row // GROUP_ROWS))]]
