"""The front: schedules of which no other one is both faster and takes less of a resource, as far as that is certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.charts.pareto import MAYBE, ON
from workbench.naming import TIMED
from workbench.results import verdict
from workbench.results.rows import Row

OFF = "behind the front"
"""What is said of a row that is neither ON the front nor MAYBE on it: it is certainly slower than a row which takes no
more, by the verdict of one block, or by intervals of estimates that do not overlap."""


def standings(rows: Sequence[Row], resource: str) -> list[str | None]:
    """By row, whether it is on the front of time and *resource*; timed rows and estimates have a front each.

    None where the time or the resource is not known. Of rows with equal time and resource the first is on the front.
    """
    stands: list[str | None] = [None] * len(rows)
    known = [number for number, row in enumerate(rows) if row.get("time_s") and row.get(resource) is not None]
    timed = [number for number in known if rows[number].get("source") in TIMED]
    estimated = [number for number in known if rows[number].get("source") not in TIMED]
    in_block = _leaders(rows, timed, resource, by_block=True)
    for some in (timed, estimated):
        for number, leader in _leaders(rows, some, resource).items():
            leaders = [each for each in (leader, in_block.get(number)) if each is not None]
            is_behind = any(_is_certainly_behind(rows[number], rows[each]) for each in leaders)
            stands[number] = ON if leader is None else OFF if is_behind else MAYBE
    return stands


def _leaders(
    rows: Sequence[Row], numbers: Sequence[int], resource: str, *, by_block: bool = False
) -> dict[int, int | None]:
    """By number of a row, that of the fastest one with no more of *resource*; *by_block*: of those of its block."""
    groups: dict[Any, list[int]] = {}
    for number in numbers:
        block = (rows[number].get("block") or rows[number].get("run")) if by_block else None
        groups.setdefault(block, []).append(number)
    leaders: dict[int, int | None] = {}
    for some in groups.values():
        ahead = _ahead(np.array([(rows[number][resource], rows[number]["time_s"]) for number in some], dtype=float))
        leaders |= {number: None if other is None else some[other] for number, other in zip(some, ahead, strict=True)}
    return leaders


def _ahead(points: np.ndarray[Any, np.dtype[np.float64]]) -> list[int | None]:
    """By point (resource, time), the fastest of those with no more of the resource; None for points on the front."""
    ahead: list[int | None] = [None] * len(points)
    if not len(points):
        return ahead
    fastest: int | None = None
    for number in np.lexsort((points[:, 1], points[:, 0])).tolist():
        if fastest is not None and points[number, 1] >= points[fastest, 1]:
            ahead[number] = fastest
        else:
            fastest = number
    return ahead


def _is_certainly_behind(row: Row, leader: Row) -> bool:
    """Whether *row* is certainly slower than *leader*, which takes no more than it; both are timed, or none is.

    Estimates without an interval are compared by their times alone.
    """
    if row.get("source") in TIMED:
        return verdict.decide(leader, row).word == verdict.FASTER
    low, high = row.get("low_s"), leader.get("high_s")
    return low is None or high is None or bool(low > high)
