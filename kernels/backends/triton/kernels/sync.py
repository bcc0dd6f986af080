"""All ranks meet on their streams, and the moment is written down: what a timed graph begins and ends with."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device

# When a tile began, had what it waited for, was computed and sent, and on which SM: words that a kernel writes.

# The words of a record, in order, and their number. A word that is never written stays 0: it took no time.
STARTED = tl.constexpr(0)
WAITED = tl.constexpr(1)
COMPUTED = tl.constexpr(2)
SENT = tl.constexpr(3)
PROCESSOR = tl.constexpr(4)
WORDS = tl.constexpr(5)


@triton.jit
def write(stamps, record, word: tl.constexpr):
    """*record* (a tile, a sum, a program's share of a put) has come to *word*: now, in globaltimer nanoseconds.

    *stamps*: int64 [records, WORDS], or None. SENT is when the last store is issued: what the bulk copy engine still
    moves then is not seen. COMPUTED may be one step of the contraction early: the tensor cores have begun the last one.
    """
    if stamps is not None:
        tl.store(stamps + record * WORDS + word, device.now())


@triton.jit
def begin(stamps, record, there=None):
    """STARTED, and the SM, where *there*: a condition, since loops that are pipelined or flat bear no `if` for it."""
    if stamps is not None:
        place = stamps + record * WORDS
        tl.store(place + PROCESSOR, device.processor().to(tl.int64), mask=there)
        tl.store(place + STARTED, device.now(), mask=there)


# How finely the GPU's clock tells moments apart: read many times in a row, its smallest step.


@triton.jit
def steps(found, reads):
    """*found* int64 [2]: the smallest step of the clock that is not 0, and how long *reads* readings took, in ns."""
    first = device.now()
    before, smallest = first, tl.full((), 1 << 62, tl.int64)
    for _ in range(reads):
        seen = device.now()
        step = seen - before
        smallest = tl.where((step > 0) & (step < smallest), step, smallest)
        before = seen
    tl.store(found, smallest)
    tl.store(found + 1, before - first)


# All ranks meet on their streams, and the moment is written down: what a timed graph begins and ends with.


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def meet(counters_at, epoch_at, error, limit_ns, stamp, rank, WORLD: tl.constexpr):
    """No rank goes on before all are here; *stamp* is the moment of going on, in globaltimer nanoseconds."""
    epoch, deadline = device.epoch_now(epoch_at), device.deadline_after(limit_ns)
    for other in tl.static_range(WORLD):
        if other != rank:
            device.signal(device.peer(counters_at, other, tl.int32) + rank)
    mine = device.peer(counters_at, rank, tl.int32)
    for other in tl.static_range(WORLD):
        if other != rank:
            device.wait(mine + other, epoch, deadline, error, rank, device.MEET, other)
    tl.store(epoch_at, epoch)
    tl.store(stamp, device.now())


@triton.jit
def write_now(stamp):
    """The moment at which everything before on this stream has ended."""
    tl.store(stamp, device.now())
