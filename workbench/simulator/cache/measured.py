"""Fit of the reuse tier's unpublished parameters to GPU counters of half of the kernels, checked on the other half."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schedule import Schedule
from workbench.simulator.cache.counters import PROGRAMS, READ, REQUESTED, WRITTEN, hit_rate
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.reuse import parts, total
from workbench.simulator.cache.trace import SECTOR_BYTES

# Measured kernels in two parts, and the errors of the reuse tier's estimates by class.

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
    """Problem, schedule with the launched number of programs, and resident programs of an SM if ncu did not report them."""
    dram_read: float
    dram_written: float
    requested: float | None
    """Bytes that the tex units read from L2; None if they were not counted."""
    hit_rate: float | None
    spread: float
    """Spread of the repeats' bytes read: (maximum - minimum) / median."""


def truths(document: Mapping[str, Any]) -> list[MeasuredKernel]:
    """The kernels of a document written by `tests/gpu/caches.py`; kernels without repeats are ignored."""
    return [_truth(row) for row in document["kernels"] if row.get("repeats")]


def _truth(row: Mapping[str, Any]) -> MeasuredKernel:
    of = problem(row["operator"], row["shape"], dtype=row["dtype"], world=1)
    programs = row["repeats"][0].get(PROGRAMS)
    axes = row["axes"] | ({"grid": int(programs)} if programs else {})
    schedule = Schedule("fused", tuple(axes.items()))
    read = [each[READ] for each in row["repeats"]]
    rates = [rate for each in row["repeats"] if (rate := hit_rate(each)) is not None]
    requests = [each[REQUESTED] * SECTOR_BYTES for each in row["repeats"] if REQUESTED in each]
    return MeasuredKernel(row["number"], row["work"], row["part"], (of, schedule, row["resident"]), median(read),
                 median(each[WRITTEN] for each in row["repeats"]), median(requests) if requests else None,
                 median(rates) if rates else None, (max(read) - min(read)) / median(read))  # fmt: skip


def errors(of: Sequence[MeasuredKernel], on: Hierarchy) -> Iterator[Row]:
    """One row per kernel: measured and estimated bytes and hit rate, and the error (estimated / measured - 1)."""
    for each in of:
        estimate = total(parts(each.point[0], each.point[1], on, each.point[2]))
        yield {
            "number": each.number, "work": each.work, "part": each.part, "spread": each.spread,
            "dram_read_bytes": each.dram_read, "estimated_bytes": estimate.dram_read,
            "off": estimate.dram_read / each.dram_read - 1.0, "dram_write_bytes": each.dram_written,
            "estimated_written": estimate.dram_written, "hit_rate": each.hit_rate, "estimated_hit_rate": estimate.hit_rate,
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
    """Errors by class of held-out kernels: median and 90th percentile of the bytes' error, mean points of hit rate."""
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


# The fit: a search over a grid of parameter values.

Grid = Mapping[str, Sequence[float]]
TRAFFIC: Grid = {
    "uneven": (0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.56),
    "far_copies": (0.0, 0.25, 0.5, 0.75, 1.0),
    "pace_spread": (0.0, 0.002, 0.003, 0.004, 0.005, 0.006, 0.0075, 0.01, 0.02),
}
"""The parameters that decide the DRAM bytes, with the values to try."""
REQUESTS: Grid = {
    "merged": tuple(i / 10 for i in range(11)), "l1_bytes": (131_072, 163_840, 196_608, 229_376),
}  # fmt: skip
"""The parameters that decide the bytes requested from L2, with the values to try."""
FITTED = (*TRAFFIC, *REQUESTS)


def fitted(of: Sequence[MeasuredKernel], on: Hierarchy) -> Hierarchy:
    """*on* with the values of FITTED that have the least mean error over the kernels of part `fit`, DRAM bytes first."""
    chosen = [each for each in of if each.part == "fit"]
    if not chosen:
        raise ValueError(
            "The document has 0 kernels of part = fit. Accepted: a document with at least 1 of part = fit."
        )

    def error(one: Hierarchy, name: str) -> float:
        return _mean(abs(math.log1p(row[name])) for row in errors(chosen, one) if row[name] is not None)

    best = min(_combinations(on, TRAFFIC), key=lambda one: error(one, "off"))
    return min(_combinations(best, REQUESTS), key=lambda one: error(one, "asked_off"))


def _combinations(on: Hierarchy, grid: Grid) -> Iterator[Hierarchy]:
    """Copies of *on*, one for each combination of values of *grid*."""
    for values in product(*grid.values()):
        changed: dict[str, Any] = dict(zip(grid, values, strict=True))
        yield replace(on, **changed)


def _mean(values: Iterable[float]) -> float:
    """Arithmetic mean, or 0 without values, so that uncounted metrics prefer no parameter value."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def written_into(text: str, of: Hierarchy, source: str) -> str:
    """The *text* of a cache file with the fitted values of *of*, and with *source* as their provenance."""
    lines = []
    for line in text.splitlines():
        key = line.split("=")[0].strip()
        for name in FITTED:
            value = getattr(of, name)
            line = f"{name} = {value:_}" if key == name and isinstance(value, int) else line
            line = f"{name} = {value:g}" if key == name and isinstance(value, float) else line
            line = f'"{name}" = "calibrated: {source}"' if key == f'"{name}"' else line
        lines.append(line)
    return "\n".join(lines) + "\n"
