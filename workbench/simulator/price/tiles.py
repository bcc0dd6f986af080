"""What it costs to compute: a tile on one slot, a rectangle of equal tiles, a whole call of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from workbench.simulator.price.rates import has_curve, work_seconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def in_waves(machine: Machine) -> bool:
    """Whether tiles are computed as many at once as there are slots, cut ones like whole ones: so do GPUs."""
    return machine.device.kind == "gpu"


def slots(machine: Machine, *, grid: Any = 0, comm_sms: Any = 0, engine: Any = None) -> Ints:
    """Tiles computed at once, as numbers or columns: a small grid leaves slots empty, communication takes some."""
    most = machine.device.slots
    grids = np.asarray(grid, dtype=np.int64)
    engines = np.asarray(engine)
    unstated = ((engines == "sm") | (engines == "library")) & (np.asarray(comm_sms) == 0)
    taken = comm_sms + unstated * machine.costs.send_blocks
    return np.maximum(1, np.minimum(most, np.where(grids > 0, grids, most)) - taken)


def work_share(problem: Problem) -> tuple[str, float]:
    """The speed curve an operator runs on, and its FLOP or bytes per (row, column, contraction) element."""
    kind = operator(problem.operator)
    extent = kind.extent(problem)
    total = kind.memory_bytes(problem) if kind.work == "gather" else kind.flops(problem)
    return kind.work, total / (extent.rows * extent.columns * extent.contraction)


def tile_width(problem: Problem, rows: Any, columns: Any) -> Any:
    """What the speed of a tile depends on beside its size: rows of a GEMM, tokens, or the bytes of an embedding."""
    work = operator(problem.operator).work
    if work == "gather":
        return problem["dim"] * problem.itemsize
    return rows if work == "gemm" else columns


def fixed_seconds(machine: Machine, work: str) -> float:
    """What a tile costs beside its work: where only memory is waited for, blocks that share an SM wait together."""
    return machine.costs.tile_seconds / resident_blocks(machine, work)


def resident_blocks(machine: Machine, work: str) -> float:
    """Blocks of *work* that an SM holds at once where a kernel waits for memory alone; 1 where nobody says more."""
    return machine.device.resident_blocks.get(work, 1)


def tile_seconds(machine: Machine, sizes: Problem, rows: Any, columns: Any, k: Any) -> Floats:
    """Seconds of one tile of *rows* x *columns* over a contraction of *k*, on one slot; all may be columns."""
    work, share = work_share(sizes)
    seconds = work_seconds(machine, work, sizes.dtype, share * rows * columns * k, tile_width(sizes, rows, columns))
    return fixed_seconds(machine, work) + seconds * machine.device.slots


@dataclass(frozen=True, slots=True, eq=False)
class Tiling:
    """Sides of tiles and how many are computed at once, as numbers or columns."""

    m: Any
    n: Any
    slots: Any


def rectangles_seconds(machine: Machine, sizes: Problem, tiling: Tiling, blocks: ArrayLike,
                       sides: tuple[Any, Any, Any]) -> Floats:  # fmt: skip
    """Seconds to compute *blocks* equal rectangles of *sides*: rows, columns, contraction."""
    number, (rows, columns, k), (m, n) = np.asarray(blocks), sides, (tiling.m, tiling.n)
    if in_waves(machine):
        waves = -(-number * -(-rows // m) * -(-columns // n) // tiling.slots)
        return np.maximum(waves * tile_seconds(machine, sizes, m, n, k),
                          memory_seconds(machine, sizes, number * rows, columns, k))  # fmt: skip
    down, right = rows // m, columns // n
    bottom, edge = rows - down * m, columns - right * n
    total = down * right * tile_seconds(machine, sizes, m, n, k)
    for count, height, width in ((right, bottom, n), (down, m, edge), (1, bottom, edge)):
        if np.any(height > 0) and np.any(width > 0):
            one = tile_seconds(machine, sizes, height, width, k)
            total = total + np.where((height > 0) & (width > 0), count * one, 0.0)
    return np.asarray(number * total, dtype=float)


def memory_seconds(machine: Machine, sizes: Problem, rows: Any, columns: Any, k: Any) -> Floats:
    """Seconds to read each operand of a step once and to write its results, where no curve contains that for sure."""
    work, share = work_share(sizes)
    if not _memory_bounds(machine, work, sizes.dtype):
        return np.zeros(1)
    if work == "gather":
        num_bytes = share * rows * columns * k
    else:
        num_bytes = (rows * k + k * columns + rows * columns) * sizes.itemsize
    return np.asarray(num_bytes / machine.device.memory_bytes_per_second)


def kernel_memory_seconds(machine: Machine, sizes: Problem) -> Floats:
    """The same of the whole operator."""
    kind = operator(sizes.operator)
    if not _memory_bounds(machine, kind.work, sizes.dtype):
        return np.zeros(1)
    return np.asarray(kind.memory_bytes(sizes) / machine.device.memory_bytes_per_second)


def _memory_bounds(machine: Machine, work: str, dtype: str) -> bool:
    """Whether tiles may be done before memory has given their operands: where no curve was measured, and on GPUs.

    A GPU's curve is of a few shapes, and flat beyond them. That of a lookup holds rows that the L2 keeps.
    """
    return not has_curve(machine, work, dtype) or (machine.device.kind == "gpu" and work != "gather")


def library_seconds(machine: Machine, sizes: Problem, kernel: object) -> Floats | None:
    """The computation as one call of the library does it; None where that was not measured.

    *kernel*: who computes, None where nobody else than we could.
    """
    kind = operator(sizes.operator)
    if kernel != "library" or not in_calls(machine, sizes):
        return None
    extent = kind.extent(sizes)
    return _call_seconds(machine, sizes, (extent.rows, extent.columns, extent.contraction), kind.memory_bytes(sizes))


def in_calls(machine: Machine, sizes: Problem) -> bool:
    """Whether calls of the library were measured for this computation."""
    return machine.device.kind != "cpu" and has_curve(machine, f"library_{operator(sizes.operator).work}", sizes.dtype)


def library_piece_seconds(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], slots: Any) -> Floats:
    """One call of the library over a part of the computation on *slots*; *sides* are rows, columns, contraction.

    No part costs less than its share of the whole: curves of few points may say that narrower calls are faster.
    """
    (rows, columns, k), extent = sides, operator(sizes.operator).extent(sizes)
    num_bytes = (rows * k + k * columns + rows * columns) * sizes.itemsize
    share = (rows * columns * k) / (extent.rows * extent.columns * extent.contraction)
    whole = library_seconds(machine, sizes, "library")
    least = 0.0 if whole is None else whole * share
    called = np.maximum(_call_seconds(machine, sizes, sides, num_bytes), least)
    return called * (machine.device.slots / np.asarray(slots))


def _call_seconds(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], num_bytes: Any) -> Floats:
    work, share = work_share(sizes)
    rows, columns, k = sides
    width = rows if work == "gemm" else columns
    computed = work_seconds(machine, f"library_{work}", sizes.dtype, share * rows * columns * k, width)
    return np.maximum(computed, num_bytes / machine.device.memory_bytes_per_second)
