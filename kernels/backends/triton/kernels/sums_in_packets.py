"""Sums of few bytes in packets: a rank takes the parts of all ranks as they are here, without a drain or a signal.

A packet is a word of values, rounded to the dtype of the result, and the epoch of its call (rule 5 of `device`): two
values of 16 bits, or one float32. Packets of a row lie side by side, so that two of them are one store and one load.
Slots are [height, words], with *words* packets for the *columns* of a row.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.kernels import sync


@triton.jit
def send(
    total, row, column, packets_at, half, height, columns, rank, epoch,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr, ONE_SHOT: tl.constexpr,
):  # fmt: skip
    """Puts *total* [BLOCK_M, COLUMNS] into slot *half* + *rank* of who own its rows; with ONE_SHOT all own all.

    Where each row has one owner, its address is found by row, so that a packet is stored once. A store for each owner
    that leaves out the rows of others would take as many as there are ranks, and with eight of them threads spill.
    """
    value, words = device.packed(total, DTYPE), words_of(columns, DTYPE)
    r, before = row + tl.arange(0, BLOCK_M), (half + rank) * height
    if ONE_SHOT:
        place, mask = places(before + r, r < height, column, words, COLUMNS, DTYPE)
        for step in tl.static_range(WORLD):
            slots = device.peer(packets_at, (rank + 1 + step) % WORLD, tl.int64)
            device.put_packets(slots + place, value, epoch, mask)
    else:
        inside, owner = r < WORLD * height, r // height
        place, mask = places(before + r - owner * height, inside, column, words, COLUMNS, DTYPE)
        slots = tl.load(packets_at + owner, mask=inside, other=0).to(tl.pointer_type(tl.int64))
        device.put_packets(tl.multiple_of(slots, 16)[:, None] + place, value, epoch, mask)


@triton.jit
def add(
    packets_at, out_at, half, row, column, top, height, columns, epoch, deadline, error, rank, stamps, record, at,
    WORLD: tl.constexpr, SUM_M: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr, BROADCASTS: tl.constexpr,
):  # fmt: skip
    """Adds the parts of all ranks of SUM_M rows from *row* on, of the *height* rows of this rank, in order of ranks.

    Where BROADCASTS, *top* is this rank's first row of *out_at*, and the sums leave for slot *half* + WORLD + *rank* of
    all others; else *out_at* has the rows of this rank alone.
    """
    words, r = words_of(columns, DTYPE), row + tl.arange(0, SUM_M)
    place, mask = places(r, (r >= 0) & (r < height), column, words, COLUMNS, DTYPE)
    each = tl.cast(height, tl.int64) * words
    slots = device.peer(packets_at, rank, tl.int64) + half * each
    first, second = device.add_packets(slots + place, each, epoch, mask, deadline, error, rank, at, WORLD, DTYPE)
    sync.write(stamps, record, sync.WAITED)
    sync.write(stamps, record, sync.COMPUTED)
    value = device.paired(first, second, DTYPE)
    out = device.peer(out_at, rank, tl.int32)
    if BROADCASTS:
        for step in tl.static_range(1, WORLD):
            slot = device.peer(packets_at, (rank + step) % WORLD, tl.int64) + (half + WORLD + rank) * each
            device.put_packets(slot + place, value, epoch, mask)
        out += tl.cast(top, tl.int64) * words
    tl.store(out + place, value, mask=mask)
    sync.write(stamps, record, sync.SENT)


@triton.jit
def take(
    packets_at, out_at, first_slot, height, columns, epoch, deadline, error, rank, program, programs,
    WORLD: tl.constexpr, TAKE_M: tl.constexpr, COLUMNS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Takes this program's share of the sums of all other ranks' rows, TAKE_M at a time, into *out_at* [m, n].

    *first_slot* is rank 0's, so that all rows lie in slots as in the result. The interpreter ends a program before the
    next one adds: there the last program takes everything.
    """
    words, rows, top = words_of(columns, DTYPE), WORLD * height, rank * height
    down = tl.cdiv(rows, TAKE_M)
    blocks = down * tl.cdiv(columns, COLUMNS)
    first, step = program, programs
    if device.INTERPRETED:
        first, step = tl.where(program == programs - 1, 0, blocks), 1
    slots = device.peer(packets_at, rank, tl.int64) + tl.cast(first_slot * height, tl.int64) * words
    for at in tl.range(first, blocks, step):
        r = at % down * TAKE_M + tl.arange(0, TAKE_M)
        others = (r < rows) & ((r < top) | (r >= top + height))
        place, mask = places(r, others, at // down * COLUMNS, words, COLUMNS, DTYPE)
        value = device.take_packets(slots + place, epoch, mask, deadline, error, rank, at)
        tl.store(device.peer(out_at, rank, tl.int32) + place, value.to(tl.int32, bitcast=True), mask=mask)


@triton.jit
def words_of(columns, DTYPE: tl.constexpr):
    """Words of a row: a multiple of 4, since rows have multiples of 16 bytes (`limits.of_gemm`)."""
    return tl.multiple_of(columns // (32 // DTYPE.primitive_bitwidth), 4)


@triton.jit
def places(r, inside, column, words, COLUMNS: tl.constexpr, DTYPE: tl.constexpr):
    """Offsets and mask of the packets of rows *r*, where they are *inside*, and of COLUMNS columns from *column* on."""
    each: tl.constexpr = 32 // DTYPE.primitive_bitwidth
    c = column // each + tl.arange(0, COLUMNS // each)
    return r[:, None].to(tl.int64) * words + c[None, :], inside[:, None] & (c < words)[None, :]
