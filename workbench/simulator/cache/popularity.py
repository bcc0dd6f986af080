"""Hit rates of lookups from the popularity of rows: which rows L2 still holds when they are looked up again.

Lookups are independent: a row of probability p recurs within w lookups with probability 1 - (1 - p)^w. The window w is
the number of lookups whose different lines fill the cache (Che, Tung and Wang, Hierarchical Web Caching Systems, IEEE
JSAC 2002, section III). A kernel begins with nothing of its tables in L2. Rows of similar probability form one class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from kernels.operators import OPERATORS
from kernels.operators.embedding import INDEX_BYTES
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Schedule
from workbench.simulator.cache.hierarchy import LINE_BYTES, SECTOR_BYTES, Hierarchy, lost_share

# Programs take tiles round-robin: how many run at a time, and what the tiles of each round read.

RANK = 0
"""The rank whose kernel is modelled."""


def programs(schedule: Schedule, most: int) -> int:
    """Programs that compute at once: the requested grid, or all of *most* that do not communicate."""
    return int(schedule.get("grid") or 0) or max(1, most - int(schedule.get("comm_sms") or 0))


def each_turn_bytes(plan: Plan, at_once: int) -> float:
    """Bytes that rank 0's GEMM reads if *at_once* concurrent tiles share operands and reuse none of earlier tiles."""
    tiles, operator = plan.tiles[RANK], OPERATORS[plan.problem.operator]
    turn, depth = np.arange(len(tiles)) // at_once, operator.extent(plan.problem).contraction * plan.problem.itemsize
    starts = (tiles.chunk * operator.chunk_rows(plan.problem) + tiles.row_start, tiles.col_start)
    widths = (tiles.row_stop - tiles.row_start, tiles.col_stop - tiles.col_start)
    firsts = [np.unique(turn * (int(start.max()) + 1) + start, return_index=True)[1] for start in starts]
    return float(sum(width[first].sum() for width, first in zip(widths, firsts, strict=True)) * depth)


# Lookups by the popularity of rows.

EXPONENT = 1.05
"""Exponent of the power law that rows are drawn by, as in kernels/reference.py."""
SINGLE, CLASSES = 256, 400
"""Number of the most popular rows, which are one class each, and of edges of the remaining classes (geometric)."""
HALVINGS = 40
MOMENTS = 24
"""Moments of a call at which its lookups are counted."""
COLD = 3
"""Size of all timed operands together in multiples of L2, as in kernels/backends/triton/backend.py."""
TURN = 4
"""Copies of operands come in multiples of this number, as there."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowClasses:
    """All rows of a rank's tables, in classes of similar popularity."""

    counts: Floats
    chances: Floats
    """Probability, for each class, that one given row of it is the next one looked up."""
    vector_bytes: int

    def different(self, lookups: float) -> float:
        """Mean number of different rows among *lookups* lookups."""
        return float((self.counts * _met(self.chances, lookups)).sum())

    def missed(self, lookups: float, window: float) -> float:
        """Mean number of lookups whose row did not occur among the *window* lookups before."""
        w = min(window, lookups)
        first = _met(self.chances, w)
        return float((self.counts * (first + (lookups - w) * self.chances * (1.0 - first))).sum())

    def line_bytes(self, lookups: float) -> float:
        """Bytes of the lines that *lookups* lookups touch; rows that share a line are assumed independent."""
        together = LINE_BYTES // self.vector_bytes
        if together <= 1:
            return self.different(lookups) * -(-self.vector_bytes // LINE_BYTES) * LINE_BYTES
        count = float(self.counts.sum())
        taken = 1.0 - (1.0 - self.different(lookups) / count) ** together
        return taken * count / together * LINE_BYTES


def rows_of(problem: Problem, tables: int) -> RowClasses:
    """The rows of *tables* tables, with the popularity that kernels/reference.py draws them with."""
    return _of_tables(problem.word("indices"), problem["rows"], tables, problem["dim"] * problem.itemsize)


def _of_tables(indices: str, rows: int, tables: int, vector_bytes: int) -> RowClasses:
    counts, shares = _uniform(rows) if indices == "uniform" else _power_law(rows)
    return RowClasses(counts * tables, shares / tables, vector_bytes)


@lru_cache(maxsize=4096)
def found_share(indices: str, sizes: tuple[int, int, int, int], together: int, l2: tuple[float, float]) -> float:
    """The share of a call's steps in which L2 holds all rows that are looked up *together*: none waits for memory.

    *sizes*: tables, rows of each, bytes of a row, and lookups of the call. *l2*: its bytes, and how unevenly it loses
    lines (`Hierarchy.uneven`). A row was brought in by an earlier lookup of the call, or by the calls before it, as far
    as L2 keeps what these touch.
    """
    tables, rows, vector_bytes, lookups = sizes
    (l2_bytes, uneven), of_tables = l2, _of_tables(indices, rows, tables, vector_bytes)
    touched = _touched_bytes(of_tables, tables * rows * vector_bytes + INDEX_BYTES * lookups, lookups, l2_bytes)
    kept = 1.0 - float(lost_share(touched, l2_bytes, uneven))
    window = _longest(of_tables.line_bytes, l2_bytes, lookups)
    before = np.minimum((np.arange(MOMENTS) + 0.5) / MOMENTS * lookups, window)
    hits = [float((of_tables.counts * of_tables.chances * _met(of_tables.chances, each)).sum()) for each in before]
    return float(np.mean(np.power(kept + (1.0 - kept) * np.array(hits), together)))


def _touched_bytes(of_tables: RowClasses, copy_bytes: float, lookups: int, l2_bytes: float) -> float:
    """Bytes of tables that timed calls touch between two calls on the same operands.

    They rotate through copies that fill L2 COLD times, TURN at least; of large tables one or two copies are shared. The
    last call of each TURN has other indices. Source: kernels/backends/triton/backend.py, `operand_sets`.
    """
    copies = ceil(COLD * l2_bytes / copy_bytes)
    once, of_two = of_tables.line_bytes(lookups), of_tables.line_bytes(2 * lookups)
    if copies >= TURN - 1:
        return (copies + -copies % TURN) * once
    return of_two if copies == 1 else once + of_two


def looked_up(
    problem: Problem, on: Hierarchy, written: float, tables_met: int
) -> tuple[dict[str, float], dict[str, float], float]:
    """Traffic of tables and indices, as fields of `reuse.TrafficPart`, and the share of *written* that stays in L2.

    An SM looks up rows of *tables_met* of the rank's tables.
    """
    rows = rows_of(problem, problem["tables_per_rank"])
    lookups = float(problem["batch"] * problem["tables_per_rank"] * problem["pooling"])
    once = INDEX_BYTES * (1.0 + on.far_copies / 2.0) + written / lookups

    def footprint(length: float) -> float:
        copies = on.far_copies * rows.line_bytes(length / 2.0) if on.far_copies else 0.0
        return rows.line_bytes(length) + copies + once * length

    window = _longest(footprint, on.l2_bytes, lookups)
    missed = rows.missed(lookups, window)
    near = missed if on.partitions == 1 else (missed + max(missed, _far(rows, on, lookups, window))) / 2.0
    in_l1 = _l1_hits(rows_of(problem, tables_met), on, lookups)
    size = -(-rows.vector_bytes // SECTOR_BYTES) * SECTOR_BYTES
    tables = {"requested": (lookups - in_l1) * size, "missed_near": min(near, lookups - in_l1) * size,
              "dram_read": missed * size}  # fmt: skip
    requested = lookups / problem["pooling"] * max(SECTOR_BYTES, problem["pooling"] * INDEX_BYTES)
    indices = {"requested": requested, "missed_near": lookups * INDEX_BYTES, "dram_read": lookups * INDEX_BYTES}
    return tables, indices, min(1.0, window / lookups)


def _far(rows: RowClasses, on: Hierarchy, lookups: float, window: float) -> float:
    """Lookups that miss in the near partition if all lines were far: half of the lookups come from its own SMs."""
    return 2.0 * rows.missed(lookups / 2.0, window / 2.0) if on.far_copies else lookups


def _l1_hits(rows: RowClasses, on: Hierarchy, lookups: float) -> float:
    """Lookups that hit in an L1, which sees only the lookups of its own SM."""
    if not on.l1_bytes:
        return 0.0
    of_one = lookups / on.units
    return on.units * (of_one - rows.missed(of_one, _longest(rows.line_bytes, on.l1_bytes, of_one)))


def _longest(footprint: Callable[[float], float], capacity: float, most: float) -> float:
    """The number of lookups whose footprint is *capacity* bytes; infinite if that of *most* lookups fits."""
    if footprint(most) <= capacity:
        return np.inf
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if footprint(middle) <= capacity else (low, middle)
    return low


def _met(chances: Floats, lookups: float) -> Floats:
    """The probability of each row to occur among *lookups* lookups."""
    return -np.expm1(lookups * np.log1p(-np.minimum(chances, 1.0 - 1e-15)))


def _uniform(rows: int) -> tuple[Floats, Floats]:
    return np.array([float(rows)]), np.array([1.0 / rows])


def _power_law(rows: int) -> tuple[Floats, Floats]:
    """Class sizes and the probability of one row of each class.

    Rank r has probability ((r + 1)^s - r^s) / ((rows + 1)^s - 1) with s = 1 - EXPONENT.
    """
    few = min(rows, SINGLE)
    edges = np.unique(np.round(np.geomspace(few + 1, rows + 1, CLASSES)))
    edges = np.concatenate([np.arange(1.0, few + 1), edges])
    share = 1.0 - EXPONENT
    upto = (edges**share - 1.0) / ((rows + 1.0) ** share - 1.0)
    counts = np.diff(edges)
    kept = counts > 0
    return counts[kept], (np.diff(upto) / np.maximum(counts, 1.0))[kept]
