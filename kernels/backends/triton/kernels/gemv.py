"""GEMV of a few tokens that sends partial sums as packets: value and epoch in one word, without any signal."""

from __future__ import annotations

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
from kernels.backends.triton.limits import FEWEST_K
from kernels.backends.triton.memory import Context
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import Schedule, Tile, tile
from kernels.schemes.axis_rules import shots
from kernels.schemes.base import above

FEWEST_TAKEN = 32
"""Fewest values of a share: one packet per lane of a warp from each rank."""
SHARES = 256
"""Programs that receive packets: at most as many as are resident on any data-center GPU, so that each has one share."""
ONE_SHOT_PACKETS = 4096
"""Most packets of all ranks that a program receives at once in one shot; with 16,384 the threads of 4 warps spill."""


@triton.jit
def multiply_one(
    weights, activations, row, stop, column, first, contraction, total,
    COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """*total* plus rows from *row* (before *stop*) times one column, over BLOCK_K of the contraction from *first*.

    WIDE weights are 16 bytes: every thread loads and adds that many, so *total* is [BLOCK_M, BLOCK_K // WIDE].
    """
    r, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_K)
    start = weights + (row.to(tl.int64) * contraction + first)  # offsets inside the tile are the same in every step
    places, value_places = start + (r[:, None] * contraction + k[None, :]), activations + column + (first + k) * COLUMNS
    if EVEN:
        weight, value = tl.load(places), tl.load(value_places)
    else:
        inside = first + k < contraction
        weight = tl.load(places, mask=(row + r < stop)[:, None] & inside[None, :], other=0.0)
        value = tl.load(value_places, mask=inside, other=0.0)
    product = weight.to(tl.float32) * value.to(tl.float32)[None, :]
    return total + tl.sum(tl.reshape(product, (BLOCK_M, BLOCK_K // WIDE, WIDE)), axis=2)


@triton.jit
def multiply_few(
    weights, activations, row, stop, column, first, contraction, total,
    COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """As `multiply_one` for BLOCK_N columns, by the tensor cores; *total* is [SPLIT, BLOCK_M, BLOCK_N].

    The few columns fit into one tensor-core tile, so each warp takes a part of the contraction: otherwise all warps
    would compute the same tile.
    """
    each: tl.constexpr = BLOCK_K // SPLIT
    r, c = tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    k = tl.arange(0, SPLIT)[:, None] * each + tl.arange(0, each)[None, :]
    start = weights + (row.to(tl.int64) * contraction + first)
    places = start + (r[None, :, None] * contraction + k[:, None, :])
    value_places = activations + (first + k)[:, :, None] * COLUMNS + c[None, None, :]
    if EVEN:
        weight, value = tl.load(places), tl.load(value_places)
    else:
        inside = first + k < contraction
        weight = tl.load(places, mask=(row + r < stop)[None, :, None] & inside[:, None, :], other=0.0)
        value = tl.load(value_places, mask=inside[:, :, None] & (c < COLUMNS)[None, None, :], other=0.0)
    return tl.dot(weight, value, total, input_precision="ieee")


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def gemv_all_reduce(
    weights, activations, tiles, num_tiles, chunk, contraction,
    out, packets, epoch_at, arrived, error, limit_ns, rank, stamps,
    WORLD: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr, WIDE: tl.constexpr, TAKE: tl.constexpr, PART: tl.constexpr, DTYPE: tl.constexpr,
    STAGES: tl.constexpr, EVEN: tl.constexpr, TWO_SHOT: tl.constexpr, COMPUTE_ONLY: tl.constexpr,
):  # fmt: skip
    """Multiplies *weights* [n, contraction] by *activations* [contraction, COLUMNS]; all ranks' *out* get the sum.

    *tiles* [num_tiles] int32: number of each tile's first value of *out* [n, COLUMNS], in the order of the plan.
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
    values = chunk * WORLD * COLUMNS
    side = (epoch % 2).to(tl.int64) * WORLD * values  # this half of the packets: calls alternate
    ours = side + tl.cast(rank, tl.int64) * values  # where our packets lie on every rank
    steps, turns = tl.cdiv(contraction, BLOCK_K), tl.cdiv(num_tiles - program, programs)
    if SPLIT == 0:
        total = tl.zeros((BLOCK_M, BLOCK_K // WIDE), dtype=tl.float32)
    else:
        total = tl.zeros((SPLIT, BLOCK_M, BLOCK_N), dtype=tl.float32)
    at, first = program, 0
    sync.begin(stamps, at)
    for _ in tl.range(0, turns * steps, num_stages=STAGES):
        value = tl.load(tiles + at)
        start, column = value // COLUMNS, value % COLUMNS if COLUMNS > BLOCK_N else 0
        owner = start // chunk
        stop = (owner + 1) * chunk
        if SPLIT == 0:
            total = multiply_one(weights, activations, start, stop, column, first, contraction, total,
                                 COLUMNS, BLOCK_M, BLOCK_K, WIDE, EVEN)  # fmt: skip
        else:
            total = multiply_few(weights, activations, start, stop, column, first, contraction, total,
                                 COLUMNS, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT, EVEN)  # fmt: skip
        if first + BLOCK_K >= contraction:
            sums = tl.sum(total, axis=1)[:, None] if SPLIT == 0 else tl.sum(total, axis=0)
            r, c = start + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
            place, mask = r[:, None] * COLUMNS + c[None, :], (r < stop)[:, None] & (c < COLUMNS)[None, :]
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
            sync.write(stamps, at, sync.SENT)
            sync.begin(stamps, at + programs, at + programs < num_tiles)
            total = tl.zeros_like(total)
        ends = first + BLOCK_K >= contraction
        at, first = tl.where(ends, at + programs, at), tl.where(ends, 0, first + BLOCK_K)
    if not COMPUTE_ONLY:
        device.leave(epoch_at, arrived, epoch, programs)
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
    is_one_column = min(size.n, extent.columns) == 1
    return LaunchableKernel(
        function=gemv_all_reduce,
        arguments=(
            operands["weights"], operands["activations"], table, len(table), extent.rows // problem.world,
            extent.contraction, context.local if alone else context.result(), packets,
            context.epoch, context.arrived, context.error, context.limit_ns, context.rank, None,
        ),
        constants={
            "WORLD": problem.world, "COLUMNS": extent.columns, "BLOCK_M": size.m,
            "BLOCK_N": 1 if is_one_column else size.n,
            "BLOCK_K": size.k, "SPLIT": 0 if is_one_column else min(num_warps, size.k // FEWEST_K),
            "WIDE": 16 // problem.itemsize, "DTYPE": TRITON_DTYPES[problem.dtype],
            "TAKE": taken(values) if shares.shots == 2 else shares.each, "PART": taken(values // problem.world),
            "EVEN": even(problem, size),
            # the compiler pipelines the copy of the tensor cores' operand as a step of its own, which takes stages, too
            "STAGES": num_stages if is_one_column else 2 * num_stages - 1,
            "TWO_SHOT": shares.shots == 2, "COMPUTE_ONLY": alone,
        },
        num_warps=num_warps,
        num_stages=num_stages,
        items=len(table),
        grid=schedule.count("grid"),
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
            return cls(2, values // problem.world, taken(values // problem.world))
        return cls(1, values, min(taken(values), max(FEWEST_TAKEN, ONE_SHOT_PACKETS // above(problem.world))))

    @property
    def count(self) -> int:
        """Number of shares that one rank sums."""
        return -(-self.values // self.each)


def even(problem: Problem, size: Tile) -> bool:
    """Whether tiles cover the rows of a chunk, the tokens and the contraction exactly, so that no mask is needed."""
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    rests = (operator.chunk_rows(problem) % size.m, extent.columns % size.n, extent.contraction % size.k)
    return not any(rests)


def first_values(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles] in the order of the plan: index of each tile's first value in the row-major output."""
    operator, tiles = OPERATORS[plan.problem.operator], plan.tiles[rank]
    row = tiles.chunk * operator.chunk_rows(plan.problem) + tiles.row_start
    return torch.from_numpy((row * operator.extent(plan.problem).columns + tiles.col_start).astype(np.int32))


def taken(values: int) -> int:
    """Values of the output that a program receives at once: a power of two, so large that one share each is enough."""
    return max(FEWEST_TAKEN, above(-(-values // SHARES)))


def shares_of(plan: Plan, rank: int, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices of *rank*'s shares that contain values of its tiles *at*."""
    problem, tiles, shares = plan.problem, plan.tiles[rank], ReductionShares.of(plan.problem, plan.schedule)
    operator = OPERATORS[problem.operator]
    columns, first_row = operator.extent(problem).columns, tiles.chunk[at] * operator.chunk_rows(problem)
    low = ((first_row + tiles.row_start[at]) * columns + tiles.col_start[at]).min()
    high = ((first_row + tiles.row_stop[at] - 1) * columns + tiles.col_stop[at]).max()
    begin = rank * shares.values if shares.shots == 2 else 0
    return np.arange((low - begin) // shares.each, -(-(high - begin) // shares.each))
