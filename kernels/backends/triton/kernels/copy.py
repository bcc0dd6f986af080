"""Kernels that move or sum data: for our own collectives, and for decomposed calls next to their GEMMs."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.kernels.tiles import rectangle

# Our own collectives: SMs store rows into their owners' memory, with both meetings of all ranks inside, or sum them.


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def put_rows(
    source, target_at, rows, width, source_step, target_step, target_stride, rank,
    counters_at, epoch_at, arrived, error, limit_ns,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr, MEETS: tl.constexpr,
):  # fmt: skip
    """Rank r's share of *source* [.., width], *rows* rows from element r * *source_step*, to *target_at* on rank r.

    There it starts at element (our rank) * *target_step*, in rows of *target_stride* elements. Tiles for all ranks are
    interleaved, so that all links are busy at once; one of the shares is our own.

    MEETS: all ranks meet before the first store and after the last one, as `sync.meet` would, by the same counters
    *counters_at* and count *epoch_at*. Each program waits until peers' buffers may be written (rule 6). The last
    program to finish signals for all of this rank, and waits until the peers' shares are here (rule 4).
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    if MEETS:
        first, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
        device.grant(counters_at, rank, WORLD, program)
        device.granted(counters_at, first, deadline, error, rank, WORLD)
    across = tl.cdiv(width, BLOCK_N)
    blocks = tl.cdiv(rows, BLOCK_M) * across
    for at in tl.range(program, blocks * WORLD, programs):
        owner, block = (rank + 1 + at % WORLD) % WORLD, at // WORLD
        row, column = block // across * BLOCK_M, block % across * BLOCK_N
        offsets, mask = rectangle(row, column, rows, width, width, BLOCK_M, BLOCK_N)
        target_offsets, _ = rectangle(row, column, rows, width, target_stride, BLOCK_M, BLOCK_N)
        share = tl.load(source + tl.cast(owner, tl.int64) * source_step + offsets, mask=mask)
        target = device.peer(target_at, owner, DTYPE) + tl.cast(rank, tl.int64) * target_step
        tl.store(target + target_offsets, share, mask=mask)
    if MEETS:
        device.finish(epoch_at, arrived, counters_at, first + 1, deadline, error, rank, WORLD, programs)


@triton.jit
def sum_shares(stage, out, count, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """Sums *stage* [WORLD, count] over the ranks into *out* [count], in float32 and in the order of the ranks."""
    for start in tl.range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        place = start + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for other in tl.static_range(WORLD):
            total += tl.load(stage + tl.cast(other, tl.int64) * count + place, mask=place < count).to(tl.float32)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=place < count)


# Kernels of decomposed calls: one warp that waits for pieces, SMs that move or sum them.

PUT_WORDS = tl.constexpr(6)
"""int64 values of a put: peer, first element of source and of target, rows, elements of a row, counter."""


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def begin(credits_at, epoch_at, error, limit_ns, rank, WORLD: tl.constexpr):
    """Begins a call: waits until the buffers of all ranks may be written (rule 6), and sets the epoch of this call.

    It is the only barrier of a call: after it all ranks have read the data of the previous call.
    """
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    device.grant(credits_at, rank, WORLD, 0)
    device.granted(credits_at, epoch, deadline, error, rank, WORLD)
    tl.store(epoch_at, epoch)


@triton.jit(do_not_specialize=["rank", "limit_ns", "count"])
def arrived(counters_at, awaited, count, epoch_at, error, limit_ns, rank):
    """Waits until all *awaited* counters have risen; [count, 2] int32: a counter and its increase per call.

    Run by one warp. Earlier writes of copy engines or peers are visible to the next kernel of the stream.
    """
    epoch, deadline = tl.load(epoch_at), device.deadline_after(limit_ns)
    counters = device.peer(counters_at, rank, tl.int32)
    for at in range(count):
        number, amount = tl.load(awaited + 2 * at), tl.load(awaited + 2 * at + 1)
        device.wait(counters + number, epoch * amount, deadline, error, rank, device.PIECE, number)


@triton.jit
def put_pieces(
    source, source_pitch, target_at, target_pitch, puts, count, counters_at, arrived,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Puts pieces of *source* one after another at peers' *target_at*, with stores of SMs; rows have *pitch* elements.

    *puts* [count, PUT_WORDS] int64. *arrived* [count] int32: number of programs that have finished a put, 0 between
    calls; the last one raises the peer's counter.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    for number in range(count):
        entry = puts + number * PUT_WORDS
        peer, rows = tl.load(entry), tl.load(entry + 3).to(tl.int32)
        # a store writes 16 bytes: pieces that do not start and end at multiples of 16 bytes are refused
        width = tl.multiple_of(tl.load(entry + 4).to(tl.int32), 8)
        source_start, target_start = tl.multiple_of(tl.load(entry + 1), 8), tl.multiple_of(tl.load(entry + 2), 8)
        target = device.peer(target_at, peer, DTYPE) + target_start
        across = tl.cdiv(width, BLOCK_N)
        for at in tl.range(program, tl.cdiv(rows, BLOCK_M) * across, programs):
            row, column = at // across * BLOCK_M, at % across * BLOCK_N
            offsets, mask = rectangle(row, column, rows, width, source_pitch, BLOCK_M, BLOCK_N)
            target_offsets, _ = rectangle(row, column, rows, width, target_pitch, BLOCK_M, BLOCK_N)
            tl.store(target + target_offsets, tl.load(source + source_start + offsets, mask=mask), mask=mask)
        tl.debug_barrier()
        if tl.atomic_add(arrived + number, 1, sem="acq_rel", scope="gpu") == programs - 1:
            tl.atomic_xchg(arrived + number, 0, sem="relaxed", scope="gpu")
            device.signal(device.peer(counters_at, peer, tl.int32) + tl.load(entry + 5).to(tl.int32))


@triton.jit
def sum_pieces(stage, slot, out, rows, width, pitch, WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Sums one piece of all slots of *stage* into *out* [rows, width], in float32 and in the order of the ranks.

    *slot*: elements from one rank's slot to the next; rows of both tensors have *pitch* elements.
    """
    across = tl.cdiv(width, BLOCK_N)
    for at in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_M) * across, tl.num_programs(0)):
        place, mask = rectangle(at // across * BLOCK_M, at % across * BLOCK_N, rows, width, pitch, BLOCK_M, BLOCK_N)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for other in tl.static_range(WORLD):
            total += tl.load(stage + tl.cast(other, tl.int64) * slot + place, mask=mask).to(tl.float32)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=mask)
