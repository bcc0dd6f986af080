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

    def sent(self, before: int, chunks: int, tiles: Column | int = 0) -> Floats:
        """The same where waves store on peers: chunk after chunk, *before* of which are a rank's own."""
        return np.asarray(self.end(chunks, tiles) + self.stored_until(before, chunks * self.tiles + tiles))

    def stored(self, together: Column) -> Floats | float:
        """By how much waves that store on peers are longer. *together*: tiles of a chunk that follow each other."""
        points = self._points
        if not self._stores:
            return 0.0
        share = (points.world - 1) / points.world
        of_wave = np.maximum(share, np.minimum(1.0, together / self._slots))
        waves = -(-points.world * self.tiles // self._slots)
        return np.asarray(waves * share / of_wave * self._longer(of_wave * self._slots))

    def stored_until(self, before: int, tiles: Column) -> Floats | float:
        """The same until *tiles* are done where chunk follows chunk, *before* of which are a rank's own."""
        if not self._stores:
            return 0.0
        slots, begin = self._slots, before * self.tiles
        end = begin + (self._points.world - 1) * self.tiles
        first, last, done = begin // slots, (end - 1) // slots, -(-tiles // slots)
        of_first = self._longer(np.minimum(end, (first + 1) * slots) - begin)
        of_last = self._longer(end - np.maximum(begin, last * slots))
        between = np.maximum(0, np.minimum(done, last) - first - 1) * self._longer(slots)
        return np.asarray((done > first) * of_first + between + ((done > last) & (last > first)) * of_last)

    @property
    def _stores(self) -> bool:
        return self.in_waves and self._points.operator.work == "gemm" and self._points.world > 1

    def _longer(self, tiles: Column | Floats) -> Floats:
        """By how much a wave is longer that stores so many *tiles* on peers."""
        points = self._points
        num_bytes = tiles * points.tile_m * points.tile_n * points.problem.itemsize
        return np.asarray(np.maximum(0.0, num_bytes * points.store_byte_seconds - self.tile_seconds))


def tiles_of_chunk(points: Points) -> Column:
    """Tiles of one chunk."""
    return np.asarray(-(-points.chunk // points.tile_m) * -(-points.columns // points.tile_n))
