"""The reuse tier: DRAM bytes and L2 hits of one rank's kernel of a schedule from reuse distances, in a millisecond."""

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
from workbench.simulator.cache.hierarchy import SECTOR_BYTES, Hierarchy, lost_share
from workbench.simulator.cache.popularity import RANK, looked_up, programs

# How long L2 keeps a line: how many different bytes are touched before the line is read again.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
KNOTS = 33
"""Window lengths whose bytes are counted: this many spaced evenly, and this many at quantiles of reuse gaps."""


@dataclass(frozen=True, slots=True)
class SlabReads:
    """Reads of slabs (operand rows or columns of a tile), in any order."""

    slab: Ints
    """Number of the slab."""
    begin: Floats
    """Start of the reading tile, in tile times."""
    side: Ints
    """L2 partition, 0 or 1, that the tile's SM is attached to."""
    num_bytes: Floats


@dataclass(frozen=True, slots=True)
class StreamedReads:
    """Bytes that are touched only once."""

    begin: Floats
    """Time of each write, in tile times."""
    num_bytes: Floats
    steady: float = 0.0
    """Bytes that arrive evenly over the whole time."""


def gaps(slab: Ints, begin: Floats) -> tuple[Floats, Floats]:
    """For each read, the time since the previous and until the next read of its slab; infinite if there is none."""
    order = np.lexsort((begin, slab))
    same = slab[order[1:]] == slab[order[:-1]]
    between = np.where(same, np.diff(begin[order]), np.inf)
    before, after = np.full(len(slab), np.inf), np.full(len(slab), np.inf)
    before[order[1:]], after[order[:-1]] = between, between
    return before, after


@dataclass(frozen=True, slots=True)
class Cache:
    """The parameters of an L2 that decide how long it keeps a line."""

    capacity: float
    """Size in bytes."""
    copies: float
    """Share of the far lines read by a partition that it also keeps."""
    uneven: float
    """Same as `hierarchy.Hierarchy.uneven`."""


@dataclass(frozen=True, slots=True)
class L2Residency:
    """How long an L2 keeps the lines of a kernel."""

    lengths: Floats
    """Lengths of windows in tile times, ascending from 0."""
    footprints: Floats
    """Mean number of different bytes touched in a window of each length."""
    cache: Cache

    def lost(self, gap: Floats) -> Floats:
        """The probability that a line is evicted after *gap* tile times."""
        touched = np.interp(gap, self.lengths, self.footprints)
        return np.where(np.isfinite(gap), lost_share(touched, self.cache.capacity, self.cache.uneven), 1.0)


def kept(reads: SlabReads, streams: StreamedReads, cache: Cache, end: float) -> L2Residency:
    """The residency of lines in *cache* for a kernel that lasts *end* tile times.

    A line lies in its home partition. The other partition also keeps the share `cache.copies` of the lines that its own
    SMs read.
    """
    before, after = gaps(reads.slab, reads.begin)
    same_side_after = gaps(2 * reads.slab + reads.side, reads.begin)[1]
    columns = (reads.begin, reads.num_bytes, after, same_side_after, streams.begin, streams.num_bytes)
    most = end * (1.0 - 1e-6)
    finite = before[np.isfinite(before) & (before < most)]
    typical = np.quantile(finite, np.linspace(0.0, 1.0, KNOTS), method="nearest") if len(finite) else finite
    lengths = np.unique(np.concatenate([np.linspace(0.0, most, KNOTS), typical]))
    footprints = _footprints(lengths, columns, streams.steady, cache.copies, end)
    return L2Residency(lengths, np.maximum.accumulate(footprints), cache)


@njit(cache=True, nogil=True, error_model="numpy")
def _footprints(lengths: Floats, columns: Any, steady: float, copies: float, end: float) -> Floats:
    footprints = np.empty(lengths.shape[0])
    for i in range(lengths.shape[0]):
        footprints[i] = _footprint(lengths[i], columns, steady, copies, end)
    return footprints


@njit(cache=True, nogil=True, error_model="numpy")
def _footprint(length: float, columns: Any, steady: float, copies: float, end: float) -> float:
    """Different bytes touched in a window of *length*, averaged over the windows inside the kernel."""
    begin, num_bytes, after, same_side_after, written, written_bytes = columns
    total = 0.0
    for i in range(begin.shape[0]):
        total += num_bytes[i] * _covered(begin[i], min(after[i], length), length, end)
        if copies > 0.0:  # half of the lines are far, and each side keeps what its own SMs read
            total += num_bytes[i] * copies * 0.5 * _covered(begin[i], min(same_side_after[i], length), length, end)
    for i in range(written.shape[0]):
        total += written_bytes[i] * _covered(written[i], length, length, end)
    return total / (end - length) + steady * length / end


@njit(cache=True, nogil=True, error_model="numpy")
def _covered(begin: float, lasts: float, length: float, end: float) -> float:
    """Total time during which a byte counts for the windows that end between *length* and *end*, over all depths.

    The byte is touched from *begin* on and counts for *lasts*.
    """
    return (
        _area(begin + 1.0 + lasts, length, end) - _area(begin + lasts, length, end)
        - _area(begin + 1.0, length, end) + _area(begin, length, end)
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _area(at: float, low: float, high: float) -> float:
    """The integral from 0 to *at* of x clipped to the range from *low* to *high*."""
    if at <= low:
        return low * at
    if at <= high:
        return low * low + (at * at - low * low) / 2.0
    return low * low + (high * high - low * low) / 2.0 + high * (at - high)


# The traffic of one rank's kernel: which tiles read a slab again, and how soon.

SEED = 0
"""Seed of the order in which groups of SMs are fast and slow."""
MOMENTS = 65
"""Number of moments of a kernel's time at which bytes of peers arrive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPart:
    """Bytes moved by one structure, or by all together."""

    requested: float = 0.0
    """Bytes that the tex units load from L2, past L1."""
    missed_near: float = 0.0
    """Requested bytes that miss in the partition of the SM."""
    dram_read: float = 0.0
    """Requested bytes that miss in all of L2."""
    dram_written: float = 0.0

    def __add__(self, other: TrafficPart) -> TrafficPart:
        return TrafficPart(requested=self.requested + other.requested, missed_near=self.missed_near + other.missed_near,
                    dram_read=self.dram_read + other.dram_read,
                    dram_written=self.dram_written + other.dram_written)  # fmt: skip

    @property
    def hit_rate(self) -> float | None:
        """Hit rate in the partition of the SM, as the tex units' counters report it."""
        return 1.0 - self.missed_near / self.requested if self.requested else None

    def row(self) -> dict[str, float | int | None]:
        """The columns of a table row, in whole bytes."""
        return {"l2_hit_rate": self.hit_rate, "dram_read_bytes": round(self.dram_read),
                "dram_write_bytes": round(self.dram_written), "l2_asked_bytes": round(self.requested)}  # fmt: skip


def of_plan(plan: Plan, on: Hierarchy, resident: int = 1) -> dict[str, TrafficPart]:
    """Traffic of rank 0's kernel of *plan* by structure; *resident* programs share an SM."""
    incoming = float(plan.num_bytes[(plan.kind == Kind.PUT) & (plan.peer == RANK)].sum())
    if OPERATORS[plan.problem.operator].work == "gather":
        return _lookups(plan.problem, plan, on, incoming)
    return _product(plan.problem, plan, on, (programs(plan.schedule, on.units * resident), incoming))


def total(of: dict[str, TrafficPart]) -> TrafficPart:
    """Traffic of all structures together."""
    return sum(of.values(), TrafficPart())


@dataclass(frozen=True, slots=True)
class ReuseOrder:
    """When and where each tile is computed, as arrays over tiles."""

    begin: Floats
    """Start time, in tile times."""
    program: Ints
    turn: Ints
    """Number of earlier tiles of the same program."""
    group: Ints
    """Group of the SM that computes the tile."""


def ordered(count: int, at_once: int, on: Hierarchy) -> ReuseOrder:
    """The order of *count* tiles, dealt round-robin to *at_once* programs, which fill the groups of SMs one by one."""
    number = np.arange(count)
    program, turn = number % at_once, number // at_once
    group = program * on.sm_groups // at_once
    begin = turn * (1.0 + on.pace_spread * _paces(on.sm_groups)[group])
    return ReuseOrder(begin - begin.min(), program, turn, group)


@lru_cache(maxsize=64)
def _paces(count: int) -> Floats:
    """*count* quantiles of the normal distribution, in a fixed random order."""
    normal = NormalDist()
    return np.random.default_rng(SEED).permutation([normal.inv_cdf((i + 0.5) / count) for i in range(count)])


def _product(problem: Problem, plan: Plan, on: Hierarchy, load: tuple[int, float]) -> dict[str, TrafficPart]:
    """Traffic of a product: tiles read rows and columns of the operands; results for this rank stay in L2."""
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
    past_l1 = (
        np.ones(2 * count, bool) if operator.work == "gemm" else _past_l1(slab, order.program, num_bytes, on.l1_bytes)
    )
    to_l2 = num_bytes * np.where(past_l1, _unmerged(slab, order, on), 0.0)
    stays = (tiles.chunk == RANK) | (operator.flow is Flow.RECEIVE)
    out = np.where(stays, tiles.areas() * item, 0).astype(float)
    reads = SlabReads(slab, np.tile(begin, 2), np.tile(order.group * on.partitions // on.sm_groups, 2), num_bytes)
    cache = Cache(on.l2_bytes, on.far_copies, on.uneven)
    l2 = kept(reads, StreamedReads(begin + 1.0, out, incoming), cache, end)
    names = [name for name in operator.local(problem) if name != "output"]
    missed, near = _missed(reads, on, l2)
    halves = (slice(0, count), slice(count, None))
    traffic = {
        name: TrafficPart(
            requested=max(float(to_l2[half].sum()), float(near[half].sum())),
            missed_near=float(near[half].sum()),
            dram_read=float(missed[half].sum()),
        )
        for name, half in zip(names, halves, strict=True)
    }
    traffic["output"] = TrafficPart(dram_written=float((out * l2.lost(end - (begin + 1.0))).sum()))
    return traffic | _from_peers(incoming, l2, end)


def _across(columns: Ints, of_all: int, item: int) -> Ints:
    """Bytes read for *columns* columns of a row: whole sectors, unless the columns are the whole row."""
    num_bytes = columns * item
    return np.where(columns == of_all, num_bytes, -(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES)


def _missed(reads: SlabReads, on: Hierarchy, l2: L2Residency) -> tuple[Floats, Floats]:
    """For each read, the bytes that come from DRAM, and those that miss in the near partition."""
    missed = reads.num_bytes * l2.lost(gaps(reads.slab, reads.begin)[0])
    if on.partitions == 1:
        return missed, missed
    same_side = gaps(2 * reads.slab + reads.side, reads.begin)[0]
    far = reads.num_bytes * (l2.lost(same_side) if on.far_copies else 1.0)
    return missed, (missed + np.maximum(missed, far)) / 2.0


def _unmerged(slab: Ints, order: ReuseOrder, on: Hierarchy) -> Floats:
    """For each read, the share that reaches L2: tiles of one round read their slabs at about the same time."""
    together = (slab * (int(order.turn.max()) + 1) + np.tile(order.turn, 2)) * on.sm_groups + np.tile(order.group, 2)
    _, number, counts = np.unique(together, return_inverse=True, return_counts=True)
    return np.asarray(1.0 - on.merged * (1.0 - 1.0 / counts[number]))


def _past_l1(slab: Ints, program: Ints, num_bytes: Floats, l1_bytes: int) -> np.ndarray:
    """For each read, whether it goes to L2, because the slab was evicted from the L1 of the same program."""
    count = len(program)
    tile_bytes = float((num_bytes[:count] + num_bytes[count:]).max())
    turn = np.zeros(count)
    for number in np.unique(program):
        turn[program == number] = np.arange(int((program == number).sum()))
    before = gaps(slab * (int(program.max()) + 1) + np.tile(program, 2), np.tile(turn, 2))[0]
    return np.asarray(before * tile_bytes > l1_bytes)


def _lookups(problem: Problem, plan: Plan, on: Hierarchy, incoming: float) -> dict[str, TrafficPart]:
    """Traffic of a lookup: if a row of tiles divides evenly among SMs, an SM meets the same tables in every row."""
    tiles, item, tables = plan.tiles[RANK], problem.itemsize, problem["tables_per_rank"]
    summed = float(tiles.areas()[tiles.chunk == RANK].sum() * item)
    across = len(np.unique(tiles.col_start))
    of_tables, indices, stays = looked_up(problem, on, summed + incoming, -(-tables // gcd(on.units, across)))
    traffic = {
        "tables": TrafficPart(**of_tables),
        "indices": TrafficPart(**indices),
        "output": TrafficPart(dram_written=summed * (1.0 - stays)),
    }
    return traffic | ({"peers' bytes": TrafficPart(dram_written=incoming * (1.0 - stays))} if incoming else {})


def _from_peers(incoming: float, l2: L2Residency, end: float) -> dict[str, TrafficPart]:
    """Traffic of peers' puts, which arrive evenly; the last of them are not in DRAM yet when the kernel ends."""
    if not incoming:
        return {}
    return {"peers' bytes": TrafficPart(dram_written=incoming * float(l2.lost(np.linspace(0.0, end, MOMENTS)).mean()))}


# Rows of the reuse tier.

TIER, POLICY = "reuse", "cache_rw"
"""The name of this tier, and the only policy that it models: a GPU without hints."""


def parts(problem: Problem, schedule: Schedule, on: Hierarchy, resident: int = 1) -> dict[str, TrafficPart]:
    """Traffic of rank 0's kernel of *schedule* by structure; *resident* programs share an SM."""
    return of_plan(expand(problem, schedule), on, resident)


def row(problem: Problem, schedule: Schedule, on: Hierarchy, resident: int = 1) -> dict[str, Any]:
    """One row with the columns of a replay's row; cycles are None, since this tier does not model them."""
    by_structure = parts(problem, schedule, on, resident)
    return {"trace": f"{problem.operator} {schedule.scheme}", "tier": TIER, "policy": POLICY, "group": "static",
            "caches": on.name, "cycles": None, "relative_cycles": None, "l2_line_misses": None,
            **total(by_structure).row(),
            "structures": {name: each.row() for name, each in by_structure.items()}}  # fmt: skip
