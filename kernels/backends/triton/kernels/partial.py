"""Units of cut tiles: programs multiply ranges of the contraction into float32 partial sums, then add them in order.

`kernels/schemes/split_k.py` says which. A program first computes its units, which wait for nothing, and stores their
sums in a workspace; then it adds columns of tiles whose units are all there. It reads them from the workspace, its own
included: a tile's sums fill the registers of a thread, and with a second tile they would spill.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.backends.triton import device
from kernels.backends.triton.kernels import sync
from kernels.backends.triton.kernels.tiles import multiply_range
from kernels.backends.triton.memory import Context
from kernels.plan import bounds
from kernels.schedule import Refusal, tile
from kernels.schemes import split_k
from kernels.schemes.split_k import CutTiles

UNIT_WORDS = tl.constexpr(6)
"""int32 values of a unit: row of the tile, column, start and end of the contraction, slot of its sum, tile."""
ADDER_WORDS = tl.constexpr(8)
"""int32 values of an adder: row of the tile, column, columns inside it from and to, slots from and to, tile, units."""
AT_ONCE = tl.constexpr(4)
"""Partial sums of a tile that are loaded at once."""


@triton.jit
def compute_cut_tiles(
    a, b, top, units, adders, begins, cut_programs, sums, added, result, height, columns, contraction,
    epoch, deadline, error, rank, stamps, record, program, programs,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DTYPE: tl.constexpr, BULK: tl.constexpr,
    AT_A_TIME: tl.constexpr,
):  # fmt: skip
    """Computes the units and then the adders of this program; where programs are fewer, those of neighbours in order.

    Row 0 of *result* [height, columns] is row *top* of a. *record*: the first stamp record of units, then of adders.
    """
    each = tl.cdiv(cut_programs, programs)
    for turn in range(program * each, tl.minimum(cut_programs, (program + 1) * each)):
        compute_units(a, b, top, units, begins, turn, sums, added, height, columns, contraction, stamps, record,
                      BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
        behind = tl.load(begins + cut_programs)
        begun = begins + cut_programs + 1
        for at in range(tl.load(begun + turn), tl.load(begun + turn + 1)):
            sync.begin(stamps, record + behind + at)
            add_columns(adders + ADDER_WORDS * at, sums, added, result, height, columns, epoch, deadline, error, rank,
                        BLOCK_M, BLOCK_N, AT_A_TIME, DTYPE)  # fmt: skip
            sync.write(stamps, record + behind + at, sync.COMPUTED)
            sync.write(stamps, record + behind + at, sync.SENT)


@triton.jit
def compute_units(
    a, b, top, units, begins, turn, sums, added, height, columns, contraction, stamps, record,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Computes the units of program *turn* and puts their sums aside."""
    for at in range(tl.load(begins + turn), tl.load(begins + turn + 1)):
        sync.begin(stamps, record + at)
        entry = units + UNIT_WORDS * at
        row, column = tl.load(entry), tl.multiple_of(tl.load(entry + 1), 16)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        total = multiply_range(a, b, top + row, height - row, column, columns, contraction, tl.load(entry + 2),
                               tl.load(entry + 3), total, BLOCK_M, BLOCK_N, BLOCK_K, BULK)  # fmt: skip
        sync.write(stamps, record + at, sync.COMPUTED)
        put_aside(total, entry, sums, added, height, BLOCK_M, BLOCK_N)
        sync.write(stamps, record + at, sync.SENT)


@triton.jit
def add_columns(
    entry, sums, counters, result, height, columns, epoch, deadline, error, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, AT_A_TIME: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """Waits for the units of a tile and stores their sum into its columns of *result* [.., columns].

    *entry*: an adder's ADDER_WORDS.
    """
    row, column = tl.load(entry), tl.multiple_of(tl.load(entry + 1), 16)
    await_units(entry, counters, epoch, deadline, error, rank)
    rows = row + tl.arange(0, BLOCK_M) < height
    width = tl.multiple_of(columns, 8)  # rows have multiples of 16 bytes (limits.of_gemm)
    # a piece is AT_A_TIME columns: the compiler knows that a product is a multiple, and not that a loop's number is one
    for piece in range(tl.load(entry + 2) // AT_A_TIME, tl.load(entry + 3) // AT_A_TIME):
        at = piece * AT_A_TIME
        total = sum_of_units(entry, at, rows, sums, BLOCK_M, BLOCK_N, AT_A_TIME)
        r, c = tl.arange(0, BLOCK_M), tl.arange(0, AT_A_TIME)
        inside = rows[:, None] & (column + at + c < columns)[None, :]
        target = result + tl.cast(row, tl.int64) * width + column + at + r[:, None].to(tl.int64) * width + c[None, :]
        tl.store(target, total.to(DTYPE), mask=inside)


@triton.jit
def await_units(entry, counters, epoch, deadline, error, rank):
    """Waits for the units of the tile of *entry*, an adder's ADDER_WORDS."""
    number = tl.load(entry + 6)
    device.wait(counters + number, epoch * tl.load(entry + 7), deadline, error, rank, device.PARTIAL, number)


@triton.jit
def sum_of_units(
    entry, at, rows, sums, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, AT_A_TIME: tl.constexpr
):  # fmt: skip
    """float32 [BLOCK_M, AT_A_TIME]: a tile's columns from *at* on, added in the order of the contraction."""
    first, last = tl.load(entry + 4), tl.load(entry + 5)
    place = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + at + tl.arange(0, AT_A_TIME)[None, :]
    total = tl.zeros((BLOCK_M, AT_A_TIME), dtype=tl.float32)
    for slot in range(first, last, AT_ONCE):
        some = sums + tl.cast(slot, tl.int64) * (BLOCK_M * BLOCK_N) + place
        one = tl.load(some, mask=rows[:, None], other=0.0)
        two = tl.load(some + BLOCK_M * BLOCK_N, mask=(rows & (slot + 1 < last))[:, None], other=0.0)
        three = tl.load(some + 2 * BLOCK_M * BLOCK_N, mask=(rows & (slot + 2 < last))[:, None], other=0.0)
        four = tl.load(some + 3 * BLOCK_M * BLOCK_N, mask=(rows & (slot + 3 < last))[:, None], other=0.0)
        total = total + one + two + three + four
    return total


@triton.jit
def put_aside(total, entry, sums, counters, height, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Stores the sum of a unit into its slot and counts it; *entry*: its UNIT_WORDS."""
    r, c = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    slot = sums + tl.cast(tl.load(entry + 4), tl.int64) * (BLOCK_M * BLOCK_N)
    tl.store(slot + r[:, None] * BLOCK_N + c[None, :], total, mask=(tl.load(entry) + r < height)[:, None])
    device.signal_here(counters + tl.load(entry + 5))


# The tables, and the workspace.


def tables(context: Context, cut: CutTiles, rows: Any, across: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Units, adders, and by program where its units and its adders begin: int32 [2, programs + 1].

    *rows*, *across*: first row in the result and first column of each cut tile. Refusal if a program would wait for a
    later one.
    """
    if (reason := split_k.table_refusal(cut)) is not None:
        raise Refusal(reason)
    number, of = np.arange(len(cut.tile)), cut.tile
    units = np.stack([rows[of], across[of], cut.k_start, cut.k_stop, number, of], axis=1)
    at, count = cut.add_tile, np.full(len(cut.add_tile), cut.parts)
    first = at * cut.parts
    adders = np.stack([rows[at], across[at], cut.col_start, cut.col_stop, first, first + count, at, count], axis=1)
    begins = np.stack([bounds(np.bincount(each, minlength=cut.programs).astype(np.int64))
                       for each in (number, cut.add_program)])  # fmt: skip
    made = (torch.from_numpy(each.astype(np.int32)).to(context.device) for each in (units, adders, begins))
    return next(made), next(made), next(made)


def arguments(context: Context, rows: Any, across: Any) -> tuple[Any, ...]:
    """Arguments of a kernel that cuts tiles: tables, tiles, programs, workspace, counters; all None if none is cut."""
    plan = context.plan
    cut = split_k.of(plan.problem, plan.schedule)
    if cut is None:
        return (None,) * 7
    size = tile(plan.schedule["tile"])
    units, adders, begins = tables(context, cut, rows, across)
    sums, counters = context.partial_sums((len(cut.tile), size.m, size.n), [cut.parts] * cut.count)
    return units, adders, begins, cut.count, cut.programs, sums, counters
