"""Lower bounds of the time of our kernels that wait for memory: a block has the loads of only a few steps in flight.

GEMVs and pooled lookups use what they load once. Few blocks, small tiles or few stages leave memory idle: each block
does its steps one after the other, and an SM does the work of all its blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.machine import Machine
from kernels.occupancy import SmLimits, gemv_block, limits_of, resident_blocks
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schedule import Schedule, Tile, tile
from kernels.schemes import fused
from workbench.simulator.columns import once_for_equal_rows
from workbench.simulator.price import tiles

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KNOBS = ("num_warps", "num_stages", "grid")
"""Axes that, with the tile, determine how many blocks wait, and for how much. Grid 0: as many as fit."""
DEEP = 3
"""From this many steps in flight, values of several tokens in registers are copied from step to step."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps of the blocks of one kernel, as numbers or columns."""

    of_tile: Any
    """Number of steps of a tile."""
    alone_seconds: Any
    """Seconds from one step of a block to the next, if it is alone."""
    busy_seconds: Any
    """Seconds of a step during which its SM does nothing else."""
    most: Any
    """Number of blocks that are resident at once on all SMs."""
    start_seconds: Any = 0.0


def of_schedule(machine: Machine, problem: Problem, schedule: Schedule) -> Steps | None:
    """Steps of our kernel in *schedule*; None if the waits of its blocks were not measured."""
    if not is_known(machine, problem):
        return None
    axes, size = {**usual(problem), **dict(schedule.axes)}, tile(schedule["tile"])
    return steps(machine, problem, (size.m, size.n, size.k), axes)


def is_known(machine: Machine, sizes: Problem) -> bool:
    """Whether the waits of the blocks of this computation were measured."""
    device, work = machine.device, operator(sizes.operator).work
    if work == "gemv":
        return bool(device.gemv_step and device.few_tokens_step and device.limits)
    return work == "gather" and bool(device.gather_step)


def usual(problem: Problem) -> dict[str, Any]:
    """Defaults of KNOBS for schedules that omit them: those of the kernel that computes alone."""
    alone = fused.alone(problem, "16x1x512")
    return {name: alone.get(name, 0) for name in KNOBS}


def steps(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], knobs: Mapping[str, Any]) -> Steps:
    """Steps with *sides* of tiles and KNOBS by name: numbers or columns."""
    if operator(sizes.operator).work == "gather":
        return _of_lookup(machine, sizes, sides, knobs["grid"])
    return _of_gemv(machine, sizes, sides, [np.asarray(knobs[name]) for name in KNOBS])


def no_sooner(machine: Machine, of: Steps | None, num_tiles: Any, seconds: Any) -> Floats:
    """The larger of *seconds* of a kernel of *num_tiles* tiles, and the seconds that its blocks wait."""
    if of is None:
        return np.asarray(seconds)
    number = np.asarray(num_tiles)
    turns = -(-number // np.maximum(1, np.minimum(number, of.most)))
    sm_seconds = -(-number // machine.device.slots) * of.busy_seconds
    return np.maximum(seconds, of.start_seconds + of.of_tile * np.maximum(turns * of.alone_seconds, sm_seconds))


def _of_gemv(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], knobs: Sequence[Any]) -> Steps:
    """Steps of a GEMV: one token is multiplied as its weights arrive; several use tensor cores."""
    (m, n, k), (warps, stages, grid), extent = sides, knobs, operator(sizes.operator).extent(sizes)
    tokens, itemsize = np.minimum(n, extent.columns), sizes.itemsize
    limits, slots = limits_of(machine), machine.device.slots
    fit = once_for_equal_rows((m, k, tokens, stages, warps), lambda *kind: _fitting(limits, itemsize, kind))
    weights, values, in_flight = m * k * itemsize, k * tokens * itemsize, np.maximum(1, stages - 1)
    parts = []
    for table in (machine.device.gemv_step, machine.device.few_tokens_step):
        seconds = table.get
        alone = (seconds("own", 0.0) + seconds("own_byte", 0.0) * weights + seconds("own_value_byte", 0.0) * values
                 + seconds("latency", 0.0) / in_flight + seconds("deep", 0.0) * (in_flight >= DEEP))  # fmt: skip
        busy = (seconds("busy_byte", 0.0) * weights + seconds("busy_value_byte", 0.0) * values
                + seconds("busy_warps", 0.0) * (warps > 4))  # fmt: skip
        parts.append((alone, busy, seconds("start", 0.0)))
    alone, busy, start = (np.where(tokens == 1, *of_both) for of_both in zip(*parts, strict=True))
    most = np.where(grid > 0, np.minimum(grid, fit * slots), fit * slots)
    return Steps(-(-extent.contraction // k), alone, busy, most, start)


def _of_lookup(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], grid: Any) -> Steps:
    """Steps of a lookup: a warp sums one vector after the other; a step loads the rows that are requested together."""
    (m, n, k), dim, pooling, step = sides, sizes["dim"], sizes["pooling"], machine.device.gather_step
    together = np.minimum(_power_below(k), _power_above(pooling))
    num_bytes = together * _power_above(np.minimum(n, dim)) * sizes.itemsize
    alone = step.get("latency", 0.0) + step.get("own_byte", 0.0) * num_bytes
    if "found" in step:  # a step waits for the slowest of its rows
        alone = alone + tiles.found_share(machine, sizes, together) * (step["found"] - alone)
    busy = step.get("busy", 0.0) + step.get("busy_byte", 0.0) * num_bytes
    most = int(tiles.resident_blocks(machine, "gather") * machine.device.slots)
    in_grid = np.where(np.asarray(grid) > 0, np.minimum(grid, most), most)
    return Steps(m * np.maximum(1, n // dim) * -(-pooling // together), alone, busy, in_grid)


@lru_cache(maxsize=4096)
def _fitting(limits: SmLimits, itemsize: int, kind: tuple[int, ...]) -> int:
    """Blocks of our GEMV that an SM holds. *kind*: rows and contraction of a tile, tokens, stages, warps."""
    m, k, tokens, stages, warps = kind
    block = gemv_block(Tile(m, tokens, k), itemsize, stages, warps)
    return max(1, resident_blocks(limits, block.shared_bytes, block.registers, block.threads))


def _power_below(count: Any) -> Ints:
    return np.asarray(2 ** np.floor(np.log2(np.maximum(1, count))), dtype=np.int64)


def _power_above(count: Any) -> Ints:
    return np.asarray(2 ** np.ceil(np.log2(np.maximum(1, count))), dtype=np.int64)
