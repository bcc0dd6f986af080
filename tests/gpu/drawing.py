"""A fused schedule with values drawn for its axes, of a kernel that a GPU does not compute for few rows alone."""

from __future__ import annotations

import random
from collections.abc import Collection

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Value, tile
from kernels.schemes import axes, axis_rules, schedule

TILE_LEAST = 64 * 64
"""Elements of a GEMM's tile; smaller ones are for few rows."""


def fused(
    chosen: random.Random, of: Problem, usual: Collection[str], place: Machine, fabric: Fabric
) -> Schedule | None:
    """One schedule; None where it is refused. Axes of *usual* keep their defaults."""
    values: dict[str, Value] = {axis.name: chosen.choice(axis.values) for axis in axes(of, "fused", place, fabric)
                                if axis.name not in usual}  # fmt: skip
    if values["tile_order"] != axis_rules.INTERLEAVED:
        values.pop("slice_tiles", None)
    size = tile(values["tile"])
    if OPERATORS[of.operator].work == "gemm" and size.m * size.n < TILE_LEAST:
        return None
    try:
        return schedule(of, "fused", values, place, fabric)
    except Refusal:
        return None
