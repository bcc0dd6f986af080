"""Lookups by how popular rows are: which of them L2 still holds when they are looked up again.

Lookups are independent, so that a row of probability p is found again within w lookups with 1 - (1 - p)^w, and w is as
many as bring as many different lines as fit (Che, Tung and Wang, Hierarchical Web Caching Systems, IEEE JSAC 2002,
section III, for a kernel that begins with nothing of its tables in L2). Rows of about one probability are one class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kernels.operators import OPERATORS
from kernels.operators.embedding import INDEX_BYTES
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Schedule
from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.trace import LINE_BYTES, SECTOR_BYTES

# Programs take tiles in turns: how many at a time, and what the tiles of each turn read by themselves.

RANK = 0
"""Whose kernel is told of."""


def programs(schedule: Schedule, most: int) -> int:
    """Programs that compute at once: as many as are asked for, or as fit beside those that communicate."""
    return int(schedule.get("grid") or 0) or max(1, most - int(schedule.get("comm_sms") or 0))


def each_turn_bytes(plan: Plan, at_once: int) -> float:
    """What rank 0's GEMM reads if *at_once* tiles at a time find nothing of those before them, all of each other."""
    tiles, operator = plan.tiles[RANK], OPERATORS[plan.problem.operator]
    turn, depth = np.arange(len(tiles)) // at_once, operator.extent(plan.problem).contraction * plan.problem.itemsize
    starts = (tiles.chunk * operator.chunk_rows(plan.problem) + tiles.row_start, tiles.col_start)
    widths = (tiles.row_stop - tiles.row_start, tiles.col_stop - tiles.col_start)
    firsts = [np.unique(turn * (int(start.max()) + 1) + start, return_index=True)[1] for start in starts]
    return float(sum(width[first].sum() for width, first in zip(widths, firsts, strict=True)) * depth)


# Lookups by how popular rows are: which of them L2 still holds when they are looked up again.

EXPONENT = 1.05
"""Of the power law by which rows are drawn, that of kernels/reference.py."""
SINGLE, CLASSES = 256, 400
"""The most popular rows have a class each; the rest lies in so many, of even ratios of rank."""
HALVINGS = 40
COLD = 3
"""Times the L2 that timed operands fill together, as kernels/backends/triton/backend.py has it."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowClasses:
    """All rows of a rank's tables, in classes."""

    counts: Floats
    chances: Floats
    """Of one row of each class, to be the next one that is looked up."""
    vector_bytes: int

    def different(self, lookups: float) -> float:
        """How many rows so many lookups have, on average."""
        return float((self.counts * _met(self.chances, lookups)).sum())

    def missed(self, lookups: float, window: float) -> float:
        """Of so many lookups, those whose row was not looked up within the *window* before."""
        w = min(window, lookups)
        first = _met(self.chances, w)
        return float((self.counts * (first + (lookups - w) * self.chances * (1.0 - first))).sum())

    def line_bytes(self, lookups: float) -> float:
        """Bytes of the lines that so many lookups take; short rows share a line with rows as likely as any."""
        together = LINE_BYTES // self.vector_bytes
        if together <= 1:
            return self.different(lookups) * -(-self.vector_bytes // LINE_BYTES) * LINE_BYTES
        count = float(self.counts.sum())
        taken = 1.0 - (1.0 - self.different(lookups) / count) ** together
        return taken * count / together * LINE_BYTES


def rows_of(problem: Problem, tables: int) -> RowClasses:
    """The rows of so many tables, as popular as kernels/reference.py draws them."""
    rows = problem["rows"]
    counts, shares = _uniform(rows) if problem.word("indices") == "uniform" else _power_law(rows)
    return RowClasses(counts * tables, shares / tables, problem["dim"] * problem.itemsize)


@lru_cache(maxsize=4096)
def found_share(tables: int, rows: int, vector_bytes: int, lookups: int, l2_bytes: float) -> float:
    """Of a call's *lookups* by the power law in tables of *rows* rows, the share that the L2 answers.

    Calls that are timed look up the same rows, where tables are COLD times as large as the L2: it may keep all of them.
    """
    counts, shares = _power_law(rows)
    of_tables = RowClasses(counts * tables, shares / tables, vector_bytes)
    if tables * rows * vector_bytes >= COLD * l2_bytes and of_tables.line_bytes(2 * lookups) <= l2_bytes:
        return 1.0
    return 1.0 - of_tables.missed(lookups, _longest(of_tables.line_bytes, l2_bytes, lookups)) / lookups


def looked_up(
    problem: Problem, on: Hierarchy, written: float, tables_met: int
) -> tuple[dict[str, float], dict[str, float], float]:
    """Bytes of tables and of indices as `reuse.Part` names them, and the share of *written* bytes that stays in L2.

    An SM meets so many of the rank's tables.
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
    tables = {"asked": (lookups - in_l1) * size, "missed_near": min(near, lookups - in_l1) * size,
              "dram_read": missed * size}  # fmt: skip
    asked = lookups / problem["pooling"] * max(SECTOR_BYTES, problem["pooling"] * INDEX_BYTES)
    indices = {"asked": asked, "missed_near": lookups * INDEX_BYTES, "dram_read": lookups * INDEX_BYTES}
    return tables, indices, min(1.0, window / lookups)


def _far(rows: RowClasses, on: Hierarchy, lookups: float, window: float) -> float:
    """Lookups that the near partition has not, were all lines far: half of them come from its own SMs."""
    return 2.0 * rows.missed(lookups / 2.0, window / 2.0) if on.far_copies else lookups


def _l1_hits(rows: RowClasses, on: Hierarchy, lookups: float) -> float:
    """Lookups that an L1 answers: each has those of its own SM alone."""
    if not on.l1_bytes:
        return 0.0
    of_one = lookups / on.units
    return on.units * (of_one - rows.missed(of_one, _longest(rows.line_bytes, on.l1_bytes, of_one)))


def _longest(footprint: Callable[[float], float], capacity: float, most: float) -> float:
    """As many lookups as take *capacity* bytes; infinite where *most* take less."""
    if footprint(most) <= capacity:
        return np.inf
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if footprint(middle) <= capacity else (low, middle)
    return low


def _met(chances: Floats, lookups: float) -> Floats:
    """The chance of each row to be among so many lookups."""
    return -np.expm1(lookups * np.log1p(-np.minimum(chances, 1.0 - 1e-15)))


def _uniform(rows: int) -> tuple[Floats, Floats]:
    return np.array([float(rows)]), np.array([1.0 / rows])


def _power_law(rows: int) -> tuple[Floats, Floats]:
    """Rank r has ((r + 1)^s - r^s) / ((rows + 1)^s - 1), s = 1 - the exponent, as drawn by its inverse."""
    few = min(rows, SINGLE)
    edges = np.unique(np.round(np.geomspace(few + 1, rows + 1, CLASSES)))
    edges = np.concatenate([np.arange(1.0, few + 1), edges])
    share = 1.0 - EXPONENT
    upto = (edges**share - 1.0) / ((rows + 1.0) ** share - 1.0)
    counts = np.diff(edges)
    kept = counts > 0
    return counts[kept], (np.diff(upto) / np.maximum(counts, 1.0))[kept]
