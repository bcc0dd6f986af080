"""Limits of our kernels: which tiles and shapes they accept, and what a put moves at once. Needs no torch or Triton."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.occupancy import room_of
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, Tile, tile
from kernels.schemes import fitted_tiles
from kernels.schemes.base import IN_FLIGHT, above
from kernels.schemes.decomposed import pieces_of
from kernels.trial import Trial

# Which tiles the kernels can walk: checked before a trial is measured, and when a kernel is built.

FEWEST_K = 16
"""Elements of the contraction that one tensor-core instruction takes."""
LANES, LANE_BYTES = 32, 16
"""Lanes of a warp, and bytes that each lane loads with one instruction."""
LOADS_MOST = IN_FLIGHT // (LANES * LANE_BYTES)
"""Largest number of loads of one lane in flight at once."""


@dataclass(frozen=True, slots=True)
class LookupWalk:
    """How one warp walks through a tile of a lookup."""

    tables: int
    """Whole tables next to each other in a tile, or 1 if a tile is part of one table."""
    pairs: int
    """Number of pairs of a sample and a table, processed one after another."""
    elements: int
    """Elements of a vector that are computed at once."""
    unroll: int
    """Lookups of a pair that are in flight at once."""
    even: bool
    """Whether no load or store needs a mask."""


def walk(problem: Problem, size: Tile) -> LookupWalk:
    """How tiles of *size* are walked; Refusal if they cannot be."""
    dim, count, pooling = problem["dim"], problem["tables_per_rank"], problem["pooling"]
    tables = max(1, size.n // dim)
    if size.n % dim and (dim % size.n or not _is_power(size.n)):
        raise Refusal(
            f"tile = {size} does not fit: {size.n} columns are neither whole vectors (multiples of dim = {dim}) "
            f"nor a power of two that divides {dim}. Accepted: {Tile(size.m, tables * dim, size.k)}."
        )
    elements = above(min(size.n, dim))
    unroll = _power_below(min(size.k, above(pooling)))
    loads = unroll * max(1, elements * problem.itemsize // (LANES * LANE_BYTES))
    if loads > LOADS_MOST:
        fewer = Tile(size.m, size.n, unroll * LOADS_MOST // loads)
        accepted = f"fewer lookups at once, such as {fewer}"
        if not fewer.k:
            accepted = f"at most {IN_FLIGHT // problem.itemsize} elements of a vector"
        raise Refusal(
            f"tile = {size} is too large. Each lane of a warp would wait for {loads} loads of {LANE_BYTES} bytes "
            f"at once: {loads} > {LOADS_MOST}. Accepted: {accepted}."
        )
    chunk = OPERATORS[problem.operator].chunk_rows(problem)
    even = chunk % size.m == 0 and count % tables == 0 and pooling % unroll == 0 and elements == min(size.n, dim)
    return LookupWalk(tables, size.m * tables, elements, unroll, even)


def check(problem: Problem, size: Tile) -> None:
    """Raises Refusal if the fused kernel of *problem* cannot walk tiles of *size*."""
    if OPERATORS[problem.operator].work == "gather":
        walk(problem, size)
    elif any(not _is_power(side) for side in (size.m, size.n, size.k)) or size.k < FEWEST_K:
        such = "16x1x512" if OPERATORS[problem.operator].work == "gemv" else "128x256x64"
        raise Refusal(
            f"tile = {size} does not run {problem.operator} on backend = triton. {size.m}, {size.n} and {size.k} must "
            f"be powers of two, and the last at least {FEWEST_K}. Accepted: values such as {such}."
        )


def _is_power(count: int) -> bool:
    return count == _power_below(count)


def _power_below(count: int) -> int:
    return 1 << (count.bit_length() - 1)


# Refusals that several of our kernels share.

RANKS_MOST = 8
"""Most ranks of a GEMM kernel: it takes one tensor descriptor per rank as an argument."""
BULK_BYTES = 16
"""The bulk copy engine moves rows whose bytes are a multiple of this."""


def of_tile(trial: Trial) -> str | None:
    """Why none of our kernels can walk the tiles of *trial*, or None."""
    if fitted_tiles.is_one(trial.problem, trial.schedule):
        return fitted_tiles.refusal(trial.problem, trial.schedule)
    try:
        check(trial.problem, tile(trial.schedule["tile"]))
    except Refusal as refusal:
        return str(refusal)
    return None


def of_gemm(trial: Trial) -> str | None:
    """Why no GEMM kernel can compute *trial*, or None: all of them load operands with the bulk copy engine."""
    problem = trial.problem
    for key in ("k", "n"):
        if problem[key] * problem.itemsize % BULK_BYTES:
            step = BULK_BYTES // problem.itemsize
            low = problem[key] // step * step
            nearest = " or ".join(str(size) for size in (low, low + step) if size)
            return (
                f"{key} = {problem[key]} does not run {problem.operator} on backend = triton. Bulk copies move "
                f"multiples of {BULK_BYTES} bytes, and a row has {problem[key] * problem.itemsize}. Accepted: "
                f"multiples of {step}, such as {nearest}."
            )
    return of_tile(trial)


# Sizes of the pieces that a put of operand rows moves.

FEWEST_PUT = 8
"""Fewest rows of a piece that the bulk copy engine moves."""
PUT_ROWS, PUT_BYTES, PUT_STAGES = 128, 256, 4
"""Rows, and bytes of a row, of one piece of a put: 32 KiB. PUT_STAGES pieces are in flight at once."""


def piece(problem: Problem, size: Tile, architecture: int = 0) -> Tile:
    """Piece of a put of operand rows that are computed in tiles of *size*: m rows of k elements.

    It has half as many rows where a GPU of *architecture* has no shared memory for PUT_STAGES whole ones.
    """
    contraction = OPERATORS[problem.operator].extent(problem).contraction
    most = PUT_ROWS if room_of(architecture) >= PUT_STAGES * PUT_ROWS * PUT_BYTES else PUT_ROWS // 2
    return Tile(min(most, size.m), size.n, min(PUT_BYTES // problem.itemsize, above(contraction)))


def gathered_piece(problem: Problem, architecture: int = 0) -> Tile:
    """Piece of a put of rows whose tiles span ranks: as `piece`, but no piece crosses the end of a rank's rows.

    Where a chunk has odd rows threads store pieces of FEWEST_PUT rows, and leave out what is beyond its end.
    """
    chunk = OPERATORS[problem.operator].chunk_rows(problem)
    even = chunk & -chunk
    rows = even if even >= FEWEST_PUT else min(2 * FEWEST_PUT, above(chunk))
    return piece(problem, Tile(rows, 1, 1), architecture)


def tiles_are_whole(problem: Problem, schedule: Schedule) -> bool:
    """Whether bulk stores may write the tiles of a *schedule* of pieces: no piece ends in the middle of a tile.

    Without pieces (slices of whole rows of tiles, to other hosts) no chunk may.

    Elements of 4 bytes are stored by threads: shared memory has no room for such a tile next to its operands.
    """
    size = tile(schedule["tile"])
    if schedule.get("pieces") is None:
        return OPERATORS[problem.operator].chunk_rows(problem) % size.m == 0 and problem.itemsize == 2
    pieces = pieces_of(problem, schedule)
    columns = OPERATORS[problem.operator].extent(problem).columns
    rows_fit = not any(int(row) % size.m for row in (*pieces.rows[0], *pieces.rows[1]))
    columns_fit = not any(int(stop) % size.n and int(stop) < columns for stop in pieces.columns[1])
    return rows_fit and columns_fit and problem.itemsize == 2
