"""One problem: rows that answer the same question in the same place; only these share an axis, a best, a ratio."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kernels.fabric import parse
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axis_rules

Row = Mapping[str, Any]
Key = tuple[Any, ...]

ASKED = ("operator", "shape", "dtype", "world")
"""The columns of a kernels.problem.Problem."""
PLACE = ("machine", "fabric", "protocol")
"""Those of where and how it is timed; a machine has one backend."""
PROBLEM = (*ASKED, *PLACE)


def question_of(row: Row) -> Key:
    """What is asked, wherever it is timed: operator, sizes, dtype, ranks."""
    shape = row.get("shape") or {}
    sizes = json.loads(shape) if isinstance(shape, str) else shape
    return row.get("operator"), tuple(sizes.items()), row.get("dtype"), row.get("world")


def computation_of(row: Row) -> Key:
    """What rows of one computation have in common: alone it crosses no link."""
    return *question_of(row), row.get("machine"), row.get("protocol")


def problem_of(row: Row) -> Key:
    """What rows of one problem have in common, as a key."""
    return *computation_of(row), link_of(row.get("fabric") or "")


@lru_cache(maxsize=1024)
def link_of(fabric: str) -> str:
    """A link as it is asked for: the bandwidth that follows from a ratio is a matter of the machine."""
    try:
        return str(parse(fabric).as_requested)
    except Refusal:
        return fabric  # written by someone else: taken as it is


def asked_today(row: Row) -> tuple[Problem, Schedule]:
    """Problem and schedule of *row* as they are asked for today: older versions named axes that no kernel reads."""
    problem = Problem.from_json({key: row[key] for key in ASKED})
    return problem, axis_rules.effective(
        problem, Schedule(row["scheme"], tuple((row["axes"] or {}).items())), row["backend"]
    )


def with_all_axes(row: dict[str, Any]) -> dict[str, Any]:
    """*row* with the axes that came after it was written, by the value that it has always had (kernels.schedule)."""
    if row["backend"] is None:
        return row
    if not axis_rules.added_axes(row["operator"], row["scheme"], row["backend"]) - (row["axes"] or {}).keys():
        return row
    problem, schedule = asked_today(row)
    return {**row, "axes": axis_rules.all_axes(problem, schedule, row["backend"])}


def by_problem(rows: Iterable[Row]) -> dict[Key, list[Row]]:
    """*rows* problem by problem, in the order in which these were first heard of."""
    grouped: dict[Key, list[Row]] = {}
    for row in rows:
        grouped.setdefault(problem_of(row), []).append(row)
    return grouped


def of_first(rows: Sequence[Row]) -> list[Row]:
    """The rows of the problem that was heard of first."""
    return next(iter(by_problem(rows).values()), [])
