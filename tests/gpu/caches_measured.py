"""Kernels of a document of counters, as the reuse tier is compared with them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from kernels.operators import problem
from kernels.schedule import Schedule
from workbench.simulator.cache.counters import PROGRAMS, READ, REQUESTED, WRITTEN, hit_rate
from workbench.simulator.cache.hierarchy import SECTOR_BYTES
from workbench.simulator.cache.measured import MeasuredKernel


def measured_kernels(document: Mapping[str, Any]) -> list[MeasuredKernel]:
    """The kernels of a document written by `tests/gpu/caches.py`; kernels without repeats are ignored."""
    return [_measured_kernel(row) for row in document["kernels"] if row.get("repeats")]


def _measured_kernel(row: Mapping[str, Any]) -> MeasuredKernel:
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
