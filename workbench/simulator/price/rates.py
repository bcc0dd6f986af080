"""Prices basic work from a machine's speed curves or peaks: pieces of work, copies, sums, barriers and launches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import Machine, Rate
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schemes import library
from workbench.simulator.columns import Identity

# Speed of one tile's or one block's work: by measured curves, or by peaks.

Floats = NDArray[np.float64]


def has_curve(machine: Machine, work: str, dtype: str) -> bool:
    """Whether the machine has at least one point of the curve of *work* and *dtype*."""
    return _curve(Identity(machine.rates), work, dtype) is not None


def largest(machine: Machine, work: str, dtype: str) -> float:
    """Largest size per unit of width on the curve of *work* and *dtype*."""
    points = [rate for rate in machine.rates if _is_of(rate, work, dtype)]
    return max(point.size / max(1.0, point.width) for point in points)


def work_seconds(machine: Machine, work: str, dtype: str, size: ArrayLike, width: ArrayLike = 0.0) -> Floats:
    """Seconds of pieces of *size* FLOP or bytes, each on the whole device, without fixed costs."""
    sizes = np.asarray(size, dtype=np.float64)
    curve = _curve(Identity(machine.rates), work, dtype)
    return sizes / (_peak(machine, work, dtype) if curve is None else _speeds(curve, sizes, width))


def _is_of(rate: Rate, work: str, dtype: str) -> bool:
    return rate.work == work and rate.dtype == dtype


def _peak(machine: Machine, work: str, dtype: str) -> float:
    """Peak FLOP/s for matrix work (a dtype without one gets the lowest peak), memory bandwidth for other work."""
    if work not in ("gemm", "gemv"):
        return machine.device.memory_bytes_per_second
    peaks = machine.device.matrix_flops_per_second
    return peaks.get(dtype, min(peaks.values()))


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """The points of one work and dtype, by ascending width."""

    log_widths: Floats
    """Read where there are several: one width may be 0."""
    log_points: tuple[tuple[Floats, Floats], ...]
    """By width, ascending sizes and their speeds."""


@lru_cache(maxsize=512)
def _curve(rates: Identity, work: str, dtype: str) -> _Curve | None:
    """The curve in a machine's *rates*; None if they have no point of it."""
    points = sorted((rate for rate in rates.value if _is_of(rate, work, dtype)), key=lambda rate: rate.size)
    if not points:
        return None
    widths = sorted({point.width for point in points})
    by_width = [[point for point in points if point.width == width] for width in widths]
    logs = ((np.log([p.size for p in each]), np.log([p.per_second for p in each])) for each in by_width)
    return _Curve(np.log(widths) if len(widths) > 1 else np.zeros(1), tuple(logs))


def _speeds(curve: _Curve, sizes: Floats, width: ArrayLike) -> Floats:
    """Speed at *sizes* and *width*: straight lines in log size, log width and log speed; flat outside the points."""
    log_size, count = np.log(np.maximum(sizes, 1.0)), len(curve.log_widths)
    curves = [np.interp(log_size, *points) for points in curve.log_points]
    if count == 1:
        return np.exp(curves[0])
    at = np.interp(np.log(np.maximum(width, 1.0)), curve.log_widths, np.arange(count))
    low = np.minimum(at.astype(np.int64), count - 2)
    share = np.broadcast_to(at - low, sizes.shape)
    table = np.stack(curves)
    pick = np.broadcast_to(low, sizes.shape)
    lower = np.take_along_axis(table, pick[None], axis=0)[0]
    upper = np.take_along_axis(table, pick[None] + 1, axis=0)[0]
    return np.exp(lower + share * (upper - lower))


# Bytes that are copied, summed or unpacked inside a rank.


def copy_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike) -> Floats:
    """Seconds to copy *num_bytes*: one read and one write of each."""
    return work_seconds(machine, "copy", dtype, 2 * np.asarray(num_bytes))


def sum_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike, world: int) -> Floats:
    """Seconds to sum the contributions of *world* ranks to results of *num_bytes*: as many reads, and one write."""
    return work_seconds(machine, "reduce", dtype, (world + 1) * np.asarray(num_bytes))


def unpacks(machine: Machine, problem: Problem, *, in_pieces: bool) -> bool:
    """Whether what a library delivers must be copied once more.

    NCCL writes whole chunks of rows where they belong. Pieces of them, and pooled vectors, come by source rank.
    """
    return machine.device.kind == "cpu" or in_pieces or operator(problem.operator).work == "gather"


# Barriers and launches.

BARRIER_KERNEL = ("copy_engine", "direct")
"""Values of `collective` whose ranks meet in a separate kernel, which is launched before."""
SECOND_BARRIER_KERNEL = ("direct",)
"""Values of `collective` with another barrier kernel afterwards. The measured cost of a copy engine contains it.

`direct` is priced as when it had three kernels. With both barriers inside one kernel it took 1.0 to 1.6 us less on two
H200s, and that price was within 6 % of all 13 calls (docs/kernels.md).
"""
TWO_BARRIERS = ("one_shot",)
"""Values of `collective` whose kernel begins and ends with a barrier: it reads what peers may not overwrite."""


def start_seconds(
    machine: Machine, *, one_kernel: bool, collective: object, communicates: bool, packets: bool = False
) -> float:
    """Seconds of barriers before the first step and perhaps after the last, in separate kernels or inside others.

    On GPUs calls follow each other on a stream: ranks meet in kernels that communicate, but not in others, nor around
    library calls, whose time contains it. *packets* need no barrier: their place alternates.
    """
    if packets:
        communicates = False
    costs = machine.costs
    launch = costs.launch_seconds if one_kernel or (communicates and collective in BARRIER_KERNEL) else 0.0
    meets = machine.device.kind == "cpu" or (communicates and collective not in library.CALLS)
    once = launch + (costs.barrier_seconds if meets else 0.0)
    if machine.device.kind == "cpu" or not communicates:
        return once
    return (
        once
        + launch * (collective in SECOND_BARRIER_KERNEL)
        + costs.barrier_seconds * (collective in (*SECOND_BARRIER_KERNEL, *TWO_BARRIERS))
    )


def step_overhead(machine: Machine, *, one_kernel: bool) -> float:
    """Seconds that a step costs in addition to its work: bookkeeping, and a launch unless it is inside a kernel."""
    return machine.costs.step_seconds + (0.0 if one_kernel else machine.costs.launch_seconds)
