"""What a scheme is, and what all of them share: tile orders cut from blocks, the gather of sums, the broadcast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernels.axes import Axis, Tile, tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS, Operator
from kernels.plan import EVERYTHING, Kind, Plan, Planner, Pool, Step, Tiles
from kernels.problem import Problem
from kernels.schedule import Schedule

LOOKUPS = 8
"""Lookups of one sample that a warp of a GPU has under way at once: 4 are 3 to 10 % slower on H200s, 16 no faster."""
UNDER_WAY = 16 * 1024
"""Bytes that a warp has under way at most: 32 loads of 16 bytes by each of its 32 lanes, half of their registers."""
SAMPLES = 1
"""Samples of a GPU's lookup tile: the fewer, the more evenly its thousands of warps end."""
TILES = 128 * 1024
"""Lookup tiles of a rank by default, at most: they are laid out one by one."""
RESULTS_MOST = 128 * 256
"""Results of a GEMM tile on a GPU: of 256 x 256, in float32, there are more than a block has registers."""
STREAMED = 16 * 1024
"""Bytes of a GPU's gemv tile: two under way in each of four blocks are three times what hides the latency of HBM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One kind of overlap, written once over the three flows."""

    name: str
    idea: str
    source: str
    axes: Callable[[Problem, Machine, Fabric], tuple[Axis, ...]]
    refusal: Callable[[Problem, Schedule, Machine, Fabric], str | None]
    """Why a schedule whose every axis has a legal value is illegal all the same, or None."""
    expand: Callable[[Problem, Schedule], Plan]
    needs_peer_memory: Callable[[Schedule], bool]
    """Whether ranks must address each other's memory; if not, the gang may cross hosts."""
    run_by: tuple[str, ...]
    """Backends whose ranks run it; the others' only estimate it. None: it has a name, and refuses until it is built."""
    is_operator: bool = False
    """Whether its schedules are what `torch.ops.workbench` calls; the others are there to be compared with them."""


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle of one chunk, computed as a unit: rows are counted inside the chunk."""

    chunk: int
    row_start: int
    row_stop: int
    col_start: int
    col_stop: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Tiles in order, and where in that order each block begins."""

    tiles: Tiles
    bounds: tuple[int, ...]
    """Block b is tiles bounds[b]..bounds[b + 1]."""

    def range_of(self, block: int) -> tuple[int, int]:
        return self.bounds[block], self.bounds[block + 1]


def stated(problem: Problem) -> Operator:
    """The operator of *problem*."""
    return OPERATORS[problem.operator]


def tile_axis(problem: Problem, machine: Machine) -> Axis:
    """The tile sizes offered: powers of two that are not larger than a chunk needs."""
    best = default_tile(problem, machine)
    rows, columns = _tile_sides(problem, machine)
    most = RESULTS_MOST if machine.device.kind == "gpu" and stated(problem).work == "gemm" else rows[-1] * columns[-1]
    values = tuple(str(Tile(m, n, best.k)) for m in rows for n in columns if m * n <= most)
    return Axis("tile", values, str(best), "Rows x columns x contraction computed at once.", open=True)


def default_tile(problem: Problem, machine: Machine) -> Tile:
    """The tile that is taken when none is asked for."""
    contraction, (rows, columns) = stated(problem).extent(problem).contraction, _tile_sides(problem, machine)
    if machine.device.kind == "gpu":
        most, together = rows[-1], 64
        match stated(problem).work:
            case "gather":
                together = _gather_together(problem)
            case "gemv":
                together = _gemv_together(problem, machine.device.slots, rows[-1])
            case _:
                most = min(128, most)
        return Tile(most, columns[-1], min(together, above(contraction)))
    # a call of this size is within a tenth of one call for everything, and eight of them are enough slices
    return Tile(min(256, rows[-1]), min(512, columns[-1]), contraction)


def _tile_sides(problem: Problem, machine: Machine) -> tuple[list[int], list[int]]:
    rows, columns = stated(problem).chunk_rows(problem), stated(problem).extent(problem).columns
    if machine.device.kind == "gpu":
        if stated(problem).work == "gather":
            return _gather_sides(problem, rows)
        if stated(problem).work == "gemv":
            return _gemv_sides(problem, machine.device.slots)
        return _powers(16, 256, rows), _powers(16, 256, columns)
    return _powers(32, 512, rows), _powers(64, 1024, columns)


def _gather_sides(problem: Problem, rows: int) -> tuple[list[int], list[int]]:
    """Vectors of one table or halves of them, of SAMPLES samples, or more where tiles would be too many."""
    dim, samples = problem["dim"], max(SAMPLES, above(-(-problem["tables_per_rank"] * problem["batch"] // TILES)))
    return [min(samples, above(rows))], [dim // 2, dim] if dim >= 64 and dim == above(dim) else [dim]


def _gather_together(problem: Problem) -> int:
    """Of the lookups: fewer where rows are so wide that a warp has no registers for more."""
    return max(1, min(LOOKUPS, UNDER_WAY // (above(problem["dim"]) * problem.itemsize)))


def _gemv_sides(problem: Problem, slots: int) -> tuple[list[int], list[int]]:
    """All tokens, and so many rows that every slot has a tile, or four of one token, which need no tensor cores.

    More rows read the tokens less often, fewer keep more slots busy and send earlier.
    """
    tokens = stated(problem).extent(problem).columns
    fewest, each = (8, 4) if tokens == 1 else (16, 1)
    rows = min(64, max(fewest, above(-(-stated(problem).extent(problem).rows // (each * slots)))))
    return _powers(fewest, rows, stated(problem).chunk_rows(problem)), [above(tokens)]


def _gemv_together(problem: Problem, slots: int, rows: int) -> int:
    """Of the contraction: a slot that has one tile only, of several tokens, must have as much under way as two."""
    tiles = -(-stated(problem).extent(problem).rows // rows)
    alone = stated(problem).extent(problem).columns > 1 and tiles <= slots
    return max(512 if alone else 256, STREAMED // problem.itemsize // rows)


def num_tiles(problem: Problem, size: object) -> int:
    """Tiles of one rank, without laying them out."""
    extent, each = stated(problem).extent(problem), tile(size)
    return problem.world * -(-stated(problem).chunk_rows(problem) // each.m) * -(-extent.columns // each.n)


def _powers(low: int, high: int, extent: int) -> list[int]:
    top = min(high, above(extent))
    low = min(low, top)
    return [2**e for e in range(low.bit_length() - 1, top.bit_length())]


def above(extent: int) -> int:
    """The first power of two that is not less than *extent*."""
    return 1 << (extent - 1).bit_length()


def cut(blocks: Sequence[Block], size: Tile) -> Cut:
    """The tiles of *blocks*, row-major inside each; the last row and column of tiles may be smaller."""
    pieces = [_rectangles(block, size) for block in blocks]
    columns = np.concatenate(pieces, axis=1) if pieces else np.zeros((5, 0), dtype=np.int64)
    bounds = np.concatenate([[0], np.cumsum([piece.shape[1] for piece in pieces])])
    return Cut(Tiles(*columns), tuple(int(b) for b in bounds))


def _rectangles(block: Block, size: Tile) -> np.ndarray:
    rows = np.arange(block.row_start, block.row_stop, size.m)
    cols = np.arange(block.col_start, block.col_stop, size.n)
    row, col = (grid.ravel() for grid in np.meshgrid(rows, cols, indexing="ij"))
    row_stop, col_stop = np.minimum(row + size.m, block.row_stop), np.minimum(col + size.n, block.col_stop)
    return np.stack([np.full_like(row, block.chunk), row, row_stop, col, col_stop]).astype(np.int64)


def whole_chunk(problem: Problem, chunk: int) -> Block:
    """Chunk *chunk* as one block."""
    return Block(chunk, 0, stated(problem).chunk_rows(problem), 0, stated(problem).extent(problem).columns)


def parts(length: int, count: int) -> list[tuple[int, int]]:
    """*length* cut into *count* nearly equal ranges."""
    return list(pairwise([length * i // count for i in range(count + 1)]))


def size_of(schedule: Schedule) -> Tile:
    """The schedule's tile."""
    return tile(schedule["tile"])


def result_bytes(problem: Problem, tiles: Tiles, at: tuple[int, int]) -> int:
    """Bytes of the results of a range of tiles."""
    return tiles.elements(*at) * problem.itemsize


def operand_bytes(problem: Problem, rows: tuple[int, int], k: tuple[int, int]) -> int:
    """Bytes of a range of operand rows and contraction columns."""
    return (rows[1] - rows[0]) * (k[1] - k[0]) * problem.itemsize


def full_k(problem: Problem) -> tuple[int, int]:
    """The whole contraction."""
    return 0, stated(problem).extent(problem).contraction


def compute(
    planner: Planner, rank: int, at: tuple[int, int], *, after: Iterable[int] = (), k: tuple[int, int] | None = None
) -> int:
    """A compute step of *rank* over tiles *at*."""
    return planner.add(Step(rank, Kind.COMPUTE, Pool.COMPUTE, tiles=at, k=k or full_k(planner.problem)), after)


def put_tiles(
    planner: Planner, rank: int, peer: int, at: tuple[int, int], *, after: Iterable[int], in_place: bool = False
) -> int:
    """The results of tiles *at* leave *rank* for *peer*."""
    num_bytes = result_bytes(planner.problem, planner.tiles[rank], at)
    pool, share = put_pool(planner.schedule)
    step = Step(rank, Kind.PUT, pool, peer, share, tiles=at, num_bytes=num_bytes, in_place=in_place)
    return planner.add(step, after)


def put_rows(planner: Planner, rank: int, peer: int, rows: tuple[int, int], *, k: tuple[int, int] | None = None) -> int:
    """Operand rows of *rank*'s shard leave for *peer*: ready from the start."""
    span = k or full_k(planner.problem)
    num_bytes = operand_bytes(planner.problem, rows, span)
    pool, share = put_pool(planner.schedule)
    return planner.add(Step(rank, Kind.PUT, pool, peer, share, rows=rows, k=span, num_bytes=num_bytes))


def put_pool(schedule: Schedule) -> tuple[Pool, int]:
    """Who moves the bytes of a put, and how much of it: copy engines, the SMs of one kernel, or who drives the link."""
    if schedule.scheme == "fused":
        return Pool.COMPUTE, int(schedule.get("comm_sms") or EVERYTHING)
    engines = "copy_engine" in (schedule.get("engine"), schedule.get("collective"))
    return (Pool.COPY_ENGINE if engines else Pool.LINK), EVERYTHING


def reduce(planner: Planner, rank: int, at: tuple[int, int], *, after: Iterable[int]) -> int:
    """The sum over all ranks of tiles *at*, which *rank* owns: world reads and one write."""
    num_bytes = (planner.problem.world + 1) * result_bytes(planner.problem, planner.tiles[rank], at)
    return planner.add(Step(rank, Kind.REDUCE, Pool.COMPUTE, tiles=at, num_bytes=num_bytes), after)


def unstage(
    planner: Planner, rank: int, source: int, rows: tuple[int, int], k: tuple[int, int], *, after: Iterable[int]
) -> int:
    """Operand rows leave *rank*'s staging buffer for where they are read: those of *source*, or of all (-1)."""
    sources = planner.problem.world if source < 0 else 1
    num_bytes = 2 * sources * operand_bytes(planner.problem, rows, k)
    return planner.add(Step(rank, Kind.COPY, Pool.COMPUTE, source, rows=rows, k=k, num_bytes=num_bytes), after)


def peers_from(rank: int, world: int) -> list[int]:
    """The other ranks, rotated: rank + 1 first, so that no two ranks begin at the same peer."""
    return [(rank + step) % world for step in range(1, world)]
