"""Columns of integers without loops: ranges laid end to end, the n-th of its kind, and who waits for whom by step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Ranges = tuple[Ints, Ints]
"""Where ranges begin and where they end, as columns."""


def some(parts: Ranges, chosen: Any) -> Ranges:
    """The ranges at the places *chosen*: numbers in any shape, or whatever else an array is indexed with."""
    return parts[0][chosen], parts[1][chosen]


def bounds(counts: Ints) -> Ints:
    """[0, counts[0], counts[0] + counts[1], ...]: where parts of these lengths begin and end when laid end to end."""
    made = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=made[1:])
    return made


def inside(counts: Ints) -> Ints:
    """0, 1 .. counts[0] - 1, 0, 1 .. counts[1] - 1, ...: the place of each entry inside its part."""
    return np.arange(int(counts.sum())) - np.repeat(bounds(counts)[:-1], counts)


def laid(start: Ints, stop: Ints) -> Ints:
    """start[0] .. stop[0] - 1, start[1] .. stop[1] - 1, ...: ranges end to end."""
    return np.repeat(start, stop - start) + inside(stop - start)


def nth(key: Ints) -> Ints:
    """How many equal entries stand before each one: 7 9 7 7 9 -> 0 0 1 2 1."""
    order, at = np.argsort(key, kind="stable"), np.arange(len(key))
    runs = key[order]
    first = at.copy()
    first[1:][runs[1:] == runs[:-1]] = 0
    place = np.empty_like(at)
    place[order] = at - np.maximum.accumulate(first)
    return place


def by_step(waiting: Ints, needed: Ints, count: int) -> tuple[Ints, Ints]:
    """Pairs by step, of *count* steps: `flat[start[s]:start[s + 1]]` are what s needs, in the order of the pairs."""
    start = bounds(np.bincount(waiting, minlength=count).astype(np.int64))
    if (waiting[1:] >= waiting[:-1]).all():
        return start, needed
    return start, needed[np.argsort(waiting, kind="stable")]


def distinct(waiting: Ints, needed: Ints) -> tuple[Ints, Ints]:
    """The same pairs in order, each once."""
    many = int(needed.max(initial=0)) + 1
    first, second = np.divmod(np.unique(waiting * many + needed), many)
    return first, second


def before(key: Ints) -> Ints:
    """The place of the last equal entry before each one, or -1: 7 9 7 7 9 -> -1 -1 0 2 1."""
    order = np.argsort(key, kind="stable")
    again = key[order[1:]] == key[order[:-1]]
    place = np.full(len(key), -1, dtype=np.int64)
    place[order[1:][again]] = order[:-1][again]
    return place
