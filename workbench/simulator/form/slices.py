"""The slices in which a kernel's results leave it: how many each chunk has, and what one costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.schemes import reads
from workbench.simulator.messages import PutCosts, put_costs
from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.waves import Kernel, tiles_of_chunk


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Of one chunk."""

    kernel: Kernel
    count: Column
    tiles: Column
    """Of each but the last."""
    num_bytes: Floats
    last_bytes: Floats
    puts: PutCosts
    marked: Floats
    """Bookkeeping of all of them."""
    stored: Floats | float
    """By how much the whole kernel is longer since it stores on peers."""


def slices_of(points: Points) -> Slices:
    """The slices of each chunk."""
    tiles, kernel = tiles_of_chunk(points), Kernel(points)
    in_turns, before = points.word("tile_order") == reads.IN_TURNS, own_chunks_before(points)
    size = np.minimum(points.slice_tiles, tiles)
    count, result = -(-tiles // size), np.asarray(points.chunk * points.columns * points.value_bytes, dtype=float)
    num_bytes, last_bytes = result * size / tiles, result * (tiles - (count - 1) * size) / tiles
    puts = put_costs(points, num_bytes, in_place=points.word("write") != "staged")
    stored = kernel.stored(size) if in_turns else kernel.stored_until(before, points.world * tiles)
    return Slices(kernel, count, size, num_bytes, last_bytes, puts, count * points.overhead, stored)


def own_chunks_before(points: Points) -> int:
    """How many chunks of its own the rank computes first that begins to send first or last: all in rank order begin
    with rank 0's."""
    return 1 if points.word("tile_order") == "natural" else 0
