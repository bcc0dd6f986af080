"""GEMV of a few tokens that sends partial sums as packets: value and epoch in one word, without any signal."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from kernels.backends.triton import device
from kernels.backends.triton.kernels import sync
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.occupancy import FEWEST_TOKENS
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import Schedule, tile
from kernels.schemes.axis_rules import shots
from kernels.schemes.base import above

MOST_ALIGNED = 16
"""Triton itself sees only whether a number is a multiple of 16; rows of 8, 24, 40 .. values allow wide loads, too."""
WARP = 32
"""Threads of a warp, and the fewest values of a share: one packet per lane from each rank."""
SHARES = 256
"""Programs that receive packets: at most as many as are resident on any data-center GPU, so that each has one share."""
ONE_SHOT_PACKETS = 4096
"""Most packets of all ranks that a program receives at once in one shot; with 16,384 the threads of 4 warps spill."""


@triton.jit
def load_weights(
    weights, row, rows, first, contraction,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, EVEN: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    """[BLOCK_M, BLOCK_K] of *weights* [rows, contraction] from *row* and *first*; behind the contraction it is 0.

    The row needs no mask, since tiles begin early enough (FITS); one for the contraction is one comparison a thread.
    """
    r, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    start = weights + (row.to(tl.int64) * contraction + first)  # offsets inside the tile are the same in every step
    places = start + (r[:, None] * contraction + k[None, :])
    if not FITS:
        inside = (row + r < rows)[:, None] & (first + k < contraction)[None, :]
        return tl.load(places, mask=inside, other=0.0)
    if EVEN:
        return tl.load(places)
    return tl.load(places, mask=(first + k < contraction)[None, :], other=0.0)


@triton.jit
def multiply_one(
    weight, activations, column, first, contraction, total,
    COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """*total* plus *weight* [BLOCK_M, BLOCK_K] times BLOCK_K values of one column from *first*.

    WIDE weights are 16 bytes: every thread loads and adds that many, so *total* is [BLOCK_M, BLOCK_K // WIDE].
    """
    k = first + tl.arange(0, BLOCK_K)
    places = activations + column + k * COLUMNS
    value = tl.load(places) if EVEN else tl.load(places, mask=k < contraction, other=0.0)
    product = weight.to(tl.float32) * value.to(tl.float32)[None, :]
    return total + tl.sum(tl.reshape(product, (BLOCK_M, BLOCK_K // WIDE, WIDE)), axis=2)


@triton.jit
def multiply_few(
    weight, activations, column, first, contraction, total,
    COLUMNS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """As `multiply_one` for BLOCK_N columns, by the tensor cores; *total* is [BLOCK_M, BLOCK_N].

    Columns that do not exist are zeros in shared memory: only rows of 16 bytes are turned as they are read from there
    (`ldmatrix.trans`). Others would be turned value by value, which takes longer than the weights do.
    """
    k, c = first + tl.arange(0, BLOCK_K), column + tl.arange(0, BLOCK_N)
    places = activations + k[:, None] * COLUMNS + c[None, :]
    if EVEN:
        value = tl.load(places) if COLUMNS == BLOCK_N else tl.load(places, mask=(c < COLUMNS)[None, :], other=0.0)
    else:
        value = tl.load(places, mask=(k < contraction)[:, None] & (c < COLUMNS)[None, :], other=0.0)
    return tl.dot(weight, value, total, input_precision="ieee")


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def gemv_all_reduce(
    weights, activations, tiles, num_tiles, chunk, contraction,
    out, packets, epoch_at, arrived, error, limit_ns, rank, stamps,
    WORLD: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, WIDE: tl.constexpr, ALIGNED: tl.constexpr, EVEN: tl.constexpr, FITS: tl.constexpr,
    TAKE: tl.constexpr, PART: tl.constexpr, DTYPE: tl.constexpr, STAGES: tl.constexpr,
    TWO_SHOT: tl.constexpr, COMPUTE_ONLY: tl.constexpr,
):  # fmt: skip
    """Multiplies *weights* [n, contraction] by *activations* [contraction, COLUMNS]; all ranks' *out* get the sum.

    *tiles* [num_tiles] int32: number of each tile's first value of *out* [n, COLUMNS], in the order of the plan. Tiles
    have BLOCK_M rows and WIDTH columns. Where FITS, there are as many rows, and a tile that would end behind the last
    one begins earlier, and drops what others compute. *contraction* is a multiple of ALIGNED: so wide are loads.
    *packets*: one int64 buffer [2, WORLD, n * COLUMNS] for each rank, the next rank's first and our own last; indexed
    by parity of the epoch, sender and value. They are arguments, and no table of addresses, since loading an address
    would delay the first packet.

    A program computes all of its tiles first, in one loop, so that the next tile's weights are in flight while a tile
    is summed and sent. Then it receives a share of TAKE values of the output, whichever programs sent them, with the
    packets of all ranks in flight at once. One shot: every rank sends all partial sums to all ranks. TWO_SHOT: it sends
    them only to the owner of their rows, which sums them, PART at a time, and sends the sums to all ranks: fewer bytes,
    but one more latency of the link. With COMPUTE_ONLY the partial sums go to *out*, and the epoch stays as it is.

    *stamps*: a record for each tile, then for each share that is summed (in two shots of our own rows only).
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    rows = chunk * WORLD
    values = rows * COLUMNS
    side = (epoch.to(tl.int64) & 1) * WORLD * values  # this half of the packets: calls alternate
    ours = side + tl.cast(rank, tl.int64) * values  # where our packets lie on every rank
    contraction = contraction // ALIGNED * ALIGNED
    steps, turns = tl.cdiv(contraction, BLOCK_K), tl.cdiv(num_tiles - program, programs)
    if BLOCK_N == 1:
        total = tl.zeros((BLOCK_M, BLOCK_K // WIDE), dtype=tl.float32)
    else:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    at, first = program, 0
    sync.begin(stamps, at)
    for _ in tl.range(0, turns * steps, num_stages=STAGES):
        value = tl.load(tiles + at)
        start, column = value // COLUMNS, value % COLUMNS if COLUMNS > WIDTH else 0
        row = tl.minimum(start, rows - BLOCK_M) if FITS else start
        weight = load_weights(weights, row, rows, first, contraction, BLOCK_M, BLOCK_K, EVEN, FITS)
        if BLOCK_N == 1:
            total = multiply_one(weight, activations, column, first, contraction, total,
                                 COLUMNS, BLOCK_M, BLOCK_K, WIDE, EVEN)  # fmt: skip
        else:
            total = multiply_few(weight, activations, column, first, contraction, total,
                                 COLUMNS, BLOCK_N, BLOCK_K, EVEN)  # fmt: skip
        if first + BLOCK_K >= contraction:
            sums = tl.sum(total, axis=1)[:, None] if BLOCK_N == 1 else total
            owner = start // chunk
            stop, past = (owner + 1) * chunk, tl.minimum(COLUMNS, column + WIDTH)
            r, c = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
            place = r[:, None] * COLUMNS + c[None, :]
            mask = ((r >= start) & (r < stop))[:, None] & (c < past)[None, :]
            sync.write(stamps, at, sync.COMPUTED)
            if COMPUTE_ONLY:
                tl.store(out + place, sums.to(DTYPE), mask=mask)
            else:
                for distance in tl.static_range(WORLD):
                    if TWO_SHOT:
                        to_owner = mask & (owner == (rank + distance + 1) % WORLD)
                        device.put_packets(packets[distance] + ours + place, sums, epoch, to_owner)
                    else:
                        device.put_packets(packets[distance] + ours + place, sums, epoch, mask)
            sync.next_tile(stamps, at, programs, num_tiles)
            total = tl.zeros_like(total)
        ends = first + BLOCK_K >= contraction
        at, first = tl.where(ends, at + programs, at), tl.where(ends, 0, first + BLOCK_K)
    if not COMPUTE_ONLY:
        counted = device.count_in(arrived)
        share = chunk * COLUMNS  # number of values of one owner
        if TWO_SHOT:
            for at in tl.range(program, tl.cdiv(share, PART), programs):
                _reduce(packets, side, values, rank * share, (rank + 1) * share, at, out, epoch, deadline, error,
                        rank, stamps, num_tiles + at, WORLD, PART, DTYPE, True)  # fmt: skip
            for at in tl.range(program, tl.cdiv(values - share, TAKE), programs):
                _collect(packets[WORLD - 1] + side, values, share, at, out, epoch, deadline, error, rank, TAKE, DTYPE)
        else:
            for at in tl.range(program, tl.cdiv(values, TAKE), programs):
                _reduce(packets, side, values, 0, values, at, out, epoch, deadline, error,
                        rank, stamps, num_tiles + at, WORLD, TAKE, DTYPE, False)  # fmt: skip
        device.leave(counted, epoch_at, arrived, epoch, programs)


@triton.jit
def _reduce(
    packets, side, values, low, high, at, out, epoch, deadline, error, rank, stamps, record,
    WORLD: tl.constexpr, TAKE: tl.constexpr, DTYPE: tl.constexpr, SENDS: tl.constexpr,
):  # fmt: skip
    """Sums TAKE values from *low* + *at* * TAKE (before *high*) over all ranks, in the same order on every rank."""
    ranks: tl.constexpr = triton.next_power_of_2(WORLD)
    value, source = low + at * TAKE + tl.arange(0, TAKE), tl.arange(0, ranks)
    places = packets[WORLD - 1] + side + source[:, None].to(tl.int64) * values + value[None, :]
    mask = (source < WORLD)[:, None] & (value < high)[None, :]
    sync.begin(stamps, record)
    sums = device.take_packets(places, epoch, mask, deadline, error, rank, at)
    sync.write(stamps, record, sync.WAITED)
    total = tl.sum(sums, axis=0)
    sync.write(stamps, record, sync.COMPUTED)
    if SENDS:
        ours = side + tl.cast(rank, tl.int64) * values
        for distance in tl.static_range(WORLD - 1):
            device.put_packets(packets[distance] + ours + value, total, epoch, value < high)
    tl.store(out + value, total.to(DTYPE), mask=value < high)
    sync.write(stamps, record, sync.SENT)


@triton.jit
def _collect(packets, values, share, at, out, epoch, deadline, error, rank, TAKE: tl.constexpr, DTYPE: tl.constexpr):
    """Receives TAKE sums of other ranks' rows from their owners."""
    value = at * TAKE + tl.arange(0, TAKE)
    value = tl.where(value < rank * share, value, value + share)
    places = packets + (value // share).to(tl.int64) * values + value
    sums = device.take_packets(places, epoch, value < values, deadline, error, rank, at)
    tl.store(out + value, sums.to(DTYPE), mask=value < values)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Launch of `gemv_all_reduce` for one trial; *alone*: partial sums into `context.local` without communication."""
    problem, schedule = context.problem, context.plan.schedule
    extent, size = OPERATORS[problem.operator].extent(problem), tile(schedule["tile"])
    num_warps, num_stages = schedule.count("num_warps"), schedule.count("num_stages")
    values, shares = extent.rows * extent.columns, ReductionShares.of(problem, schedule)
    table = first_values(context.plan, context.rank).to(context.device)
    around = [(context.rank + 1 + distance) % problem.world for distance in range(problem.world)]
    packets = tuple(context.of(rank, "packets") for rank in around)
    contraction, columns = extent.contraction, 1 if min(size.n, extent.columns) == 1 else max(FEWEST_TOKENS, size.n)
    return LaunchableKernel(
        function=gemv_all_reduce,
        arguments=(
            operands["weights"], operands["activations"], table, len(table), extent.rows // problem.world,
            contraction, context.local if alone else context.result(), packets,
            context.epoch, context.arrived, context.error, context.limit_ns, context.rank, None,
        ),
        constants={
            "WORLD": problem.world, "COLUMNS": extent.columns, "WIDTH": size.n,
            "BLOCK_M": size.m, "BLOCK_N": columns, "BLOCK_K": size.k,
            "WIDE": 16 // problem.itemsize, "ALIGNED": math.gcd(contraction, MOST_ALIGNED),
            "EVEN": contraction % size.k == 0, "FITS": extent.rows >= size.m,
            "TAKE": 0 if alone else taken(values, WARP * num_warps) if shares.shots == 2 else shares.each,
            "PART": 0 if alone or shares.shots == 1 else shares.each,
            "DTYPE": TRITON_DTYPES[problem.dtype],
            # where tensor cores multiply, the number of the tile is loaded as many steps before the weights as those
            # are before they are multiplied
            "STAGES": num_stages if columns == 1 else 2 * num_stages - 1,
            "TWO_SHOT": shares.shots == 2, "COMPUTE_ONLY": alone,
        },
        num_warps=num_warps,
        num_stages=num_stages,
        items=len(table),
        grid=schedule.count("grid"),
        takes_fewer=True,
        records=len(table) + shares.count,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReductionShares:
    """What each rank sums of the output, and the shares of its programs."""

    shots: int
    """1: every rank sums all values. 2: each sums those of its own rows, and sends the sums to all."""
    values: int
    """Number of values that one rank sums."""
    each: int
    """Values of one share; the last share may be smaller."""

    @classmethod
    def of(cls, problem: Problem, schedule: Schedule) -> ReductionShares:
        """The shares of *problem* with *schedule*."""
        extent = OPERATORS[problem.operator].extent(problem)
        values, number = extent.rows * extent.columns, shots(problem, schedule)
        if number == 2:
            of_rank = values // problem.world
            return cls(2, of_rank, taken(of_rank, WARP * schedule.count("num_warps")))
        return cls(1, values, min(taken(values), max(WARP, ONE_SHOT_PACKETS // above(problem.world))))

    @property
    def count(self) -> int:
        """Number of shares that one rank sums."""
        return -(-self.values // self.each)


def first_values(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles] in the order of the plan: index of each tile's first value in the row-major output."""
    operator, tiles = OPERATORS[plan.problem.operator], plan.tiles[rank]
    row = tiles.chunk * operator.chunk_rows(plan.problem) + tiles.row_start
    return torch.from_numpy((row * operator.extent(plan.problem).columns + tiles.col_start).astype(np.int32))


def taken(values: int, least: int = WARP) -> int:
    """Values of the output that a program receives at once: a power of two, so large that one share each is enough.

    Alone they are *least*, one for each thread: a warp with copies could leave a wait, and its barriers, before others.
    """
    return max(least, above(-(-values // SHARES)))


def shares_of(plan: Plan, rank: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of *rank*'s shares that contain values of its tiles *at*."""
    problem, tiles, shares = plan.problem, plan.tiles[rank], ReductionShares.of(plan.problem, plan.schedule)
    operator = OPERATORS[problem.operator]
    columns, first_row = operator.extent(problem).columns, tiles.chunk[at] * operator.chunk_rows(problem)
    low = ((first_row + tiles.row_start[at]) * columns + tiles.col_start[at]).min()
    high = ((first_row + tiles.row_stop[at] - 1) * columns + tiles.col_stop[at]).max()
    begin = rank * shares.values if shares.shots == 2 else 0
    return np.arange((low - begin) // shares.each, -(-(high - begin) // shares.each))
