"""When a fused kernel's tiles are done, in closed form: in waves on a GPU, one by one on a CPU rank."""

from __future__ import annotations

import numpy as np

from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.price import tiles as prices


class Kernel:
    """When a fused kernel's tiles are done, bookkeeping not counted."""

    tile_seconds: Floats
    """Of one of its tiles, or of all that are computed at once."""

    def __init__(self, points: Points) -> None:
        self._points, self.tiles = points, tiles_of_chunk(points)
        m, n = points.tile_m, points.tile_n
        self.in_waves = prices.in_waves(points.machine)
        if self.in_waves:
            self._slots = points.slots
            self.tile_seconds = points.whole_kernel_seconds / -(-points.num_tiles // self._slots)
        else:
            self.tile_seconds = points.one_tile(
                np.minimum(m, points.chunk), np.minimum(n, points.columns), points.contraction
            )
            self._chunk = points.step(1, points.chunk, points.columns, points.contraction)

    def end(self, chunks: int, tiles: Column | int = 0) -> Floats:
        """When *chunks* whole chunks and *tiles* more are done."""
        if self.in_waves:
            return np.asarray(-(-(chunks * self.tiles + tiles) // self._slots) * self.tile_seconds)
        return np.asarray(chunks * self._chunk + np.minimum(self._chunk, tiles * self.tile_seconds))

    def stores(self, together: Column) -> Floats | float:
        """By how much waves that store on peers are longer. *together*: tiles of a chunk that follow each other."""
        points = self._points
        if not self.in_waves or points.operator.work != "gemm":
            return 0.0
        share = (points.world - 1) / points.world
        of_wave = np.maximum(share, np.minimum(1.0, together / self._slots))
        num_bytes = of_wave * self._slots * points.tile_m * points.tile_n * points.problem.itemsize
        longer = np.maximum(0.0, num_bytes * points.store_byte_seconds - self.tile_seconds)
        return np.asarray(-(-points.world * self.tiles // self._slots) * share / of_wave * longer)


def tiles_of_chunk(points: Points) -> Column:
    """Tiles of one chunk."""
    return np.asarray(-(-points.chunk // points.tile_m) * -(-points.columns // points.tile_n))
