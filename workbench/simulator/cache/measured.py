"""A GPU's counters and the reuse tier that is fitted to them: ncu's CSV, kernels in two parts, errors by class."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schedule import Schedule
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.reuse import parts, total

TEX = "lts__t_sectors_srcunit_tex_op_read"
FABRIC = "lts__t_sectors_srcunit_ltcfabric"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
HIT, MISSED = f"{TEX}_lookup_hit.sum", f"{TEX}_lookup_miss.sum"
SECONDS = "gpu__time_duration.sum"
NEEDED = (READ, WRITTEN, SECONDS)
TEX_ONLY = (*NEEDED, HIT, MISSED)
METRICS = (*TEX_ONLY, f"{TEX}.sum", f"{FABRIC}.sum", f"{FABRIC}_lookup_hit.sum", f"{FABRIC}_lookup_miss.sum")
"""Far reads are looked up near and at home, so that lts__t_sectors_op_read has them twice: it is not asked for."""
GRID, PROGRAMS = "Grid Size", "programs"
"""The column of ncu's raw page that says how many programs were launched, and their number in a row."""
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3, "Kbyte": 1e3,
         "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip
"""Of one in seconds or bytes; what is not here is one of its own."""
COPIES = tuple(i / 8 for i in range(9))
SPREADS = (0.0, 0.001, 0.002, 0.00325, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03)
"""What the fit tries of `far_copies` and `pace_spread`."""
Row = dict[str, Any]


def has_rows(text: str) -> bool:
    """Whether *text* has the heading of ncu's table."""
    return any(map(_is_heading, text.splitlines()))


def csv_rows(text: str) -> list[dict[str, float]]:
    """By profiled launch, in order, its metrics: of ncu's `--csv` output, `--page raw` or `details`.

    Seconds and bytes, and the number of programs where it stands there. Lines before the heading, which ncu and the
    program print, are passed over. ValueError says what is missing.
    """
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if _is_heading(line)), None)
    if begin is None:
        raise ValueError('The text has no line that begins with "ID", 0 of 1. Accepted: what ncu --csv prints.')
    rows = list(csv.DictReader(io.StringIO("\n".join(line for line in lines[begin:] if not line.startswith("==")))))
    units = next((row for row in rows if not row["ID"]), {})  # of a raw page
    launches: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["ID"]:
            launches.setdefault(row["ID"], {}).update(_numbers(row, units))
    return list(launches.values())


def _is_heading(line: str) -> bool:
    return line.startswith(('"ID",', "ID,"))


def _numbers(row: Mapping[str, str], units: Mapping[str, str]) -> dict[str, float]:
    """The metrics of one line: all of a launch on a raw page, one of them elsewhere."""
    is_long = "Metric Name" in row
    cells = [(row["Metric Name"], row["Metric Value"], row["Metric Unit"])] if is_long else [
        (name, cell, units.get(name, "")) for name, cell in row.items()]  # fmt: skip
    numbers = {name: number * UNITS.get(unit, 1.0) for name, cell, unit in cells
               if name in METRICS and (number := _number(cell)) is not None}  # fmt: skip
    programs = [int(number) for number in re.findall(r"\d+", row.get(GRID) or "")]
    return {**numbers, PROGRAMS: float(math.prod(programs))} if programs else numbers


def _number(text: str) -> float | None:
    """ncu may group digits by commas; what it could not count, as `n/a`, is no number."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def hit_rate(metrics: Mapping[str, float]) -> float | None:
    """Of the tex units' reads, None where the counters are not there."""
    if HIT not in metrics or MISSED not in metrics:
        return None
    looked_up = metrics[HIT] + metrics[MISSED]
    return metrics[HIT] / looked_up if looked_up else None


@dataclass(frozen=True, slots=True)
class Truth:
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
    hit_rate: float | None
    spread: float
    """(most - least) / median of the repeats' bytes read."""


def truths(document: Mapping[str, Any]) -> list[Truth]:
    """The kernels of a document that `tests/gpu/caches.py` wrote; kernels without repeats are left out."""
    return [_truth(row) for row in document["kernels"] if row.get("repeats")]


def _truth(row: Mapping[str, Any]) -> Truth:
    of = problem(row["operator"], row["shape"], dtype=row["dtype"], world=1)
    programs = row["repeats"][0].get(PROGRAMS)
    axes = row["axes"] | ({"grid": int(programs)} if programs else {})
    schedule = Schedule("fused", tuple(axes.items()))
    read = [each[READ] for each in row["repeats"]]
    rates = [rate for each in row["repeats"] if (rate := hit_rate(each)) is not None]
    return Truth(row["number"], row["work"], row["part"], (of, schedule, row["resident"]), median(read),
                 median(each[WRITTEN] for each in row["repeats"]), median(rates) if rates else None,
                 (max(read) - min(read)) / median(read))  # fmt: skip


def errors(of: Sequence[Truth], on: Hierarchy) -> Iterator[Row]:
    """By kernel, measured and estimated bytes and hit rate, and estimated / measured - 1."""
    for each in of:
        made = total(parts(each.point[0], each.point[1], on, each.point[2]))
        yield {
            "number": each.number, "work": each.work, "part": each.part, "spread": each.spread,
            "dram_read_bytes": each.dram_read, "estimated_bytes": made.dram_read,
            "off": made.dram_read / each.dram_read - 1.0, "dram_write_bytes": each.dram_written,
            "estimated_written": made.dram_written, "hit_rate": each.hit_rate, "estimated_hit_rate": made.hit_rate,
            "points_off": _points(made.hit_rate, each.hit_rate),
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


def fitted(of: Sequence[Truth], on: Hierarchy) -> Hierarchy:
    """*on* with the `far_copies` and `pace_spread` that are the least off in the mean of the kernels to fit to."""
    chosen = [each for each in of if each.part == "fit"]
    if not chosen:
        raise ValueError("0 kernels are there to fit to. Accepted: a document with at least 1 of part = fit.")
    tried = [replace(on, far_copies=copies, pace_spread=spread) for copies in COPIES for spread in SPREADS]
    return min(tried, key=lambda one: sum(abs(math.log1p(row["off"])) for row in errors(chosen, one)))


def written_into(text: str, of: Hierarchy, source: str) -> str:
    """The text of a cache file with the fitted values of *of*, and *source* as where they are from."""
    lines = []
    for line in text.splitlines():
        key = line.split("=")[0].strip()
        for name in ("far_copies", "pace_spread"):
            line = f"{name} = {getattr(of, name):g}" if key == name else line
            line = f'"{name}" = "calibrated: {source}"' if key == f'"{name}"' else line
        lines.append(line)
    return "\n".join(lines) + "\n"
