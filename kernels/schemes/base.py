"""How computed units reach their owners and, where the operator says so, are summed and given to all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from kernels import plan as ranges
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import OPERATORS
from kernels.operators.base import Flow, Operator
from kernels.plan import EVERYTHING, Ints, Kind, Plan, Planner, Pool, Range, Ranges, Step, Tiles
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Tile, Value, tile
from kernels.schemes import axis_rules
from kernels.units import bytes_text

# What a scheme is, and what all of them share: tile orders cut from blocks, the gather of sums, the broadcast.

LOOKUPS = 8
"""Lookups of one sample that a warp of a GPU has under way at once: 4 are 3 to 10 % slower on H200s, 16 no faster."""
UNDER_WAY = 16 * 1024
"""Bytes that a warp has under way at most: 32 loads of 16 bytes by each of its 32 lanes, half of their registers."""
SAMPLES = 1
"""Samples of a GPU's lookup tile: the fewer, the more evenly its thousands of warps end."""
TILES = 128 * 1024
"""Lookup tiles of a rank by default, at most: they are laid out one by one."""
TILES_MOST = 200_000
"""Tiles of one rank; a GPU's largest problems have some thousands."""
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
    """Backends whose ranks run it; the others' only estimate it."""
    is_compared: bool = True
    """Whether it is among what is compared where no scheme is stated: its time is that of one problem by itself."""
    beside: Callable[[Problem, Machine, Mapping[str, Value]], Mapping[str, Value]] = lambda *_: {}
    """What axes that are not stated have in place of their default, beside the values that are."""
    is_operator: bool = False
    """Whether its schedules are what `torch.ops.workbench` calls; the others are there to be compared with them."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkBlocks:
    """Rectangles of chunks, each computed as a unit, as columns: rows are counted inside the chunk."""

    chunk: Ints
    row_start: Ints
    row_stop: Ints
    col_start: Ints
    col_stop: Ints

    @classmethod
    def of(cls, chunk: ArrayLike, rows: Range, columns: Range) -> ChunkBlocks:
        """Blocks with these ranges, each one number or one for each block."""
        return cls(*np.broadcast_arrays(np.atleast_1d(chunk), *rows, *columns))


@dataclass(frozen=True, slots=True, eq=False)
class TileCut:
    """Tiles in order, and where in that order each block begins."""

    tiles: Tiles
    bounds: Ints
    """Block b is tiles bounds[b]..bounds[b + 1]."""

    @property
    def ranges(self) -> Ranges:
        """The tiles of every block."""
        return self.bounds[:-1], self.bounds[1:]


def operator_of(problem: Problem) -> Operator:
    """The operator of *problem*."""
    return OPERATORS[problem.operator]


def tile_axis(problem: Problem, machine: Machine) -> Axis:
    """The tile sizes offered: powers of two, none larger than a chunk needs, none so small that it is refused."""
    best = default_tile(problem, machine)
    rows, columns = _tile_sides(problem, machine)
    most = (
        RESULTS_MOST if machine.device.kind == "gpu" and operator_of(problem).work == "gemm" else rows[-1] * columns[-1]
    )
    sides, lengths = [(m, n) for m in rows for n in columns if m * n <= most], _lengths(problem)
    if _count(lengths, rows[0], columns[0]) > TILES_MOST:  # else none of them is too small
        sides = [each for each in sides if _count(lengths, *each) <= TILES_MOST or each == (best.m, best.n)]
    values = tuple(str(Tile(m, n, best.k)) for m, n in sides)
    return Axis("tile", values, str(best), "Rows x columns x contraction computed at once.", open=True)


def default_tile(problem: Problem, machine: Machine) -> Tile:
    """The tile that is taken when none is asked for."""
    contraction, (rows, columns) = operator_of(problem).extent(problem).contraction, _tile_sides(problem, machine)
    if machine.device.kind == "gpu":
        most, together = rows[-1], 64
        match operator_of(problem).work:
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
    rows, columns = operator_of(problem).chunk_rows(problem), operator_of(problem).extent(problem).columns
    if machine.device.kind == "gpu":
        if operator_of(problem).work == "gather":
            return _gather_sides(problem, rows)
        if operator_of(problem).work == "gemv":
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
    tokens = operator_of(problem).extent(problem).columns
    fewest, each = (8, 4) if tokens == 1 else (16, 1)
    rows = min(64, max(fewest, above(-(-operator_of(problem).extent(problem).rows // (each * slots)))))
    return _powers(fewest, rows, operator_of(problem).chunk_rows(problem)), [above(tokens)]


def _gemv_together(problem: Problem, slots: int, rows: int) -> int:
    """Of the contraction: a slot that has one tile only, of several tokens, must have as much under way as two."""
    tiles = -(-operator_of(problem).extent(problem).rows // rows)
    alone = operator_of(problem).extent(problem).columns > 1 and tiles <= slots
    return max(512 if alone else 256, STREAMED // problem.itemsize // rows)


def num_tiles(problem: Problem, size: object) -> int:
    """Tiles of one rank, without laying them out."""
    return fewest_tiles(problem, (size,))


def fewest_tiles(problem: Problem, sizes: Iterable[object]) -> int:
    """The same of the one of *sizes* that cuts a rank's result into the fewest."""
    lengths = _lengths(problem)
    return min(_count(lengths, each.m, each.n) for each in map(tile, sizes))


def _lengths(problem: Problem) -> tuple[int, int, int]:
    """Chunks of one rank's result, and rows and columns of each: asked once for many tile sizes."""
    operator = operator_of(problem)
    return problem.world, operator.chunk_rows(problem), operator.extent(problem).columns


def _count(lengths: tuple[int, int, int], rows: int, columns: int) -> int:
    """Tiles that have so many *rows* and *columns*, of what has these *lengths*."""
    chunks, length, across = lengths
    return chunks * -(-length // rows) * -(-across // columns)


def _powers(low: int, high: int, extent: int) -> list[int]:
    top = min(high, above(extent))
    low = min(low, top)
    return [2**e for e in range(low.bit_length() - 1, top.bit_length())]


def above(extent: int) -> int:
    """The first power of two that is not less than *extent*."""
    return 1 << (extent - 1).bit_length()


def cut(blocks: ChunkBlocks, size: Tile) -> TileCut:
    """The tiles of *blocks*, row-major inside each; the last row and column of tiles may be smaller."""
    down = -((blocks.row_start - blocks.row_stop) // size.m)
    across = -((blocks.col_start - blocks.col_stop) // size.n)
    block, number = np.repeat(np.arange(len(down)), down * across), ranges.inside(down * across)
    row = blocks.row_start[block] + number // across[block] * size.m
    column = blocks.col_start[block] + number % across[block] * size.n
    row_stop = np.minimum(row + size.m, blocks.row_stop[block])
    col_stop = np.minimum(column + size.n, blocks.col_stop[block])
    return TileCut(Tiles(blocks.chunk[block], row, row_stop, column, col_stop), ranges.bounds(down * across))


def whole_chunks(problem: Problem, chunk: ArrayLike) -> ChunkBlocks:
    """Each chunk of *chunk* as one block."""
    return ChunkBlocks.of(
        chunk, (0, operator_of(problem).chunk_rows(problem)), (0, operator_of(problem).extent(problem).columns)
    )


def parts(length: int, count: int) -> Ints:
    """Where *count* nearly equal parts of *length* begin, and where the last one ends."""
    return length * np.arange(count + 1) // count


def size_of(schedule: Schedule) -> Tile:
    """The schedule's tile."""
    return tile(schedule["tile"])


def result_bytes(planner: Planner, rank: Ints | int, at: Range) -> Ints:
    """Bytes of the results of ranges of tiles of *rank*."""
    return planner.elements(rank, at) * planner.problem.itemsize


def operand_bytes(problem: Problem, rows: Range, k: Range) -> Ints | int:
    """Bytes of ranges of operand rows and contraction columns."""
    return (rows[1] - rows[0]) * (k[1] - k[0]) * problem.itemsize


def full_k(problem: Problem) -> tuple[int, int]:
    """The whole contraction."""
    return 0, operator_of(problem).extent(problem).contraction


def compute(planner: Planner, rank: Ints, at: Range, *, after: ArrayLike = (), k: Range | None = None) -> Ints:
    """Compute steps of *rank* over tiles *at*. These functions take steps one by one or many at once (Planner.add)."""
    return planner.add(Step(rank, Kind.COMPUTE, Pool.COMPUTE, tiles=at, k=k or full_k(planner.problem)), after)


def put_tiles(planner: Planner, rank: Ints, peer: Ints, at: Range, *, after: ArrayLike, in_place: bool = False) -> Ints:
    """The results of tiles *at* leave *rank* for *peer*."""
    pool, share = put_pool(planner.schedule)
    num_bytes = planner.elements(rank, at) * axis_rules.value_bytes(planner.problem, planner.schedule)
    step = Step(rank, Kind.PUT, pool, peer, share, tiles=at, num_bytes=num_bytes, in_place=in_place)
    return planner.add(step, after)


def put_rows(planner: Planner, rank: Ints, peer: Ints, rows: Range, *, k: Range | None = None) -> Ints:
    """Operand rows of *rank*'s shard leave for *peer*: ready from the start."""
    span = k or full_k(planner.problem)
    pool, share = put_pool(planner.schedule)
    num_bytes = operand_bytes(planner.problem, rows, span)
    return planner.add(Step(rank, Kind.PUT, pool, peer, share, rows=rows, k=span, num_bytes=num_bytes))


def put_pool(schedule: Schedule) -> tuple[Pool, int]:
    """Who moves the bytes of a put, and how much of it: copy engines, the SMs of one kernel, or who drives the link."""
    sending = int(schedule.get("comm_sms") or EVERYTHING)
    if "copy_engine" in (schedule.get("engine"), schedule.get("collective")):
        return Pool.COPY_ENGINE, 1
    if schedule.scheme == "fused" or sending:
        return Pool.COMPUTE, sending
    return Pool.LINK, EVERYTHING


def reduce(planner: Planner, rank: Ints, at: Range, *, after: ArrayLike) -> Ints:
    """The sum over all ranks of tiles *at* here: world reads of what was sent, and one write."""
    each = planner.problem.world * axis_rules.value_bytes(planner.problem, planner.schedule) + planner.problem.itemsize
    num_bytes = each * planner.elements(rank, at)
    return planner.add(Step(rank, Kind.REDUCE, Pool.COMPUTE, tiles=at, num_bytes=num_bytes), after)


def unstage(planner: Planner, rank: Ints, source: Ints | None, rows: Range, k: Range, *, after: ArrayLike) -> Ints:
    """Operand rows leave *rank*'s staging buffer for where they are read: those of *source*, or of all (None)."""
    sources = planner.problem.world if source is None else 1
    num_bytes = 2 * sources * operand_bytes(planner.problem, rows, k)
    peer = -1 if source is None else source
    return planner.add(Step(rank, Kind.COPY, Pool.COMPUTE, peer, rows=rows, k=k, num_bytes=num_bytes), after)


def peers_of(world: int) -> Ints:
    """[rank, turn] the other ranks, rotated: rank + 1 first, so that no two ranks begin at the same peer."""
    return (np.arange(world)[:, None] + np.arange(1, world)) % world


def peers_from(rank: int, world: int) -> list[int]:
    """The same of one rank."""
    return [(rank + step) % world for step in range(1, world)]


# How computed units reach their owners and, where the operator says so, are summed and given to all.


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Ranges of tiles, each of one chunk on one rank, as columns: by rank, in the order in which they should leave.

    The n-th unit of a chunk has the same extent on every rank, so that sums pair up by it.
    """

    rank: Ints
    chunk: Ints
    start: Ints
    stop: Ints
    step: Ints
    """What computes it."""

    @classmethod
    def of(cls, rank: Ints, chunk: Ints | int, at: Range, step: Ints) -> Units:
        """Units from arrays of one shape, or of shapes that go together."""
        return cls(*(column.ravel() for column in np.broadcast_arrays(rank, chunk, *at, step)))

    @property
    def at(self) -> Range:
        return self.start, self.stop

    def where(self, chosen: np.ndarray) -> Units:
        """Those that are *chosen*."""
        return Units(*(getattr(self, column.name)[chosen] for column in fields(self)))


def exchange(planner: Planner, units: Units, *, in_place: bool = False) -> None:
    """Puts of every unit to everybody, who sums alone: (world - 1) x the bytes, one hop."""
    world = planner.problem.world
    rank, peers = units.rank[:, None], peers_of(world)[units.rank]
    start, stop = units.start[:, None], units.stop[:, None]
    sent = put_tiles(planner, rank, peers, (start, stop), after=units.step[:, None, None], in_place=in_place)
    chunk, nth = units.chunk[:, None], ranges.nth(units.rank * world + units.chunk)[:, None]
    arrived = np.full((world, world, int(chunk.max(initial=-1)) + 1, int(nth.max(initial=-1)) + 1), -1)
    arrived[peers, rank, chunk, nth] = sent
    reduce(planner, units.rank, units.at, after=np.column_stack([units.step, arrived[rank, peers, chunk, nth]]))


def deliver(planner: Planner, units: Units, *, in_place: bool = False, added_up: bool = False) -> None:
    """Puts for every unit whose chunk another rank owns, then reduce and broadcast if the operator reduces.

    *added_up*: own units are computed onto what has arrived, and nothing is left to be summed.
    """
    stays = units.chunk == units.rank
    sent = units.where(~stays)
    puts = put_tiles(planner, sent.rank, sent.chunk, sent.at, after=sent.step[:, None], in_place=in_place)
    if operator_of(planner.problem).reduces:
        finish = _onto if added_up else _sum
        finish(planner, units.where(stays), sent, puts)


def _contributions(planner: Planner, kept: Units, sent: Units, puts: Ints) -> Ints:
    """[unit, turn] the puts that bring the n-th unit of every peer to the owner's n-th one."""
    world = planner.problem.world
    number, peers = ranges.nth(kept.rank), peers_of(world)[kept.rank]
    arrived = np.full((world, world, int(number.max(initial=-1)) + 1), -1)
    arrived[sent.chunk, sent.rank, ranges.nth(sent.rank * world + sent.chunk)] = puts
    return arrived[kept.rank[:, None], peers, number[:, None]]


def _onto(planner: Planner, kept: Units, sent: Units, puts: Ints) -> None:
    """Each owner computes its n-th unit onto the n-th one of every peer, and where all want it, tells them.

    It tells them behind all contributions: a copy stream that told a sum first would keep back what the peer adds to.
    """
    planner.wait(kept.step[:, None], _contributions(planner, kept, sent, puts))
    if operator_of(planner.problem).flow is Flow.BROADCAST:
        rank, start, stop, total = (column[:, None] for column in (kept.rank, kept.start, kept.stop, kept.step))
        peers = peers_of(planner.problem.world)[kept.rank]
        put_tiles(planner, rank, peers, (start, stop), after=total[..., None])


def _sum(planner: Planner, kept: Units, sent: Units, puts: Ints) -> None:
    """Each owner sums its n-th unit when the n-th one of every peer is there, and where all want it, tells them."""
    peers = peers_of(planner.problem.world)[kept.rank]
    contributions = _contributions(planner, kept, sent, puts)
    summed = reduce(planner, kept.rank, kept.at, after=np.column_stack([kept.step, contributions]))
    if operator_of(planner.problem).flow is Flow.BROADCAST:
        rank, start, stop, total = (column[:, None] for column in (kept.rank, kept.start, kept.stop, summed))
        planner.follow(put_tiles(planner, rank, peers, (start, stop), after=total[..., None]), total)


INDEX_BYTES = 8


def too_large(problem: Problem, machine: Machine) -> str | None:
    """Why *problem* does not fit one rank of *machine*, or None: its operands and its result must lie in memory."""
    needed = needed_bytes(problem)
    if needed <= machine.device.memory_bytes:
        return None
    return (
        f"{problem.operator} of these sizes is too large. Its operands and result take {bytes_text(needed)} on "
        f"each rank, but a rank of {machine.name} has {bytes_text(machine.device.memory_bytes)}. Accepted: smaller "
        "sizes, more ranks where they share them, or a machine with more memory."
    )


def needed_bytes(problem: Problem) -> int:
    """Bytes of one rank's operands and result."""
    shapes = operator_of(problem).local(problem)
    return sum(prod(s) * (INDEX_BYTES if name == "indices" else problem.itemsize) for name, s in shapes.items())
