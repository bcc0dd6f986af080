"""What a put of operand rows moves at once, and whether pieces are made of whole tiles."""

from __future__ import annotations

from kernels.axes import Tile, tile
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes.base import above
from kernels.schemes.decomposed_plan import pieces_of

PUT_ROWS, PUT_BYTES = 128, 256
"""One piece of a put: rows x bytes of a row, 32 KiB, of which some are on their way at once."""


def piece(problem: Problem, size: Tile) -> Tile:
    """Of rows that are computed in tiles of *size*: m rows of k elements."""
    contraction = OPERATORS[problem.operator].extent(problem).contraction
    return Tile(min(PUT_ROWS, size.m), size.n, min(PUT_BYTES // problem.itemsize, above(contraction)))


def tiles_are_whole(problem: Problem, schedule: Schedule) -> bool:
    """Whether bulk stores may write the tiles of a decomposed *schedule*: none ends inside a matrix before it is full.

    Elements of 4 bytes are stored by threads: shared memory has no room for such a tile beside its operands.
    """
    size, pieces = tile(schedule["tile"]), pieces_of(problem, schedule)
    columns = OPERATORS[problem.operator].extent(problem).columns
    rows_fit = not any(int(row) % size.m for row in (*pieces.rows[0], *pieces.rows[1]))
    columns_fit = not any(int(stop) % size.n and int(stop) < columns for stop in pieces.columns[1])
    return rows_fit and columns_fit and problem.itemsize == 2
