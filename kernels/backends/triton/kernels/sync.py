"""Stamps and clock readings, and the barrier of all ranks, on their streams, at the start of a timed graph."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device

# Stamps: when a tile was started, had its inputs, was computed and sent, and on which SM.

# The int64 values of a stamp record, in order, and their number. A value that is never written stays 0.
STARTED = tl.constexpr(0)
WAITED = tl.constexpr(1)
COMPUTED = tl.constexpr(2)
SENT = tl.constexpr(3)
PROCESSOR = tl.constexpr(4)
WORDS = tl.constexpr(5)


@triton.jit
def write(stamps, record, word: tl.constexpr):
    """Stamps *record* (a tile, a sum, a program's share of a put) with the globaltimer at position *word*.

    *stamps*: int64 [records, WORDS], or None. SENT is the time at which the last store is issued, although the bulk
    copy engine may still be moving data. COMPUTED may be one step of the contraction early: the tensor cores have
    started the last step, but not finished it.
    """
    if stamps is not None:
        tl.store(stamps + record * WORDS + word, device.now())


@triton.jit
def begin(stamps, record, mask=None):
    """Stamps STARTED and the SM where *mask* is true. An `if` would keep a loop from being pipelined or flattened."""
    if stamps is not None:
        place = stamps + record * WORDS
        tl.store(place + PROCESSOR, device.processor().to(tl.int64), mask=mask)
        tl.store(place + STARTED, device.now(), mask=mask)


@triton.jit
def next_tile(stamps, at, programs, num_tiles):
    """Stamps that tile *at* has left, and that this program's next one begins: a flat loop runs ahead of its stores."""
    write(stamps, at, SENT)
    begin(stamps, at + programs, at + programs < num_tiles)


# Resolution of the GPU's clock: the smallest step between many consecutive readings.


@triton.jit
def steps(result, reads):
    """Writes *result* int64 [2]: the smallest nonzero step of the clock, and the time of *reads* reads, in ns."""
    first = device.now()
    before, smallest = first, tl.full((), 1 << 62, tl.int64)
    for _ in range(reads):
        reading = device.now()
        step = reading - before
        smallest = tl.where((step > 0) & (step < smallest), step, smallest)
        before = reading
    tl.store(result, smallest)
    tl.store(result + 1, before - first)


# The barrier at the start of a timed graph, and the clock reading at its end.


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def meet(counters_at, epoch_at, error, limit_ns, stamp, rank, WORLD: tl.constexpr):
    """A barrier of all ranks; *stamp* gets the globaltimer in nanoseconds when this rank continues."""
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    device.signal_peers(counters_at, rank, WORLD)
    device.wait_for_peers(counters_at, epoch, deadline, error, rank, device.MEET, WORLD)
    tl.store(epoch_at, epoch)
    tl.store(stamp, device.now())


@triton.jit
def write_now(stamp):
    """Writes the globaltimer after all earlier work of this stream has ended."""
    tl.store(stamp, device.now())
