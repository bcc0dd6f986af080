"""Kernels that each measure one property of a machine: read, copy, gather, put, signal, send packets."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.kernels.tiles import chosen

PUT_STAGES = tl.constexpr(4)
"""Pipeline stages of a program that puts pieces, as in `gemm_receive`."""


@triton.jit(do_not_specialize=["pieces"])
def read(source, out, pieces, PIECE: tl.constexpr):
    """Reads *pieces* pieces of PIECE int64 once; each program writes one int64 to *out*."""
    total = tl.zeros((PIECE,), tl.int64)
    for piece in tl.range(tl.program_id(0), pieces, tl.num_programs(0)):
        total += tl.load(source + piece.to(tl.int64) * PIECE + tl.arange(0, PIECE))
    tl.store(out + tl.program_id(0), tl.sum(total))


@triton.jit(do_not_specialize=["pieces"])
def copy(source, target, pieces, PIECE: tl.constexpr):
    """Copies *pieces* pieces of PIECE int64 from *source* to *target*, both on this GPU."""
    for piece in tl.range(tl.program_id(0), pieces, tl.num_programs(0)):
        place = piece.to(tl.int64) * PIECE + tl.arange(0, PIECE)
        tl.store(target + place, tl.load(source + place))


@triton.jit
def gather(
    tables, indices, out, lookups, table_rows, limit_ns, error,
    ROWS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, NUM_TABLES: tl.constexpr, POOLING: tl.constexpr,
):  # fmt: skip
    """Reads the rows that a pooled lookup reads, in its order, and does nothing else: ROWS rows per program.

    *tables* [NUM_TABLES, table_rows, DIM], *indices* [samples, NUM_TABLES, POOLING] flat; *out*: one value per program.
    """
    number = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    valid = number < lookups
    row = tl.load(indices + number, mask=valid, other=0)
    row += (number // POOLING) % NUM_TABLES * table_rows
    place = (row * DIM)[:, None] + tl.arange(0, WIDTH)[None, :]
    values = tl.load(tables + place, mask=valid[:, None] & (tl.arange(0, WIDTH) < DIM)[None, :], other=0.0)
    device.issued(limit_ns < 0, error)
    tl.store(out + tl.program_id(0), tl.sum(tl.sum(values.to(tl.float32), axis=0)))


@triton.jit
def target_peer(item, rank, PEERS: tl.constexpr, WORLD: tl.constexpr):
    """The peer that piece *item* goes to: the next PEERS ranks, round robin."""
    return (rank + 1 + item % PEERS) % WORLD


@triton.jit(do_not_specialize=["rank", "items", "first"])
def put(
    source, landings_at, items, first, done_at, epoch_at, arrived, error, limit_ns, rank,
    WORLD: tl.constexpr, PEERS: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Puts *items* pieces of PIECE int32, from number *first* on, with stores of all threads.

    *landings_at* [WORLD]: where our pieces go, by rank. The call ends when all peers' pieces have arrived here.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    for item in tl.range(program, items, programs, num_stages=PUT_STAGES):
        place = (first + item // PEERS).to(tl.int64) * PIECE + tl.arange(0, PIECE)
        leaving = tl.load(source + tl.multiple_of(place, 16))
        slot = device.peer(landings_at, target_peer(item, rank, PEERS, WORLD), tl.int32)
        tl.store(slot + tl.multiple_of(place, 16), leaving)
    device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)


@triton.jit(do_not_specialize=["rank", "items", "first"])
def put_bulk(
    source, to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7, items, first,
    done_at, epoch_at, arrived, error, limit_ns, rank, WORLD: tl.constexpr, PEERS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """As `put`, with the bulk copy engine: pieces are ROWS rows of *source*; *to_0* ..: target descriptors by rank."""
    landings = (to_0, to_1, to_2, to_3, to_4, to_5, to_6, to_7)  # launchers before Triton 3.7 take no tuple of them
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    for item in tl.range(program, items, programs, num_stages=PUT_STAGES):
        row = (first + item // PEERS) * ROWS
        leaving = source.load([row, 0])
        device.put_tma(chosen(landings, target_peer(item, rank, PEERS, WORLD), WORLD), row, 0, leaving)
    device.drain()
    device.finish(epoch_at, arrived, done_at, epoch, deadline, error, rank, WORLD, programs)


@triton.jit(do_not_specialize=["rank", "partner", "rounds"])
def ping_pong(counters_at, epoch_at, error, limit_ns, rank, partner, rounds):
    """Sends a signal to the partner and one back, *rounds* times; *epoch_at*: number of rounds in earlier calls."""
    deadline, before = device.deadline_after(limit_ns), tl.load(epoch_at)
    ours, theirs = device.peer(counters_at, rank, tl.int32), device.peer(counters_at, partner, tl.int32)
    for number in range(rounds):
        if rank < partner:
            device.signal(theirs)
        device.wait(ours, before + number + 1, deadline, error, rank, device.MEET, partner)
        if rank > partner:
            device.signal(theirs)
    tl.store(epoch_at, before + rounds)


@triton.jit(do_not_specialize=["rank", "partner", "rounds"])
def ping_pong_packets(
    packets, epoch_at, error, limit_ns, rank, partner, rounds, result_at, VALUES: tl.constexpr
):  # fmt: skip
    """As `ping_pong`, with VALUES packets each way, which return unchanged; *packets*: our buffer and the partner's."""
    deadline, before = device.deadline_after(limit_ns), tl.load(epoch_at)
    lanes = tl.arange(0, VALUES)
    every = lanes < VALUES
    ours, theirs = packets[0] + lanes, packets[1] + lanes
    values = tl.load(result_at + lanes)
    for number in range(rounds):
        epoch = before + number + 1
        if rank < partner:
            device.put_packets(theirs, values, epoch, every)
        values = device.take_packets(ours, epoch, every, deadline, error, rank, partner)
        if rank > partner:
            device.put_packets(theirs, values, epoch, every)
    tl.store(result_at + lanes, values)
    tl.store(epoch_at, before + rounds)
