"""Errors of the estimates of `reuse.py` against the GPU counters of measured kernels, by class of kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Schedule
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.reuse import parts, total

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """One kernel with its counters: medians over its repeats."""

    number: int
    work: str
    """The class of the kernel."""
    part: str
    """`fit` or `held_out`."""
    point: tuple[Problem, Schedule, int]
    """Problem, schedule with the launched number of programs, and resident programs of an SM if none were reported."""
    dram_read: float
    dram_written: float
    requested: float | None
    """Bytes that the L1s (tex units) requested from L2; None if they were not counted."""
    hit_rate: float | None
    spread: float
    """Spread of the repeats' bytes read: (maximum - minimum) / median."""


def errors(of: Sequence[MeasuredKernel], on: Hierarchy) -> Iterator[Row]:
    """One row per kernel: measured and estimated bytes and hit rate, and the error (estimated / measured - 1)."""
    for each in of:
        estimate = total(parts(each.point[0], each.point[1], on, each.point[2]))
        yield {
            "number": each.number, "work": each.work, "part": each.part, "spread": each.spread,
            "dram_read_bytes": each.dram_read, "estimated_bytes": estimate.dram_read,
            "off": estimate.dram_read / each.dram_read - 1.0, "dram_write_bytes": each.dram_written,
            "estimated_written": estimate.dram_written, "hit_rate": each.hit_rate,
            "estimated_hit_rate": estimate.hit_rate,
            "points_off": _points(estimate.hit_rate, each.hit_rate),
            "asked_off": estimate.requested / each.requested - 1.0 if each.requested else None,
            "operands": operand_bytes(each.point[0]), "shape": dict(each.point[0].shape),
        }  # fmt: skip


def _points(estimated: float | None, counted: float | None) -> float | None:
    return None if estimated is None or counted is None else 100 * abs(estimated - counted)


def operand_bytes(of: Problem) -> int:
    """Bytes of all operands of problem *of*, each counted once."""
    shapes = OPERATORS[of.operator].local(of)
    return sum(math.prod(shape) * of.itemsize for name, shape in shapes.items() if name not in ("output", "indices"))


def by_class(rows: Sequence[Row]) -> dict[str, Row]:
    """Errors of held-out kernels by class: median and 90th percentile of the bytes' error, mean points of hit rate."""
    classes: dict[str, Row] = {}
    for work in dict.fromkeys(row["work"] for row in rows):
        held = [row for row in rows if row["work"] == work and row["part"] == "held_out"]
        off = sorted(abs(row["off"]) for row in held)
        points = [row["points_off"] for row in held if row["points_off"] is not None]
        classes[work] = {
            "kernels": len(held), "median_off": median(off) if off else None,
            "p90_off": off[min(len(off) - 1, math.ceil(0.9 * len(off)) - 1)] if off else None,
            "mean_points_off": sum(points) / len(points) if points else None,
            "beyond_operands": sum(row["dram_read_bytes"] > 1.5 * row["operands"] for row in held),
        }  # fmt: skip
    return classes
