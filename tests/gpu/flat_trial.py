"""Trial of flat loops where tiles wait, before it becomes our kernel: `python -m tests.gpu.flat_trial OUT` on one GPU.

Today's fused kernels load the next tile's operands while a tile leaves only where no tile waits for a peer. Here all
loops do. *summed*: each rank adds its tiles onto the owner's result by bulk stores, in a ring that ends with the owner,
instead of sending them to a stage that the owner reads. *received*: programs that compute wait inside such a loop.

Each row is a loop-back world (`tests/gpu/loop_back.py`): today's kernel, the trial's, the computation alone and a put
of the same bytes, in turns; both kernels are verified first. The kernels were right in Triton's interpreter and in
processes that share memory, and are not measured yet (2026-11-29).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device, flat
from kernels.backends.triton.backend import operand_sets
from kernels.backends.triton.kernels import gemm_receive
from kernels.backends.triton.kernels.gemm_receive import push, receive
from kernels.backends.triton.kernels.gemm_send import chosen, multiply, rectangle, tile_table
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel, block, descriptors
from kernels.backends.triton.memory import Context
from kernels.backends.triton.schemes import fused
from kernels.nvml import Meter
from kernels.operators import OPERATORS, problem
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import Schedule, tile
from tests.gpu import in_turns, loop_back
from tests.gpu.in_turns import TimedCalls
from tests.gpu.loop_back import LoopBackContext

# Sums in ring order.

TILE_WORDS = tl.constexpr(4)
"""int32 values of a tile: see `gemm_send.tile_table`."""
STORES, ADDS, OWNS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""What a rank does with its part of a tile: it is the first in the ring, one of the next, or the owner, who is last."""
PAIR = tl.constexpr(2)
"""Ranks that count a tile when they have computed the next one: it has left by then, and its owner needs it later."""


@triton.jit(do_not_specialize=["rank", "limit_ns", "stored", "own_from"])
def gemm_summed(
    a, b, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, tiles, num_tiles, stored, own_from, each, chunk, columns,
    contraction, out_at, counters_at, credits_at, done_at, epoch_at, arrived, error, limit_ns, rank,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DTYPE: tl.constexpr,
    BROADCASTS: tl.constexpr, TMA: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Multiplies a [m, k] by b [k, n]; each rank gets the sum over all ranks of the *chunk* rows that it owns.

    Rank c - 1 stores its part of c's rows in c's *out*, then c - 2 adds its own onto it, and so on until c itself. So
    the order never depends on timing, and every part and every sum is rounded to DTYPE, as in a ring of NCCL.
    BROADCASTS: *out* has the rows of all ranks, and an owner stores its sums into the *out* of all. A pair of ranks
    stores and adds in both: as many bytes, and no sum is read again.

    *tiles* [num_tiles, TILE_WORDS] int32 in the order of the plan, *each* of them in a chunk. *to_0* ..: by rank, a
    descriptor of its own rows in its *out*, arbitrary beyond WORLD; of a pair that BROADCASTS the peer's rows in this
    rank's *out* and in the peer's, then this rank's in both. A rank that has done a tile of c raises the counter of
    that tile on the next rank of c's ring: there is one for each tile, counted from that rank's own rows on.

    Tiles lie in the order of the ring, and each part of it is a flat loop: the first *stored* tiles, and those from
    *own_from* on.
    """
    targets = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    flat_sums: tl.constexpr = BULK and (WORLD == PAIR or not BROADCASTS)  # a sum that is read takes too many registers
    device.grant(credits_at, rank, WORLD, program)
    end = program  # the first tile of this program that was not computed
    for at in tl.range(program, stored, programs, flatten=BULK):
        total = computed(a, b, tiles, at, chunk, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)
        if at == program:
            device.granted(credits_at, epoch, deadline, error, rank, WORLD)
        leave(total, targets, tiles, at, each, chunk, columns, out_at, counters_at, epoch, deadline,
              error, rank, WORLD, BLOCK_M, BLOCK_N, DTYPE, BROADCASTS, TMA, STORES)  # fmt: skip
    end += tl.cdiv(tl.maximum(stored - end, 0), programs) * programs
    if WORLD > PAIR:
        for at in tl.range(end, own_from, programs, flatten=BULK):
            total = computed(a, b, tiles, at, chunk, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)
            leave(total, targets, tiles, at, each, chunk, columns, out_at, counters_at, epoch, deadline,
                  error, rank, WORLD, BLOCK_M, BLOCK_N, DTYPE, BROADCASTS, TMA, ADDS)  # fmt: skip
        end += tl.cdiv(tl.maximum(own_from - end, 0), programs) * programs
    for at in tl.range(end, num_tiles, programs, flatten=flat_sums):
        total = computed(a, b, tiles, at, chunk, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)
        leave(total, targets, tiles, at, each, chunk, columns, out_at, counters_at, epoch, deadline,
              error, rank, WORLD, BLOCK_M, BLOCK_N, DTYPE, BROADCASTS, TMA, OWNS)  # fmt: skip
    if WORLD == PAIR:
        last = program + tl.cdiv(num_tiles - program, programs) * programs - programs
        count_late(tiles, last, program, each, counters_at, rank, WORLD)
    device.drain()
    if BROADCASTS:
        device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)
    else:
        device.leave(epoch_at, arrived, epoch, programs)  # all that peers sent was awaited, and later tiles need credit


@triton.jit
def computed(
    a, b, tiles, at, chunk, columns, contraction,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """This rank's part of tile *at*."""
    entry = tiles + TILE_WORDS * at
    owner, row, column = tl.load(entry), tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
    return multiply(a, b, owner * chunk + row, chunk - row, column, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K,
                    BULK)  # fmt: skip


@triton.jit
def leave(
    total, targets, tiles, at, each, chunk, columns, out_at, counters_at, epoch, deadline, error, rank,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr, BROADCASTS: tl.constexpr,
    TMA: tl.constexpr, DOES: tl.constexpr,
):  # fmt: skip
    """Adds *total* to the result when the rank before has, unless this rank is the first; counts tiles that left."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    entry = tiles + TILE_WORDS * at
    owner, row, column = tl.load(entry), tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
    if WORLD == PAIR:  # before waiting for a peer that may wait for it
        count_late(tiles, at - programs, program, each, counters_at, rank, WORLD)
    if DOES != STORES:
        number = (owner - rank + WORLD) % WORLD * each + tl.load(entry + 3)
        counter = device.peer(counters_at, rank, tl.int32) + number
        flat.wait(counter, epoch, deadline, error, rank, device.TILE, number)
    both: tl.constexpr = BROADCASTS and WORLD == PAIR
    if TMA and both:
        here, there = targets[0 if DOES == STORES else 2], targets[1 if DOES == STORES else 3]
        value = total.to(DTYPE)
        if DOES == STORES:
            device.put_tma(there, row, column, value)
            device.put_tma(here, row, column, value)
        else:
            device.add_tma(there, row, column, value)
            device.add_tma(here, row, column, value)
    elif TMA and DOES == STORES:
        device.put_tma(chosen(targets, owner, WORLD), row, column, total.to(DTYPE))
    elif TMA and not (DOES == OWNS and BROADCASTS):
        device.add_tma(chosen(targets, owner, WORLD), row, column, total.to(DTYPE))
    else:
        top = owner * chunk if BROADCASTS else 0
        place, mask = rectangle(top + row, column, top + chunk, columns, columns, BLOCK_M, BLOCK_N)
        out = device.peer(out_at, owner, DTYPE) + place
        if DOES != STORES:
            total = total.to(DTYPE).to(tl.float32) + tl.load(out, mask=mask, other=0.0).to(tl.float32)
        value = total.to(DTYPE)
        tl.store(out, value, mask=mask)
        if both or (DOES == OWNS and BROADCASTS):
            for step in tl.static_range(1, WORLD):
                out = device.peer(out_at, (owner + step) % WORLD, DTYPE) + place
                tl.store(out, value, mask=mask)
    if WORLD > PAIR and DOES != OWNS:
        count(entry, owner, each, counters_at, rank, WORLD)


@triton.jit
def count_late(tiles, at, program, each, counters_at, rank, WORLD: tl.constexpr):
    """`count` of tile *at* of *program*, if there is one, unless it is this rank's own: nobody waits for that."""
    if at >= program:
        entry = tiles + TILE_WORDS * at
        owner = tl.load(entry)
        if owner != rank:
            count(entry, owner, each, counters_at, rank, WORLD)


@triton.jit
def count(entry, owner, each, counters_at, rank, WORLD: tl.constexpr):
    """Raises the counter of the tile of *entry* on the next rank of its ring."""
    number = (owner - rank + 1 + WORLD) % WORLD * each + tl.load(entry + 3)
    flat.signal(device.peer(counters_at, (rank - 1 + WORLD) % WORLD, tl.int32) + number)


def summed(context: Context, operands: Operands) -> LaunchableKernel:
    """Launch of `gemm_summed` for one trial, whose tiles are in ring order."""
    plan, rank, world = context.plan, context.rank, context.problem.world
    schedule, operator = plan.schedule, OPERATORS[context.problem.operator]
    size, extent, chunk = tile(schedule["tile"]), operator.extent(context.problem), operator.chunk_rows(context.problem)
    a, b = operands.values()
    broadcasts, table = operator.flow is Flow.BROADCAST, tile_table(plan, rank)
    places = [(owner, owner) for owner in range(world)]
    if broadcasts and world == PAIR.value:
        places = [(reader, owner) for owner in (1 - rank, rank) for reader in (rank, 1 - rank)]
    rows = [_rows(context, reader, owner) for reader, owner in places]
    owns, stores = torch.bincount((table[:, 0] - rank) % world, minlength=2).tolist()[:2]
    return LaunchableKernel(
        function=gemm_summed,
        arguments=(
            block(a, size.m, size.k, bulk=context.bulk), block(b, size.k, size.n, bulk=context.bulk),
            *descriptors(rows, size.m, size.n, bulk=context.bulk), table.to(context.device), len(table), stores,
            len(table) - owns, len(table) // world, chunk, extent.columns, extent.contraction,
            *(context.addresses(name) for name in ("out", "counters", "credits", "done")),
            context.epoch, context.arrived, context.error, context.limit_ns, rank,
        ),
        constants={
            "WORLD": world, "BLOCK_M": size.m, "BLOCK_N": size.n, "BLOCK_K": size.k,
            "DTYPE": TRITON_DTYPES[context.problem.dtype], "BROADCASTS": broadcasts,
            "TMA": schedule["store"] == "tma" and context.bulk, "BULK": context.bulk,
        },
        num_warps=schedule.count("num_warps"),
        num_stages=schedule.count("num_stages"),
        items=len(table),
        grid=schedule.count("grid"),
    )  # fmt: skip


def _rows(context: Context, reader: int, owner: int) -> Tensor:
    """The rows of *owner* in the output of *reader*; in a loop-back world what rows of the rank before it are here."""
    if isinstance(context, LoopBackContext):
        reader, owner = context.rank, (owner - reader) % context.world
    out, rows = context.of(reader, "out"), OPERATORS[context.problem.operator].chunk_rows(context.problem)
    return out if len(out) == rows else out[owner * rows :][:rows]


# Rows that come in.


@triton.jit(do_not_specialize=["rank", "limit_ns", "own"])
def gemm_received(
    shard, operand, b, source, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, result, source_at, result_at,
    tiles, num_tiles, puts, num_puts, copies,
    chunk, stride, columns, contraction, operand_at, counters_at, credits_at, done_at,
    epoch_at, arrived, tickets, error, limit_ns, rank, comm_programs, own,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PUT_M: tl.constexpr,
    PUT_K: tl.constexpr, DTYPE: tl.constexpr, TMA: tl.constexpr, TMA_RESULT: tl.constexpr, COMPUTE_ONLY: tl.constexpr,
    BULK: tl.constexpr,
):  # fmt: skip
    """`gemm_receive`, whose first *own* tiles are of own rows, with two flat loops: over these, and over the others."""
    landings = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    helpers = tl.minimum(comm_programs, programs // 2)
    pushers = tl.where(helpers > 0, helpers, programs)
    by_ticket = tl.minimum(num_tiles, 2 * num_tiles * helpers // programs)
    without_ticket, computing = num_tiles - by_ticket, programs - helpers
    device.grant(credits_at, rank, WORLD, program)
    if program < pushers:
        device.granted(credits_at, epoch, deadline, error, rank, WORLD)
        push(source, landings, source_at, operand_at, counters_at, puts, num_puts, copies, chunk, stride,
             contraction, rank, program, pushers, None, num_tiles, WORLD, PUT_M, PUT_K, DTYPE, TMA)  # fmt: skip
    expected = epoch * tl.minimum(pushers, copies)
    complete = tl.full((), -1, tl.int32)
    first = tl.where(program < helpers, num_tiles, program - helpers)
    own = tl.minimum(own, without_ticket)
    for at in tl.range(first, own, computing, flatten=BULK):
        row, column = tl.load(tiles + 4 * at + 1), tl.multiple_of(tl.load(tiles + 4 * at + 2), 16)
        total = multiply(shard, b, row, chunk - row, column, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)
        place_result(total, result, result_at, rank, row, column, chunk, columns, BLOCK_M, BLOCK_N, DTYPE, TMA_RESULT)
    counters = device.peer(counters_at, rank, tl.int32)
    first += tl.cdiv(tl.maximum(own - first, 0), computing) * computing
    for at in tl.range(first, without_ticket, computing, flatten=BULK):
        entry = tiles + 4 * at
        owner, row = tl.load(entry), tl.load(entry + 1)
        column, awaited = tl.multiple_of(tl.load(entry + 2), 16), tl.load(entry + 3)
        top = owner * chunk + row
        if awaited != complete:
            top += flat.wait(counters + awaited, expected, deadline, error, rank, device.ROWS, awaited)
        complete = awaited
        total = multiply(operand, b, top, chunk - row, column, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K, BULK)
        place_result(total, result, result_at, owner, row, column, chunk, columns, BLOCK_M, BLOCK_N, DTYPE, TMA_RESULT)
    if helpers > 0:
        at = without_ticket + tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")
        while at < num_tiles:
            complete = receive(shard, operand, b, result, result_at, tiles, at, chunk, columns, contraction,
                               counters_at, expected, complete, deadline, error, rank, None, BLOCK_M, BLOCK_N,
                               BLOCK_K, DTYPE, TMA_RESULT, COMPUTE_ONLY, BULK)  # fmt: skip
            at = without_ticket + tl.atomic_add(tickets, 1, sem="relaxed", scope="gpu")
        if at == num_tiles + programs - 1:
            tl.atomic_xchg(tickets, 0, sem="relaxed", scope="gpu")
    device.drain()
    device.leave(epoch_at, arrived, epoch, programs)


@triton.jit
def place_result(
    total, result, result_at, owner, row, column, chunk, columns,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr, TMA_RESULT: tl.constexpr,
):  # fmt: skip
    """Stores a tile of *owner*'s rows."""
    if TMA_RESULT:
        device.put_tma(result, owner * chunk + row, column, total.to(DTYPE))
    else:
        place, mask = rectangle(row, column, chunk, columns, columns, BLOCK_M, BLOCK_N)
        tl.store(result_at + tl.cast(owner * chunk, tl.int64) * columns + place, total.to(DTYPE), mask=mask)


def received(context: Context, operands: Operands) -> LaunchableKernel:
    """Launch of `gemm_received` for one trial, whose tiles of own rows come first."""
    today = gemm_receive.kernel(context, operands)
    own = int((context.plan.tiles[context.rank].chunk == context.rank).sum())
    *arguments, _stamps = today.arguments
    return LaunchableKernel(
        function=gemm_received, arguments=(*arguments, own), constants=today.constants, num_warps=today.num_warps,
        num_stages=today.num_stages, items=today.items, grid=today.grid,
    )  # fmt: skip


# The times.

TRIED = ("gemm_reduce_scatter", "gemm_all_reduce", "all_gather_gemm", "all_to_all_gemm")
SHAPES = ({"m": 2048, "n": 8192, "k": 7168}, {"m": 8192, "n": 8192, "k": 7168}, {"m": 1024, "n": 8192, "k": 7168})
WORLDS = (2, 8, 4)
ORDER = {"tile_order": "rotated"}
"""Own tiles come last where tiles are sent, and first where rows come in."""


def kernel(context: Context, operands: Operands) -> LaunchableKernel:
    """The trial's kernel of *context*'s operator."""
    return (summed if OPERATORS[context.problem.operator].reduces else received)(context, operands)


def timed(of: Problem, one: Schedule, sets: Sequence[Operands]) -> Iterator[TimedCalls]:
    """Today's call and the trial's in loop-back worlds, the computation and the put; ValueError where one is wrong."""
    stream = torch.cuda.Stream()
    for name, made in (("today", fused.kernel), ("trial", kernel)):
        context = loop_back.looped_back(of, one)
        calls = list(fused.launches([made(context, each) for each in sets]))
        if reason := loop_back.trouble(context, calls[0], loop_back.truth(context.plan, sets[0])):
            raise ValueError(f"{name}: {reason}")
        yield in_turns.captured(name, context, calls, stream)
    other = loop_back.looped_back(of, one)
    alone = list(fused.launches([fused.kernel(other, each, alone=True) for each in sets]))
    for name, calls in (("alone", alone), ("put", [loop_back.put_of(other)] * len(sets))):
        yield in_turns.captured(name, other, calls, stream)


def measured(of: Problem, one: Schedule, meter: Meter) -> dict[str, Any]:
    """The row of one problem; Refusal or ValueError where it cannot be timed."""
    sets = operand_sets(of, 0, torch.device("cuda", 0), seed=loop_back.SEED)
    return loop_back.row_of(of, one, len(sets), list(timed(of, one, sets)), meter)


def main(out: Path) -> None:
    """Measures row after row: pairs first."""
    every = [problem(name, shape, dtype="bfloat16", world=world)
             for world in WORLDS for shape in SHAPES for name in TRIED]  # fmt: skip
    trials = [(of, loop_back.default_schedule(of, **ORDER)) for of in every]
    loop_back.write_rows(out, "tests/gpu/flat_trial.py, one process, peers are own memory", trials, measured)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
