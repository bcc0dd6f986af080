"""Prices computation: a tile on one slot, a rectangle of equal tiles, a whole library call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from workbench.simulator import columns as columns_of
from workbench.simulator.cache import popularity
from workbench.simulator.cache.hierarchy import UNEVEN, of_device
from workbench.simulator.price.rates import has_curve, largest, work_seconds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SKEWED, SKEWED_GATHER = "power_law", "gather_power_law"
"""Value of `indices` whose lookups often hit the L2, and the curve of such lookups."""


def in_waves(machine: Machine) -> bool:
    """Whether tiles run in waves over the slots, partial ones at the cost of whole ones, as on GPUs."""
    return machine.device.kind == "gpu"


def slots(machine: Machine, *, grid: Any = 0, comm_sms: Any = 0, engine: Any = None) -> Ints:
    """Number of tiles computed at once: a small grid leaves slots empty, and communication takes some.

    *comm_sms* may be fractional, for SMs that send for a share of the time.
    """
    most = machine.device.slots
    grids = np.asarray(grid, dtype=np.int64)
    engines = np.asarray(engine)
    by_default = ((engines == "sm") | (engines == "library")) & (np.asarray(comm_sms) == 0)
    taken = comm_sms + by_default * machine.costs.send_blocks
    return np.maximum(1, np.minimum(most, np.where(grids > 0, grids, most)) - taken).astype(np.int64)


def work_share(problem: Problem) -> tuple[str, float]:
    """The speed curve an operator runs on, and its FLOP or bytes per (row, column, contraction) element."""
    kind = operator(problem.operator)
    extent = kind.extent(problem)
    total = kind.memory_bytes(problem) if kind.work == "gather" else kind.flops(problem)
    return kind.work, total / (extent.rows * extent.columns * extent.contraction)


def tile_width(problem: Problem, rows: Any, columns: Any) -> Any:
    """Width on which a tile's speed depends in addition to its size: rows of a GEMM, tokens, or bytes of a vector."""
    work = operator(problem.operator).work
    if work == "gather":
        return problem["dim"] * problem.itemsize
    return rows if work == "gemm" else columns


def curve(machine: Machine, sizes: Problem) -> str:
    """Name of the speed curve of tiles; skewed lookups have one of their own if it was measured."""
    work = operator(sizes.operator).work
    if work == "gather" and sizes.word("indices") == SKEWED and has_curve(machine, SKEWED_GATHER, sizes.dtype):
        return SKEWED_GATHER
    return work


def fixed_seconds(machine: Machine, work: str) -> float:
    """Seconds of a tile in addition to its work; if memory is the only bound, blocks that share an SM wait together."""
    return machine.costs.tile_seconds / resident_blocks(machine, work)


def resident_blocks(machine: Machine, work: str) -> float:
    """Number of blocks that an SM holds at once if *work* waits for memory alone; 1 if unknown."""
    return machine.device.resident_blocks.get(work, 1)


def tile_seconds(machine: Machine, sizes: Problem, rows: Any, columns: Any, k: Any) -> Floats:
    """Seconds of one tile of *rows* x *columns* over a contraction of *k*, on one slot; all may be columns."""
    work, share = work_share(sizes)
    amount = share * rows * columns * k
    if streams(machine, sizes):
        return fixed_seconds(machine, work) + 0.0 * amount
    seconds = work_seconds(machine, curve(machine, sizes), sizes.dtype, amount, tile_width(sizes, rows, columns))
    if work == "gather" and machine.device.gather_step:  # a curve holds what L2 answered of its own lookups
        missed = 1.0 - found_share(machine, sizes, np.asarray(1))
        seconds = np.maximum(seconds, missed * amount / machine.device.memory_bytes_per_second)
    return fixed_seconds(machine, work) + seconds * machine.device.slots


def found_share(machine: Machine, sizes: Problem, together: Any) -> Any:
    """Share of the steps of a lookup that L2 answers, with all rows that they load *together*."""
    tables, rows, caches = sizes["tables_per_rank"], sizes["rows"], of_device(machine.device.name)
    l2 = float(machine.device.l2_bytes), UNEVEN if caches is None else caches.uneven
    of_call = (tables, rows, sizes["dim"] * sizes.itemsize, sizes["batch"] * tables * sizes["pooling"])
    indices = sizes.word("indices")
    return columns_of.once_for_equal_rows(
        (together, *of_call), lambda count, *call: popularity.found_share(indices, call, count, l2)
    )


def streams(machine: Machine, sizes: Problem) -> bool:
    """Whether our kernel was measured as a stream of operands, no tile of which is slower than the whole."""
    return machine.device.kind == "gpu" and has_curve(machine, f"own_{operator(sizes.operator).work}", sizes.dtype)


def load_seconds(machine: Machine, sizes: Problem, rows: Any, columns: Any, k: Any) -> Floats:
    """Seconds in which one SM loads both operands of a tile of *rows* x *columns* over a contraction of *k*.

    A small tile loads more for each FLOP: tiles of 64 x 128 are bound by loads.
    """
    if operator(sizes.operator).work != "gemm" or not machine.device.load_bytes_per_second:
        return np.zeros(1)
    loaded = (rows + columns) * k * sizes.itemsize / machine.device.load_bytes_per_second
    return np.asarray(fixed_seconds(machine, "gemm") + loaded)


def in_waves_seconds(waves: Any, tile_s: Any, load_s: Any, memory_s: Any) -> Floats:
    """Seconds of *waves* of equal tiles, each of which takes *tile_s* to compute and *load_s* to load.

    They end no earlier than *memory_s*, in which memory delivers what no cache holds; SMs that wait for loads wait for
    that as well.
    """
    loaded = np.where(np.asarray(load_s) > 0, waves * load_s + memory_s, memory_s)
    return np.asarray(np.maximum(waves * tile_s, loaded))


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
        return in_waves_seconds(waves, tile_seconds(machine, sizes, m, n, k), load_seconds(machine, sizes, m, n, k),
                                memory_seconds(machine, sizes, number * rows, columns, k))  # fmt: skip
    down, right = rows // m, columns // n
    bottom, edge = rows - down * m, columns - right * n
    total = down * right * tile_seconds(machine, sizes, m, n, k)
    for count, height, width in ((right, bottom, n), (down, m, edge), (1, bottom, edge)):
        if np.any(height > 0) and np.any(width > 0):
            one = tile_seconds(machine, sizes, height, width, k)
            total = total + np.where((height > 0) & (width > 0), count * one, 0.0)
    return np.asarray(
        np.maximum(number * total, memory_seconds(machine, sizes, number * rows, columns, k)), dtype=float
    )


def memory_seconds(machine: Machine, sizes: Problem, rows: Any, columns: Any, k: Any) -> Floats:
    """Seconds to read the operands of a step once and write its results; 0 if a measured curve surely contains that."""
    work, share = work_share(sizes)
    if not _memory_bounds(machine, work, sizes.dtype):
        return np.zeros(1)
    if work == "gather":
        num_bytes = share * rows * columns * k
    else:
        num_bytes = (rows * k + k * columns + rows * columns) * sizes.itemsize
    if streams(machine, sizes):
        return call_seconds(machine, f"own_{work}", sizes.dtype, share * rows * columns * k, columns, num_bytes)
    return _read_seconds(machine, num_bytes)


def kernel_memory_seconds(machine: Machine, sizes: Problem) -> Floats:
    """Seconds to read the operands of the whole operator once and write its results; 0 as in `memory_seconds`."""
    kind = operator(sizes.operator)
    if not _memory_bounds(machine, kind.work, sizes.dtype):
        return np.zeros(1)
    if streams(machine, sizes):
        flops, columns = kind.flops(sizes), kind.extent(sizes).columns
        return call_seconds(machine, f"own_{kind.work}", sizes.dtype, flops, columns, kind.memory_bytes(sizes))
    return _read_seconds(machine, kind.memory_bytes(sizes))


def kernel_seconds(
    machine: Machine, sizes: Problem, tile: tuple[Any, Any, Any], num_tiles: Any, at_once: Any
) -> Floats:
    """Seconds of one kernel of ours that computes *num_tiles* tiles [m, n, k], *at_once* of them at the same time."""
    return in_waves_seconds(-(-num_tiles // at_once), tile_seconds(machine, sizes, *tile),
                            load_seconds(machine, sizes, *tile), kernel_memory_seconds(machine, sizes))  # fmt: skip


def _read_seconds(machine: Machine, num_bytes: Any) -> Floats:
    return np.asarray(machine.costs.cold_seconds + num_bytes / machine.device.memory_bytes_per_second)


def _memory_bounds(machine: Machine, work: str, dtype: str) -> bool:
    """Whether memory bounds tiles in addition to their curve: where no curve was measured, and on GPUs.

    A GPU's curve covers a few shapes, and is flat beyond them. Curves of lookups contain hits in the L2.
    """
    return not has_curve(machine, work, dtype) or (machine.device.kind == "gpu" and work != "gather")


def library_seconds(machine: Machine, sizes: Problem, kernel: object) -> Floats | None:
    """Seconds of the computation as one library call; None if that was not measured.

    *kernel*: value of the schedule's axis, None if it has no such axis.
    """
    if kernel != "library" or not in_calls(machine, sizes):
        return None
    return np.maximum(*library_parts(machine, sizes))


def library_parts(machine: Machine, sizes: Problem) -> tuple[Floats, Floats]:
    """Seconds of a library call by its computation alone, and by memory alone."""
    kind = operator(sizes.operator)
    extent = kind.extent(sizes)
    return _call_parts(machine, sizes, (extent.rows, extent.columns, extent.contraction), kind.memory_bytes(sizes))


def library_tiles(machine: Machine, sizes: Problem, slots: Any) -> tuple[Ints, Floats]:
    """Number of tiles of a library GEMM on *slots*, and seconds of one."""
    extent = operator(sizes.operator).extent(sizes)
    sides = (extent.rows, extent.columns, extent.contraction)
    if machine.costs.library_tile_seconds:
        return _best_tiles(machine, sizes, sides, slots)
    count = _library_tiles(extent.rows, extent.columns)
    on_share = machine.device.slots / np.asarray(slots)
    return count, library_parts(machine, sizes)[0] * on_share / -(-count // slots)


def in_calls(machine: Machine, sizes: Problem) -> bool:
    """Whether library calls were measured for this computation."""
    return machine.device.kind != "cpu" and has_curve(machine, f"library_{operator(sizes.operator).work}", sizes.dtype)


LIBRARY_TILE = (128, 256)
"""Rows and columns of the tile that an SM computes in large calls of cuBLAS on Hopper.

Pieces took whole waves of it; pieces of less than half a wave took half of one, and pieces of less than an eighth a
quarter: docs/kernels.md, a first trial of pieces."""

LIBRARY_TILES = (LIBRARY_TILE, (256, 128), (192, 192), (320, 128), (128, 192), (192, 128))
"""Tiles of cuBLAS kernels in captured graphs of two H200s; cuBLAS selects one by the shape."""


def _best_tiles(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], slots: Any) -> tuple[Ints, Floats]:
    """Number of tiles, and seconds of one, with the shape of LIBRARY_TILES that makes the call fastest.

    Fewer than half a wave are cut along the contraction as well, so that all slots compute.
    """
    (rows, columns, k), work, at_once = sides, work_share(sizes)[0], np.asarray(slots)
    area = LIBRARY_TILE[0] * LIBRARY_TILE[1]
    of_area = work_seconds(machine, work, sizes.dtype, work_share(sizes)[1] * area * k, LIBRARY_TILE[0])
    of_area = of_area * machine.device.slots / area
    best: tuple[Any, Any, Any] = (np.inf, 0, 0.0)
    for m, n in LIBRARY_TILES:
        count = -(-np.asarray(rows) // m) * -(-np.asarray(columns) // n)
        share = np.where(2 * count <= at_once, count / at_once, 1.0)
        seconds = machine.costs.library_tile_seconds + share * m * n * of_area
        this = (-(-count // at_once) * seconds, count, seconds)
        is_less = this[0] < best[0]
        best = (np.where(is_less, this[0], best[0]), np.where(is_less, this[1], best[1]),
                np.where(is_less, this[2], best[2]))  # fmt: skip
    return best[1], best[2]


def _library_tiles(rows: Any, columns: Any) -> Any:
    return -(-np.asarray(rows) // LIBRARY_TILE[0]) * -(-np.asarray(columns) // LIBRARY_TILE[1])


def _library_waves(machine: Machine, rows: Any, columns: Any) -> Any:
    """Waves of a call over *rows* x *columns*; calls on two streams do not fill each other's waves."""
    count = _library_tiles(rows, columns)
    part = np.where(8 * count <= machine.device.slots, 0.25, 0.5)
    return np.where(2 * count <= machine.device.slots, part, -(-count // machine.device.slots))


def library_piece_seconds(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], slots: Any) -> Floats:
    """Seconds of a library call over part of the computation on *slots*; *sides* are rows, columns, contraction.

    A part of the contraction is added to earlier results, which are read again. No part costs less than its share of
    the whole in waves, since curves with few points may make narrower calls look faster.
    """
    (rows, columns, k), extent = sides, operator(sizes.operator).extent(sizes)
    results = np.where(np.asarray(k) < extent.contraction, 2, 1)
    num_bytes = (rows * k + k * columns + results * rows * columns) * sizes.itemsize
    if machine.costs.library_tile_seconds and work_share(sizes)[0] == "gemm":
        return np.asarray(np.maximum(*_call_parts(machine, sizes, sides, num_bytes, slots)))
    share = (rows * columns * k) / (extent.rows * extent.columns * extent.contraction)
    if work_share(sizes)[0] == "gemm":
        of_whole = _library_waves(machine, extent.rows, extent.columns)
        waves = np.where(of_whole >= 1, _library_waves(machine, rows, columns), 0.0)  # smaller calls are no waves
        share = np.maximum(share, waves / of_whole * k / extent.contraction)
    whole = library_seconds(machine, sizes, "library")
    least = 0.0 if whole is None else whole * share
    called = np.maximum(_call_seconds(machine, sizes, sides, num_bytes), least)
    return called * (machine.device.slots / np.asarray(slots))


def _call_seconds(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], num_bytes: Any) -> Floats:
    return np.asarray(np.maximum(*_call_parts(machine, sizes, sides, num_bytes)))


def _call_parts(machine: Machine, sizes: Problem, sides: tuple[Any, Any, Any], num_bytes: Any,
                slots: Any = None) -> tuple[Floats, Floats]:  # fmt: skip
    """Seconds of a library call by computation alone, and by memory alone, on *slots* (None: all)."""
    work, share = work_share(sizes)
    rows, columns, k = sides
    if work == "gemv":  # its curve is of calls that wait for memory
        called = call_seconds(machine, f"library_{work}", sizes.dtype, share * rows * columns * k, columns, num_bytes)
        return np.zeros_like(called), called
    memory = _read_seconds(machine, num_bytes)
    fixed = machine.costs.library_tile_seconds
    if not fixed:
        return work_seconds(machine, f"library_{work}", sizes.dtype, share * rows * columns * k, rows), memory
    slots = machine.device.slots if slots is None else slots
    count, of_tile = _best_tiles(machine, sizes, sides, slots)
    waves = -(-count // slots)
    return waves * of_tile, memory + waves * fixed


def call_seconds(machine: Machine, work: str, dtype: str, flops: Any, tokens: Any, num_bytes: Any) -> Floats:
    """Seconds of a call of *flops* for *tokens* that streams its operands, by the curve of such calls.

    Work beyond the largest measured size runs at the full memory bandwidth.
    """
    most = tokens * largest(machine, work, dtype)
    inside = np.minimum(flops, most)
    beyond = np.maximum(0.0, 1 - most / flops) * num_bytes / machine.device.memory_bytes_per_second
    return np.asarray(work_seconds(machine, work, dtype, inside, tokens) + beyond)
