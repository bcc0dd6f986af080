"""What pieces of a decomposed schedule take to compute: their mean, and the first and last of one launch."""

from __future__ import annotations

from itertools import product

import numpy as np

from kernels.schemes import reads
from kernels.schemes.decomposed_plan import own_in_one
from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.price.launches import step_overhead
from workbench.simulator.waves import Kernel


def cuts(points: Points) -> tuple[Column, Column, Column]:
    """Pieces along rows, columns and contraction, as kernels.schemes.decomposed cuts them."""
    count, direction = points.number("pieces"), points.direction
    one = np.ones_like(count)
    if direction != "rows_and_contraction":
        return tuple(count if direction == d else one for d in ("rows", "columns", "contraction"))  # type: ignore[return-value]
    kinds, which = np.unique(count, return_inverse=True)
    rows = np.array([next(r for r in range(int(c**0.5), 0, -1) if c % r == 0) for c in kinds])[which]
    return rows, one, count // rows


def _sizes(length: Column, count: Column) -> list[tuple[Column, Floats]]:
    """How long the shorter and the longer of *count* pieces are, where there are any, and their shares of them."""
    longer = length % count
    pieces = [(np.maximum(1, length // count), (count - longer) / count)]
    return [*pieces, (length // count + 1, longer / count)] if longer.any() else pieces


def piece_seconds(points: Points, chunks: int) -> Floats:
    """The mean step that computes one piece of *chunks* chunks: pieces differ by a row, a column or a k."""
    if not chunks:
        return np.zeros(points.count)
    if points.word(reads.LAUNCHES) == reads.ONE:
        return _of_one_launch(points, chunks) + step_overhead(points.machine, one_kernel=True)
    lengths = (points.chunk, points.columns, points.contraction)
    sizes = [_sizes(length, count) for length, count in zip(lengths, cuts(points), strict=True)]
    mean = np.zeros(points.count)
    for (rows, of_rows), (columns, of_columns), (k, of_k) in product(*sizes):
        mean = mean + of_rows * of_columns * of_k * points.step(chunks, rows, columns, k)
    return mean + points.overhead


def _of_one_launch(points: Points, chunks: int) -> Floats:
    """The same in a launch that computes all: its waves run on through all pieces."""
    in_waves = Kernel(points).end(points.world) * chunks / (points.world * points.number("pieces"))
    ranges = cuts(points)[2]
    if not (ranges > 1).any():
        return in_waves
    before, last = _of_ranges(points, chunks)
    return np.where(ranges > 1, ((ranges - 1) * before + last) / ranges, in_waves)


def _of_ranges(points: Points, chunks: int) -> tuple[Floats, Floats]:
    """A piece of one launch, which waits for its range of the contraction, and the last one of its rows and columns.

    Its tiles are as many waves as they are of the slots. Only the first wave waits; the others are of the last piece.
    """
    down, across, ranges = cuts(points)
    rows, columns, k = points.chunk / down, points.columns / across, points.contraction / ranges
    waves = chunks * np.ceil(rows / points.tile_m) * np.ceil(columns / points.tile_n) / points.slots
    of_wave = points.one_tile(points.tile_m, points.tile_n, points.contraction)
    waiting, least = of_wave * np.minimum(1.0, waves) / ranges, points.least(chunks * rows, columns, k)
    whole = of_wave * np.maximum(0.0, waves - 1.0)
    return np.maximum(waiting, least), np.maximum(waiting + whole, least)


def first_seconds(points: Points, chunks: int, mean: Floats) -> Floats:
    """The first of pieces that take *mean* on the average: of one launch it is done with the waves in which it is."""
    if points.word(reads.LAUNCHES) != reads.ONE or not chunks:
        return mean
    down, across, _ = cuts(points)
    tiles = chunks * -(-points.chunk // (down * points.tile_m)) * -(-points.columns // (across * points.tile_n))
    return np.maximum(mean, -(-tiles // points.slots) * Kernel(points).tile_seconds)


def last_seconds(points: Points, chunks: int, mean: Floats) -> Floats:
    """The same of the last of pieces that wait: its tiles begin when it is there."""
    ranges, in_waves = cuts(points)[2], first_seconds(points, chunks, mean)
    if points.word(reads.LAUNCHES) != reads.ONE or not (ranges > 1).any():
        return in_waves
    return np.where(ranges > 1, _of_ranges(points, chunks)[1], in_waves)


def begin_seconds(points: Points) -> float:
    """What the one launch of all computation takes to begin, which no piece of it does again."""
    if points.word(reads.LAUNCHES) != reads.ONE:
        return 0.0
    return points.overhead - step_overhead(points.machine, one_kernel=True)


def own_seconds(points: Points) -> Floats:
    """All steps of a rank's own shard, where they are apart."""
    if not own_in_one(points.problem, points.worded):
        return points.number("pieces") * piece_seconds(points, 1)
    return points.step(1, points.chunk, points.columns, points.contraction) + points.overhead
