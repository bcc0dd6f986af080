"""How many tiles one step of a fused Plan tells: as the schedule says, or where tiles leave one by one, as is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.axes import Axis
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes.base import fewest_tiles, num_tiles, operator_of

TURNS = 64
"""Slices at least, where ranks take turns: with fewer the last wave of a small problem is all for one peer."""
SLICES = 8
"""The default slice size gives about this many slices per rank: fill and drain are then 1/8 of the whole."""

STEPS_MOST = 100_000
"""Units that are sent on their own, over all ranks."""


def offered_sizes(problem: Problem, tile: Axis) -> tuple[int, ...]:
    """Powers of two up to all tiles of a rank, none so small that even with the largest *tile* it is refused."""
    tiles = num_tiles(problem, tile.default)
    sizes = tuple(2**e for e in range(tiles.bit_length()))
    if tiles * problem.world <= STEPS_MOST:
        return sizes
    fewest = fewest_tiles(problem, tile.values)
    return tuple(size for size in sizes if -(-fewest // size) * problem.world <= STEPS_MOST) or sizes[-1:]


def slice_size(problem: Problem, schedule: Schedule) -> int:
    """Tiles of one step of the Plan. Where the kernel sends each tile by itself, so many are told and drawn as one."""
    size = schedule.get("slice_tiles")
    return int(size) if size else int(told_together(problem, num_tiles(problem, schedule["tile"])))


def told_together(problem: Problem, tiles: Any) -> Any:
    """The power of two that cuts a rank's *tiles*, a number or a column, into TURNS parts or SLICES of many small ones.

    A GEMM's tiles are the large ones.
    """
    parts = TURNS if operator_of(problem).work == "gemm" else SLICES
    return 2 ** np.log2(np.maximum(1, tiles // parts)).astype(np.int64)
