"""A collective of our own between two meetings of all ranks: SMs store rows into their owners' memory, or sum them."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.kernels.gemm_send import rectangle


@triton.jit(do_not_specialize=["rank"])
def put_rows(
    source, target_at, rows, width, source_step, target_step, target_stride, rank,
    WORLD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Rank r's share of *source* [.., width], *rows* rows from element r * *source_step*, to *target_at* on rank r.

    There it begins at element (our rank) * *target_step*, in rows of *target_stride* elements. Blocks of all ranks take
    turns, so that all links are busy at once; our own share is one of them.
    """
    across = tl.cdiv(width, BLOCK_N)
    blocks = tl.cdiv(rows, BLOCK_M) * across
    for at in tl.range(tl.program_id(0), blocks * WORLD, tl.num_programs(0)):
        owner, block = (rank + 1 + at % WORLD) % WORLD, at // WORLD
        row, column = block // across * BLOCK_M, block % across * BLOCK_N
        here, mask = rectangle(row, column, rows, width, width, BLOCK_M, BLOCK_N)
        there, _ = rectangle(row, column, rows, width, target_stride, BLOCK_M, BLOCK_N)
        share = tl.load(source + tl.cast(owner, tl.int64) * source_step + here, mask=mask)
        target = device.peer(target_at, owner, DTYPE) + tl.cast(rank, tl.int64) * target_step
        tl.store(target + there, share, mask=mask)


@triton.jit
def sum_shares(stage, out, count, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """*out* [count] is the sum over the ranks of *stage* [WORLD, count], in float32 and in the order of the ranks."""
    for start in tl.range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        place = start + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for other in tl.static_range(WORLD):
            total += tl.load(stage + tl.cast(other, tl.int64) * count + place, mask=place < count).to(tl.float32)
        tl.store(out + place, total.to(out.dtype.element_ty), mask=place < count)
