"""Grouping of rows by problem: the same operator, sizes, dtype and ranks in the same place.

Only rows of one problem share a chart axis, a best schedule or a ratio.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kernels.fabric import SHARED_GPU, parse
from kernels.operators import OPERATORS
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


def alike_tiles(rows: Iterable[Row]) -> str:
    """A sentence about schedules of CPU ranks of one problem that are one and the same, because their tiles are larger
    than the problem; empty where there are none. GPU kernels compute the whole tile, so theirs differ."""
    several: dict[str, dict[str, str]] = {}
    for row in rows:
        axes = dict(row.get("axes") or {})
        if row.get("backend") != "cpu" or row.get("part") not in (None, "whole") or "tile" not in axes:
            continue
        written = str(axes["tile"])
        axes["tile"] = _covered(row, written)
        several.setdefault(json.dumps([row.get("scheme"), axes], sort_keys=True), {})[written] = axes["tile"]
    groups = dict.fromkeys((tuple(sorted(tiles)), next(iter(tiles.values())))
                           for tiles in several.values() if len(tiles) > 1)  # fmt: skip
    return " ".join(f"Tiles {' and '.join(tiles)} are one schedule here: a tile ends with its rank's chunk, {covered}."
                    for tiles, covered in groups)  # fmt: skip


def _covered(row: Row, text: str) -> str:
    """The tile *text*, no larger than one rank's chunk of rows, its columns and its contraction."""
    problem = Problem.from_json({key: row[key] for key in QUESTION})
    operator, size = OPERATORS[problem.operator], tile(text)
    extent, spans = operator.extent(problem), (row.get("axes") or {}).get("tile_order") == "spanning"
    rows = extent.rows if spans else operator.chunk_rows(problem)
    sides = zip((size.m, size.n, size.k), (rows, extent.columns, extent.contraction), strict=True)
    return "x".join(str(min(pair)) for pair in sides)


def is_timed_whole(row: Row) -> bool:
    """Whether *row* is of a whole schedule that was timed."""
    is_whole = row.get("part") in (None, "whole")
    return is_whole and row.get("source") in TIMED and row.get("time_s") is not None


def turns(row: Row) -> Any:
    """What timed rows that took turns share: their block, or the run of rows that are older than blocks.

    Only such rows are compared, and only such marks of a chart are joined by a line.
    """
    return row.get("block") or row.get("run")


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
