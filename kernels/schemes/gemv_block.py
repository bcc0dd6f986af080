"""The block of a GEMV by default: what streams weights fastest, whatever the sizes, as 33 of them ran on an H100.

A GEMV waits for memory alone. Many small blocks in flight are as fast as few large ones, and end more evenly. Tokens
are read again by every block, so that several of them want 32 rows. Recording: `data/probes/h100_gemv_sweep.jsonl`
(docs/kernels.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Tile

ONE_TOKEN, FEW_TOKENS = (8, 2048), (32, 1024)
"""Rows, and bytes of each row that are multiplied at once."""
TWO_ON_AN_SM, HALF_A_WAVE = 2, 0.5
"""Blocks that an SM holds of FEW_TOKENS, and should hold of ONE_TOKEN. A second wave of fewer takes as long as half."""
NARROW, NARROW_FROM = (16, 1024), 8192
"""Rows and bytes where all tiles of 16 rows run at once, one on each SM, and rows are so long (bytes): 10 % faster."""
HIGH = 64, 512
"""Rows and bytes where tiles of 32 rows leave a last wave nearly empty: an SM holds three blocks of these."""
SWEPT_TOKENS, SWEPT_BYTES = (1, 2, 4, 8), 32
"""Numbers of tokens, and what the bytes of a row are a multiple of, in all of the sweep's sizes."""
REST, REST_OF_ONE = (64, 1024), (16, 1024)
"""Rows and bytes for other sizes, of several tokens and of one, which ran in one block only."""
REST_OF_WORDS, REST_OF_HALVES = (32, 512), (16, 512)
"""Rows and bytes for several tokens where copies move 4 bytes, and where threads load values of 2 bytes: one size of
each ran in five blocks on an H200 (`data/probes/h200_gemv_alone.jsonl`). More rows are more than registers hold."""
SIDES = {True: (8, 64), False: (16, 64)}
"""Fewest and most rows that are offered, of one token or several; tensor cores take 16."""


@dataclass(frozen=True, slots=True)
class GemvBlock:
    """A tile with the warps and stages that go with it, and the number of programs; 0: as many as fit."""

    tile: Tile
    warps: int
    stages: int
    grid: int = 0


def of_tile(size: Tile, itemsize: int) -> GemvBlock:
    """Warps and stages of *size*: tensor cores have one warp for 16 rows, and two where rows are few and steps long."""
    if size.n == 1:
        return GemvBlock(size, 4, 3)
    fills = size.m <= NARROW[0] and size.k * itemsize >= NARROW[1]
    return GemvBlock(size, 4 if size.m > FEW_TOKENS[0] else 2, 4 if fills else 3)


def usual(problem: Problem, slots: int) -> GemvBlock:
    """The default block of a GPU with *slots* SMs."""
    extent = OPERATORS[problem.operator].extent(problem)
    row_bytes, chunk = extent.contraction * problem.itemsize, extent.rows // problem.world
    if extent.columns not in SWEPT_TOKENS or row_bytes % SWEPT_BYTES:
        several = REST if row_bytes % 8 == 0 else REST_OF_WORDS if row_bytes % 4 == 0 else REST_OF_HALVES
        return GemvBlock(_tile(problem, *(REST_OF_ONE if extent.columns == 1 else several)), 4, 3)
    rows, step_bytes, grid = *ONE_TOKEN, 0
    if extent.columns == 1:
        tiles = _tiles(chunk, rows, problem.world)
        grid = 0 if _is_nearly_empty(tiles, slots) or tiles <= TWO_ON_AN_SM * slots else TWO_ON_AN_SM * slots
    elif _tiles(chunk, NARROW[0], problem.world) <= slots and row_bytes >= NARROW_FROM:
        rows, step_bytes = NARROW
    else:
        rows, step_bytes = HIGH if _is_nearly_empty(_tiles(chunk, FEW_TOKENS[0], problem.world), slots) else FEW_TOKENS
    block = of_tile(_tile(problem, rows, step_bytes), problem.itemsize)
    return GemvBlock(block.tile, block.warps, block.stages, grid)


def _tile(problem: Problem, rows: int, step_bytes: int) -> Tile:
    """The tile, no higher than a chunk needs, and no longer than the contraction."""
    extent = OPERATORS[problem.operator].extent(problem)
    step = min(step_bytes // problem.itemsize, _above(extent.contraction))
    return Tile(min(rows, _above(extent.rows // problem.world)), _above(extent.columns), step)


def _is_nearly_empty(tiles: int, slots: int) -> bool:
    """Whether a second wave of two blocks on each SM has fewer than half of them."""
    wave = TWO_ON_AN_SM * slots
    return wave < tiles < (1 + HALF_A_WAVE) * wave


def _tiles(chunk: int, rows: int, world: int) -> int:
    return world * -(-chunk // rows)


def _above(extent: int) -> int:
    return 1 << (extent - 1).bit_length()
