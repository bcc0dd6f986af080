"""What a put of operand rows moves at once."""

from __future__ import annotations

from kernels.axes import Tile
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schemes.base import above

PUT_ROWS, PUT_BYTES = 128, 256
"""One piece of a put: rows x bytes of a row, 32 KiB, of which some are on their way at once."""


def piece(problem: Problem, size: Tile) -> Tile:
    """Of rows that are computed in tiles of *size*: m rows of k elements."""
    contraction = OPERATORS[problem.operator].extent(problem).contraction
    return Tile(min(PUT_ROWS, size.m), size.n, min(PUT_BYTES // problem.itemsize, above(contraction)))
