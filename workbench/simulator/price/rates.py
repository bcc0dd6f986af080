"""How fast a machine does one tile's or one block's work: its measured speed curves, or its peaks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import Machine, Rate

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
