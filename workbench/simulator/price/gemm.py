"""Prices our GEMM on the SMs of a GPU: its blocks multiply loaded operands while later loads are in flight.

Tensor cores read operands from shared memory; small tiles read more bytes for each FLOP, so shared memory bounds them.
Loads of the next steps are in flight meanwhile, one fewer than there are stages: with few of them a block waits for the
L2. Blocks that share an SM wait at the same time. Rows that arrive in slices are multiplied slice by slice, and weights
that do not fit into the L2 come from memory again for each slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels import occupancy
from kernels.backends.triton import limits
from kernels.machine import Machine
from kernels.occupancy import (
    OTHER_REGISTERS,
    REGISTERS_MOST,
    SUM_BYTES,
    SmLimits,
    limits_of,
    resident_blocks,
)
from kernels.operators import operator
from kernels.operators.base import Flow
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Schedule, Tile, Value, tile
from kernels.schemes import axis_rules, fused, gemm_block
from workbench.simulator import columns
from workbench.simulator.cache.popularity import each_turn_bytes, programs
from workbench.simulator.price import tiles

# Seconds of our GEMM on the SMs of a GPU.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KNOBS = ("num_warps", "num_stages", "store", "grid")
"""Axes that, with the tile, determine how many blocks an SM holds. Grid 0: as many as fit."""
ARRIVING = ("slice_tiles", "group_rows")
"""Axes that determine which rows are multiplied together where they arrive in slices."""
TOGETHER = -1
"""As `slice_tiles`: all rows are multiplied together, column by column."""
GROUP_WARPS, GROUP_ROWS, INSTRUCTION_BYTES = 4, 64, 32
"""A warp group multiplies 64 rows at a time by 32 bytes of the contraction, both operands from shared memory.

Source: PTX ISA, wgmma. If there are more groups than rows for them, groups split the columns."""
ROW_READS = 2
"""Rows take twice as long to read as columns: so narrow tiles were seen to be no faster than tiles of 64 columns."""
SHARP, SHARP_OF_WARPS = 6, 2
"""A step that waits for two things about as long takes a little longer than each: the norm of both of this order.

It takes much longer where warps multiply themselves: an instruction that tensor cores run alone leaves them free."""
INSTRUCTION_ROWS, INSTRUCTION_COLUMNS = 16, 8
"""What one warp multiplies at a time in tiles of less than GROUP_ROWS, both operands read from shared memory.

Source: PTX ISA, mma.m16n8k16. Each warp reads the rows and columns of its share of the tile, so that both are read more
than once."""
WHOLE_PIECE = Tile(limits.PUT_ROWS, 1, 1)
WAITING = 3.0
"""How many loads wait for memory for each one that memory delivers again: blocks of a column load the same weights.

Fitted to three computations alone, each of two H200s and of two H100s, that are not held out (docs/kernels.md): with
slices of five rows of tiles of 128x256x64, the mean error is least at 3."""


@dataclass(frozen=True, slots=True, eq=False)
class GemmBlocks:
    """Shape of the blocks of one kernel, as numbers or columns."""

    m: Any
    n: Any
    k: Any
    """Sides of a tile, and how much of the contraction is loaded at once."""
    warps: Any
    stages: Any
    resident: Any
    """Blocks that an SM holds."""
    slice_tiles: Any = 0
    """Tiles whose rows arrive together, computed column by column; 0: row by row. Read for Flow.RECEIVE alone.

    TOGETHER: all rows, as where tiles span ranks."""


def is_known(machine: Machine, sizes: Problem) -> bool:
    """Whether the machine's file has measurements of what blocks of this kernel wait for."""
    device = machine.device
    measured = device.load_bytes_per_second and device.load_latency_seconds and device.shared_bytes_per_second
    return bool(measured and device.limits) and operator(sizes.operator).work == "gemm"


def of_schedule(machine: Machine, problem: Problem, schedule: Schedule, *, pushes: bool = False) -> GemmBlocks | None:
    """Blocks of our kernel in *schedule*; None if only its tiles are known.

    *pushes*: whether they also put the rows that arrive.
    """
    return _of_schedule(machine, problem, schedule, pushes) if is_known(machine, problem) else None


def fitting(machine: Machine, problem: Problem, schedule: Schedule) -> int:
    """Blocks of our kernel in *schedule* that an SM holds, on a machine whose file has the limits of an SM."""
    return int(_of_schedule(machine, problem, schedule, pushes=False).resident.item())


def _of_schedule(machine: Machine, problem: Problem, schedule: Schedule, pushes: bool) -> GemmBlocks:
    size, spans = tile(schedule["tile"]), axis_rules.spans_ranks(schedule)
    axes = {**usual(problem, str(size)), **dict(schedule.axes)}
    knobs = {name: axes[name] for name in (*KNOBS, *ARRIVING)}
    knobs |= of_spanning(problem) if spans else {}
    knobs |= {"grid": one_each(machine)} if axis_rules.relays(problem, schedule) else {}
    piece = piece_bytes(machine, problem, size.m, spans=spans) if pushes else 0
    return blocks(machine, problem.itemsize, (size.m, size.n, size.k), knobs, piece)


def one_each(machine: Machine) -> int:
    """Programs of a kernel some of whose SMs only send: one for each."""
    return machine.device.slots


def piece_bytes(machine: Machine, problem: Problem, rows: Any, *, spans: bool) -> Any:
    """Bytes of one piece of the rows that a block puts before peers multiply them; 0 where none arrive.

    *rows*: of a tile, a number or a column.
    """
    if operator(problem.operator).flow is not Flow.RECEIVE:
        return 0
    architecture = machine.device.architecture
    piece = limits.gathered_piece(problem, architecture) if spans else limits.piece(problem, WHOLE_PIECE, architecture)
    return (piece.m if spans else np.minimum(piece.m, rows)) * piece.k * problem.itemsize


def of_spanning(problem: Problem) -> dict[str, Value]:
    """What tiles that span ranks have instead: all rows arrive together, and results that are sent leave by threads."""
    sent = {"store": axis_rules.REGISTERS} if operator(problem.operator).flow is not Flow.RECEIVE else {}
    return dict(zip(ARRIVING, (TOGETHER, 1), strict=True)) | sent


def usual(problem: Problem, size: str = "128x256x64") -> dict[str, Value]:
    """KNOBS and ARRIVING of our GEMM if a schedule omits them: of the kernel that computes tiles of *size* alone."""
    alone = dict(fused.alone(problem, size).axes)
    return {name: alone.get(name, 0) for name in (*KNOBS, *ARRIVING)}


def blocks(
    machine: Machine, itemsize: int, sides: tuple[Any, Any, Any], knobs: Mapping[str, Any], piece: Any = 0
) -> GemmBlocks:
    """Blocks with *sides* of tiles, KNOBS and ARRIVING by name, and `piece_bytes`: numbers or columns."""
    warps, stages, grid = (np.asarray(knobs[name]).astype(np.int64) for name in ("num_warps", "num_stages", "grid"))
    staged = (np.asarray(knobs["store"]) == "tma").astype(np.int64)
    sm, architecture = limits_of(machine), machine.device.architecture
    fit = columns.once_for_equal_rows((*sides, stages, warps, staged, np.asarray(piece)),
                                      lambda *kind: _fitting(sm, architecture, itemsize, kind))  # fmt: skip
    resident = np.where(grid > 0, np.minimum(fit, -(-grid // machine.device.slots)), fit)
    (m, n, k), (slice_tiles, by_columns) = sides, (np.asarray(knobs[name]).astype(np.int64) for name in ARRIVING)
    return GemmBlocks(m, n, k, warps, stages, resident, np.where(by_columns > 0, slice_tiles, 0))


@lru_cache(maxsize=4096)
def _fitting(sm: SmLimits, architecture: int, itemsize: int, kind: tuple[int, ...]) -> int:
    """Blocks that an SM holds. *kind*: sides of a tile, stages, warps, whether bulk stores are used, `piece_bytes`.

    Pieces that a block pushes have the room of its operands: one for each stage, one fewer where threads store them.
    Source: kernels as Triton compiles them for sm_90.
    """
    m, n, k, stages, warps, staged, piece = kind
    block = occupancy.gemm_block(Tile(m, n, k), itemsize, stages, warps, staged=bool(staged), architecture=architecture)
    pushed = (limits.PUT_STAGES - (not staged)) * piece
    shared_bytes = max(block.shared_bytes, pushed + occupancy.BARRIER_BYTES)
    return max(1, resident_blocks(sm, shared_bytes, block.registers, block.threads))


def kernel_seconds(machine: Machine, sizes: Problem, of: GemmBlocks | None, tile_sides: tuple[Any, Any, Any],
                   num_tiles: Any, at_once: Any) -> Floats:  # fmt: skip
    """Seconds of a kernel of ours that computes *num_tiles* tiles [m, n, contraction] on *at_once* SMs.

    *of*: None if only its tiles are known.
    """
    memory_s = tiles.kernel_memory_seconds(machine, sizes)
    launched = (tile_sides[2], num_tiles, at_once, memory_s)
    return better(machine, sizes, of, launched,
                  lambda: tiles.kernel_seconds(machine, sizes, tile_sides, num_tiles, at_once))  # fmt: skip


def better(machine: Machine, sizes: Problem, of: GemmBlocks | None, launched: tuple[Any, Any, Any, Any],
           by_tiles: Callable[[], Floats]) -> Floats:  # fmt: skip
    """Seconds of the *launched* kernel from what its blocks wait for, if that is known; else *by_tiles*.

    *launched*: the contraction of its tiles, their number, SMs, and until memory has given each operand once.
    """
    if of is None:
        return by_tiles()
    contraction, num_tiles, at_once, memory_s = launched
    each, multiplied = -(-num_tiles // at_once), _multiply_seconds(machine, sizes, of, contraction)
    whole = each // of.resident
    rest = each - whole * of.resident
    missed_s = memory_s + WAITING * _again_seconds(machine, sizes, of, launched)
    latency_s = _latency_seconds(machine, num_tiles * (of.m + of.n) * contraction * sizes.itemsize, missed_s)
    step = (contraction, multiplied, latency_s)
    seconds = whole * _round_seconds(machine, sizes, of, of.resident, step)
    if np.any(rest):
        last = _round_seconds(machine, sizes, of, np.maximum(1, rest), step)
        seconds = seconds + np.where(rest > 0, last, 0.0)
    seconds = machine.costs.own_kernel_seconds + seconds
    seconds = np.asarray(np.maximum(seconds, memory_s / _memory_share(machine, sizes, of)))
    if machine.device.short_bytes_per_second:
        return seconds
    is_short = np.asarray(of.m) < GROUP_ROWS
    return np.where(is_short, by_tiles(), seconds) if np.any(is_short) else seconds


def _memory_share(machine: Machine, sizes: Problem, of: GemmBlocks) -> Any:
    """Share of the memory's speed that blocks get: less where those of different ranks' rows begin apart."""
    device, extent = machine.device, operator(sizes.operator).extent(sizes)
    apart = device.apart_memory_share or device.awaited_memory_share
    in_cache = extent.columns * extent.contraction * sizes.itemsize <= device.l2_bytes
    together = (of.slice_tiles == TOGETHER) | in_cache | (sizes.world == 1)
    return np.where(together, device.awaited_memory_share, apart)


def _again_seconds(machine: Machine, sizes: Problem, of: GemmBlocks, launched: tuple[Any, Any, Any, Any]) -> Any:
    """Seconds in which memory delivers weights again, for each slice of rows after the first one; 0 if the L2 has them.

    Blocks under way at once are together as well, whatever the slices. *launched*: as in `better`.
    """
    kind = operator(sizes.operator)
    contraction, num_tiles, at_once, _ = launched
    columns = kind.extent(sizes).columns
    weights = columns * contraction * sizes.itemsize
    if kind.flow is not Flow.RECEIVE or not np.any(weights > machine.device.l2_bytes):
        return 0.0
    across = -(-columns // of.n)
    in_slice = np.minimum(-(-of.slice_tiles // across), -(-kind.chunk_rows(sizes) // of.m))
    turns = np.maximum(1.0, num_tiles / across / np.maximum(in_slice, np.maximum(1.0, at_once * of.resident / across)))
    again = (turns - 1.0) * weights / machine.device.memory_bytes_per_second
    return np.where((weights > machine.device.l2_bytes) & (of.slice_tiles != TOGETHER), again, 0.0)


def _latency_seconds(machine: Machine, loaded_bytes: Any, memory_s: Any) -> Any:
    """Seconds from when operands are requested until they arrive: longer, the more of the loads miss all caches.

    *memory_s*: seconds in which memory delivers those that no cache holds.
    """
    device = machine.device
    cold = np.minimum(1.0, memory_s * device.memory_bytes_per_second / np.maximum(1.0, loaded_bytes))
    return device.load_latency_seconds * (1.0 + cold * (device.cold_latency_ratio - 1.0))


def _round_seconds(machine: Machine, sizes: Problem, of: GemmBlocks, count: Any, step: tuple[Any, Any, Any]) -> Floats:
    """Seconds of *count* tiles at once on one SM: each step waits for its multiplication or for its operands.

    *step*: the contraction, seconds to multiply one step of one tile, and seconds until operands arrive.
    """
    contraction, multiplied, latency_s = step
    loaded = (of.m + of.n) * of.k * sizes.itemsize / machine.device.load_bytes_per_second
    awaited = np.maximum((latency_s + loaded) / (of.stages - 1), count * loaded)
    sharp = np.where(np.asarray(of.m) < GROUP_ROWS, SHARP_OF_WARPS, SHARP)
    of_step = ((count * multiplied) ** sharp + awaited**sharp) ** (1 / sharp)
    return np.asarray(_results_seconds(machine, sizes, of, count) + -(-contraction // of.k) * of_step)


def _results_seconds(machine: Machine, sizes: Problem, of: GemmBlocks, count: Any) -> Any:
    """Seconds that *count* tiles on one SM take in addition to their steps: their results leave one after the other."""
    if not machine.device.results_bytes_per_second:
        return tiles.fixed_seconds(machine, "gemm")
    return count * of.m * of.n * (sizes.itemsize / machine.device.results_bytes_per_second)


def _multiply_seconds(machine: Machine, sizes: Problem, of: GemmBlocks, contraction: Any) -> Floats:
    """Seconds to multiply one step of one tile: by the curve of tiles, or the bytes read from shared memory.

    Sums that do not fit into registers are written and read again around every instruction. Tiles with fewer rows than
    tensor cores read by themselves are read by each warp.
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
    if not np.any(is_short) or not machine.device.short_bytes_per_second:
        return np.where(is_short, 0.0, seconds)
    down, across = warps_of_tile(of.m, of.n, of.warps)
    read = (across * of.m + down * of.n) * of.k * sizes.itemsize
    return np.where(is_short, read / machine.device.short_bytes_per_second, seconds)


def warps_of_tile(rows: Any, columns: Any, warps: Any) -> tuple[Ints, Ints]:
    """How many warps share the *rows* of a tile, and how many its *columns*: the longer side, by instructions, is cut.

    Source: what Triton 3.7 makes of such tiles for sm_90, which a test compiles.
    """
    rows, columns, warps = np.broadcast_arrays(rows, columns, warps)
    most, right = np.maximum(1, rows // INSTRUCTION_ROWS), np.maximum(1, columns // (2 * INSTRUCTION_COLUMNS))
    down, across = np.ones_like(rows), np.ones_like(rows)
    while np.any(more := down * across < warps):
        is_down = (most * across > right * down) & (down < most)
        down, across = np.where(more & is_down, 2 * down, down), np.where(more & ~is_down, 2 * across, across)
    return down, across


# Kernels that cut the tiles of their last wave along the contraction (kernels/schemes/split_k.py).


@dataclass(frozen=True, slots=True, eq=False)
class CutKernel:
    """Seconds of the parts of such a kernel, one after the other, as numbers or columns."""

    units: Any
    """The units of the program that has the most steps."""
    adding: Any
    """Until the partial sums of a tile are added, behind its last unit."""
    whole: Any
    """The waves of whole tiles."""
    total: Any
    """The kernel: with what it takes in addition to its tiles; before it adds, no less than memory takes for operands.
    """


def cut_kernel(machine: Machine, sizes: Problem, of: GemmBlocks | None, sides: tuple[Any, Any, Any], step: Any,
               cut: tuple[Any, Any, Any]) -> CutKernel:  # fmt: skip
    """Seconds of a kernel whose tiles have *sides* [m, n, contraction] and steps of *step*.

    *cut*: its tiles, its programs, and the axis `split_k`. What a cut costs in addition is what the default's rule
    knows of it, from an H100 (kernels/schemes/gemm_block.py).
    """
    (m, n, contraction), (num_tiles, programs, parts) = sides, cut
    memory_s, steps, count = tiles.kernel_memory_seconds(machine, sizes), -(-contraction // step), num_tiles % programs
    slots, ranges = machine.device.slots, np.maximum(1, parts)

    def at_once(active: Any) -> tuple[Any, Any]:
        """Seconds of *active* programs with a whole tile each, and what their results take of these."""
        on_sm = np.maximum(1, -(-active // slots))
        if of is None:
            fixed = tiles.fixed_seconds(machine, "gemm")
            return on_sm * tiles.tile_seconds(machine, sizes, m, n, contraction), on_sm * fixed
        together = np.minimum(on_sm, of.resident)
        latency_s = _latency_seconds(machine, num_tiles * (m + n) * contraction * sizes.itemsize, memory_s)
        of_step = (contraction, _multiply_seconds(machine, sizes, of, contraction), latency_s)
        turns = -(-on_sm // together)
        return (turns * _round_seconds(machine, sizes, of, together, of_step),
                turns * _results_seconds(machine, sizes, of, together))  # fmt: skip

    tile_s, results = at_once(count * ranges)
    units = gemm_block.CUT_STEPS * -(-steps // ranges) * (tile_s - results) / steps
    adding = (gemm_block.UNITS_LOADS + gemm_block.VALUE_LOADS * m * n) / gemm_block.LOADED_PER_SECOND
    whole = num_tiles // programs * at_once(np.asarray(programs))[0]
    total = adding + np.maximum(machine.costs.own_kernel_seconds + units + whole,
                       memory_s / (machine.device.awaited_memory_share or 1.0))  # fmt: skip
    return CutKernel(units, adding, whole, np.asarray(total))


# Least seconds of a fused GEMM, from the DRAM traffic that the reuse tier counts.

OUR_TILE_ORDER = "group_rows"
"""The axis of kernels whose tile order is ours to know; a library keeps its own."""
LEAST_SHARE = 0.5
"""Share of a kernel's time: if reading all tiles without reuse takes less than this, memory is no bound."""


def residents(machine: Machine, problem: Problem, schedule: Schedule) -> int:
    """Programs of our kernel that share an SM of *machine*; for a GEMM, by its tile and its stores."""
    work = operator(problem.operator).work
    if work != "gemm" or not machine.device.limits:
        return max(1, int(tiles.resident_blocks(machine, work)))
    return fitting(machine, problem, schedule)


def memory_floor_seconds(plan: Plan, machine: Machine, otherwise_s: float) -> float:
    """Seconds of the DRAM traffic of our kernel on rank 0; 0 if the caches of the device are unknown.

    Also 0 if that is far below *otherwise_s*, the kernel's other bound: counting takes some milliseconds.
    """
    if operator(plan.problem.operator).work != "gemm" or not plan.schedule.get(OUR_TILE_ORDER):
        return 0.0
    from workbench.simulator.cache.hierarchy import of_device

    if (on := of_device(machine.device.name)) is None:
        return 0.0
    held, rate = residents(machine, plan.problem, plan.schedule), machine.device.memory_bytes_per_second
    if each_turn_bytes(plan, programs(plan.schedule, on.units * held)) < LEAST_SHARE * otherwise_s * rate:
        return 0.0
    from workbench.simulator.cache.reuse import of_plan, total  # compiled: half a second of imports

    moved = total(of_plan(plan, on, held))
    return (moved.dram_read + moved.dram_written) / rate
