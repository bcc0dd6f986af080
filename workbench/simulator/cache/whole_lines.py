"""Whole lines without time: a fast LRU, and Belady's optimum, the fewest misses that any policy can have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.step import turned
from workbench.simulator.cache.trace import CHUNK, DIRECT, WRITE, Trace, heeded

NEVER = np.iinfo(np.int64).max
"""The next read of a line that is never read again, or that is written before: it is not worth keeping."""
EMPTY = -1
SPREAD = 16
"""Largest ratio of the range of line numbers to accesses at which lines index a table directly."""


def lru_misses(lines: NDArray[np.int64], num_sets: int, ways: int) -> int:
    """Misses of *lines* (line numbers, in order) in an LRU cache of *num_sets* (a power of two) x *ways*."""
    assert num_sets & (num_sets - 1) == 0, f"{num_sets} sets are no power of two"
    return int(_lru(lines, np.full((num_sets, ways), EMPTY, np.int64)))


@njit(cache=True, nogil=True)
def _lru(lines: Any, tags: Any) -> int:
    """Misses of *lines*; each row of *tags* is a set with the most recently used line in front."""
    mask, ways, misses = tags.shape[0] - 1, tags.shape[1], 0
    for i in range(lines.shape[0]):
        line = lines[i]
        of_set = tags[line & mask]
        before = of_set[0]
        if before == line:
            continue
        of_set[0] = line
        for way in range(1, ways):
            before, of_set[way] = of_set[way], before
            if before == line:
                break
        else:
            misses += 1
    return misses


class Optimum:
    """Belady's optimum for the lines that reach L2: the line that is read again last is evicted, or not allocated.

    A line whose next access is a write counts as never read again, since nothing is fetched for a write. L1, if the
    hierarchy has one, is an LRU without time. The whole trace is in memory, with 18 bytes per access.
    """

    def __init__(self, trace: Trace, on: Hierarchy) -> None:
        lines, writes = _arriving(trace, on)
        self.line_reads = int((~writes).sum())
        num_sets = on.l2_slices * on.l2_sets
        tags, due = (np.full((num_sets, on.l2_ways), value, np.int64) for value in (EMPTY, NEVER))
        places = (on.l2_slices, on.l2_sets, int(on.hashed))
        follows = next_reads(lines, writes)
        parts = (slice(start, start + CHUNK) for start in range(0, len(lines), CHUNK))
        self.line_misses = sum(int(_belady((lines[part], writes[part], follows[part]), places, tags, due))
                               for part in heeded(parts))  # fmt: skip

    @property
    def hit_rate(self) -> float:
        """Share of line loads that hit."""
        return 1.0 - self.line_misses / max(1, self.line_reads)


def _arriving(trace: Trace, on: Hierarchy) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The line of each access that misses in L1, and whether it is a store."""
    ways = max(1, on.l1_ways)
    tags, valid, used = (np.full((on.units * max(1, on.l1_sets), ways), v, np.int64) for v in (EMPTY, 0, 0))
    kept_lines, kept_writes, kernel = [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)], None
    for chunk in heeded(trace.chunks()):
        if chunk.kernel != kernel:
            tags[:] = EMPTY
            kernel = chunk.kernel
        passes = np.ones(len(chunk.accesses), np.bool_)
        if on.l1_sets:
            _past_l1(chunk.accesses, (tags, valid, used), (on.l1_sets, int(on.hashed)), passes)
        kept_lines.append(chunk.accesses["line"][passes])
        kept_writes.append((chunk.accesses["flags"][passes] & WRITE) != 0)
    return np.concatenate(kept_lines), np.concatenate(kept_writes)


def next_reads(lines: NDArray[np.int64], writes: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each access, the index of its line's next read; NEVER if the next access is a write or does not exist."""
    follows = np.full(len(lines), NEVER)
    first, span = (int(lines.min()), int(np.ptp(lines)) + 1) if len(lines) else (0, 0)
    if span > SPREAD * len(lines):  # a file may have lines anywhere
        names, lines = np.unique(lines, return_inverse=True)
        first, span = 0, len(names)
    due = np.full(span, NEVER)
    for start in heeded(range((len(lines) - 1) // CHUNK * CHUNK, -1, -CHUNK)):
        part = slice(start, start + CHUNK)
        _backwards((lines[part], writes[part], follows[part]), (start, first), due)
    return follows


@njit(cache=True, nogil=True)
def _backwards(stream: Any, begins: Any, due: Any) -> None:
    """Fill `follows` from the last access to the first; *due* holds the next read of each line."""
    lines, writes, follows = stream
    start, first = begins
    for i in range(lines.shape[0] - 1, -1, -1):
        follows[i] = due[lines[i] - first]
        due[lines[i] - first] = NEVER if writes[i] else start + i


@njit(cache=True, nogil=True)
def _past_l1(accesses: Any, level: Any, places: Any, passes: Any) -> None:
    tags, valid, used = level
    num_sets, hashed = places
    clock = used.max()
    for i in range(accesses.shape[0]):
        a = accesses[i]
        if a.flags & (WRITE | DIRECT):
            continue
        place, need = a.unit * num_sets + turned(a.line, num_sets, hashed), np.int64(a.sectors)
        clock += 1
        oldest = 0
        for way in range(tags.shape[1]):
            if tags[place, way] == a.line:
                oldest = way
                break
            if tags[place, oldest] != EMPTY and (tags[place, way] == EMPTY or used[place, way] < used[place, oldest]):
                oldest = way
        if tags[place, oldest] != a.line:
            tags[place, oldest], valid[place, oldest] = a.line, 0
        passes[i] = need & ~valid[place, oldest] != 0
        valid[place, oldest] |= need
        used[place, oldest] = clock


@njit(cache=True, nogil=True)
def _belady(stream: Any, places: Any, tags: Any, due: Any) -> int:
    lines, writes, follows = stream
    slices, num_sets, hashed = places
    misses = 0
    for i in range(lines.shape[0]):
        line = lines[i]
        place = turned(line, slices, hashed) * num_sets + turned(line // slices, num_sets, hashed)
        last = 0  # an empty way is due NEVER, and so is a line that is worth nothing
        is_there = False
        for way in range(tags.shape[1]):
            if tags[place, way] == line:
                last, is_there = way, True
                break
            if due[place, way] > due[place, last]:
                last = way
        if not is_there and not writes[i]:
            misses += 1
        if is_there or follows[i] < due[place, last]:
            tags[place, last] = line if follows[i] != NEVER else EMPTY
            due[place, last] = follows[i]
    return misses
