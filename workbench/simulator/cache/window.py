"""How long L2 keeps a line: how many different bytes are touched before it is read again, of slabs read by tiles.

A *slab* is the part of an operand that a tile reads: its rows, or its columns, over the whole contraction. Time is
counted in tiles: a tile that begins at s reads depth x of its slabs at s + x, for x from 0 to 1. So the *gap* between
two readers of a slab is that of their beginnings, at every depth. What is touched in a gap is an average over all
windows of that length that lie inside the kernel (average footprint: Xiang et al., HOTL, ASPLOS 2013, section 3). Its
lines fill the sets of L2 unevenly, so that some are lost before as much was touched as fits, and some are found
after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
KNOTS = 33
"""Lengths of windows whose bytes are counted: so many evenly, and so many where slabs are read again."""


@dataclass(frozen=True, slots=True)
class Slabs:
    """Reads of slabs, in any order."""

    slab: Ints
    """Which one."""
    begin: Floats
    """When its tile began, in tiles."""
    side: Ints
    """The partition of L2, 0 or 1, that the tile's SM asks."""
    num_bytes: Floats


@dataclass(frozen=True, slots=True)
class Streams:
    """What is touched once."""

    begin: Floats
    """When it is written, in tiles."""
    num_bytes: Floats
    steady: float = 0.0
    """Bytes that come evenly over the whole time."""


def gaps(slab: Ints, begin: Floats) -> tuple[Floats, Floats]:
    """By read, how long ago its slab was read before, and how soon it will be again; infinite where it is not."""
    order = np.lexsort((begin, slab))
    same = slab[order[1:]] == slab[order[:-1]]
    between = np.where(same, np.diff(begin[order]), np.inf)
    before, after = np.full(len(slab), np.inf), np.full(len(slab), np.inf)
    before[order[1:]], after[order[:-1]] = between, between
    return before, after


@dataclass(frozen=True, slots=True)
class Cache:
    """An L2."""

    capacity: float
    """Bytes."""
    copies: float
    """Of far lines that a partition reads, the share that it keeps."""
    uneven: float
    """As `hierarchy.Hierarchy.uneven`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What an L2 of so many bytes and ways keeps of a kernel for how long."""

    lengths: Floats
    """Of windows, ascending from 0."""
    footprints: Floats
    """Bytes that each of them touches, on average."""
    cache: Cache

    def lost(self, gap: Floats) -> Floats:
        """The chance that a line is gone after *gap* tiles' time: a half, where as much was touched as fits.

        It goes up from 0 to 1 along a cubic without a bend at either end.
        """
        touched = np.interp(gap, self.lengths, self.footprints)
        beyond = np.clip((touched / self.cache.capacity - 1.0) / self.cache.uneven, -1.0, 1.0)
        return np.where(np.isfinite(gap), 0.5 + beyond * (3.0 - beyond * beyond) / 4.0, 1.0)


def kept(reads: Slabs, streams: Streams, cache: Cache, end: float) -> Kept:
    """What *cache* keeps of a kernel of *end* tiles' time.

    A line lies in its home partition. Of far lines that a partition's own SMs read it keeps *copies* (0 to 1), too.
    """
    before, after = gaps(reads.slab, reads.begin)
    own_after = gaps(2 * reads.slab + reads.side, reads.begin)[1]
    columns = (reads.begin, reads.num_bytes, after, own_after, streams.begin, streams.num_bytes)
    most = end * (1.0 - 1e-6)
    met = before[np.isfinite(before) & (before < most)]
    typical = np.quantile(met, np.linspace(0.0, 1.0, KNOTS), method="nearest") if len(met) else met
    lengths = np.unique(np.concatenate([np.linspace(0.0, most, KNOTS), typical]))
    footprints = _footprints(lengths, columns, streams.steady, cache.copies, end)
    return Kept(lengths, np.maximum.accumulate(footprints), cache)


@njit(cache=True, nogil=True, error_model="numpy")
def _footprints(lengths: Floats, columns: Any, steady: float, copies: float, end: float) -> Floats:
    made = np.empty(lengths.shape[0])
    for i in range(lengths.shape[0]):
        made[i] = _footprint(lengths[i], columns, steady, copies, end)
    return made


@njit(cache=True, nogil=True, error_model="numpy")
def _footprint(length: float, columns: Any, steady: float, copies: float, end: float) -> float:
    """Different bytes that are touched in *length*, on average over the windows inside the kernel."""
    begin, num_bytes, after, own_after, written, written_bytes = columns
    total = 0.0
    for i in range(begin.shape[0]):
        total += num_bytes[i] * _covered(begin[i], min(after[i], length), length, end)
        if copies > 0.0:  # half of the lines are far, and each side keeps what its own SMs read
            total += num_bytes[i] * copies * 0.5 * _covered(begin[i], min(own_after[i], length), length, end)
    for i in range(written.shape[0]):
        total += written_bytes[i] * _covered(written[i], length, length, end)
    return total / (end - length) + steady * length / end


@njit(cache=True, nogil=True, error_model="numpy")
def _covered(begin: float, lasts: float, length: float, end: float) -> float:
    """How long windows that end between *length* and *end* have a byte that each holds for *lasts*, over all depths."""
    return (
        _area(begin + 1.0 + lasts, length, end) - _area(begin + lasts, length, end)
        - _area(begin + 1.0, length, end) + _area(begin, length, end)
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _area(at: float, low: float, high: float) -> float:
    """The integral from 0 to *at* of a number that is kept between *low* and *high*."""
    if at <= low:
        return low * at
    if at <= high:
        return low * low + (at * at - low * low) / 2.0
    return low * low + (high * high - low * low) / 2.0 + high * (at - high)
