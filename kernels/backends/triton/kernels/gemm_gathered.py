"""GEMM whose tiles span the rows of all ranks: every program pushes its share of the rows, waits for all, computes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device, limits
from kernels.backends.triton.kernels import partial, sync
from kernels.backends.triton.kernels.tiles import chosen, corner_table, multiply, rectangle
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block, descriptors
from kernels.backends.triton.memory import LANDED, Context
from kernels.operators import OPERATORS
from kernels.reference import Operands
from kernels.schedule import tile
from kernels.schemes import spanning, split_k

PUT_STAGES = tl.constexpr(limits.PUT_STAGES)
"""Pipeline stages of a pushing program: it loads later pieces while it stores earlier ones."""
LINE = tl.constexpr(128)
"""Bytes of a line of the L2."""
AHEAD = 256
"""Rows of a program's first weights that it prefetches into the L2 while rows fly: 8 MB of all columns of a wave."""


@triton.jit(do_not_specialize=["rank", "limit_ns", "cut", "cut_programs", "comm_programs"])
def gemm_gathered(
    landed, b, source, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, result, b_at, source_at, result_at,
    tiles, num_tiles, down, chunk, stride, rows, columns, contraction, soon, middle, landed_at, done_at, counters_at,
    epoch_at, arrived, pushed, comm_programs, error, limit_ns, rank, units, adders, begins, cut, cut_programs, sums,
    added, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PUT_M: tl.constexpr,
    PUT_K: tl.constexpr, DTYPE: tl.constexpr, TMA_PUT: tl.constexpr, TMA_RESULT: tl.constexpr,
    COMPUTE_ONLY: tl.constexpr, BULK: tl.constexpr, CUTS: tl.constexpr, AT_A_TIME: tl.constexpr,
    AHEAD: tl.constexpr, LATER: tl.constexpr,
):  # fmt: skip
    """Multiplies the rows of all ranks, which land in a half of *landed* [2 m, k], by *b* [k, n] into *result* [m, n].

    *rows* is m, and *chunk* m / WORLD. *to_0* ..: by rank, a descriptor of its *landed*; arbitrary beyond WORLD. Each
    rank's rows are pieces PUT_M x PUT_K of *source* [.., k], *down* of them below each other, where *peer*'s begin at
    peer * *stride*. The last program of a rank that has pushed signals all ranks, itself too, at *done_at*.

    LATER: ranges of the contraction that come later, 0 to 2. All programs push the first *soon* columns, and this
    rank's own. The last *comm_programs* push the others to peers, up to *middle* and from there on, signal each range
    in *counters_at* [LATER, WORLD], by source, and compute nothing. Other programs multiply what is here meanwhile:
    one flat loop of loads and products runs through all tiles, and in its first tile it waits where a range begins.

    The halves alternate by call and need no credits: this rank writes a peer's half after it has awaited the rows that
    the peer pushed in the call before, and so after the peer has left the call that read this half last.

    *tiles* [num_tiles, 2] int32: first row and column, in the order of the plan. CUTS: the first *cut* of them are
    computed by *units* and *adders*, as in `gemm_send`. AHEAD: rows of its first weights that a program prefetches.

    *stamps*: a record for each tile, then for units and adders, then for the rows that go to each rank, and for each
    range of their later columns; then by range for each tile, which goes on with it when its record begins.
    """
    landings = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    half, first = (epoch & 1) * rows, program
    record, computing = num_tiles, programs
    if CUTS:
        first += cut
        record += tl.load(begins + cut_programs) + tl.load(begins + 2 * cut_programs + 1)
    if LATER > 0:
        computing -= tl.minimum(comm_programs, programs // 2)  # some programs have to compute, and one does all
        first = tl.where(program < computing, program, num_tiles)
    if not COMPUTE_ONLY:
        begin(stamps, record, program == 0, WORLD)
        push(source, landings, source_at, landed_at, 0, WORLD, down, 0, soon, chunk, stride, half, contraction, rank,
             program, programs, WORLD, PUT_M, PUT_K, DTYPE, TMA_PUT)  # fmt: skip
        if LATER > 0:  # this rank's own, which no link holds up
            push(source, landings, source_at, landed_at, WORLD - 1, WORLD, down, soon, contraction, chunk, stride, half,
                 contraction, rank, program, programs, WORLD, PUT_M, PUT_K, DTYPE, TMA_PUT)  # fmt: skip
        ranks = tl.arange(0, device.power_above(WORLD))
        announce(done_at, rank, ranks < WORLD, arrived, programs, stamps, record, WORLD)
        if LATER > 0:
            number, pushers = tl.maximum(program - computing, 0), tl.maximum(programs - computing, 1)
            if (program >= computing) | (programs == 1):
                for each in tl.static_range(LATER):
                    start, stop, behind = soon, middle, record + (1 + each) * WORLD
                    if each > 0:
                        start, stop = middle, contraction
                    begin(stamps, behind, number == 0, WORLD)
                    push(source, landings, source_at, landed_at, 0, WORLD - 1, down, start, stop, chunk, stride, half,
                         contraction, rank, number, pushers, WORLD, PUT_M, PUT_K, DTYPE, TMA_PUT)  # fmt: skip
                    announce(counters_at, each * WORLD + rank, (ranks < WORLD) & (ranks != rank), pushed + each,
                             pushers, stamps, behind, WORLD)  # fmt: skip
        if AHEAD > 0:
            at, start = tiles + 2 * tl.minimum(program, num_tiles - 1), tl.zeros((), dtype=tl.int32)
            if CUTS:
                at = units + partial.UNIT_WORDS * tl.minimum(program, tl.load(begins + cut_programs) - 1)
                start = tl.load(at + 2)
            prefetch(b_at, start, tl.load(at + 1), columns, contraction, BLOCK_N, AHEAD)
        arrivals = device.peer(done_at, rank, tl.int32)
        device.wait_each(arrivals + ranks, ranks < WORLD, epoch, deadline, error, rank, device.ROWS, -1)
        device.fence_proxy()
    if CUTS:
        partial.compute_cut_tiles(landed, b, half, units, adders, begins, cut_programs, sums, added, result_at, rows,
                                  columns, contraction, epoch, deadline, error, rank, stamps, num_tiles, program,
                                  programs, BLOCK_M, BLOCK_N, BLOCK_K, DTYPE, BULK, AT_A_TIME)  # fmt: skip
    counted = device.count_in(arrived)
    if LATER > 0:
        counters, goes_on = device.peer(counters_at, rank, tl.int32), record + (1 + LATER) * WORLD
    sync.begin(stamps, first, first < num_tiles)
    for at in tl.range(first, num_tiles, computing, flatten=BULK):
        row, column = tl.load(tiles + 2 * at), tl.multiple_of(tl.load(tiles + 2 * at + 1), 16)
        if LATER > 0:
            later = (at == first, soon, middle, counters, epoch, deadline, error, rank, goes_on + at, num_tiles,
                     WORLD)  # fmt: skip
            total = multiply(landed, b, half + row, rows - row, column, columns, contraction, BLOCK_M, BLOCK_N,
                             BLOCK_K, BULK, later, stamps)  # fmt: skip
        else:
            total = multiply(landed, b, half + row, rows - row, column, columns, contraction, BLOCK_M, BLOCK_N,
                             BLOCK_K, BULK)  # fmt: skip
        sync.write(stamps, at, sync.COMPUTED)
        if TMA_RESULT:
            device.put_tma(result, row, column, total.to(DTYPE))
        else:
            place, mask = rectangle(row, column, rows, columns, columns, BLOCK_M, BLOCK_N)
            tl.store(result_at + place, total.to(DTYPE), mask=mask)
        sync.next_tile(stamps, at, computing, num_tiles)
    device.leave(counted, epoch_at, arrived, epoch, programs)


@triton.jit
def push(
    source, landings, source_at, landed_at, first, end, down, start, stop, chunk, stride, half, contraction, rank,
    program, programs,
    WORLD: tl.constexpr, PUT_M: tl.constexpr, PUT_K: tl.constexpr, DTYPE: tl.constexpr, TMA_PUT: tl.constexpr,
):  # fmt: skip
    """Pushes this program's share of columns *start* to *stop* to the ranks from *first* to *end*, this one the last.

    They count from the next rank on. *half*: first row of the half that is written. Without TMA_PUT threads store.
    """
    across, top = tl.cdiv(stop - start, PUT_K), half + rank * chunk
    copies = down * across
    for piece in tl.range(first * copies + program, end * copies, programs, num_stages=PUT_STAGES):
        peer, inside = (rank + 1 + piece // copies) % WORLD, piece % copies
        row, column = inside // across * PUT_M, start + inside % across * PUT_K
        if TMA_PUT:
            leaving = source.load([peer * stride + row, column])
            device.put_tma(chosen(landings, peer, WORLD), top + row, column, leaving)
        else:
            place, mask = rectangle(row, column, chunk, contraction, contraction, PUT_M, PUT_K)
            leaving = tl.load(source_at + tl.cast(peer * stride, tl.int64) * contraction + place, mask=mask)
            slot = device.peer(landed_at, peer, DTYPE) + tl.cast(top, tl.int64) * contraction
            tl.store(slot + place, leaving, mask=mask)


@triton.jit
def begin(stamps, record, mask, WORLD: tl.constexpr):
    """Stamps that rows begin to leave for each rank, where *mask* is true."""
    for other in tl.static_range(WORLD):
        sync.begin(stamps, record + other, mask)


@triton.jit
def announce(signals_at, place, receivers, pushed, programs, stamps, record, WORLD: tl.constexpr):
    """The last of *programs* that have pushed, by the count *pushed*, raises signal *place* of all *receivers*."""
    device.drain()
    if tl.atomic_add(pushed, 1, sem="acq_rel", scope="gpu") == programs - 1:
        tl.atomic_xchg(pushed, 0, sem="relaxed", scope="gpu")
        device.signal_each(device.every_rank(signals_at, WORLD) + place, receivers)
        for other in tl.static_range(WORLD):
            sync.write(stamps, record + other, sync.SENT)


@triton.jit
def prefetch(b_at, start, column, columns, contraction, BLOCK_N: tl.constexpr, AHEAD: tl.constexpr):
    """Brings AHEAD rows of b from *start* on, BLOCK_N columns from *column* on, into the L2; nothing waits for them."""
    if not device.INTERPRETED:
        each: tl.constexpr = LINE // (b_at.dtype.element_ty.primitive_bitwidth // 8)
        lines: tl.constexpr = (BLOCK_N + each - 1) // each
        number = tl.arange(0, AHEAD * lines)
        k = tl.minimum(start + number // lines, contraction - 1)
        c = tl.minimum(column + number % lines * each, columns - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l",
            [(b_at + k.to(tl.int64) * columns + c).to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_gathered` for one trial; *alone*: the computation of what has landed, without communication."""
    problem, schedule, rank, plan = context.problem, context.plan.schedule, context.rank, context.plan
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    extent, chunk = operator.extent(problem), operator.chunk_rows(problem)
    source, b = operands.values()
    stride = chunk if len(source) > chunk else 0  # all-to-all: other rows for each peer
    put = limits.gathered_piece(problem, context.architecture)
    by_tma, tiles = schedule["store"] == "tma" and context.bulk, corner_table(plan, rank).to(context.device)
    puts_by_tma = by_tma and chunk % put.m == 0
    owners = [rank] if alone else range(context.world)
    landed = [context.of(owner, LANDED).view(-1, extent.contraction) for owner in owners]
    here, at = landed[0] if alone else landed[rank], plan.tiles[rank]
    if alone:
        here.normal_()  # not zeros, which take less power, so that the GPU would clock higher
    of_units = partial.arguments(context, at.row_start, at.col_start)
    cuts, only_push = of_units[0] is not None, 0 if alone else spanning.pushers(problem, schedule)
    later = spanning.later_ranges(problem, schedule) if only_push else 0
    soon, middle = (*spanning.limits(problem, schedule)[1:], extent.contraction)[:2]
    return LaunchableKernel(
        function=gemm_gathered,
        arguments=(
            block(here, size.m, size.k, bulk=context.bulk), block(b, size.k, size.n, bulk=context.bulk),
            block(source, put.m, put.k, bulk=context.bulk),
            *descriptors(landed, put.m, put.k, bulk=context.bulk),
            block(context.local, size.m, size.n, bulk=context.bulk), b, source, context.local,
            tiles, len(tiles), -(-chunk // put.m), chunk, stride, extent.rows, extent.columns, extent.contraction,
            soon, middle if later else None, *_places(context, alone), context.epoch, context.arrived, context.pushed,
            only_push, context.error,
            context.limit_ns, 0 if alone else rank, *of_units, None,
        ),
        constants={
            "WORLD": 1 if alone else problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "PUT_M": put.m, "PUT_K": put.k, "DTYPE": TRITON_DTYPES[problem.dtype], "TMA_PUT": puts_by_tma,
            "TMA_RESULT": by_tma, "COMPUTE_ONLY": alone, "BULK": context.bulk, "CUTS": cuts,
            "AT_A_TIME": split_k.adder_columns(size, schedule.count("num_warps")) if cuts else 0, "AHEAD": AHEAD,
            "LATER": later,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=max(len(tiles) + only_push, schedule.count("grid") if cuts else 0),
        grid=schedule.count("grid"),
        takes_fewer=cuts,
        records=len(tiles) + (len(of_units[0]) + len(of_units[1]) if cuts else 0)
        + problem.world * (1 + later) + len(tiles) * later,
    )  # fmt: skip


def _places(context: Context, alone: bool) -> list[Tensor]:
    """Addresses by rank of landed, done and counters; alone none is read."""
    if alone:
        return [torch.zeros(1, dtype=torch.int64, device=context.device)] * 3
    return [context.addresses(name) for name in (LANDED, "done", "counters")]
