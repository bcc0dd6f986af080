"""What our GEMM takes on the SMs of a GPU: its blocks multiply what has come, and have asked for what comes next.

Tensor cores read operands from shared memory. Small tiles read more bytes for each FLOP, and it is shared memory that
one waits for. Operands of the next steps are asked for meanwhile, as many as there are stages but one: with few of them
a block waits for the way to the L2. Blocks that share an SM wait at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.machine import Machine
from kernels.occupancy import (
    OTHER_REGISTERS,
    REGISTERS_MOST,
    SUM_BYTES,
    SmLimits,
    gemm_block,
    limits_of,
    resident_blocks,
)
from kernels.operators import operator
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Schedule, Tile, Value, tile
from kernels.schemes import fused
from workbench.simulator import columns
from workbench.simulator.cache.popularity import each_turn_bytes, programs
from workbench.simulator.price import tiles
from workbench.simulator.price.tiles import resident_blocks as tiles_resident_blocks

# What our GEMM takes on the SMs of a GPU: its blocks multiply what has come, and have asked for what comes next.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KNOBS = ("num_warps", "num_stages", "store", "grid")
"""Axes beside the tile that say how many blocks an SM holds. Grid 0: as many as fit."""
GROUP_WARPS, GROUP_ROWS, INSTRUCTION_BYTES = 4, 64, 32
"""A warp group multiplies 64 rows at a time by 32 bytes of the contraction, both operands from shared memory.

Source: PTX ISA, wgmma. Groups that find no rows of their own share out the columns."""
ROW_READS = 2
"""Rows take twice as long to read as columns: so narrow tiles were seen to be no faster than tiles of 64 columns."""
SHARP = 6
"""A step that waits for two things about as long takes a little longer than each: the norm of both of this order."""


@dataclass(frozen=True, slots=True, eq=False)
class GemmBlocks:
    """Of one kernel: numbers or columns."""

    m: Any
    n: Any
    k: Any
    """Sides of a tile, and how much of the contraction is loaded at once."""
    warps: Any
    stages: Any
    resident: Any
    """Blocks that an SM holds."""


def is_known(machine: Machine, sizes: Problem) -> bool:
    """Whether it was measured what an SM's blocks of this kernel wait for."""
    device = machine.device
    measured = device.load_bytes_per_second and device.load_latency_seconds and device.shared_bytes_per_second
    return bool(measured and device.limits) and operator(sizes.operator).work == "gemm"


def of_schedule(machine: Machine, problem: Problem, schedule: Schedule) -> GemmBlocks | None:
    """Of our kernel in *schedule*; None where only its tiles are known."""
    return _of_schedule(machine, problem, schedule) if is_known(machine, problem) else None


def fitting(machine: Machine, problem: Problem, schedule: Schedule) -> int:
    """Blocks of our kernel in *schedule* that an SM holds, of a machine that states an SM's limits."""
    return int(_of_schedule(machine, problem, schedule).resident.item())


def _of_schedule(machine: Machine, problem: Problem, schedule: Schedule) -> GemmBlocks:
    axes, size = {**usual(problem), **dict(schedule.axes)}, tile(schedule["tile"])
    return blocks(machine, problem.itemsize, (size.m, size.n, size.k), {name: axes[name] for name in KNOBS})


def usual(problem: Problem) -> dict[str, Value]:
    """The knobs of our GEMM where a schedule names none: as it computes alone."""
    alone = fused.alone(problem, "128x256x64")
    return {name: alone[name] for name in KNOBS}


def blocks(machine: Machine, itemsize: int, sides: tuple[Any, Any, Any], knobs: Mapping[str, Any]) -> GemmBlocks:
    """*sides* of tiles, and by name the KNOBS: numbers or columns."""
    warps, stages, grid = (np.asarray(knobs[name]).astype(np.int64) for name in ("num_warps", "num_stages", "grid"))
    staged = (np.asarray(knobs["store"]) == "tma").astype(np.int64)
    limits = limits_of(machine)
    fit = columns.each((*sides, stages, warps, staged), lambda *kind: _fitting(limits, itemsize, kind))
    resident = np.where(grid > 0, np.minimum(fit, -(-grid // machine.device.slots)), fit)
    m, n, k = sides
    return GemmBlocks(m, n, k, warps, stages, resident)


@lru_cache(maxsize=4096)
def _fitting(limits: SmLimits, itemsize: int, kind: tuple[int, ...]) -> int:
    """Blocks that an SM holds. *kind*: sides of a tile, stages, warps, whether results are staged."""
    m, n, k, stages, warps, staged = kind
    block = gemm_block(Tile(m, n, k), itemsize, stages, warps, staged=bool(staged))
    return max(1, resident_blocks(limits, block.shared_bytes, block.registers, block.threads))


def kernel_seconds(machine: Machine, sizes: Problem, of: GemmBlocks | None, tile_sides: tuple[Any, Any, Any],
                   num_tiles: Any, at_once: Any) -> Floats:  # fmt: skip
    """Seconds of a kernel of ours that computes *num_tiles* tiles [m, n, contraction] on *at_once* SMs.

    *of*: None where no more is known than its tiles.
    """
    memory_s = tiles.kernel_memory_seconds(machine, sizes)
    launched = (tile_sides[2], num_tiles, at_once, memory_s)
    return better(machine, sizes, of, launched,
                  lambda: tiles.kernel_seconds(machine, sizes, tile_sides, num_tiles, at_once))  # fmt: skip


def better(machine: Machine, sizes: Problem, of: GemmBlocks | None, launched: tuple[Any, Any, Any, Any],
           by_tiles: Callable[[], Floats]) -> Floats:  # fmt: skip
    """Seconds of what was *launched*, where it is known what blocks wait for; else *by_tiles*.

    *launched*: the contraction of its tiles, their number, SMs, and until memory has given each operand once.
    """
    if of is None:
        return by_tiles()
    contraction, num_tiles, at_once, memory_s = launched
    each, multiplied = -(-num_tiles // at_once), _multiply_seconds(machine, sizes, of, contraction)
    whole = each // of.resident
    rest = each - whole * of.resident
    latency_s = _latency_seconds(machine, num_tiles * (of.m + of.n) * contraction * sizes.itemsize, memory_s)
    step = (contraction, multiplied, latency_s)
    seconds = whole * _round_seconds(machine, sizes, of, of.resident, step)
    if np.any(rest):
        last = _round_seconds(machine, sizes, of, np.maximum(1, rest), step)
        seconds = seconds + np.where(rest > 0, last, 0.0)
    seconds = machine.costs.own_kernel_seconds + seconds
    seconds = np.asarray(np.maximum(seconds, memory_s / machine.device.awaited_memory_share))
    if machine.device.short_bytes_per_second:
        return seconds
    is_short = np.asarray(of.m) < GROUP_ROWS
    return np.where(is_short, by_tiles(), seconds) if np.any(is_short) else seconds


def _latency_seconds(machine: Machine, loaded_bytes: Any, memory_s: Any) -> Any:
    """From asking for operands until they come: the longer, the more of what is loaded no cache holds yet.

    *memory_s*: until memory has given that once.
    """
    device = machine.device
    cold = np.minimum(1.0, memory_s * device.memory_bytes_per_second / np.maximum(1.0, loaded_bytes))
    return device.load_latency_seconds * (1.0 + cold * (device.cold_latency_ratio - 1.0))


def _round_seconds(machine: Machine, sizes: Problem, of: GemmBlocks, count: Any, step: tuple[Any, Any, Any]) -> Floats:
    """Of *count* tiles at once on one SM: a step takes as long as it is multiplied, or as its operands are awaited.

    *step*: the contraction, seconds in which one step of one tile is multiplied, and those until operands come.
    """
    (contraction, multiplied, latency_s), device = step, machine.device
    speed: Any = device.load_bytes_per_second
    if device.short_bytes_per_second:
        speed = np.where(np.asarray(of.m) < GROUP_ROWS, device.short_bytes_per_second, speed)
    loaded = (of.m + of.n) * of.k * sizes.itemsize / speed
    awaited = np.maximum((latency_s + loaded) / (of.stages - 1), count * loaded)
    of_step = ((count * multiplied) ** SHARP + awaited**SHARP) ** (1 / SHARP)
    return np.asarray(_results_seconds(machine, sizes, of, count) + -(-contraction // of.k) * of_step)


def _results_seconds(machine: Machine, sizes: Problem, of: GemmBlocks, count: Any) -> Any:
    """What *count* tiles on one SM cost beside their steps: their results leave one after the other."""
    if not machine.device.results_bytes_per_second:
        return tiles.fixed_seconds(machine, "gemm")
    return count * of.m * of.n * (sizes.itemsize / machine.device.results_bytes_per_second)


def _multiply_seconds(machine: Machine, sizes: Problem, of: GemmBlocks, contraction: Any) -> Floats:
    """Of one step of one tile: by the curve of tiles, or the bytes that are read from shared memory.

    Sums that find no place in registers are written and read again around every instruction. Nobody waits for the
    tensor cores where a tile has fewer rows than they multiply at a time.
    """
    fixed, parts = tiles.fixed_seconds(machine, "gemm"), of.k * sizes.itemsize / INSTRUCTION_BYTES
    by_curve = (tiles.tile_seconds(machine, sizes, of.m, of.n, contraction) - fixed) * of.k / contraction
    groups, down = np.maximum(1, of.warps // GROUP_WARPS), np.maximum(1, of.m // GROUP_ROWS)
    across = np.maximum(1, groups // down)
    num_bytes = down * (ROW_READS * across * GROUP_ROWS + of.n)
    sums = of.m * of.n / (32 * of.warps)
    spilled = np.where(sums + OTHER_REGISTERS > REGISTERS_MOST, 2 * SUM_BYTES * of.m * of.n, 0)
    moved = parts * INSTRUCTION_BYTES * num_bytes / machine.device.shared_bytes_per_second
    if machine.device.spill_bytes_per_second:
        moved = np.maximum(moved, parts * spilled / machine.device.spill_bytes_per_second)
    seconds = np.maximum(by_curve, moved)
    is_short = np.asarray(of.m) < GROUP_ROWS
    return np.where(is_short, 0.0, seconds) if np.any(is_short) else np.asarray(seconds)


# What DRAM gives a fused GEMM, re-reads included, as the reuse tier counts it: its kernel ends no sooner.

IN_ORDER = "group_rows"
"""The axis of kernels whose tile order is ours to know; a library keeps its own."""
NEAR = 0.5
"""Of a kernel's time: if tiles that find nothing of earlier ones read for less than that, nobody waits for it."""


def residents(machine: Machine, problem: Problem, schedule: Schedule) -> int:
    """Programs of a kernel of ours that share an SM of *machine*: of a GEMM as its tile and its stores let."""
    work = operator(problem.operator).work
    if work != "gemm" or not machine.device.limits:
        return max(1, int(tiles_resident_blocks(machine, work)))
    return fitting(machine, problem, schedule)


def memory_floor_seconds(plan: Plan, machine: Machine, otherwise_s: float) -> float:
    """Seconds in which memory gives and takes what our kernel on rank 0 moves; 0 where nobody knows its caches.

    0, too, where it is far from mattering to a kernel that takes *otherwise_s*: a count takes some milliseconds.
    """
    if operator(plan.problem.operator).work != "gemm" or not plan.schedule.get(IN_ORDER):
        return 0.0
    from workbench.simulator.cache.hierarchy import of_device

    if (on := of_device(machine.device.name)) is None:
        return 0.0
    held, rate = residents(machine, plan.problem, plan.schedule), machine.device.memory_bytes_per_second
    if each_turn_bytes(plan, programs(plan.schedule, on.units * held)) < NEAR * otherwise_s * rate:
        return 0.0
    from workbench.simulator.cache.reuse import of_plan, total  # compiled: half a second of imports

    moved = total(of_plan(plan, on, held))
    return (moved.dram_read + moved.dram_written) / rate
