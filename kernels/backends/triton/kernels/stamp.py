"""When a tile began, had what it waited for, was computed and sent, and on which SM: words that a kernel writes.

A kernel called with None instead of *stamps* is compiled as if none of this were there.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device

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
