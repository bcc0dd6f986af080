"""How long L2 keeps a line: the window of time after which its least recently used line goes, of slabs read by tiles.

A *slab* is the part of an operand that a tile reads: its rows, or its columns, over the whole contraction. Time is
counted in tiles: a tile that begins at s reads depth x of its slabs at s + x, for x from 0 to 1. So the *gap* between
two readers of a slab is that of their beginnings, at every depth, and the second one finds what the first one brought
if the gap is shorter than the window. The window is the time in which as many different bytes are touched as fit
(average footprint: Xiang et al., HOTL, ASPLOS 2013, section 3), windows that lie inside the kernel alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HALVINGS = 24
"""Of the kernel's time, until the window is known: to a ten-millionth."""


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


def window(reads: Slabs, streams: Streams, capacity: float, copies: float, end: float) -> float:
    """The window of a kernel of *end* tiles' time in an L2 of *capacity* bytes; infinite where all of it stays.

    A line lies in its home partition. Of far lines that a partition's own SMs read it keeps *copies* (0 to 1), too.
    """
    after = gaps(reads.slab, reads.begin)[1]
    own_after = gaps(2 * reads.slab + reads.side, reads.begin)[1]
    columns = (reads.begin, reads.num_bytes, after, own_after, streams.begin, streams.num_bytes)
    return float(_window(columns, streams.steady, capacity, copies, end))


@njit(cache=True, nogil=True, error_model="numpy")
def _window(columns: Any, steady: float, capacity: float, copies: float, end: float) -> float:
    low, high = 0.0, end * (1.0 - 1e-6)
    if _footprint(high, columns, steady, copies, end) <= capacity:
        return np.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if _footprint(middle, columns, steady, copies, end) <= capacity:
            low = middle
        else:
            high = middle
    return low


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
