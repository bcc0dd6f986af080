"""The reuse tier: DRAM bytes and L2 hits of one rank's kernel of a schedule, in a millisecond (`traffic.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from statistics import NormalDist
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Kind, Plan
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import expand
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.popularity import RANK, looked_up, programs
from workbench.simulator.cache.trace import SECTOR_BYTES

# How long L2 keeps a line: how many different bytes are touched before it is read again, of slabs read by tiles.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
KNOTS = 33
"""Lengths of windows whose bytes are counted: so many evenly, and so many where slabs are read again."""


@dataclass(frozen=True, slots=True)
class SlabReads:
    """Reads of slabs, in any order."""

    slab: Ints
    """Which one."""
    begin: Floats
    """When its tile began, in tiles."""
    side: Ints
    """The partition of L2, 0 or 1, that the tile's SM asks."""
    num_bytes: Floats


@dataclass(frozen=True, slots=True)
class StreamedReads:
    """What is touched once."""

    begin: Floats
    """When it is written, in tiles."""
    num_bytes: Floats
    steady: float = 0.0
    """Bytes that come evenly over the whole time."""


def gaps(slab: Ints, begin: Floats) -> tuple[Floats, Floats]:
    """By read, how long ago its slab was read before, and how soon it will be again; infinite where it is not."""
    order = np.lexsort((begin, slab))
    same = slab[order[1:]] == slab[order[:-1]]
    between = np.where(same, np.diff(begin[order]), np.inf)
    before, after = np.full(len(slab), np.inf), np.full(len(slab), np.inf)
    before[order[1:]], after[order[:-1]] = between, between
    return before, after


@dataclass(frozen=True, slots=True)
class Cache:
    """An L2."""

    capacity: float
    """Bytes."""
    copies: float
    """Of far lines that a partition reads, the share that it keeps."""
    uneven: float
    """As `hierarchy.Hierarchy.uneven`."""


@dataclass(frozen=True, slots=True)
class L2Residency:
    """What an L2 of so many bytes and ways keeps of a kernel for how long."""

    lengths: Floats
    """Of windows, ascending from 0."""
    footprints: Floats
    """Bytes that each of them touches, on average."""
    cache: Cache

    def lost(self, gap: Floats) -> Floats:
        """The chance that a line is gone after *gap* tiles' time: a half, where as much was touched as fits.

        It goes up from 0 to 1 along a cubic without a bend at either end.
        """
        touched = np.interp(gap, self.lengths, self.footprints)
        beyond = np.clip((touched / self.cache.capacity - 1.0) / self.cache.uneven, -1.0, 1.0)
        return np.where(np.isfinite(gap), 0.5 + beyond * (3.0 - beyond * beyond) / 4.0, 1.0)


def kept(reads: SlabReads, streams: StreamedReads, cache: Cache, end: float) -> L2Residency:
    """What *cache* keeps of a kernel of *end* tiles' time.

    A line lies in its home partition. Of far lines that a partition's own SMs read it keeps *copies* (0 to 1), too.
    """
    before, after = gaps(reads.slab, reads.begin)
    own_after = gaps(2 * reads.slab + reads.side, reads.begin)[1]
    columns = (reads.begin, reads.num_bytes, after, own_after, streams.begin, streams.num_bytes)
    most = end * (1.0 - 1e-6)
    met = before[np.isfinite(before) & (before < most)]
    typical = np.quantile(met, np.linspace(0.0, 1.0, KNOTS), method="nearest") if len(met) else met
    lengths = np.unique(np.concatenate([np.linspace(0.0, most, KNOTS), typical]))
    footprints = _footprints(lengths, columns, streams.steady, cache.copies, end)
    return L2Residency(lengths, np.maximum.accumulate(footprints), cache)


@njit(cache=True, nogil=True, error_model="numpy")
def _footprints(lengths: Floats, columns: Any, steady: float, copies: float, end: float) -> Floats:
    made = np.empty(lengths.shape[0])
    for i in range(lengths.shape[0]):
        made[i] = _footprint(lengths[i], columns, steady, copies, end)
    return made


@njit(cache=True, nogil=True, error_model="numpy")
def _footprint(length: float, columns: Any, steady: float, copies: float, end: float) -> float:
    """Different bytes that are touched in *length*, on average over the windows inside the kernel."""
    begin, num_bytes, after, own_after, written, written_bytes = columns
    total = 0.0
    for i in range(begin.shape[0]):
        total += num_bytes[i] * _covered(begin[i], min(after[i], length), length, end)
        if copies > 0.0:  # half of the lines are far, and each side keeps what its own SMs read
            total += num_bytes[i] * copies * 0.5 * _covered(begin[i], min(own_after[i], length), length, end)
    for i in range(written.shape[0]):
        total += written_bytes[i] * _covered(written[i], length, length, end)
    return total / (end - length) + steady * length / end


@njit(cache=True, nogil=True, error_model="numpy")
def _covered(begin: float, lasts: float, length: float, end: float) -> float:
    """How long windows that end between *length* and *end* have a byte that each holds for *lasts*, over all depths."""
    return (
        _area(begin + 1.0 + lasts, length, end) - _area(begin + lasts, length, end)
        - _area(begin + 1.0, length, end) + _area(begin, length, end)
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _area(at: float, low: float, high: float) -> float:
    """The integral from 0 to *at* of a number that is kept between *low* and *high*."""
    if at <= low:
        return low * at
    if at <= high:
        return low * low + (at * at - low * low) / 2.0
    return low * low + (high * high - low * low) / 2.0 + high * (at - high)


# The traffic of one rank's kernel from who reads a slab again, and how soon: DRAM bytes and hits in a millisecond.

SEED = 0
"""In which order groups of SMs are fast and slow."""
MOMENTS = 65
"""Of a kernel's time, at which bytes of peers come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPart:
    """Bytes that one structure, or all of them, moved."""

    asked: float = 0.0
    """Loaded from L2: what the tex units ask for, past L1."""
    missed_near: float = 0.0
    """Of these, what the partition that was asked first had not."""
    dram_read: float = 0.0
    """Of these, what L2 had nowhere."""
    dram_written: float = 0.0

    def __add__(self, other: TrafficPart) -> TrafficPart:
        return TrafficPart(asked=self.asked + other.asked, missed_near=self.missed_near + other.missed_near,
                    dram_read=self.dram_read + other.dram_read,
                    dram_written=self.dram_written + other.dram_written)  # fmt: skip

    @property
    def hit_rate(self) -> float | None:
        """Of the partition that is asked first, as the tex units' counters have it."""
        return 1.0 - self.missed_near / self.asked if self.asked else None

    def row(self) -> dict[str, float | int | None]:
        """As rows of a table name it, in whole bytes."""
        return {"l2_hit_rate": self.hit_rate, "dram_read_bytes": round(self.dram_read),
                "dram_write_bytes": round(self.dram_written), "l2_asked_bytes": round(self.asked)}  # fmt: skip


def of_plan(plan: Plan, on: Hierarchy, resident: int = 1) -> dict[str, TrafficPart]:
    """By structure, what rank 0's kernel of *plan* moves; *resident* programs share an SM."""
    incoming = float(plan.num_bytes[(plan.kind == Kind.PUT) & (plan.peer == RANK)].sum())
    if OPERATORS[plan.problem.operator].work == "gather":
        return _lookups(plan.problem, plan, on, incoming)
    return _product(plan.problem, plan, on, (programs(plan.schedule, on.units * resident), incoming))


def total(of: dict[str, TrafficPart]) -> TrafficPart:
    """All structures together."""
    return sum(of.values(), TrafficPart())


@dataclass(frozen=True, slots=True)
class ReuseOrder:
    """Of each tile."""

    begin: Floats
    """When it begins, in tiles."""
    program: Ints
    turn: Ints
    """How many tiles its program had before."""
    group: Ints
    """Of the SM that computes it."""


def ordered(count: int, at_once: int, on: Hierarchy) -> ReuseOrder:
    """*count* tiles, dealt in turns to programs, and these to the groups of SMs, as many in a row as a group holds."""
    number = np.arange(count)
    program, turn = number % at_once, number // at_once
    group = program * on.sm_groups // at_once
    begin = turn * (1.0 + on.pace_spread * _paces(on.sm_groups)[group])
    return ReuseOrder(begin - begin.min(), program, turn, group)


@lru_cache(maxsize=64)
def _paces(count: int) -> Floats:
    """Quantiles of the normal distribution, in an order that is always the same."""
    normal = NormalDist()
    return np.random.default_rng(SEED).permutation([normal.inv_cdf((i + 0.5) / count) for i in range(count)])


def _product(problem: Problem, plan: Plan, on: Hierarchy, load: tuple[int, float]) -> dict[str, TrafficPart]:
    """A tile reads its rows of the left operand and its columns of the right one; own results stay in L2."""
    at_once, incoming = load
    operator, tiles, item = OPERATORS[problem.operator], plan.tiles[RANK], problem.itemsize
    extent = operator.extent(problem)
    order, count = ordered(len(tiles), at_once, on), len(tiles)
    begin, end = order.begin, float(order.begin.max()) + 1.0
    rows = (tiles.chunk * operator.chunk_rows(problem) + tiles.row_start, tiles.row_stop - tiles.row_start)
    columns = (extent.rows + tiles.col_start, tiles.col_stop - tiles.col_start)
    wide = _across(columns[1], extent.columns, item)
    slab = np.concatenate([rows[0], columns[0]])
    num_bytes = np.concatenate([rows[1] * extent.contraction * item, wide * extent.contraction]).astype(float)
    asks = (
        np.ones(2 * count, bool) if operator.work == "gemm" else _past_l1(slab, order.program, num_bytes, on.l1_bytes)
    )
    to_l2 = num_bytes * np.where(asks, _unmerged(slab, order, on), 0.0)
    stays = (tiles.chunk == RANK) | (operator.flow is Flow.RECEIVE)
    out = np.where(stays, tiles.areas() * item, 0).astype(float)
    reads = SlabReads(slab, np.tile(begin, 2), np.tile(order.group * on.partitions // on.sm_groups, 2), num_bytes)
    cache = Cache(on.l2_bytes, on.far_copies, on.uneven)
    l2 = kept(reads, StreamedReads(begin + 1.0, out, incoming), cache, end)
    names = [name for name in operator.local(problem) if name != "output"]
    missed, near = _missed(reads, on, l2)
    halves = (slice(0, count), slice(count, None))
    made = {
        name: TrafficPart(
            asked=max(float(to_l2[half].sum()), float(near[half].sum())),
            missed_near=float(near[half].sum()),
            dram_read=float(missed[half].sum()),
        )
        for name, half in zip(names, halves, strict=True)
    }
    made["output"] = TrafficPart(dram_written=float((out * l2.lost(end - (begin + 1.0))).sum()))
    return made | _from_peers(incoming, l2, end)


def _across(columns: Ints, of_all: int, item: int) -> Ints:
    """Bytes that a row's part of so many columns takes: whole sectors, unless the next row follows at once."""
    num_bytes = columns * item
    return np.where(columns == of_all, num_bytes, -(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES)


def _missed(reads: SlabReads, on: Hierarchy, l2: L2Residency) -> tuple[Floats, Floats]:
    """By read, the bytes that come from DRAM, and those that the partition asked first has not."""
    missed = reads.num_bytes * l2.lost(gaps(reads.slab, reads.begin)[0])
    if on.partitions == 1:
        return missed, missed
    same_side = gaps(2 * reads.slab + reads.side, reads.begin)[0]
    far = reads.num_bytes * (l2.lost(same_side) if on.far_copies else 1.0)
    return missed, (missed + np.maximum(missed, far)) / 2.0


def _unmerged(slab: Ints, order: ReuseOrder, on: Hierarchy) -> Floats:
    """By read, the share of it that reaches L2: tiles of one turn read their slabs at about the same time."""
    together = (slab * (int(order.turn.max()) + 1) + np.tile(order.turn, 2)) * on.sm_groups + np.tile(order.group, 2)
    _, number, counts = np.unique(together, return_inverse=True, return_counts=True)
    return np.asarray(1.0 - on.merged * (1.0 - 1.0 / counts[number]))


def _past_l1(slab: Ints, program: Ints, num_bytes: Floats, l1_bytes: int) -> np.ndarray:
    """Whether L2 is asked: the same program's last tiles with this slab have left its L1."""
    count = len(program)
    a_tile = float((num_bytes[:count] + num_bytes[count:]).max())
    turn = np.zeros(count)
    for each in np.unique(program):
        turn[program == each] = np.arange(int((program == each).sum()))
    before = gaps(slab * (int(program.max()) + 1) + np.tile(program, 2), np.tile(turn, 2))[0]
    return np.asarray(before * a_tile > l1_bytes)


def _lookups(problem: Problem, plan: Plan, on: Hierarchy, incoming: float) -> dict[str, TrafficPart]:
    """Tiles are dealt to SMs in turns: where a row of tiles fits evenly, an SM meets the same tables in each."""
    tiles, item, tables = plan.tiles[RANK], problem.itemsize, problem["tables_per_rank"]
    summed = float(tiles.areas()[tiles.chunk == RANK].sum() * item)
    across = len(np.unique(tiles.col_start))
    of_tables, indices, stays = looked_up(problem, on, summed + incoming, -(-tables // gcd(on.units, across)))
    made = {
        "tables": TrafficPart(**of_tables),
        "indices": TrafficPart(**indices),
        "output": TrafficPart(dram_written=summed * (1.0 - stays)),
    }
    return made | ({"peers' bytes": TrafficPart(dram_written=incoming * (1.0 - stays))} if incoming else {})


def _from_peers(incoming: float, l2: L2Residency, end: float) -> dict[str, TrafficPart]:
    """What peers put here comes evenly; what came last is not in DRAM yet."""
    if not incoming:
        return {}
    return {"peers' bytes": TrafficPart(dram_written=incoming * float(l2.lost(np.linspace(0.0, end, MOMENTS)).mean()))}


# The reuse tier: DRAM bytes and L2 hits of one rank's kernel of a schedule, in a millisecond (`traffic.py`).

TIER, POLICY = "reuse", "cache_rw"
"""The name of this tier, and the one policy that it knows: all that a GPU does by itself."""


def parts(problem: Problem, schedule: Schedule, on: Hierarchy, resident: int = 1) -> dict[str, TrafficPart]:
    """By structure, what rank 0's kernel of *schedule* moves; *resident* programs share an SM."""
    return of_plan(expand(problem, schedule), on, resident)


def row(problem: Problem, schedule: Schedule, on: Hierarchy, resident: int = 1) -> dict[str, Any]:
    """One row, with the names that a replay's row has; no cycles, which this tier does not know."""
    made = parts(problem, schedule, on, resident)
    return {"trace": f"{problem.operator} {schedule.scheme}", "tier": TIER, "policy": POLICY, "group": "static",
            "caches": on.name, "cycles": None, "relative_cycles": None, "l2_line_misses": None, **total(made).row(),
            "structures": {name: each.row() for name, each in made.items()}}  # fmt: skip
