"""How well a median of few times is known, whatever they were drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb

MEDIAN_CONFIDENCE = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Between which two of *values* the median of what they were drawn from lies, MEDIAN_CONFIDENCE sure.

    By order statistics: as many of n values lie below the median as a fair coin falls heads in n throws, whatever the
    distribution (Hahn and Meeker, Statistical Intervals, 1991, section 5.2). Below six values the widest that there is,
    which is less sure; None of one value.
    """
    if len(values) < 2:
        return None
    ordered, outside = sorted(values), _outside(len(values))
    return ordered[outside], ordered[-1 - outside]


@lru_cache(maxsize=1024)
def _outside(count: int) -> int:
    """How many of *count* values may be left out on each side."""
    below, number = 0.0, -1
    while below <= (1 - MEDIAN_CONFIDENCE) / 2:
        number += 1
        below += comb(count, number) / 2**count
    return max(0, number - 1)
