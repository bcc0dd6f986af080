"""Grouping of rows by problem: the same operator, sizes, dtype and ranks in the same place.

Only rows of one problem share a chart axis, a best schedule or a ratio.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kernels.fabric import SHARED_GPU, parse
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, tile
from kernels.schemes import axis_rules
from kernels.trial import compared_as
from workbench.naming import TILE_SIDES, TIMED

Row = Mapping[str, Any]
"""One line of a table of outcomes: a value by column."""
Key = tuple[Any, ...]

QUESTION = ("operator", "shape", "dtype", "world")
"""The columns of a kernels.problem.Problem."""
PLACE = ("machine", "fabric", "protocol")
"""The columns of where and how it is timed; a machine has one backend."""
PROBLEM = (*QUESTION, *PLACE)


def question_of(row: Row) -> Key:
    """Operator, sizes, dtype and ranks of *row*, as a key."""
    shape = row.get("shape") or {}
    sizes = json.loads(shape) if isinstance(shape, str) else shape
    return row.get("operator"), tuple(sizes.items()), row.get("dtype"), row.get("world")


def computation_of(row: Row) -> Key:
    """Key of rows with the same computation, which alone crosses no link; ranks that share a GPU slow it down."""
    return *question_of(row), row.get("machine"), row.get("protocol"), row.get("fabric") == SHARED_GPU


def problem_of(row: Row) -> Key:
    """Key of rows of one problem."""
    return *computation_of(row), link_of(row.get("fabric") or "")


def row_compared_as(row: Row) -> str:
    """What the time of *row* is of: it is only compared with times of the same (kernels/trial.py: compared_as)."""
    return compared_as(row.get("protocol"), row.get("backend"))


@lru_cache(maxsize=1024)
def link_of(fabric: str) -> str:
    """*fabric* as requested: a bandwidth that follows from a ratio depends on the machine."""
    try:
        return str(parse(fabric).as_requested)
    except Refusal:
        return fabric  # written by another program


def current_problem_and_schedule(row: Row) -> tuple[Problem, Schedule]:
    """Problem and schedule of *row* in today's form: older versions wrote axes that no kernel uses."""
    problem = Problem.from_json({key: row[key] for key in QUESTION})
    return problem, axis_rules.effective(
        problem, Schedule(row["scheme"], tuple((row["axes"] or {}).items())), row["backend"]
    )


def with_all_axes(row: dict[str, Any]) -> dict[str, Any]:
    """*row* with axes that are newer than it, at the value that they had implicitly (kernels.schedule)."""
    if row["backend"] is None:
        return row
    if not axis_rules.added_axes(row["operator"], row["scheme"], row["backend"]) - (row["axes"] or {}).keys():
        return row
    problem, schedule = current_problem_and_schedule(row)
    return {**row, "axes": axis_rules.all_axes(problem, schedule, row["backend"])}


def tile_sides(text: str) -> dict[str, int]:
    """The sides of the tile *text*, `128x64x32`, as axes of their own: by the names of TILE_SIDES."""
    size = tile(text)
    return {side: int(getattr(size, field)) for side, field in TILE_SIDES.items()}


def is_timed_whole(row: Row) -> bool:
    """Whether *row* is of a whole schedule that was timed."""
    is_whole = row.get("part") in (None, "whole")
    return is_whole and row.get("source") in TIMED and row.get("time_s") is not None


STOPPED, NOT_TRIED = "cancelled", ("refused", "cancelled")
"""The stage of what a stop left out, and of all failures that were never tried."""


def is_stop(row: Row) -> bool:
    """Whether *row* has no time because the run was stopped."""
    return row.get("stage") == STOPPED


def is_tried_whole(row: Row) -> bool:
    """Whether *row* is of a whole schedule that was tried: refused and stopped ones are only counted."""
    return row.get("part") == "whole" and row.get("stage") not in NOT_TRIED


def by_problem(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    """*rows* by problem, in order of first appearance."""
    grouped: dict[Key, list[Row]] = {}
    for row in rows:
        grouped.setdefault(problem_of(row), []).append(row)
    return grouped


def rows_of_first_problem(rows: Sequence[Row]) -> list[Row]:
    """The rows of the problem that appears first."""
    return next(iter(by_problem(rows).values()), [])
