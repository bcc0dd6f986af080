"""All ranks meet on their streams, and the moment is written down: what a timed graph begins and ends with."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device


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
