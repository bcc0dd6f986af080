"""The values of the reuse tier that nobody publishes, fitted to what a GPU counted of half of the kernels."""

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
from workbench.simulator.cache.counters import ASKED, PROGRAMS, READ, WRITTEN, hit_rate
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.reuse import parts, total
from workbench.simulator.cache.trace import SECTOR_BYTES

# The reuse tier beside what a GPU counted: kernels in two parts, and how far estimates are off, by class.

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """One kernel with what was measured, medians of its repeats."""

    number: int
    work: str
    """Its class."""
    part: str
    """`fit` or `held_out`."""
    point: tuple[Problem, Schedule, int]
    """Problem, schedule with as many programs as were launched, resident programs of an SM where nobody counted."""
    dram_read: float
    dram_written: float
    asked: float | None
    """Bytes that the tex units read from L2; None where nobody counted them."""
    hit_rate: float | None
    spread: float
    """(most - least) / median of the repeats' bytes read."""


def truths(document: Mapping[str, Any]) -> list[MeasuredKernel]:
    """The kernels of a document that `tests/gpu/caches.py` wrote; kernels without repeats are left out."""
    return [_truth(row) for row in document["kernels"] if row.get("repeats")]


def _truth(row: Mapping[str, Any]) -> MeasuredKernel:
    of = problem(row["operator"], row["shape"], dtype=row["dtype"], world=1)
    programs = row["repeats"][0].get(PROGRAMS)
    axes = row["axes"] | ({"grid": int(programs)} if programs else {})
    schedule = Schedule("fused", tuple(axes.items()))
    read = [each[READ] for each in row["repeats"]]
    rates = [rate for each in row["repeats"] if (rate := hit_rate(each)) is not None]
    requests = [each[ASKED] * SECTOR_BYTES for each in row["repeats"] if ASKED in each]
    return MeasuredKernel(row["number"], row["work"], row["part"], (of, schedule, row["resident"]), median(read),
                 median(each[WRITTEN] for each in row["repeats"]), median(requests) if requests else None,
                 median(rates) if rates else None, (max(read) - min(read)) / median(read))  # fmt: skip


def errors(of: Sequence[MeasuredKernel], on: Hierarchy) -> Iterator[Row]:
    """By kernel, measured and estimated bytes and hit rate, and estimated / measured - 1."""
    for each in of:
        made = total(parts(each.point[0], each.point[1], on, each.point[2]))
        yield {
            "number": each.number, "work": each.work, "part": each.part, "spread": each.spread,
            "dram_read_bytes": each.dram_read, "estimated_bytes": made.dram_read,
            "off": made.dram_read / each.dram_read - 1.0, "dram_write_bytes": each.dram_written,
            "estimated_written": made.dram_written, "hit_rate": each.hit_rate, "estimated_hit_rate": made.hit_rate,
            "points_off": _points(made.hit_rate, each.hit_rate),
            "asked_off": made.asked / each.asked - 1.0 if each.asked else None,
            "operands": operand_bytes(each.point[0]), "shape": dict(each.point[0].shape),
        }  # fmt: skip


def _points(estimated: float | None, counted: float | None) -> float | None:
    return None if estimated is None or counted is None else 100 * abs(estimated - counted)


def operand_bytes(of: Problem) -> int:
    """Of all operands, once."""
    shapes = OPERATORS[of.operator].local(of)
    return sum(math.prod(shape) * of.itemsize for name, shape in shapes.items() if name not in ("output", "indices"))


def by_class(rows: Sequence[Row]) -> dict[str, Row]:
    """By class of held-out kernels: median and 90th percentile of how far bytes are off, and points of hit rate."""
    made: dict[str, Row] = {}
    for work in dict.fromkeys(row["work"] for row in rows):
        held = [row for row in rows if row["work"] == work and row["part"] == "held_out"]
        off = sorted(abs(row["off"]) for row in held)
        points = [row["points_off"] for row in held if row["points_off"] is not None]
        made[work] = {
            "kernels": len(held), "median_off": median(off) if off else None,
            "p90_off": off[min(len(off) - 1, math.ceil(0.9 * len(off)) - 1)] if off else None,
            "mean_points_off": sum(points) / len(points) if points else None,
            "beyond_operands": sum(row["dram_read_bytes"] > 1.5 * row["operands"] for row in held),
        }  # fmt: skip
    return made


# The values of the reuse tier that nobody publishes, fitted to what a GPU counted of half of the kernels.

Tried = Mapping[str, Sequence[float]]
TRAFFIC: Tried = {
    "uneven": (0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.56),
    "far_copies": (0.0, 0.25, 0.5, 0.75, 1.0),
    "pace_spread": (0.0, 0.002, 0.003, 0.004, 0.005, 0.006, 0.0075, 0.01, 0.02),
}
"""What decides DRAM's bytes."""
REQUESTS: Tried = {
    "merged": tuple(i / 10 for i in range(11)), "l1_bytes": (131_072, 163_840, 196_608, 229_376),
}  # fmt: skip
"""What decides the bytes that are asked of L2."""
FITTED = (*TRAFFIC, *REQUESTS)


def fitted(of: Sequence[MeasuredKernel], on: Hierarchy) -> Hierarchy:
    """*on* with the values of FITTED that are least off in the mean of the kernels to fit to, DRAM's bytes first."""
    chosen = [each for each in of if each.part == "fit"]
    if not chosen:
        raise ValueError("0 kernels are there to fit to. Accepted: a document with at least 1 of part = fit.")

    def off(one: Hierarchy, name: str) -> float:
        return _mean(abs(math.log1p(row[name])) for row in errors(chosen, one) if row[name] is not None)

    best = min(_all(on, TRAFFIC), key=lambda one: off(one, "off"))
    return min(_all(best, REQUESTS), key=lambda one: off(one, "asked_off"))


def _all(on: Hierarchy, tried: Tried) -> Iterator[Hierarchy]:
    """*on* with each combination of *tried*."""
    for values in product(*tried.values()):
        changed: dict[str, Any] = dict(zip(tried, values, strict=True))
        yield replace(on, **changed)


def _mean(values: Iterable[float]) -> float:
    """0 of none: where nothing was counted nothing is chosen."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0


def written_into(text: str, of: Hierarchy, source: str) -> str:
    """The text of a cache file with the fitted values of *of*, and *source* as where they are from."""
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
