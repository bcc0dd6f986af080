"""The traffic of one rank's kernel from who reads a slab again, and how soon: DRAM bytes and hits in a millisecond.

Programs take tiles in turns. SMs of a group ask for the same bytes at about the same time, and some of these requests
become one before L2. Groups go on at paces of their own: they drift apart, and over a long contraction one finds no
longer what another has read. Paces spread as a normal distribution does, always in the same order. The L2 has one
partition, or two, each for half of the groups: then half of the lines that an SM asks for are far. They are looked up
in the near partition, which may keep copies, and then at home. Data that all SMs share so take up to twice their size.
Sets and cycles are left to the line-level simulator; here a line is lost with a chance that grows with what is touched
meanwhile (`window.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from statistics import NormalDist

import numpy as np

from kernels.operators import OPERATORS, Flow
from kernels.plan import Kind, Plan
from kernels.problem import Problem
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.popularity import looked_up
from workbench.simulator.cache.trace import SECTOR_BYTES
from workbench.simulator.cache.turns import RANK, programs
from workbench.simulator.cache.window import Cache, Floats, Ints, Kept, Slabs, Streams, gaps, kept

SEED = 0
"""In which order groups of SMs are fast and slow."""
MOMENTS = 65
"""Of a kernel's time, at which bytes of peers come in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Bytes that one structure, or all of them, moved."""

    asked: float = 0.0
    """Loaded from L2: what the tex units ask for, past L1."""
    missed_near: float = 0.0
    """Of these, what the partition that was asked first had not."""
    dram_read: float = 0.0
    """Of these, what L2 had nowhere."""
    dram_written: float = 0.0

    def __add__(self, other: Part) -> Part:
        return Part(asked=self.asked + other.asked, missed_near=self.missed_near + other.missed_near,
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


def of_plan(plan: Plan, on: Hierarchy, resident: int = 1) -> dict[str, Part]:
    """By structure, what rank 0's kernel of *plan* moves; *resident* programs share an SM."""
    incoming = float(plan.num_bytes[(plan.kind == Kind.PUT) & (plan.peer == RANK)].sum())
    if OPERATORS[plan.problem.operator].work == "gather":
        return _lookups(plan.problem, plan, on, incoming)
    return _product(plan.problem, plan, on, (programs(plan.schedule, on.units * resident), incoming))


def total(of: dict[str, Part]) -> Part:
    """All structures together."""
    return sum(of.values(), Part())


@dataclass(frozen=True, slots=True)
class Order:
    """Of each tile."""

    begin: Floats
    """When it begins, in tiles."""
    program: Ints
    turn: Ints
    """How many tiles its program had before."""
    group: Ints
    """Of the SM that computes it."""


def ordered(count: int, at_once: int, on: Hierarchy) -> Order:
    """*count* tiles, dealt in turns to programs, and these to the groups of SMs, as many in a row as a group holds."""
    number = np.arange(count)
    program, turn = number % at_once, number // at_once
    group = program * on.sm_groups // at_once
    begin = turn * (1.0 + on.pace_spread * _paces(on.sm_groups)[group])
    return Order(begin - begin.min(), program, turn, group)


@lru_cache(maxsize=64)
def _paces(count: int) -> Floats:
    """Quantiles of the normal distribution, in an order that is always the same."""
    normal = NormalDist()
    return np.random.default_rng(SEED).permutation([normal.inv_cdf((i + 0.5) / count) for i in range(count)])


def _product(problem: Problem, plan: Plan, on: Hierarchy, load: tuple[int, float]) -> dict[str, Part]:
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
    reads = Slabs(slab, np.tile(begin, 2), np.tile(order.group * on.partitions // on.sm_groups, 2), num_bytes)
    cache = Cache(on.l2_bytes, on.far_copies, on.uneven)
    l2 = kept(reads, Streams(begin + 1.0, out, incoming), cache, end)
    names = [name for name in operator.local(problem) if name != "output"]
    missed, near = _missed(reads, on, l2)
    halves = (slice(0, count), slice(count, None))
    made = {
        name: Part(asked=max(float(to_l2[half].sum()), float(near[half].sum())), missed_near=float(near[half].sum()),
                   dram_read=float(missed[half].sum()))
        for name, half in zip(names, halves, strict=True)
    }  # fmt: skip
    made["output"] = Part(dram_written=float((out * l2.lost(end - (begin + 1.0))).sum()))
    return made | _from_peers(incoming, l2, end)


def _across(columns: Ints, of_all: int, item: int) -> Ints:
    """Bytes that a row's part of so many columns takes: whole sectors, unless the next row follows at once."""
    num_bytes = columns * item
    return np.where(columns == of_all, num_bytes, -(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES)


def _missed(reads: Slabs, on: Hierarchy, l2: Kept) -> tuple[Floats, Floats]:
    """By read, the bytes that come from DRAM, and those that the partition asked first has not."""
    missed = reads.num_bytes * l2.lost(gaps(reads.slab, reads.begin)[0])
    if on.partitions == 1:
        return missed, missed
    same_side = gaps(2 * reads.slab + reads.side, reads.begin)[0]
    far = reads.num_bytes * (l2.lost(same_side) if on.far_copies else 1.0)
    return missed, (missed + np.maximum(missed, far)) / 2.0


def _unmerged(slab: Ints, order: Order, on: Hierarchy) -> Floats:
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


def _lookups(problem: Problem, plan: Plan, on: Hierarchy, incoming: float) -> dict[str, Part]:
    """Tiles are dealt to SMs in turns: where a row of tiles fits evenly, an SM meets the same tables in each."""
    tiles, item, tables = plan.tiles[RANK], problem.itemsize, problem["tables_per_rank"]
    summed = float(tiles.areas()[tiles.chunk == RANK].sum() * item)
    across = len(np.unique(tiles.col_start))
    of_tables, indices, stays = looked_up(problem, on, summed + incoming, -(-tables // gcd(on.units, across)))
    made = {
        "tables": Part(**of_tables),
        "indices": Part(**indices),
        "output": Part(dram_written=summed * (1.0 - stays)),
    }
    return made | ({"peers' bytes": Part(dram_written=incoming * (1.0 - stays))} if incoming else {})


def _from_peers(incoming: float, l2: Kept, end: float) -> dict[str, Part]:
    """What peers put here comes evenly; what came last is not in DRAM yet."""
    if not incoming:
        return {}
    return {"peers' bytes": Part(dram_written=incoming * float(l2.lost(np.linspace(0.0, end, MOMENTS)).mean()))}
