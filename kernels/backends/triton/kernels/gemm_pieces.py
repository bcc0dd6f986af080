"""A GEMM in one launch: its tiles wait for the pieces that they read, or signal the copies that wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from kernels.backends.triton import device, flat
from kernels.backends.triton.kernels.tiles import multiply, multiply_range, rectangle
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block
from kernels.backends.triton.limits import tiles_are_whole
from kernels.backends.triton.memory import Context
from kernels.backends.triton.pieces import EnqueuedStep, EnqueueOrder, Rectangles, puts_most
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Kind, Plan
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import tile
from kernels.schemes import fused
from kernels.schemes.axis_rules import ONE

GROUP_ROWS = 8
"""Rows of tiles that are computed together, column by column, so that their operands stay in the L2."""
TILE_WORDS = tl.constexpr(10)
"""int32 values of a tile; the docstring of `gemm_pieces` lists them."""
NONE = -1
"""Stands for no put or no counter in the table of tiles."""


@triton.jit(do_not_specialize=["rank", "limit_ns", "most", "free"])
def gemm_pieces(
    shard, operand, b, to_local, to_out, contributions, local, out, tiles, num_tiles, free, spans, contraction,
    columns, chunk, most, counters_at, epoch_at, error, limit_ns, rank, half_rows, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    RANGES: tl.constexpr, DTYPE: tl.constexpr, RECEIVES: tl.constexpr, SUMS: tl.constexpr, WAITS: tl.constexpr,
    ONTO: tl.constexpr, ROWS: tl.constexpr, COUNTS: tl.constexpr, TMA: tl.constexpr,
    BULK: tl.constexpr,
):  # fmt: skip
    """Multiplies rows of *shard* or *operand* [m, k] by *b* [k, n], tile by tile from a table, as their inputs arrive.

    *tiles* [num_tiles, TILE_WORDS] int32, per tile:
    0 whether its rows are in the shard; 1 first row there; 2 first column;
    3 whether it goes to *out* instead of *local*; 4 first row there; 5 row and 6 column at which it ends;
    7 index, for every sender, of the put that it waits for (-1: none);
    8 counter that it raises when done (-1: none); 9 first row in *contributions*.
    The counters of sender r start at r * *most*.

    RECEIVES: operand rows arrive in RANGES pieces of the contraction; *spans* [RANGES + 1] holds their limits.
    SUMS: peers' contributions to a waiting tile are in *contributions*: *out* with one peer, else [ranks * chunk, n].
    COUNTS: some tiles raise a counter. TMA: tiles are whole and leave by bulk stores. Without BULK, all tensors are
    pointers. *half_rows*: rows between the two halves of *operand*, which alternate by call; None: it has one place.

    There are two flat loops, in which the next tile's operands are in flight while a tile leaves: over the first *free*
    tiles, which wait for nothing, and over all others. With ONTO the others are own tiles that bulk stores add to
    *out*; with ROWS they are tiles of peers' rows, which arrive whole. With WAITS a general loop replaces the second.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = tl.load(epoch_at), device.deadline_after(limit_ns)
    counters = device.peer(counters_at, rank, tl.int32)
    for at in tl.range(program, free, programs, flatten=BULK):
        entry = tiles + TILE_WORDS * at
        total = multiply(shard, b, tl.load(entry + 1), height(entry), tl.multiple_of(tl.load(entry + 2), 16), columns,
                         contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
        if COUNTS:
            raise_counter(tiles, at - programs, program, counters)
        leave(entry, total, to_local, to_out, local, out, columns, BLOCK_M, BLOCK_N, DTYPE, TMA, RECEIVES)
    end = program + tl.cdiv(tl.maximum(free - program, 0), programs) * programs  # the first that was not computed
    arrived = tl.full((), -1, tl.int32)  # what was waited for last: it has arrived
    if ONTO:
        for at in tl.range(end, num_tiles, programs, flatten=BULK):
            entry = tiles + TILE_WORDS * at
            column = tl.multiple_of(tl.load(entry + 2), 16)
            total = multiply(shard, b, tl.load(entry + 1), height(entry), column, columns, contraction,
                             BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
            if COUNTS:  # before waiting for peers that may wait for it
                raise_counter(tiles, at - programs, program, counters)
            awaited = tl.load(entry + 7)
            if awaited != arrived:
                wait_for_all(awaited, most, counters, epoch, deadline, error, rank, WORLD)
            arrived = awaited
            device.add_tma(to_out, tl.load(entry + 4), column, total.to(DTYPE))
    elif ROWS:
        for at in tl.range(end, num_tiles, programs, flatten=BULK):
            entry = tiles + TILE_WORDS * at
            awaited, column = tl.load(entry + 7), tl.multiple_of(tl.load(entry + 2), 16)
            row = tl.load(entry + 1)
            if half_rows is not None:
                row += ((epoch - 1) & 1) * half_rows
            if awaited != arrived:
                row += flat.wait(counters + awaited, epoch, deadline, error, rank, device.PIECE, awaited)
            arrived = awaited
            total = multiply(operand, b, row, height(entry), column, columns, contraction,
                             BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
            leave(entry, total, to_local, to_out, local, out, columns, BLOCK_M, BLOCK_N, DTYPE, TMA, RECEIVES)
    elif WAITS:
        for at in tl.range(end, num_tiles, programs):
            entry = tiles + TILE_WORDS * at
            row, column = tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
            awaited = tl.load(entry + 7)
            if RECEIVES:
                total = receive(shard, operand, b, entry, row, column, columns, awaited, arrived, spans, contraction,
                                counters, epoch, deadline, error, rank, BLOCK_M, BLOCK_N, BLOCK_K, RANGES,
                                BULK)  # fmt: skip
                arrived = awaited
            else:
                total = multiply(shard, b, row, height(entry), column, columns, contraction,
                                 BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
            if COUNTS:
                raise_counter(tiles, at - programs, program, counters)
            if SUMS:
                if awaited >= 0:
                    wait_for_all(awaited, most, counters, epoch, deadline, error, rank, WORLD)
                    for other in tl.static_range(WORLD):
                        if other != rank:
                            slot = tl.load(entry + 9)
                            if WORLD > 2:
                                slot += other * chunk
                            if BULK:
                                contribution = contributions.load([slot, column])
                            else:
                                place, mask = rectangle(slot, column, slot + height(entry), columns, columns,
                                                        BLOCK_M, BLOCK_N)  # fmt: skip
                                contribution = tl.load(contributions + place, mask=mask, other=0.0)
                            total += contribution.to(tl.float32)
            leave(entry, total, to_local, to_out, local, out, columns, BLOCK_M, BLOCK_N, DTYPE, TMA, RECEIVES)
    if ONTO or ROWS or WAITS:
        end += tl.cdiv(tl.maximum(num_tiles - end, 0), programs) * programs
    if COUNTS:
        raise_counter(tiles, end - programs, program, counters)
    device.drain()


@triton.jit
def receive(
    shard, operand, b, entry, row, column, columns, awaited, arrived, spans, contraction, counters, epoch, deadline,
    error, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, RANGES: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Computes the tile of *entry*: an outer loop waits for ranges of the contraction, an inner one is pipelined.

    Own rows, and rows that were waited for before (*arrived*), are computed in a single range.
    """
    left = operand
    if tl.load(entry) != 0:
        left = shard
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    ranges = tl.full((), RANGES, tl.int32)
    if (awaited < 0) | (awaited == arrived):
        ranges = tl.full((), 1, tl.int32)
    for piece in range(ranges):
        if (awaited >= 0) & (awaited != arrived):
            device.wait(counters + awaited + piece, epoch, deadline, error, rank, device.PIECE, awaited + piece)
            device.fence_proxy()
        start, stop = tl.load(spans + piece), tl.load(spans + piece + 1)
        if ranges == 1:
            stop = contraction
        total = multiply_range(left, b, row, height(entry), column, columns, contraction, start, stop, total,
                               BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
    return total


@triton.jit
def height(entry):
    """Rows of the tile of *entry*."""
    return tl.load(entry + 5) - tl.load(entry + 4)


@triton.jit
def wait_for_all(awaited, most, counters, epoch, deadline, error, rank, WORLD: tl.constexpr):
    """Waits until the contributions of all peers to a tile have arrived."""
    for other in tl.static_range(WORLD):
        if other != rank:
            number = other * most + awaited
            flat.wait(counters + number, epoch, deadline, error, rank, device.PIECE, number)


@triton.jit
def leave(
    entry, total, to_local, to_out, local, out, columns,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr, TMA: tl.constexpr, RECEIVES: tl.constexpr,
):  # fmt: skip
    """Stores *total* where *entry* says."""
    column, top, value = tl.multiple_of(tl.load(entry + 2), 16), tl.load(entry + 4), total.to(DTYPE)
    landing, target = to_local, local
    if not RECEIVES:  # no branch around bulk stores either: Triton 3.6 cannot flatten such loops
        if tl.load(entry + 3) != 0:
            landing, target = to_out, out
    if TMA:
        device.put_tma(landing, top, column, value)
    else:
        # a store writes 16 bytes: a piece's columns end at a multiple of that
        bottom, right = tl.load(entry + 5), tl.multiple_of(tl.load(entry + 6), 8)
        place, mask = rectangle(top, column, bottom, right, columns, BLOCK_M, BLOCK_N)
        tl.store(tl.multiple_of(target, 16) + place, value, mask=mask)


@triton.jit
def raise_counter(tiles, at, program, counters):
    """Raises the counter of tile *at*, which *program* stored one tile ago: by then its stores need no waiting."""
    if at >= program:
        raised = tl.load(tiles + TILE_WORDS * at + 8)
        if raised >= 0:
            flat.signal(counters + raised)


def is_one_launch(plan: Plan) -> bool:
    """Whether one launch computes all pieces."""
    return plan.schedule.get("launches") == ONE


def unit(plan: Plan, op: EnqueuedStep) -> tuple[int, int]:
    """The counter of the tiles that the put *op* moves, and how many tiles raise it in one call."""
    rank, begin = int(plan.rank[op.step]), int(plan.tile_start[op.step])
    return plan.problem.world * puts_most(plan) + _units(plan, rank)[begin], int(plan.tile_stop[op.step]) - begin


def _units(plan: Plan, rank: int) -> Mapping[int, int]:
    """Numbers of the units by their first tile; a unit is the tiles that one put moves together."""
    puts = (plan.rank == rank) & (plan.kind == Kind.PUT) & (plan.tile_stop > plan.tile_start)
    return {int(begin): number for number, begin in enumerate(np.unique(plan.tile_start[puts]))}


def kernel(
    context: Context, places: Rectangles, order: EnqueueOrder, operands: Operands, *, summed: bool | None = None
) -> LaunchableKernel:
    """Launch of `gemm_pieces` for the compute steps of *order*; *summed*: only own rows (True) or others (False)."""
    problem, plan = context.problem, context.plan
    operator, size = OPERATORS[problem.operator], tile(plan.schedule["tile"])
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    alone = fused.alone(problem, plan.schedule["tile"])
    table, computes = tile_table(context, order), order.of(Kind.COMPUTE)
    if summed is not None:
        table = table[(table[:, 0] != 0) == summed]
    spans = sorted({block.k_start for op in computes for block in op.blocks} | {extent.contraction})
    first, right = operands.values()
    shard, operand = first, first
    if context.receives:
        shard = places.source(operands)[context.rank % len(places.source(operands))]
        operand = context.of(context.rank, "operand")
    sums = operator.reduces and any(op.awaits for op in computes)
    out = context.local if context.receives else context.of(context.rank, "out")
    staged = sums and problem.world > 2
    stage = context.of(context.rank, "stage").flatten(0, 1) if staged else out
    free, whole = _free(table, context.receives, sums), context.bulk and tiles_are_whole(problem, plan.schedule)
    rows = context.receives and len(spans) == 2 and free < len(table) and not table[free:, 0].any()
    assert rows or context.half_rows is None, "only tiles of whole rows know halves"
    onto = sums and not staged and whole and bool(table[free:, 0].all())
    tiles = torch.from_numpy(table).to(context.device)
    return LaunchableKernel(
        function=gemm_pieces,
        arguments=(
            *(block(side, size.m, size.k, bulk=context.bulk) for side in (shard, operand)),
            block(right, size.k, size.n, bulk=context.bulk),
            *(block(side, size.m, size.n, bulk=context.bulk) for side in (context.local, out, stage)),
            context.local, out, tiles, len(table), free,
            torch.tensor(spans, dtype=torch.int32, device=context.device), extent.contraction, extent.columns, chunk,
            puts_most(plan), context.addresses("counters"), context.epoch, context.error, context.limit_ns,
            context.rank, context.half_rows, None,
        ),
        constants={
            "WORLD": problem.world if sums else 1, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "RANGES": len(spans) - 1, "DTYPE": TRITON_DTYPES[problem.dtype], "RECEIVES": context.receives,
            "SUMS": sums, "WAITS": free < len(table) and not (onto or rows), "ONTO": onto, "ROWS": rows,
            "COUNTS": bool((table[:, 8] >= 0).any()), "TMA": whole,
            "BULK": context.bulk,
        },
        num_warps=alone.count("num_warps"),
        num_stages=alone.count("num_stages"),
        items=len(table),
        spared=_waiting_warps(problem) + int(plan.schedule.get("comm_sms") or 0),
    )  # fmt: skip


def _waiting_warps(problem: Problem) -> int:
    """Number of one-warp kernels that wait for its tiles while it runs: one for each peer that receives copies."""
    return 0 if OPERATORS[problem.operator].flow is Flow.RECEIVE else problem.world - 1


def _free(table: NDArray[np.int32], receives: bool, sums: bool) -> int:
    """Number of leading tiles that wait for nothing: those of own rows, or all before the first own sum."""
    by_shard = table[:, 0] != 0
    return int(np.append(~by_shard if receives else by_shard & sums, True).argmax())


def tile_table(context: Context, order: EnqueueOrder) -> NDArray[np.int32]:
    """Tile table for `gemm_pieces`, in the order of the Plan; inside a step in groups of GROUP_ROWS rows of tiles."""
    plan, rank = context.plan, context.rank
    chunk = OPERATORS[plan.problem.operator].chunk_rows(plan.problem)
    whole_out = OPERATORS[plan.problem.operator].local(plan.problem)["output"][0] > chunk
    most, entries = puts_most(plan), []
    by_rank = plan.problem.world > 2  # contributions of several peers are staged by rank, one peer's are in the result
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
                int(tiles.col_stop[at]), awaited, counted.get(at, NONE), row if by_rank else base + row,
            ))  # fmt: skip
    return np.array(entries, dtype=np.int32)


def _awaited(op: EnqueuedStep, source: int, most: int, receives: bool) -> int:
    """What tiles of *source*'s rows wait for: a counter of that sender, or for sums the index of all peers' puts."""
    if receives:
        return next((counter for counter in op.awaits if counter // most == source), NONE)
    indices = {counter % most for counter in op.awaits}
    assert len(indices) <= 1, f"step {op.step} waits for puts {indices} of different peers"
    return next(iter(indices), NONE)


def _counters_of_tiles(plan: Plan, rank: int) -> dict[int, int]:
    """Counter of the unit with which each tile of *rank* leaves."""
    start, units = plan.problem.world * puts_most(plan), _units(plan, rank)
    puts = np.flatnonzero((plan.rank == rank) & (plan.kind == Kind.PUT))
    return {
        at: start + units[int(plan.tile_start[step])]
        for step in puts for at in range(int(plan.tile_start[step]), int(plan.tile_stop[step]))
    }  # fmt: skip


def _grouped(plan: Plan, rank: int, op: EnqueuedStep) -> Sequence[int]:
    """Tiles of one step, in groups of GROUP_ROWS rows of tiles."""
    at = np.arange(int(plan.tile_start[op.step]), int(plan.tile_stop[op.step]))
    tiles = plan.tiles[rank]
    new_row = (np.diff(tiles.row_start[at], prepend=-1) != 0) | (np.diff(tiles.chunk[at], prepend=-1) != 0)
    row = np.cumsum(new_row) - 1
    return [int(number) for number in at[np.lexsort((row, tiles.col_start[at], row // GROUP_ROWS))]]
