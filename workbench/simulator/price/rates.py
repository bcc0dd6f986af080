"""What it costs to begin: a call whose ranks meet, and each step that is launched by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import Machine, Rate
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schemes import library

# How fast a machine does one tile's or one block's work: its measured speed curves, or its peaks.

Floats = NDArray[np.float64]


def has_curve(machine: Machine, work: str, dtype: str) -> bool:
    """Whether the machine states at least one point of that curve."""
    return bool(_points(machine, work, dtype))


def largest(machine: Machine, work: str, dtype: str) -> float:
    """The largest size of that curve, for each unit of width."""
    return max(point.size / max(1.0, point.width) for point in _points(machine, work, dtype))


def work_seconds(machine: Machine, work: str, dtype: str, size: ArrayLike, width: ArrayLike = 0.0) -> Floats:
    """Time of pieces of *size* FLOP or bytes, the whole device at each of them, fixed costs not counted."""
    sizes = np.asarray(size, dtype=np.float64)
    points = _points(machine, work, dtype)
    return sizes / (_curve(points, sizes, width) if points else _peak(machine, work, dtype))


def _points(machine: Machine, work: str, dtype: str) -> list[Rate]:
    return [rate for rate in machine.rates if rate.work == work and rate.dtype == dtype]


def _peak(machine: Machine, work: str, dtype: str) -> float:
    """Peak FLOP/s for matrix work (an unstated dtype counts as the slowest stated), memory speed for the rest."""
    if work not in ("gemm", "gemv"):
        return machine.device.memory_bytes_per_second
    peaks = machine.device.matrix_flops_per_second
    return peaks.get(dtype, min(peaks.values()))


def _curve(points: list[Rate], sizes: Floats, width: ArrayLike) -> Floats:
    """Speed at *sizes* and *width*: straight lines in log size, log width and log speed; flat outside the points."""
    widths = sorted({point.width for point in points})
    log_size = np.log(np.maximum(sizes, 1.0))
    curves = [_one_width([p for p in points if p.width == w], log_size) for w in widths]
    if len(widths) == 1:
        return np.exp(curves[0])
    at = np.interp(np.log(np.maximum(width, 1.0)), np.log(widths), np.arange(len(widths)))
    low = np.minimum(at.astype(np.int64), len(widths) - 2)
    share = np.broadcast_to(at - low, sizes.shape)
    table = np.stack(curves)
    pick = np.broadcast_to(low, sizes.shape)
    lower = np.take_along_axis(table, pick[None], axis=0)[0]
    upper = np.take_along_axis(table, pick[None] + 1, axis=0)[0]
    return np.exp(lower + share * (upper - lower))


def _one_width(points: list[Rate], log_size: Floats) -> Floats:
    ordered = sorted(points, key=lambda point: point.size)
    return np.interp(log_size, np.log([p.size for p in ordered]), np.log([p.per_second for p in ordered]))


# What it costs to move or to sum bytes inside a rank: copies, sums of contributions, what a library leaves packed.


def copy_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike) -> Floats:
    """Seconds to copy *num_bytes*: one read and one write of each."""
    return work_seconds(machine, "copy", dtype, 2 * np.asarray(num_bytes))


def sum_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike, world: int) -> Floats:
    """Seconds to sum the contributions of *world* ranks to results of *num_bytes*: as many reads, and one write."""
    return work_seconds(machine, "reduce", dtype, (world + 1) * np.asarray(num_bytes))


def unpacks(machine: Machine, problem: Problem, *, in_pieces: bool) -> bool:
    """Whether what a library delivers has to be moved once more.

    NCCL writes whole chunks of rows where they belong. Pieces of them, and pooled vectors, come by source rank.
    """
    return machine.device.kind == "cpu" or in_pieces or operator(problem.operator).work == "gather"


# What it costs to begin: a call whose ranks meet, and each step that is launched by itself.

MEETING = ("copy_engine", "direct")
"""Values of `collective` whose ranks meet in a kernel of its own, which is launched before."""
AGAIN = ("direct",)
"""Those of them that meet once more behind, in another kernel. What a copy engine costs contains it."""
TWICE = ("one_shot",)
"""Values of `collective` whose kernel begins and ends with a meeting: it reads what peers may not overwrite."""


def start_seconds(
    machine: Machine, *, one_kernel: bool, collective: object, communicates: bool, packets: bool = False
) -> float:
    """Beside all steps: ranks meet before the first and perhaps after the last, in a kernel of its own or in theirs.

    On GPUs calls follow each other on a stream: ranks meet in kernels that communicate, not around those that do not,
    nor around a library's, whose time contains it. *packets* need no meeting: their place alternates.
    """
    if packets:
        communicates = False
    costs = machine.costs
    launch = costs.launch_seconds if one_kernel or (communicates and collective in MEETING) else 0.0
    meets = machine.device.kind == "cpu" or (communicates and collective not in library.CALLS)
    once = launch + (costs.barrier_seconds if meets else 0.0)
    if machine.device.kind == "cpu" or not communicates:
        return once
    return once + launch * (collective in AGAIN) + costs.barrier_seconds * (collective in (*AGAIN, *TWICE))


def step_overhead(machine: Machine, *, one_kernel: bool) -> float:
    """Beside a step's work: bookkeeping, and its launch by the host where it is no part of a kernel that runs."""
    return machine.costs.step_seconds + (0.0 if one_kernel else machine.costs.launch_seconds)
