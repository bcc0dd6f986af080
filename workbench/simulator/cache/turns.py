"""Programs take tiles in turns: how many at a time, and what the tiles of each turn read by themselves."""

from __future__ import annotations

import numpy as np

from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.schedule import Schedule

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
