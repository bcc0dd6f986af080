"""The reuse tier: DRAM bytes and L2 hits of one rank's kernel of a schedule, in a millisecond (`traffic.py`)."""

from __future__ import annotations

from typing import Any

from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import expand
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.traffic import Part as Part
from workbench.simulator.cache.traffic import of_plan
from workbench.simulator.cache.traffic import total as total

TIER, POLICY = "reuse", "cache_rw"
"""The name of this tier, and the one policy that it knows: all that a GPU does by itself."""


def parts(problem: Problem, schedule: Schedule, on: Hierarchy, resident: int = 1) -> dict[str, Part]:
    """By structure, what rank 0's kernel of *schedule* moves; *resident* programs share an SM."""
    return of_plan(expand(problem, schedule), on, resident)


def row(problem: Problem, schedule: Schedule, on: Hierarchy, resident: int = 1) -> dict[str, Any]:
    """One row, with the names that a replay's row has; no cycles, which this tier does not know."""
    made = parts(problem, schedule, on, resident)
    return {"trace": f"{problem.operator} {schedule.scheme}", "tier": TIER, "policy": POLICY, "group": "static",
            "caches": on.name, "cycles": None, "relative_cycles": None, "l2_line_misses": None, **total(made).row(),
            "structures": {name: each.row() for name, each in made.items()}}  # fmt: skip
