"""GEMM whose tiles span the rows of all ranks: each part leaves for its owner, who may add the parts of all ranks."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device
from kernels.backends.triton.kernels import partial, sums_in_packets, sync
from kernels.backends.triton.kernels.tiles import corner_table, multiply, rectangle
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block
from kernels.backends.triton.memory import LANDED, Context
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Ints, Plan, inside
from kernels.reference import Operands
from kernels.schedule import tile
from kernels.schemes import axis_rules, split_k


@triton.jit(do_not_specialize=["rank", "limit_ns", "cut", "cut_programs"])
def gemm_scattered(
    a, b, result, tiles, num_tiles, height, rows, columns, contraction, landed_at, counters_at, out_at, credits_at,
    done_at, epoch_at, arrived, error, limit_ns, rank, units, adders, begins, cut, cut_programs, sums, added, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SUM_M: tl.constexpr,
    DTYPE: tl.constexpr, SUMS: tl.constexpr, ONE_SHOT: tl.constexpr, BROADCASTS: tl.constexpr,
    COMPUTE_ONLY: tl.constexpr, BULK: tl.constexpr, CUTS: tl.constexpr, AT_A_TIME: tl.constexpr,
    PACKETS: tl.constexpr, TAKE_M: tl.constexpr,
):  # fmt: skip
    """Multiplies a [m, k] by b [k, n]; each rank gets the rows that it owns from all ranks.

    *rows* is m. A rank owns *height* rows: m / WORLD of them, from rank * height on, or with ONE_SHOT all m. Without
    SUMS they go to this rank's slot of their owner's *out_at* [WORLD, height, n], as credits allow, and all ranks meet.

    SUMS: an owner adds the rows of all ranks, in the order of ranks, SUM_M rows and BLOCK_N columns at a time. Partial
    sums, rounded to DTYPE, go to slot [half, this rank] of their owner's *landed* [2, WORLD, height, n], its own too.
    So all ranks round alike, and with ONE_SHOT all have the same bits. BROADCASTS: an owner stores its sums into the
    *out_at* of all ranks, which then meet.

    The halves alternate by call and need no credits: a rank ends a call when it has awaited parts from all others, who
    had then left the call before, in which they read the half that comes next. There is a counter for each source and
    each tile with rows of this rank, by `number_of`.

    PACKETS: *landed* are packets of words (`sums_in_packets`), and nothing is counted, drained or released. With
    BROADCASTS the sums leave in packets, too, which each rank takes TAKE_M rows at a time, so that nobody meets.

    *tiles* [num_tiles, 2] int32: first row and column, in the order of the plan. COMPUTE_ONLY: tiles go to *result*.
    CUTS: the first *cut* of them are computed by *units* and *adders*, as in `gemm_send`; each adder sends the columns
    that it adds. Then a tile counts as its pieces of AT_A_TIME columns.

    *stamps*: a record for each tile, then for each sum of SUM_M rows, then for units and adders.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    half, first = (epoch & 1) * (2 * WORLD if PACKETS and BROADCASTS else WORLD), program
    pieces: tl.constexpr = BLOCK_N // AT_A_TIME if CUTS else 1
    if not SUMS:
        if not COMPUTE_ONLY:
            device.grant(credits_at, rank, WORLD, program)
    if CUTS:
        first += cut
        if COMPUTE_ONLY:
            partial.compute_cut_tiles(a, b, 0, units, adders, begins, cut_programs, sums, added, result, rows, columns,
                                      contraction, epoch, deadline, error, rank, stamps, num_tiles, program, programs,
                                      BLOCK_M, BLOCK_N, BLOCK_K, DTYPE, BULK, AT_A_TIME)  # fmt: skip
        else:
            send_cut_tiles(a, b, units, adders, begins, cut_programs, sums, added, num_tiles, half, height, rows,
                           columns, contraction, landed_at, counters_at, out_at, credits_at, epoch, deadline, error,
                           rank, stamps, program, programs, WORLD, BLOCK_M, BLOCK_N, BLOCK_K, SUM_M, DTYPE, SUMS,
                           ONE_SHOT, BULK, AT_A_TIME, PACKETS)  # fmt: skip
    if COMPUTE_ONLY:
        counted = device.count_in(arrived)
    sync.begin(stamps, first, first < num_tiles)
    late = tl.full((), -1, tl.int32)  # the tile that has left but is not signalled yet
    for at in tl.range(first, num_tiles, programs):
        row, column = tl.load(tiles + 2 * at), tl.multiple_of(tl.load(tiles + 2 * at + 1), 16)
        total = multiply(a, b, row, rows - row, column, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)
        sync.write(stamps, at, sync.COMPUTED)
        if COMPUTE_ONLY:
            place, mask = rectangle(row, column, rows, columns, columns, BLOCK_M, BLOCK_N)
            tl.store(result + place, total.to(DTYPE), mask=mask)
        else:
            if late >= 0:  # before the next tile leaves: a release waits for all stores in flight
                announce(counters_at, tl.load(tiles + 2 * late), tl.load(tiles + 2 * late + 1), pieces, num_tiles,
                         height, columns, rank, WORLD, BLOCK_M, BLOCK_N, ONE_SHOT)  # fmt: skip
            if not SUMS:
                if at == first:
                    device.granted(credits_at, epoch, deadline, error, rank, WORLD)
            if PACKETS:
                sums_in_packets.send(total, row, column, landed_at, half, height, columns, rank, epoch, WORLD, BLOCK_M,
                                     BLOCK_N, DTYPE, ONE_SHOT)  # fmt: skip
            else:
                send_rows(total.to(DTYPE), row, column, landed_at if SUMS else out_at, half if SUMS else 0, height,
                          columns, rank, WORLD, BLOCK_M, BLOCK_N, DTYPE, ONE_SHOT)  # fmt: skip
                if SUMS:
                    late = at
        sync.next_tile(stamps, at, programs, num_tiles)
    if SUMS and not COMPUTE_ONLY:
        if late >= 0:
            announce(counters_at, tl.load(tiles + 2 * late), tl.load(tiles + 2 * late + 1), pieces, num_tiles, height,
                     columns, rank, WORLD, BLOCK_M, BLOCK_N, ONE_SHOT)  # fmt: skip
        if PACKETS or not BROADCASTS:
            counted = device.count_in(arrived)
        add_parts(landed_at, counters_at, out_at, num_tiles, half, height, columns, epoch * (1 if PACKETS else pieces),
                  deadline, error, rank, program, programs, stamps, WORLD, BLOCK_M, BLOCK_N, SUM_M, DTYPE, ONE_SHOT,
                  BROADCASTS, PACKETS)  # fmt: skip
        if PACKETS and BROADCASTS:
            sums_in_packets.take(landed_at, out_at, half + WORLD, height, columns, epoch, deadline, error, rank,
                                 program, programs, WORLD, TAKE_M, BLOCK_N, DTYPE)  # fmt: skip
    if COMPUTE_ONLY or PACKETS or (SUMS and not BROADCASTS):
        device.leave(counted, epoch_at, arrived, epoch, programs)  # all parts of this call were awaited
    else:
        device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)


@triton.jit
def send_rows(
    value, row, column, places_at, slots, height, columns, rank,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr, ONE_SHOT: tl.constexpr,
):  # fmt: skip
    """Stores *value* [BLOCK_M, COLUMNS] into slot *slots* + *rank* of who own its rows, the next rank's first."""
    for step in tl.static_range(WORLD):
        owner = (rank + 1 + step) % WORLD
        top = 0 if ONE_SHOT else owner * height
        if (row < top + height) & (row + BLOCK_M > top):
            place, mask = part(row - top, column, height, columns, BLOCK_M, COLUMNS)
            slot = device.peer(places_at, owner, DTYPE) + tl.cast((slots + rank) * height, tl.int64) * columns
            tl.store(slot + place, value, mask=mask)


@triton.jit
def send_cut_tiles(
    a, b, units, adders, begins, cut_programs, sums, added, num_tiles, half, height, rows, columns, contraction,
    landed_at, counters_at, out_at, credits_at, epoch, deadline, error, rank, stamps, program, programs,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SUM_M: tl.constexpr,
    DTYPE: tl.constexpr, SUMS: tl.constexpr, ONE_SHOT: tl.constexpr, BULK: tl.constexpr, AT_A_TIME: tl.constexpr,
    PACKETS: tl.constexpr,
):  # fmt: skip
    """As `partial.compute_cut_tiles`, but who adds columns of a tile sends them to the owners of its rows."""
    each, behind, record = tl.cdiv(cut_programs, programs), tl.load(begins + cut_programs), num_tiles
    if SUMS:
        record += sums_down(0 if ONE_SHOT else rank * height, height, SUM_M) * tl.cdiv(columns, BLOCK_N)
    begun = begins + cut_programs + 1
    for turn in range(program * each, tl.minimum(cut_programs, (program + 1) * each)):
        partial.compute_units(a, b, 0, units, begins, turn, sums, added, rows, columns, contraction, stamps, record,
                              BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
        for at in range(tl.load(begun + turn), tl.load(begun + turn + 1)):
            sync.begin(stamps, record + behind + at)
            entry = adders + partial.ADDER_WORDS * at
            row, column = tl.load(entry), tl.multiple_of(tl.load(entry + 1), 16)
            partial.await_units(entry, added, epoch, deadline, error, rank)
            if not SUMS:
                device.granted(credits_at, epoch, deadline, error, rank, WORLD)
            start, stop = tl.load(entry + 2) // AT_A_TIME, tl.load(entry + 3) // AT_A_TIME
            for piece in range(start, stop):
                total = partial.sum_of_units(entry, piece * AT_A_TIME, row + tl.arange(0, BLOCK_M) < rows, sums,
                                             BLOCK_M, BLOCK_N, AT_A_TIME)  # fmt: skip
                if PACKETS:
                    sums_in_packets.send(total, row, column + piece * AT_A_TIME, landed_at, half, height, columns, rank,
                                         epoch, WORLD, BLOCK_M, AT_A_TIME, DTYPE, ONE_SHOT)  # fmt: skip
                else:
                    send_rows(total.to(DTYPE), row, column + piece * AT_A_TIME, landed_at if SUMS else out_at,
                              half if SUMS else 0, height, columns, rank, WORLD, BLOCK_M, AT_A_TIME, DTYPE,
                              ONE_SHOT)  # fmt: skip
            sync.write(stamps, record + behind + at, sync.COMPUTED)
            if SUMS and not PACKETS:
                announce(counters_at, row, column, stop - start, num_tiles, height, columns, rank, WORLD, BLOCK_M,
                         BLOCK_N, ONE_SHOT)  # fmt: skip
            sync.write(stamps, record + behind + at, sync.SENT)


@triton.jit
def add_parts(
    landed_at, counters_at, out_at, num_tiles, half, height, columns, expected, deadline, error, rank, program,
    programs, stamps,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SUM_M: tl.constexpr, DTYPE: tl.constexpr,
    ONE_SHOT: tl.constexpr, BROADCASTS: tl.constexpr, PACKETS: tl.constexpr,
):  # fmt: skip
    """Adds this program's share of the rows of this rank, SUM_M at a time, when their tile is here from all ranks.

    Few tiles have rows of this rank, so that all programs share them (`axis_rules.rows_summed`), column by column, as
    they compute tiles: those of two ranks add what they or their neighbours computed. The interpreter ends a program
    before the next one computes its tiles: there the last program adds everything. *expected*: of the counters of a
    tile, or the epoch of packets.
    """
    top = 0 if ONE_SHOT else rank * height
    above, down = top // SUM_M, sums_down(top, height, SUM_M)  # they lie at multiples of SUM_M, each inside a tile
    sums = down * tl.cdiv(columns, BLOCK_N)
    first, step = program, programs
    if device.INTERPRETED:
        first, step = tl.where(program == programs - 1, 0, sums), 1
    for at in tl.range(first, sums, step):
        row, column = (above + at % down) * SUM_M, at // down * BLOCK_N
        sync.begin(stamps, num_tiles + at)
        if PACKETS:
            sums_in_packets.add(landed_at, out_at, half, row - top, column, top, height, columns, expected, deadline,
                                error, rank, stamps, num_tiles + at, at, WORLD, SUM_M, BLOCK_N, DTYPE,
                                BROADCASTS)  # fmt: skip
        else:
            counters = device.peer(counters_at, rank, tl.int32)
            counters += number_of(row // BLOCK_M * BLOCK_M - top, column, columns, BLOCK_M, BLOCK_N)
            sources = tl.arange(0, device.power_above(WORLD))
            device.wait_each(counters + sources * num_tiles, sources < WORLD, expected, deadline, error, rank,
                             device.TILE, at)  # fmt: skip
            sync.write(stamps, num_tiles + at, sync.WAITED)
            place, mask = part(row - top, column, height, columns, SUM_M, BLOCK_N)
            total = tl.zeros((SUM_M, BLOCK_N), dtype=tl.float32)
            for source in tl.static_range(WORLD):
                slot = device.peer(landed_at, rank, DTYPE) + tl.cast((half + source) * height, tl.int64) * columns
                total += tl.load(slot + place, mask=mask, other=0.0).to(tl.float32)
            sync.write(stamps, num_tiles + at, sync.COMPUTED)
            value = total.to(DTYPE)
            if BROADCASTS:  # a peer has begun this call, so that nobody reads its result of the call before
                for turn in tl.static_range(WORLD):
                    out = device.peer(out_at, (rank + turn) % WORLD, DTYPE)
                    tl.store(out + tl.cast(top, tl.int64) * columns + place, value, mask=mask)
            else:
                tl.store(device.peer(out_at, rank, DTYPE) + place, value, mask=mask)
            sync.write(stamps, num_tiles + at, sync.SENT)


@triton.jit
def sums_down(top, height, SUM_M: tl.constexpr):
    """Sums of one column of a rank whose *height* rows begin at *top*."""
    return tl.cdiv(top + height, SUM_M) - top // SUM_M


@triton.jit
def part(row, column, height, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Offsets and mask of those rows of a tile that lie in [height, columns]; its first *row* may lie before them."""
    r, c = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    inside = ((r >= 0) & (r < height))[:, None] & (c < columns)[None, :]
    return r[:, None].to(tl.int64) * columns + c[None, :], inside


@triton.jit
def number_of(row, column, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Number of the tile at *row* and *column* among those with rows of an owner, whose first row is 0."""
    return tl.cdiv(tl.maximum(row, 0), BLOCK_M) * tl.cdiv(columns, BLOCK_N) + column // BLOCK_N


@triton.jit
def announce(
    counters_at, row, column, amount, num_tiles, height, columns, rank,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ONE_SHOT: tl.constexpr,
):  # fmt: skip
    """Counts *amount* pieces of the tile at *row* and *column* for all who own rows of it."""
    owner = tl.arange(0, device.power_above(WORLD))
    top = owner * (0 if ONE_SHOT else height)
    holds = (owner < WORLD) & (row < top + height) & (row + BLOCK_M > top)
    number = number_of(row - top, column, columns, BLOCK_M, BLOCK_N)
    device.signal_each(device.every_rank(counters_at, WORLD) + rank * num_tiles + number, holds, amount)


def sums_of(plan: Plan, rank: int, at: Ints) -> tuple[Ints, Ints]:
    """Numbers of the sums that *rank* adds of its tiles *at*, as `add_parts` counts them, and the tile of each."""
    problem, tiles, size = plan.problem, plan.tiles[rank], tile(plan.schedule["tile"])
    operator, rows = OPERATORS[problem.operator], axis_rules.rows_summed(problem, plan.schedule)
    one_shot = axis_rules.spans_in_one_shot(problem)
    height = operator.extent(problem).rows if one_shot else operator.chunk_rows(problem)
    top = 0 if one_shot else rank * height
    first = np.maximum(tiles.row_start[at], top) // rows
    counts = np.maximum(0, -(-np.minimum(tiles.row_stop[at], top + height) // rows) - first)
    down = -(-(top + height) // rows) - top // rows
    number = np.repeat(first - top // rows, counts) + inside(counts)
    return np.repeat(tiles.col_start[at] // size.n, counts) * down + number, np.repeat(at, counts)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemm_scattered` for one trial; *alone*: the computation into `context.local`, no communication."""
    problem, schedule, (a, b) = context.problem, context.plan.schedule, operands.values()
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    extent, one_shot = operator.extent(problem), axis_rules.spans_in_one_shot(problem)
    tiles, at = corner_table(context.plan, context.rank).to(context.device), context.plan.tiles[context.rank]
    of_units = partial.arguments(context, at.row_start, at.col_start)
    cuts, sums = of_units[0] is not None, sums_of(context.plan, context.rank, np.arange(len(tiles)))[0]
    packets = axis_rules.sends_packets(problem, schedule) and not alone
    taken = axis_rules.packet_rows(problem, size, schedule.count("num_warps"), extent.rows) if packets else 0
    return LaunchableKernel(
        function=gemm_scattered,
        arguments=(
            block(a, size.m, size.k, bulk=context.bulk), block(b, size.k, size.n, bulk=context.bulk),
            context.local if alone else None,  # the result lies in symmetric memory, and no call brings another one
            tiles, len(tiles), extent.rows if one_shot else operator.chunk_rows(problem), extent.rows, extent.columns,
            extent.contraction, *_places(context, alone, packets), context.epoch, context.arrived, context.error,
            context.limit_ns, 0 if alone else context.rank, *of_units, None,
        ),
        constants={
            "WORLD": 1 if alone else problem.world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "SUM_M": size.m if alone else axis_rules.rows_summed(problem, schedule),
            "DTYPE": TRITON_DTYPES[problem.dtype],
            "SUMS": operator.reduces, "ONE_SHOT": one_shot,
            "BROADCASTS": operator.flow is Flow.BROADCAST and not one_shot and not alone,
            "COMPUTE_ONLY": alone, "BULK": context.bulk, "CUTS": cuts,
            "AT_A_TIME": split_k.adder_columns(size, schedule.count("num_warps")) if cuts else 0,
            "PACKETS": packets, "TAKE_M": taken,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=max(len(tiles), schedule.count("grid") if cuts else 0),
        grid=schedule.count("grid"),
        takes_fewer=cuts,
        records=len(tiles) + len(sums) * operator.reduces + (len(of_units[0]) + len(of_units[1]) if cuts else 0),
    )  # fmt: skip


def _places(context: Context, alone: bool, packets: bool) -> list[Tensor]:
    """Addresses by rank of landed, or of packets, counters, out, credits and done; alone none is read."""
    if alone:
        return [torch.zeros(1, dtype=torch.int64, device=context.device)] * 5
    parts = "packets" if packets else LANDED
    return [context.addresses(name) for name in (parts, "counters", "out", "credits", "done")]
