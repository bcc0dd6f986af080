"""What all GEMM kernels share: the product of a tile, where it lies, and the tables of tiles."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import flat
from kernels.backends.triton.kernels import sync
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.schedule import tile


@triton.jit
def multiply(
    a, b, row, height, column, columns, contraction,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BULK: tl.constexpr, later=None,
    stamps=None,
):  # fmt: skip
    """float32 [BLOCK_M, BLOCK_N]: rows from *row* of a [m, k] times columns from *column* of b [k, n]; see below."""
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    return multiply_range(a, b, row, height, column, columns, contraction, 0, contraction, total,
                          BLOCK_M, BLOCK_N, BLOCK_K, BULK, later, stamps)  # fmt: skip


@triton.jit
def multiply_range(
    a, b, row, height, column, columns, contraction, start, stop, total,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BULK: tl.constexpr, later=None,
    stamps=None,
):  # fmt: skip
    """*total* plus the products of the contraction from *start* to *stop*.

    BULK: a and b are descriptors, and the bulk copy engine loads, 0 outside. Else they are pointers, and threads load
    ahead (cp.async): *height* rows exist, and the last of them stands for those after it, which nobody stores.

    *later*: what `wait_for_columns` knows of columns of a that come meanwhile; None: they are here. The place of a load
    depends on its wait: so both are issued in this order, steps before the product.
    """
    if BULK:
        for k in range(start, stop, BLOCK_K):
            here = k
            if later is not None:
                here += wait_for_columns(k, later, stamps)
            total = tl.dot(a.load([row, here]), b.load([k, column]), total)
    else:
        # rows have multiples of 16 bytes (limits.of_gemm), and pieces of the contraction begin at them
        width, across = tl.multiple_of(contraction, 8), tl.multiple_of(columns, 8)
        r, c, inner = tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
        left = a + tl.cast(row, tl.int64) * width + tl.minimum(r, height - 1)[:, None] * width + inner[None, :]
        right = b + inner[:, None] * across + c[None, :]
        for k in range(start, stop, BLOCK_K):
            here = k
            if later is not None:
                here += wait_for_columns(k, later, stamps)
            at = tl.multiple_of(tl.cast(here, tl.int64), 8)
            inside = inner < width - at
            first = tl.load(left + at, mask=inside[None, :], other=0.0)
            second = tl.load(right + at * across, mask=inside[:, None] & (c < across)[None, :], other=0.0)
            total = tl.dot(first, second, total)
    return total


@triton.jit
def wait_for_columns(k, later, stamps):
    """Waits at the steps *k* of a contraction at which later columns of rows begin, until all peers have pushed them.

    *later*: whether it waits; the two steps; counters [2, world] of this rank; the epoch that they reach; deadline,
    error, rank; the tile's first record of *stamps*, and how many tiles have one for each step; world.

    Returns 0, which callers add to an address as that of `flat.wait`. At all other steps it costs a comparison. Triton
    pipelines no loop with a bare wait, but an `if` around it goes into the stage of the load that needs it.
    """
    waits, soon, middle, counters, epoch, deadline, error, rank, record, tiles, world = later
    late = tl.full((), 0, tl.int32)
    if waits & ((k == soon) | (k == middle)):
        late = flat.wait_for_peers(counters + tl.where(k == soon, 0, world), epoch, deadline, error, rank, world)
    sync.begin(stamps, record, k == soon)
    sync.begin(stamps, record + tiles, k == middle)
    return late


@triton.jit
def chosen(descriptors, number, WORLD: tl.constexpr):
    """The descriptor with *number*, which is only known at run time."""
    descriptor = descriptors[0]
    for other in tl.static_range(1, WORLD):
        if number == other:
            descriptor = descriptors[other]
    return descriptor


@triton.jit
def rectangle(row, column, rows, columns, stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Offsets and mask of a tile in a row-major matrix of *rows* x *columns*."""
    r, c = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    return r[:, None].to(tl.int64) * stride + c[None, :], (r < rows)[:, None] & (c < columns)[None, :]


@triton.jit
def computed(
    a, b, tiles, at, chunk, columns, contraction, stamps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """float32 [BLOCK_M, BLOCK_N]: this rank's part of tile *at* of a `tile_table`; a and b are descriptors."""
    entry = tiles + 4 * at
    owner, row, column = tl.load(entry), tl.load(entry + 1), tl.multiple_of(tl.load(entry + 2), 16)
    total = multiply(a, b, owner * chunk + row, chunk - row, column, columns, contraction, BLOCK_M, BLOCK_N, BLOCK_K,
                     True)  # fmt: skip
    sync.write(stamps, at, sync.COMPUTED)
    return total


def tile_table(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles, 4] in the order of the plan: owner, first row inside its chunk, first column, number there."""
    tiles, size = plan.tiles[rank], tile(plan.schedule["tile"])
    across = -(-OPERATORS[plan.problem.operator].extent(plan.problem).columns // size.n)
    number = tiles.row_start // size.m * across + tiles.col_start // size.n
    columns = np.stack([tiles.chunk, tiles.row_start, tiles.col_start, number], axis=1)
    return torch.from_numpy(columns.astype(np.int32))


def corner_table(plan: Plan, rank: int) -> Tensor:
    """int32 [tiles, 2] in the order of the plan: first row and first column."""
    tiles = plan.tiles[rank]
    return torch.from_numpy(np.stack([tiles.row_start, tiles.col_start], axis=1).astype(np.int32))
