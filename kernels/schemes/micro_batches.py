"""The Plan of one problem as that of several independent ones, whose computations and collectives take turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernels import ranges
from kernels.operators import OPERATORS, Flow
from kernels.plan import COLUMNS, Ints, Kind, Launches, Plan, index_of


def repeated(one: Plan, count: int) -> Plan:
    """*count* problems like that of *one*, one behind the other on every stream; nobody waits for another problem."""
    number = np.repeat(np.arange(count), len(one))
    columns: dict[str, Any] = {name: np.tile(getattr(one, name), count) for name in COLUMNS}
    columns["launch"] += number * len(one.launches)
    columns["index"] = index_of(columns, one.problem.world)
    after = np.tile(one.after, count) + np.repeat(np.arange(count), len(one.after)) * len(one)
    start = ranges.bounds(np.tile(np.diff(one.after_start), count))
    return replace(one, **columns, after=after, after_start=start, launches=_launches(one, count))


def _launches(one: Plan, count: int) -> Launches:
    each = one.launches
    rank, stream, priority, resident, grid = (
        np.tile(column, count) for column in (each.rank, each.stream, each.priority, each.resident_blocks, each.grid)
    )
    micro_batch = np.repeat(np.arange(count), len(each))
    computes = np.zeros(len(each), dtype=bool)
    computes[one.launch[one.kind == Kind.COMPUTE]] = True
    comes_in = OPERATORS[one.problem.operator].flow is Flow.RECEIVE
    return Launches(rank, each.name * count, stream, priority, resident, grid, micro_batch,
                    place=_places(micro_batch, np.tile(computes, count) != comes_in))  # fmt: skip


def _places(micro_batch: Ints, begins: np.ndarray) -> Ints:
    """By launch, its place among all: first come, first served.

    What *begins* problem i + 1 was queued before what ends problem i could begin: C0, C1, X0, C2, X1 ... where results
    are sent, and X0, X1, C0, X2, C1 ... where operands come in.
    """
    return np.where(begins, np.maximum(2 * micro_batch - 1, 0), 2 * micro_batch + 2)
