"""GEMM whose tiles span the rows of all ranks: every program pushes its share of the rows, waits for all, computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device, limits
from kernels.backends.triton.kernels import partial, sync
from kernels.backends.triton.kernels.gemm_send import chosen, compute_cut_tiles, multiply, multiply_range, rectangle
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block, descriptors
from kernels.backends.triton.memory import LANDED, Context
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.reference import Operands
from kernels.schedule import tile
from kernels.schemes import fused, split_k

PUT_STAGES = tl.constexpr(limits.PUT_STAGES)
"""Pipeline stages of a pushing program: it loads later pieces while it stores earlier ones."""
LINE = tl.constexpr(128)
"""Bytes of a line of the L2."""
AHEAD = 256
"""Rows of a program's first weights that it prefetches into the L2 while rows fly: 8 MB of all columns of a wave."""


@triton.jit(do_not_specialize=["rank", "limit_ns", "cut", "cut_programs"])
def gemm_gathered(
    landed, b, source, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, result, b_at, source_at, result_at,
    tiles, num_tiles, chunk, stride, rows, columns, contraction, early, middle, landed_at, counters_at,
    epoch_at, arrived, error, limit_ns, rank, units, adders, begins, cut, cut_programs, sums, added, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PUT_M: tl.constexpr,
    PUT_K: tl.constexpr, RANGES: tl.constexpr, DTYPE: tl.constexpr, TMA_PUT: tl.constexpr, TMA_RESULT: tl.constexpr,
    COMPUTE_ONLY: tl.constexpr, BULK: tl.constexpr, CUTS: tl.constexpr, AT_A_TIME: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Multiplies the rows of all ranks, which land in a half of *landed* [2 m, k], by *b* [k, n] into *result* [m, n].

    *rows* is m, and *chunk* m / WORLD. *to_0* ..: by rank, a descriptor of its *landed*; arbitrary beyond WORLD. Rows
    leave in pieces PUT_M x PUT_K of *source* [.., k], where *peer*'s begin at peer * *stride*; with RANGES = 3 the
    contraction leaves in three ranges, which end at *early*, *middle* and its end. A program's first tile waits for one
    after the other.

    The halves alternate by call and need no credits: this rank writes a peer's half after it has awaited the rows that
    the peer pushed in the call before, and so after the peer has left the call that read this half last.

    *tiles* [num_tiles, 2] int32: first row and column, in the order of the plan. CUTS: the first *cut* of them are
    computed by *units* and *adders*, as in `gemm_send`. AHEAD: rows of its first weights that a program prefetches.

    *stamps*: a record for each tile, then for units and adders, then by rank for the rows that go there.
    """
    landings = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    half, first = (epoch & 1) * rows, program
    record = num_tiles
    if CUTS:
        first += cut
        record += tl.load(begins + cut_programs) + tl.load(begins + 2 * cut_programs + 1)
    if not COMPUTE_ONLY:
        if AHEAD > 0:
            prefetch(tiles, num_tiles, units, begins, cut_programs, program, b_at, columns, contraction, BLOCK_N, CUTS,
                     AHEAD)  # fmt: skip
        spread(source, landings, source_at, landed_at, counters_at, chunk, stride, half, contraction, early, middle,
               rank, program, programs, stamps, record, WORLD, PUT_M, PUT_K, RANGES, DTYPE, TMA_PUT)  # fmt: skip
        if CUTS:
            for number in tl.static_range(RANGES):
                await_rows(counters_at, number, chunk, contraction, early, middle, programs, epoch, deadline, error,
                           rank, WORLD, PUT_M, PUT_K, RANGES)  # fmt: skip
    if CUTS:
        compute_cut_tiles(landed, b, half, units, adders, begins, cut_programs, sums, added, result_at, rows, columns,
                          contraction, epoch, deadline, error, rank, stamps, num_tiles, program, programs, BLOCK_M,
                          BLOCK_N, BLOCK_K, DTYPE, BULK, AT_A_TIME)  # fmt: skip
    elif not COMPUTE_ONLY:
        if first < num_tiles:
            sync.begin(stamps, first)
            row, column = tl.load(tiles + 2 * first), tl.multiple_of(tl.load(tiles + 2 * first + 1), 16)
            total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for number in tl.static_range(RANGES):
                await_rows(counters_at, number, chunk, contraction, early, middle, programs, epoch, deadline, error,
                           rank, WORLD, PUT_M, PUT_K, RANGES)  # fmt: skip
                start, stop = range_of(number, early, middle, contraction, RANGES)
                if number == 0:
                    sync.write(stamps, first, sync.WAITED)
                total = multiply_range(landed, b, half + row, rows - row, column, columns, contraction, start, stop,
                                       total, BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
            sync.write(stamps, first, sync.COMPUTED)
            store(result, result_at, total, row, column, rows, columns, BLOCK_M, BLOCK_N, DTYPE, TMA_RESULT)
            sync.write(stamps, first, sync.SENT)
            first += programs
    sync.begin(stamps, first, first < num_tiles)
    for at in tl.range(first, num_tiles, programs, flatten=BULK):
        row, column = tl.load(tiles + 2 * at), tl.multiple_of(tl.load(tiles + 2 * at + 1), 16)
        total = multiply(landed, b, half + row, rows - row, column, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K,
                         BULK)  # fmt: skip
        sync.write(stamps, at, sync.COMPUTED)
        store(result, result_at, total, row, column, rows, columns, BLOCK_M, BLOCK_N, DTYPE, TMA_RESULT)
        sync.write(stamps, at, sync.SENT)
        sync.begin(stamps, at + programs, at + programs < num_tiles)  # not at the top: a flat loop runs ahead
    device.drain()
    device.leave(epoch_at, arrived, epoch, programs)


@triton.jit
def store(
    result, result_at, total, row, column, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    DTYPE: tl.constexpr, TMA_RESULT: tl.constexpr,
):  # fmt: skip
    """Stores the tile *total* at *row* and *column* of *result* [rows, columns]."""
    if TMA_RESULT:
        device.put_tma(result, row, column, total.to(DTYPE))
    else:
        place, mask = rectangle(row, column, rows, columns, columns, BLOCK_M, BLOCK_N)
        tl.store(result_at + place, total.to(DTYPE), mask=mask)


@triton.jit
def range_of(number, early, middle, contraction, RANGES: tl.constexpr):
    """Where range *number* of the contraction begins and ends."""
    if RANGES == 1:
        return 0, contraction
    start = tl.where(number == 0, 0, tl.where(number == 1, early, middle))
    return start, tl.where(number == 0, early, tl.where(number == 1, middle, contraction))


@triton.jit
def pieces_of(number, chunk, early, middle, contraction, PUT_M: tl.constexpr, PUT_K: tl.constexpr,
              RANGES: tl.constexpr):  # fmt: skip
    """Number of pieces of one rank's rows in range *number*."""
    start, stop = range_of(number, early, middle, contraction, RANGES)
    return tl.cdiv(chunk, PUT_M) * tl.cdiv(stop - start, PUT_K)


@triton.jit
def await_rows(
    counters_at, number, chunk, contraction, early, middle, programs, epoch, deadline, error, rank,
    WORLD: tl.constexpr, PUT_M: tl.constexpr, PUT_K: tl.constexpr, RANGES: tl.constexpr,
):  # fmt: skip
    """Waits until range *number* of all ranks' rows has landed here: every program with a share of it signals."""
    pushers = tl.minimum(programs, pieces_of(number, chunk, early, middle, contraction, PUT_M, PUT_K, RANGES))
    counters = device.peer(counters_at, rank, tl.int32)
    for other in tl.static_range(WORLD):
        at = other * RANGES + number
        device.wait(counters + at, epoch * pushers, deadline, error, rank, device.ROWS, at)
    device.fence_proxy()


@triton.jit
def spread(
    source, landings, source_at, landed_at, counters_at, chunk, stride, half, contraction, early, middle, rank, program,
    programs, stamps, record,
    WORLD: tl.constexpr, PUT_M: tl.constexpr, PUT_K: tl.constexpr, RANGES: tl.constexpr, DTYPE: tl.constexpr,
    TMA_PUT: tl.constexpr,
):  # fmt: skip
    """Pushes this program's share of this rank's rows to all ranks, range by range, its own rows last.

    Of each range and rank that it has a share of it signals one: when the first piece of the next one has left, so that
    the link does not idle for the signal. *half*: first row of the half that is written. Without TMA_PUT threads store.
    """
    across, top = tl.cdiv(contraction, PUT_K), half + rank * chunk
    late = tl.full((), -1, tl.int32)  # what has left but is not signalled yet: range * WORLD + turn
    for other in tl.static_range(WORLD):
        sync.begin(stamps, record + other, program == 0)
    for piece in tl.range(program, WORLD * tl.cdiv(chunk, PUT_M) * across, programs, num_stages=PUT_STAGES):
        number, begins, within = tl.zeros((), tl.int32), tl.zeros((), tl.int32), piece
        if RANGES > 1:
            first = WORLD * pieces_of(0, chunk, early, middle, contraction, PUT_M, PUT_K, RANGES)
            second = first + WORLD * pieces_of(1, chunk, early, middle, contraction, PUT_M, PUT_K, RANGES)
            number = (piece >= first).to(tl.int32) + (piece >= second).to(tl.int32)
            begins = tl.where(number == 0, 0, tl.where(number == 1, early, middle))
            within = piece - tl.where(number == 0, 0, tl.where(number == 1, first, second))
        each = pieces_of(number, chunk, early, middle, contraction, PUT_M, PUT_K, RANGES)
        wide = each // tl.cdiv(chunk, PUT_M)
        turn, inside = within // each, within % each
        peer = (rank + 1 + turn) % WORLD
        row, column = inside // wide * PUT_M, begins + inside % wide * PUT_K
        if TMA_PUT:
            leaving = source.load([peer * stride + row, column])
            device.put_tma(chosen(landings, peer, WORLD), top + row, column, leaving)
        else:
            place, mask = rectangle(row, column, chunk, contraction, contraction, PUT_M, PUT_K)
            leaving = tl.load(source_at + tl.cast(peer * stride, tl.int64) * contraction + place, mask=mask)
            slot = device.peer(landed_at, peer, DTYPE) + tl.cast(top, tl.int64) * contraction
            tl.store(slot + place, leaving, mask=mask)
        if number * WORLD + turn != late:
            if late >= 0:
                device.signal_but_one(arrival(counters_at, late, rank, WORLD, RANGES))
            late = number * WORLD + turn
    device.drain()
    if late >= 0:
        device.signal(arrival(counters_at, late, rank, WORLD, RANGES))
        sync.write(stamps, record + (rank + 1 + late % WORLD) % WORLD, sync.SENT)


@triton.jit
def arrival(counters_at, late, rank, WORLD: tl.constexpr, RANGES: tl.constexpr):
    """The counter on the rank of turn *late* % WORLD that rises for range *late* // WORLD of this rank's rows."""
    peer = (rank + 1 + late % WORLD) % WORLD
    return device.peer(counters_at, peer, tl.int32) + rank * RANGES + late // WORLD


@triton.jit
def prefetch(
    tiles, num_tiles, units, begins, cut_programs, program, b_at, columns, contraction,
    BLOCK_N: tl.constexpr, CUTS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Brings AHEAD rows of the weights that this program needs first into the L2; nothing waits for them."""
    if not device.INTERPRETED:
        at, start = tiles + 2 * tl.minimum(program, num_tiles - 1), tl.zeros((), dtype=tl.int32)
        if CUTS:
            at = units + partial.UNIT_WORDS * tl.minimum(program, tl.load(begins + cut_programs) - 1)
            start = tl.load(at + 2)
        each: tl.constexpr = LINE // (b_at.dtype.element_ty.primitive_bitwidth // 8)
        lines: tl.constexpr = (BLOCK_N + each - 1) // each
        number = tl.arange(0, AHEAD * lines)
        k = tl.minimum(start + number // lines, contraction - 1)
        c = tl.minimum(tl.load(at + 1) + number % lines * each, columns - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l",
            [(b_at + k.to(tl.int64) * columns + c).to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


def tile_table(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles, 2] in the order of the plan: first row and first column."""
    tiles = plan.tiles[rank]
    return torch.from_numpy(np.stack([tiles.row_start, tiles.col_start], axis=1).astype(np.int32))


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_gathered` for one trial; *alone*: the computation of what has landed, without communication."""
    problem, schedule, rank, plan = context.problem, context.plan.schedule, context.rank, context.plan
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    source, b = operands.values()
    stride = chunk if len(source) > chunk else 0  # all-to-all: other rows for each peer
    put = limits.gathered_piece(problem, context.architecture)
    by_tma, tiles = schedule["store"] == "tma" and context.bulk, tile_table(plan, rank).to(context.device)
    ends = fused.gathered_ranges(problem)
    puts_by_tma = by_tma and chunk % put.m == 0
    owners = [rank] if alone else range(context.world)
    landed = [context.of(owner, LANDED).view(-1, extent.contraction) for owner in owners]
    here, at = landed[0] if alone else landed[rank], plan.tiles[rank]
    if alone:
        here.normal_()  # not zeros, which take less power, so that the GPU would clock higher
    of_units = partial.arguments(context, at.row_start, at.col_start)
    cuts = of_units[0] is not None
    return LaunchableKernel(
        function=gemm_gathered,
        arguments=(
            block(here, size.m, size.k, bulk=context.bulk), block(b, size.k, size.n, bulk=context.bulk),
            block(source, put.m, put.k, bulk=context.bulk),
            *descriptors(landed, put.m, put.k, bulk=context.bulk),
            block(context.local, size.m, size.n, bulk=context.bulk), b, source, context.local,
            tiles, len(tiles), chunk, stride, extent.rows, extent.columns, extent.contraction, *_inner(ends),
            *_places(context, alone), context.epoch, context.arrived, context.error, context.limit_ns,
            0 if alone else rank, *of_units, None,
        ),
        constants={
            "WORLD": 1 if alone else problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "PUT_M": put.m, "PUT_K": put.k, "RANGES": len(ends) - 1, "DTYPE": TRITON_DTYPES[problem.dtype],
            "TMA_PUT": puts_by_tma, "TMA_RESULT": by_tma, "COMPUTE_ONLY": alone, "BULK": context.bulk, "CUTS": cuts,
            "AT_A_TIME": split_k.adder_columns(size, schedule.count("num_warps")) if cuts else 0, "AHEAD": AHEAD,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=max(len(tiles), schedule.count("grid") if cuts else 0),
        grid=schedule.count("grid"),
        takes_fewer=cuts,
        records=len(tiles) + (len(of_units[0]) + len(of_units[1]) if cuts else 0) + problem.world,
    )  # fmt: skip


def _places(context: Context, alone: bool) -> list[Tensor]:
    """Addresses by rank of landed and of the counters; alone none is read."""
    if alone:
        return [torch.zeros(1, dtype=torch.int64, device=context.device)] * 2
    return [context.addresses(name) for name in (LANDED, "counters")]


def _inner(ends: Sequence[int]) -> tuple[int, int]:
    """Where the first two of three ranges end; one range has no such places."""
    return (ends[1], ends[2]) if len(ends) > 2 else (0, 0)
