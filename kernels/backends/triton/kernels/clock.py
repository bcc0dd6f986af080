"""How finely the GPU's clock tells moments apart: read many times in a row, its smallest step."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device


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
