"""GEMM over rows that ranks send each other: some programs push slices of rows, others compute tiles that arrived."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from kernels.backends.triton import device, limits
from kernels.backends.triton.kernels import sync
from kernels.backends.triton.kernels.tiles import chosen, multiply, rectangle
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block, descriptors
from kernels.backends.triton.memory import Context
from kernels.operators import OPERATORS
from kernels.plan import Kind, Plan
from kernels.reference import Operands
from kernels.schedule import Tile, tile
from kernels.schemes.fused import slice_rows

PUT_STAGES = tl.constexpr(limits.PUT_STAGES)
"""Pipeline stages of a pushing program: it loads later copies while it stores earlier ones."""


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def gemm_receive(
    shard, operand, b, source, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, result, source_at, result_at,
    tiles, num_tiles, puts, num_puts, copies,
    chunk, stride, columns, contraction, operand_at, counters_at, credits_at, done_at,
    epoch_at, arrived, tickets, error, limit_ns, rank, comm_programs, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PUT_M: tl.constexpr,
    PUT_K: tl.constexpr, DTYPE: tl.constexpr, TMA: tl.constexpr, TMA_RESULT: tl.constexpr, COMPUTE_ONLY: tl.constexpr,
    BULK: tl.constexpr,
):  # fmt: skip
    """Multiplies the rows of all ranks [m, k] by *b* [k, n] into *result* [m, n].

    Own rows are read in place (*shard* [chunk, k]), those of peers from *operand* [m, k], where the peers push them.
    *tiles* [num_tiles, 4] int32: source, row inside its chunk, column, the counter that rises when its rows arrive
    (-1: own rows); in the order of the plan. *puts* [num_puts, 3] int32: peer, first row, the peer's counter; each is
    cut into *copies* pieces PUT_M x PUT_K of *source* [.., k], where *peer*'s rows begin at peer * *stride*.
    *to_0* ..: by rank, a descriptor of where our rows go; arbitrary beyond WORLD. Without BULK all are pointers.

    Every pusher adds 1 to a put's counter when its share of the pieces is written. With *comm_programs* the first
    programs push and then help with the last tiles, which *tickets* hand out; else all programs push, then compute.

    *stamps*: a record for each tile, then for each pusher its shares of the puts.
    """
    landings = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    helpers = tl.minimum(comm_programs, programs // 2)  # some programs have to compute
    pushers = tl.where(helpers > 0, helpers, programs)
    # twice the tiles that helpers could do if pushing took no time
    by_ticket = tl.minimum(num_tiles, 2 * num_tiles * helpers // programs)
    without_ticket = num_tiles - by_ticket
    if not COMPUTE_ONLY:
        device.grant(credits_at, rank, WORLD, program)
        if program < pushers:
            device.granted(credits_at, epoch, deadline, error, rank, WORLD)
            push(source, landings, source_at, operand_at, counters_at, puts, num_puts, copies, chunk, stride,
                 contraction, rank, program, pushers, stamps, num_tiles, WORLD, PUT_M, PUT_K, DTYPE,
                 TMA)  # fmt: skip
    counted = device.count_in(arrived)
    expected = epoch * tl.minimum(pushers, copies)
    complete = tl.full((), -1, tl.int32)  # the last counter that was seen complete
    first = tl.where(program < helpers, num_tiles, program - helpers)
    for at in tl.range(first, without_ticket, programs - helpers):
        complete = receive(shard, operand, b, result, result_at, tiles, at, chunk, columns, contraction, counters_at,
                           expected, complete, deadline, error, rank, stamps, BLOCK_M, BLOCK_N, BLOCK_K, DTYPE,
                           TMA_RESULT, COMPUTE_ONLY, BULK)  # fmt: skip
    if not COMPUTE_ONLY:
        if helpers > 0:
            at = without_ticket + tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")
            while at < num_tiles:
                complete = receive(shard, operand, b, result, result_at, tiles, at, chunk, columns, contraction,
                                   counters_at, expected, complete, deadline, error, rank, stamps, BLOCK_M, BLOCK_N,
                                   BLOCK_K, DTYPE, TMA_RESULT, COMPUTE_ONLY, BULK)  # fmt: skip
                at = without_ticket + tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")
            if at == num_tiles + programs - 1:  # the last ticket of the call: every program draws one beyond the tiles
                tl.atomic_xchg(tickets, 0, sem="relaxed", scope="gpu")
    # every slice of this call was awaited, and later ones need credit
    device.leave(counted, epoch_at, arrived, epoch, programs)


@triton.jit
def receive(
    shard, operand, b, result, result_at, tiles, at, chunk, columns, contraction, counters_at, expected, complete,
    deadline, error, rank, stamps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DTYPE: tl.constexpr,
    TMA_RESULT: tl.constexpr, COMPUTE_ONLY: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Waits for the rows of tile *at* and computes it; returns the last counter that was seen *complete*."""
    sync.begin(stamps, at)
    entry = tiles + 4 * at
    owner, row = tl.load(entry), tl.load(entry + 1)
    column, awaited = tl.multiple_of(tl.load(entry + 2), 16), tl.load(entry + 3)
    if awaited < 0:
        left, top = shard, row
    else:
        if not COMPUTE_ONLY:
            if awaited != complete:
                counter = device.peer(counters_at, rank, tl.int32) + awaited
                device.wait(counter, expected, deadline, error, rank, device.ROWS, awaited)
                device.fence_proxy()
                complete = awaited
        left, top = operand, owner * chunk + row
    sync.write(stamps, at, sync.WAITED)
    total = multiply(left, b, top, chunk - row, column, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)
    sync.write(stamps, at, sync.COMPUTED)
    if TMA_RESULT:
        device.put_tma(result, owner * chunk + row, column, total.to(DTYPE))
    else:
        place, mask = rectangle(row, column, chunk, columns, columns, BLOCK_M, BLOCK_N)
        tl.store(result_at + tl.cast(owner * chunk, tl.int64) * columns + place, total.to(DTYPE), mask=mask)
    sync.write(stamps, at, sync.SENT)
    return complete


@triton.jit
def push(
    source, landings, source_at, operand_at, counters_at, puts, num_puts, copies, chunk, stride, contraction,
    rank, program, pushers, stamps, record,
    WORLD: tl.constexpr, PUT_M: tl.constexpr, PUT_K: tl.constexpr, DTYPE: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Puts this program's share: every *pushers*-th piece, and one signal for each put that it has a share of.

    A put is signalled when the first piece of the next put has left, so that the link does not idle for the signal.
    Its stamps, from *record* on by program and put, mark its first piece and its signal.
    """
    across = tl.cdiv(contraction, PUT_K)
    late = tl.full((), -1, tl.int32)  # the put that has left but is not signalled yet
    for piece in tl.range(program, num_puts * copies, pushers, num_stages=PUT_STAGES):
        number, inside = piece // copies, piece % copies
        peer, column = tl.load(puts + 3 * number), inside % across * PUT_K
        row = tl.load(puts + 3 * number + 1) + inside // across * PUT_M
        if TMA:
            leaving = source.load([peer * stride + row, column])
            device.put_tma(chosen(landings, peer, WORLD), row, column, leaving)
        else:
            place, mask = rectangle(row, column, chunk, contraction, contraction, PUT_M, PUT_K)
            leaving = tl.load(source_at + tl.cast(peer * stride, tl.int64) * contraction + place, mask=mask)
            slot = device.peer(operand_at, peer, DTYPE) + tl.cast(rank * chunk, tl.int64) * contraction
            tl.store(slot + place, leaving, mask=mask)
        if number != late:
            if late >= 0:
                device.signal_but_one(_counter(puts, late, counters_at))
                sync.write(stamps, record + program * num_puts + late, sync.SENT)
            sync.begin(stamps, record + program * num_puts + number)
            late = number
    device.drain()
    if late >= 0:
        device.signal(_counter(puts, late, counters_at))
        sync.write(stamps, record + program * num_puts + late, sync.SENT)


@triton.jit
def _counter(puts, number, counters_at):
    """The counter that put *number* raises on its peer."""
    return device.peer(counters_at, tl.load(puts + 3 * number), tl.int32) + tl.load(puts + 3 * number + 2)


def arrival_table(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles, 4] in the order of the plan: source, row inside its chunk, column, awaited counter (-1: none)."""
    tiles, slices = plan.tiles[rank], slice_rows(plan.problem, plan.schedule)
    awaited = tiles.chunk * len(slices) + tiles.row_start // slices[0][1]
    awaited = np.where(tiles.chunk == rank, -1, awaited)
    columns = np.stack([tiles.chunk, tiles.row_start, tiles.col_start, awaited], axis=1)
    return torch.from_numpy(columns.astype(np.int32))


def put_table(plan: Plan, rank: int) -> Tensor:
    """int32 [puts, 3] in the order of the plan: peer, first row, counter there."""
    steps, slices = put_steps(plan, rank), slice_rows(plan.problem, plan.schedule)
    counter = rank * len(slices) + plan.row_start[steps] // slices[0][1]
    return torch.from_numpy(np.stack([plan.peer[steps], plan.row_start[steps], counter], axis=1).astype(np.int32))


def put_steps(plan: Plan, rank: int) -> NDArray[np.int64]:
    """Steps of the plan that are puts of *rank*."""
    return np.flatnonzero((plan.rank == rank) & (plan.kind == Kind.PUT))


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_receive` for one trial; *alone*: the computation on `operand` as it is, without communication."""
    problem, schedule, rank = context.problem, context.plan.schedule, context.rank
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    alone = alone or problem.world == 1
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    tiles, puts = arrival_table(context.plan, rank), put_table(context.plan, rank)
    source, b = operands.values()
    stride = chunk if len(source) > chunk else 0  # all-to-all: other rows for each peer
    put, by_tma = limits.piece(problem, size, context.architecture), schedule["store"] == "tma" and context.bulk
    comm = 0 if alone else schedule.count("comm_sms")
    if alone:
        context.of(rank, "operand").normal_()  # not zeros, which take less power, so that the GPU would clock higher
    return LaunchableKernel(
        function=gemm_receive,
        arguments=(
            *_blocks(context, source[rank * stride :][:chunk], b, size), *_ends(context, source, put, alone),
            block(context.local, size.m, size.n, bulk=context.bulk), source, context.local,
            tiles.to(context.device), len(tiles), puts.to(context.device), len(puts), _pieces(context, put),
            chunk, stride, extent.columns, extent.contraction,
            *(context.addresses(name) for name in ("operand", "counters", "credits", "done")),
            context.epoch, context.arrived, torch.zeros(1, dtype=torch.int32, device=context.device), context.error,
            context.limit_ns, 0 if alone else rank, comm, None,
        ),
        constants={
            "WORLD": 1 if alone else problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "PUT_M": put.m, "PUT_K": put.k, "DTYPE": TRITON_DTYPES[problem.dtype],
            "TMA": by_tma, "TMA_RESULT": by_tma and chunk % size.m == 0, "COMPUTE_ONLY": alone, "BULK": context.bulk,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=len(tiles) + comm,
        records=len(tiles) + len(puts) * (comm or len(tiles)),
        grid=schedule.count("grid"),
    )  # fmt: skip


def _blocks(context: Context, shard: Tensor, b: Tensor, size: Tile) -> list[Any]:
    """Own rows, the rows of all ranks, and the weights, as the kernel loads their tiles."""
    sides = [(shard, size.m, size.k), (context.of(context.rank, "operand"), size.m, size.k), (b, size.k, size.n)]
    return [block(tensor, rows, columns, bulk=context.bulk) for tensor, rows, columns in sides]


def _ends(context: Context, source: Tensor, put: Tile, alone: bool) -> list[Any]:
    """Descriptors of the source of pieces, and by rank of their target, which ends with the chunk."""
    chunk = OPERATORS[context.problem.operator].chunk_rows(context.problem)
    rows = slice(context.rank * chunk, (context.rank + 1) * chunk)
    owners = [context.rank] if alone else range(context.world)
    to = descriptors([context.of(owner, "operand")[rows] for owner in owners], put.m, put.k, bulk=context.bulk)
    return [block(source, put.m, put.k, bulk=context.bulk), *to]


def _pieces(context: Context, put: Tile) -> int:
    """Number of pieces of one put; those beyond the end of a smaller last slice move nothing."""
    extent = OPERATORS[context.problem.operator].extent(context.problem)
    height = slice_rows(context.problem, context.plan.schedule)[0][1]
    return -(-height // put.m) * -(-extent.contraction // put.k)
