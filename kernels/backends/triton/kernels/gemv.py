"""GEMV of a few tokens whose partial sums leave as packets: data and epoch in one word, so that nobody signals."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device


@triton.jit
def multiply_one(
    weights, activations, row, stop, column, first, contraction, total,
    COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """*total* plus rows *row*.. (before *stop*) times one column, over BLOCK_K of the contraction.

    WIDE weights are 16 bytes: every thread loads and adds up so many, so *total* is [BLOCK_M, BLOCK_K // WIDE].
    """
    r, k = row + tl.arange(0, BLOCK_M), first + tl.arange(0, BLOCK_K)
    places = weights + r.to(tl.int64)[:, None] * contraction + k[None, :]
    weight = tl.load(places, mask=(r < stop)[:, None] & (k < contraction)[None, :], other=0.0)
    value = tl.load(activations + k * COLUMNS + column, mask=k < contraction, other=0.0)
    product = weight.to(tl.float32) * value.to(tl.float32)[None, :]
    return total + tl.sum(tl.reshape(product, (BLOCK_M, BLOCK_K // WIDE, WIDE)), axis=2)


@triton.jit
def multiply_few(
    weights, activations, row, stop, column, first, contraction, total,
    COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """The same for BLOCK_N columns by the tensor cores; *total* is [SPLIT, BLOCK_M, BLOCK_N].

    So few columns are one tile of theirs, and all warps would compute the same one: each has a part of the contraction.
    """
    each: tl.constexpr = BLOCK_K // SPLIT
    r, c = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    k = first + tl.arange(0, SPLIT)[:, None] * each + tl.arange(0, each)[None, :]
    places = weights + r.to(tl.int64)[None, :, None] * contraction + k[:, None, :]
    weight = tl.load(places, mask=(r < stop)[None, :, None] & (k < contraction)[:, None, :], other=0.0)
    mask = (k < contraction)[:, :, None] & (c < COLUMNS)[None, None, :]
    value = tl.load(activations + k[:, :, None] * COLUMNS + c[None, None, :], mask=mask, other=0.0)
    return tl.dot(weight, value, total, input_precision="ieee")


@triton.jit(do_not_specialize=["rank"])
def gemv_all_reduce(
    weights, activations, tiles, num_tiles, chunk, contraction,
    out, packets_at, epoch_at, arrived, error, limit_ns, rank,
    WORLD: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr, WIDE: tl.constexpr, TAKE: tl.constexpr, DTYPE: tl.constexpr, STAGES: tl.constexpr,
    TWO_SHOT: tl.constexpr, COMPUTE_ONLY: tl.constexpr,
):  # fmt: skip
    """weights [n, contraction] x activations [contraction, COLUMNS], summed over ranks into everybody's *out*.

    *tiles* [num_tiles] int32: number of each tile's first value of *out* [n, COLUMNS], in the order of the plan.
    *packets_at*: int64 addresses by rank of packets int64 [2, WORLD, n * COLUMNS]: by parity of the epoch, who sent,
    and which value.

    A program computes all of its tiles first, in one loop, so that the next tile's weights are on their way while a
    tile is summed up and sent. Then it takes a share of TAKE values of the output, whichever program sent them, with
    all ranks' packets on their way at once. One shot: everybody sends all partial sums to all. TWO_SHOT: only to the
    owner of their rows, who sends the sum to all: fewer bytes, one flight more. With COMPUTE_ONLY the partial sums go
    to *out* and the call does not count.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    values = chunk * WORLD * COLUMNS
    side = (epoch % 2).to(tl.int64) * WORLD * values  # of the packets: calls take turns
    steps, turns = tl.cdiv(contraction, BLOCK_K), tl.cdiv(num_tiles - program, programs)
    if SPLIT == 0:
        total = tl.zeros((BLOCK_M, BLOCK_K // WIDE), dtype=tl.float32)
    else:
        total = tl.zeros((SPLIT, BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in tl.range(0, turns * steps, num_stages=STAGES):
        value, first = tl.load(tiles + program + step // steps * programs), step % steps * BLOCK_K
        start, column = value // COLUMNS, value % COLUMNS if COLUMNS > BLOCK_N else 0
        owner = start // chunk
        stop = (owner + 1) * chunk
        if SPLIT == 0:
            total = multiply_one(weights, activations, start, stop, column, first, contraction, total,
                                 COLUMNS, BLOCK_M, BLOCK_K, WIDE)  # fmt: skip
        else:
            total = multiply_few(weights, activations, start, stop, column, first, contraction, total,
                                 COLUMNS, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT)  # fmt: skip
        if first + BLOCK_K >= contraction:
            sums = tl.sum(total, axis=1)[:, None] if SPLIT == 0 else tl.sum(total, axis=0)
            r, c = start + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
            place, mask = r[:, None] * COLUMNS + c[None, :], (r < stop)[:, None] & (c < COLUMNS)[None, :]
            if COMPUTE_ONLY:
                tl.store(out + place, sums.to(DTYPE), mask=mask)
            elif TWO_SHOT:
                packets = device.peer(packets_at, owner, tl.int64) + side + tl.cast(rank, tl.int64) * values
                device.put_packets(packets + place, sums, epoch, mask)
            else:
                for away in tl.static_range(1, WORLD + 1):
                    packets = device.peer(packets_at, (rank + away) % WORLD, tl.int64)
                    device.put_packets(packets + side + tl.cast(rank, tl.int64) * values + place, sums, epoch, mask)
            total = tl.zeros_like(total)
    if not COMPUTE_ONLY:
        device.leave(epoch_at, arrived, epoch, programs)
        share = chunk * COLUMNS  # values of one owner
        if TWO_SHOT:
            for at in tl.range(program, tl.cdiv(share, TAKE), programs):
                _reduce(packets_at, side, values, rank * share, (rank + 1) * share, at, out, epoch, deadline, error,
                        rank, WORLD, TAKE, DTYPE, True)  # fmt: skip
            for at in tl.range(program, tl.cdiv(values - share, TAKE), programs):
                _collect(packets_at, side, values, share, at, out, epoch, deadline, error, rank, TAKE, DTYPE)
        else:
            for at in tl.range(program, tl.cdiv(values, TAKE), programs):
                _reduce(packets_at, side, values, 0, values, at, out, epoch, deadline, error,
                        rank, WORLD, TAKE, DTYPE, False)  # fmt: skip


@triton.jit
def _reduce(
    packets_at, side, values, low, high, at, out, epoch, deadline, error, rank,
    WORLD: tl.constexpr, TAKE: tl.constexpr, DTYPE: tl.constexpr, SENDS: tl.constexpr,
):  # fmt: skip
    """Values *low* + *at* * TAKE.. (before *high*) of all ranks are summed, the same way on every rank."""
    ranks: tl.constexpr = triton.next_power_of_2(WORLD)
    value, source = low + at * TAKE + tl.arange(0, TAKE), tl.arange(0, ranks)
    places = device.peer(packets_at, rank, tl.int64) + side + source[:, None].to(tl.int64) * values + value[None, :]
    mask = (source < WORLD)[:, None] & (value < high)[None, :]
    found = device.take_packets(places, epoch, mask, deadline, error, rank, at)
    total = tl.sum(found, axis=0)
    if SENDS:
        for away in tl.static_range(1, WORLD):
            packets = device.peer(packets_at, (rank + away) % WORLD, tl.int64) + side + tl.cast(rank, tl.int64) * values
            device.put_packets(packets + value, total, epoch, value < high)
    tl.store(out + value, total.to(DTYPE), mask=value < high)


@triton.jit
def _collect(
    packets_at, side, values, share, at, out, epoch, deadline, error, rank, TAKE: tl.constexpr, DTYPE: tl.constexpr
):
    """TAKE sums of the other ranks' rows, from their owners."""
    value = at * TAKE + tl.arange(0, TAKE)
    value = tl.where(value < rank * share, value, value + share)
    places = device.peer(packets_at, rank, tl.int64) + side + (value // share).to(tl.int64) * values + value
    found = device.take_packets(places, epoch, value < values, deadline, error, rank, at)
    tl.store(out + value, found.to(DTYPE), mask=value < values)
