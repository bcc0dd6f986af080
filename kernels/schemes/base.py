"""What a scheme is, and the steps that all schemes are built from: tiles, puts, sums, delivery to owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from kernels import plan as ranges
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.occupancy import OPERANDS_IN_REGISTERS, SUM_BYTES
from kernels.operators import OPERATORS
from kernels.operators.base import Flow, Operator
from kernels.plan import EVERYTHING, Ints, Kind, Plan, Planner, Pool, Range, Ranges, Step, Tiles
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Tile, Value, tile
from kernels.schemes import axis_rules, gemv_block
from kernels.units import bytes_text

# Schemes and their tiles.

LOOKUPS = 8
"""Lookups of one sample that a warp of a GPU has in flight at once: 4 are 3 to 10 % slower on H200s, 16 no faster."""
IN_FLIGHT = 16 * 1024
"""Most bytes that a warp has in flight: 32 loads of 16 bytes by each of its 32 lanes, half of their registers."""
SAMPLES = 1
"""Samples of a GPU's lookup tile: the fewer, the more evenly its thousands of warps end."""
TILES = 128 * 1024
"""Most lookup tiles of a rank by default, since Plans list every tile."""
ONE_GEMM = "gemm_all_to_all"
"""The operator that is a plain GEMM where one rank has all rows: nothing comes in, nothing is summed."""
TILES_MOST = 200_000
"""Most tiles of one rank; a GPU's largest problems have some thousands."""
RESULTS_MOST = 128 * 256
"""Most results of a GEMM tile on a GPU: 256 x 256 in float32 are more than a block has registers."""
NARROW = 128
"""Most columns of a default tile where tensor cores read registers: sums of 128x256 leave none for the operands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One kind of overlap, written once for all three flows."""

    name: str
    idea: str
    """One sentence for people."""
    source: str
    """Paper that it is from."""
    axes: Callable[[Problem, Machine, Fabric], tuple[Axis, ...]]
    refusal: Callable[[Problem, Schedule, Machine, Fabric], str | None]
    """Why a combination of values is illegal although each of them is legal, or None."""
    expand: Callable[[Problem, Schedule], Plan]
    needs_peer_memory: Callable[[Schedule], bool]
    """Whether ranks must address each other's memory; if not, the gang may cross hosts."""
    run_by: tuple[str, ...]
    """Backends that run it; for the others it can only be estimated."""
    is_compared: bool = True
    """Whether it is compared by default, since its call computes one problem, not several at once."""
    dependent_defaults: Callable[[Problem, Machine, Fabric, Mapping[str, Value]], Mapping[str, Value]] = lambda *_: {}
    """Values that replace the defaults of other axes where some axes have a value."""
    is_operator: bool = False
    """Whether `torch.ops.workbench` runs its schedules; the others serve as comparisons."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkBlocks:
    """Rectangles of chunks as columns, each computed as a unit; rows are counted inside the chunk."""

    chunk: Ints
    row_start: Ints
    row_stop: Ints
    col_start: Ints
    col_stop: Ints

    @classmethod
    def of(cls, chunk: ArrayLike, rows: Range, columns: Range) -> ChunkBlocks:
        """Blocks with these ranges; each argument is a number for all blocks, or has a number for each."""
        return cls(*np.broadcast_arrays(np.atleast_1d(chunk), *rows, *columns))


@dataclass(frozen=True, slots=True, eq=False)
class TileCut:
    """Tiles in order, and the place in that order at which each block begins."""

    tiles: Tiles
    bounds: Ints
    """Block b is tiles bounds[b]..bounds[b + 1]."""

    @property
    def ranges(self) -> Ranges:
        """The range of tiles of every block."""
        return self.bounds[:-1], self.bounds[1:]


@dataclass(frozen=True, slots=True, eq=False)
class TileOrder:
    """All tiles of every rank, and the slices that are sent or awaited together.

    All chunks are cut alike. Ranks differ only in the order of the chunks.
    """

    tiles: tuple[Tiles, ...]
    """Tiles by rank."""
    chunk: Ints
    """[rank, slice]: the chunk of every slice."""
    bounds: Ints
    """Slice s is tiles bounds[s]..bounds[s + 1] of every rank."""

    @property
    def ranges(self) -> Ranges:
        """The range of tiles of every slice."""
        return self.bounds[:-1], self.bounds[1:]

    def after(self, count: int) -> TileOrder:
        """The slices without the first *count* tiles of every rank."""
        kept = self.bounds[1:] > count
        start = np.maximum(self.bounds[:-1][kept], count)
        return TileOrder(self.tiles, self.chunk[:, kept], np.append(start, self.bounds[-1]))

    def singly(self, count: int) -> TileOrder:
        """The same with a slice for each of the first *count* tiles of every rank."""
        others = self.after(count)
        chunk = np.concatenate([np.repeat(self.chunk[:, :1], count, axis=1), others.chunk], axis=1)
        return TileOrder(self.tiles, chunk, np.concatenate([np.arange(count), others.bounds]))


def operator_of(problem: Problem) -> Operator:
    """The operator of *problem*."""
    return OPERATORS[problem.operator]


def tiled(problem: Problem, schedule: Schedule) -> Problem:
    """The problem whose tiles *schedule* computes: one rank's with all rows where tiles span ranks, else *problem*."""
    return whole(problem) if axis_rules.spans_ranks(schedule) else problem


def whole(problem: Problem) -> Problem:
    """The GEMM of one rank that has all rows of *problem*."""
    extent = operator_of(problem).extent(problem)
    shape = (("m", extent.rows), ("n", extent.columns), ("k", extent.contraction))
    return Problem(ONE_GEMM, shape, problem.dtype, world=1)


def tile_axis(problem: Problem, machine: Machine, usual: Tile | None = None) -> Axis:
    """The axis of tile sizes: powers of two, none larger than a chunk needs, none so small that it is refused.

    *usual*: the default; None: `default_tile`.
    """
    best = usual or default_tile(problem, machine)
    rows, columns = _tile_sides(problem, machine)
    most = (
        RESULTS_MOST if machine.device.kind == "gpu" and operator_of(problem).work == "gemm" else rows[-1] * columns[-1]
    )
    sides, lengths = [(m, n) for m in rows for n in columns if m * n <= most], _lengths(problem)
    if _count(lengths, rows[0], columns[0]) > TILES_MOST:  # else none of them is too small
        sides = [each for each in sides if _count(lengths, *each) <= TILES_MOST or each == (best.m, best.n)]
    if (best.m, best.n) not in sides:
        sides.append((best.m, best.n))  # taller than few rows
    values = tuple(str(Tile(m, n, best.k)) for m, n in sides)
    return Axis("tile", values, str(best), "Rows x columns x contraction computed at once.", open=True)


def default_tile(problem: Problem, machine: Machine) -> Tile:
    """The default tile."""
    contraction, (rows, columns) = operator_of(problem).extent(problem).contraction, _tile_sides(problem, machine)
    if machine.device.kind == "gpu":
        most, block_k = rows[-1], 64
        match operator_of(problem).work:
            case "gather":
                block_k = _gather_block_k(problem)
            case "gemv":
                return gemv_block.usual(problem, machine.device.slots).tile
            case _:
                most = min(128, most)
                if machine.device.architecture in OPERANDS_IN_REGISTERS:
                    columns = [each for each in columns if each <= NARROW]
        return Tile(most, columns[-1], min(block_k, above(contraction)))
    # calls of this size take at most a tenth longer than one call for everything, and eight of them are enough slices
    return Tile(min(256, rows[-1]), min(512, columns[-1]), contraction)


def _tile_sides(problem: Problem, machine: Machine) -> tuple[list[int], list[int]]:
    rows, columns = operator_of(problem).chunk_rows(problem), operator_of(problem).extent(problem).columns
    if machine.device.kind == "gpu":
        if operator_of(problem).work == "gather":
            return _gather_sides(problem, rows)
        if operator_of(problem).work == "gemv":
            tokens = operator_of(problem).extent(problem).columns
            return _powers(*gemv_block.SIDES[tokens == 1], rows), [above(tokens)]
        return _powers(16, 256, rows), _powers(16, 256, columns)
    return _powers(32, 512, rows), _powers(64, 1024, columns)


def _gather_sides(problem: Problem, rows: int) -> tuple[list[int], list[int]]:
    """Rows and columns of lookup tiles: whole or half vectors of one table; more samples each if tiles exceed TILES."""
    dim, samples = problem["dim"], max(SAMPLES, above(-(-problem["tables_per_rank"] * problem["batch"] // TILES)))
    return [min(samples, above(rows))], [dim // 2, dim] if dim >= 64 and dim == above(dim) else [dim]


def _gather_block_k(problem: Problem) -> int:
    """Lookups at once: fewer where rows are so wide that a warp has no registers for more."""
    return max(1, min(LOOKUPS, IN_FLIGHT // (above(problem["dim"]) * problem.itemsize)))


def num_tiles(problem: Problem, size: object) -> int:
    """Number of tiles of one rank, without listing them."""
    return fewest_tiles(problem, (size,))


def fewest_tiles(problem: Problem, sizes: Iterable[object]) -> int:
    """Number of tiles of one rank for the one of *sizes* that makes the fewest."""
    lengths = _lengths(problem)
    return min(_count(lengths, each.m, each.n) for each in map(tile, sizes))


def _lengths(problem: Problem) -> tuple[int, int, int]:
    """Number of chunks of one rank's result, and rows and columns of each chunk."""
    operator = operator_of(problem)
    return problem.world, operator.chunk_rows(problem), operator.extent(problem).columns


def _count(lengths: tuple[int, int, int], rows: int, columns: int) -> int:
    """Number of tiles of *rows* x *columns* that cover chunks of these *lengths*."""
    chunks, length, width = lengths
    return chunks * -(-length // rows) * -(-width // columns)


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
    """A block for each of the chunks numbered *chunk*, with all of its rows and columns."""
    return ChunkBlocks.of(
        chunk, (0, operator_of(problem).chunk_rows(problem)), (0, operator_of(problem).extent(problem).columns)
    )


def parts(length: int, count: int) -> Ints:
    """The starts of *count* nearly equal parts of *length*, and the end of the last one."""
    return length * np.arange(count + 1) // count


def size_of(schedule: Schedule) -> Tile:
    """The tile of *schedule*."""
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


def compute(planner: Planner, rank: Ints, at: Range, *, after: ArrayLike = (), k: Range | None = None,
            share: int = EVERYTHING) -> Ints:  # fmt: skip
    """Adds compute steps of *rank* over tiles *at*; like all functions here, one or many at once (Planner.add)."""
    step = Step(rank, Kind.COMPUTE, Pool.COMPUTE, share=share, tiles=at, k=k or full_k(planner.problem))
    return planner.add(step, after)


def add_units(planner: Planner, rank: int, number: Ints, counts: Ints, *, after: ArrayLike) -> Ints:
    """Adds steps of *rank* that read *counts* partial sums of each of the tiles *number*, and add them.

    They compute no further range: theirs is empty, at the end of the contraction.
    """
    end = full_k(planner.problem)[1]
    each = counts * SUM_BYTES + planner.problem.itemsize
    num_bytes = each * planner.elements(rank, (number, number + 1))
    step = Step(np.full_like(number, rank), Kind.COMPUTE, Pool.COMPUTE, share=1, tiles=(number, number + 1),
                k=(end, end), num_bytes=num_bytes)  # fmt: skip
    return planner.add(step, after)


def put_tiles(planner: Planner, rank: Ints, peer: Ints, at: Range, *, after: ArrayLike, in_place: bool = False) -> Ints:
    """Adds puts of the results of tiles *at* from *rank* to *peer*."""
    return planner.add(_put(planner, (rank, peer), at, planner.elements(rank, at), in_place=in_place), after)


def put_elements(planner: Planner, rank: Ints, peer: Ints, at: Range, elements: Ints, *, after: ArrayLike) -> Ints:
    """Adds puts of so many *elements* of the results of tiles *at* from *rank* to *peer*, computed in place."""
    return planner.add(_put(planner, (rank, peer), at, elements, in_place=True), after)


def _put(planner: Planner, pair: tuple[Ints, Ints], at: Range, elements: Ints, *, in_place: bool) -> Step:
    """A put of *elements* of tiles *at* from the first of *pair* to the second."""
    (pool, share), (rank, peer) = put_pool(planner.schedule), pair
    num_bytes = elements * axis_rules.value_bytes(planner.problem, planner.schedule)
    return Step(rank, Kind.PUT, pool, peer, share, tiles=at, num_bytes=num_bytes, in_place=in_place)


def put_rows(planner: Planner, rank: Ints, peer: Ints, rows: Range, *, k: Range | None = None,
             after: ArrayLike = ()) -> Ints:  # fmt: skip
    """Adds puts of operand rows to *peer*: of *rank*'s shard, ready from the start, or of the one that *after* brought.

    See `Plan.origin`.
    """
    span = k or full_k(planner.problem)
    pool, share = put_pool(planner.schedule)
    num_bytes = operand_bytes(planner.problem, rows, span)
    return planner.add(Step(rank, Kind.PUT, pool, peer, share, rows=rows, k=span, num_bytes=num_bytes), after)


def put_pool(schedule: Schedule) -> tuple[Pool, int]:
    """The pool that moves the bytes of a put, and its share: copy engines, the SMs of a kernel, or the link itself."""
    sending = int(schedule.get("comm_sms") or EVERYTHING)
    if "copy_engine" in (schedule.get("engine"), schedule.get("collective")):
        return Pool.COPY_ENGINE, 1
    if schedule.scheme == "fused" or sending:
        return Pool.COMPUTE, sending
    return Pool.LINK, EVERYTHING


def reduce(planner: Planner, rank: Ints, at: Range, *, after: ArrayLike, elements: Ints | None = None) -> Ints:
    """Adds sums of all ranks' tiles *at* on *rank*, or of some *elements*: world reads of what came, one write."""
    each = planner.problem.world * axis_rules.value_bytes(planner.problem, planner.schedule) + planner.problem.itemsize
    num_bytes = each * (planner.elements(rank, at) if elements is None else elements)
    return planner.add(Step(rank, Kind.REDUCE, Pool.COMPUTE, tiles=at, num_bytes=num_bytes), after)


def add(planner: Planner, rank: Ints, at: Range, *, after: ArrayLike) -> Ints:
    """Adds steps in which *rank* adds its tiles *at* to its own result: one read and one write."""
    num_bytes = 2 * planner.problem.itemsize * planner.elements(rank, at)
    return planner.add(Step(rank, Kind.REDUCE, Pool.COMPUTE, tiles=at, num_bytes=num_bytes), after)


def unstage(planner: Planner, rank: Ints, source: Ints | None, rows: Range, k: Range, *, after: ArrayLike) -> Ints:
    """Adds copies of operand rows out of *rank*'s staging buffer: those of *source*, or of all ranks (None)."""
    sources = planner.problem.world if source is None else 1
    num_bytes = 2 * sources * operand_bytes(planner.problem, rows, k)
    peer = -1 if source is None else source
    return planner.add(Step(rank, Kind.COPY, Pool.COMPUTE, peer, rows=rows, k=k, num_bytes=num_bytes), after)


def peers_of(world: int) -> Ints:
    """[rank, turn] the other ranks, rotated: rank + 1 first, so that all ranks begin at different peers."""
    return (np.arange(world)[:, None] + np.arange(1, world)) % world


def peers_from(rank: int, world: int) -> list[int]:
    """The row of `peers_of` for one rank."""
    return [(rank + step) % world for step in range(1, world)]


# Units and their delivery: to their owners, who sum them and send the sums to all where the operator says so.


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Ranges of tiles as columns, each of one chunk on one rank: by rank, in the order in which they should leave.

    The n-th unit of a chunk has the same extent on every rank, so that sums pair units by their number.
    """

    rank: Ints
    chunk: Ints
    start: Ints
    stop: Ints
    step: Ints
    """The step that computes it."""

    @classmethod
    def of(cls, rank: Ints, chunk: Ints | int, at: Range, step: Ints) -> Units:
        """Units from arrays of one shape, or of shapes that go together."""
        return cls(*(column.ravel() for column in np.broadcast_arrays(rank, chunk, *at, step)))

    @property
    def at(self) -> Range:
        return self.start, self.stop

    def where(self, chosen: np.ndarray) -> Units:
        """The units where the mask *chosen* is true."""
        return Units(*(getattr(self, column.name)[chosen] for column in fields(self)))


def exchange(planner: Planner, units: Units, *, in_place: bool = False) -> None:
    """Adds puts of every unit to all ranks, each of which sums alone: (world - 1) x the bytes, one hop."""
    world = planner.problem.world
    rank, peers = units.rank[:, None], peers_of(world)[units.rank]
    start, stop = units.start[:, None], units.stop[:, None]
    sent = put_tiles(planner, rank, peers, (start, stop), after=units.step[:, None, None], in_place=in_place)
    chunk, nth = units.chunk[:, None], ranges.nth(units.rank * world + units.chunk)[:, None]
    arrived = np.full((world, world, int(chunk.max(initial=-1)) + 1, int(nth.max(initial=-1)) + 1), -1)
    arrived[peers, rank, chunk, nth] = sent
    reduce(planner, units.rank, units.at, after=np.column_stack([units.step, arrived[rank, peers, chunk, nth]]))


def deliver(planner: Planner, units: Units, *, in_place: bool = False, accumulates: bool = False) -> None:
    """Adds puts of every unit whose chunk another rank owns, then sums and a broadcast if the operator reduces.

    *accumulates*: the owner's units are computed onto the units that arrived, so that there are no separate sums.
    """
    stays = units.chunk == units.rank
    sent = units.where(~stays)
    puts = put_tiles(planner, sent.rank, sent.chunk, sent.at, after=sent.step[:, None], in_place=in_place)
    if operator_of(planner.problem).reduces:
        finish = _accumulate if accumulates else _sum
        finish(planner, units.where(stays), sent, puts)


def _contributions(planner: Planner, kept: Units, sent: Units, puts: Ints) -> Ints:
    """[unit, turn] the puts that bring the n-th unit of every peer to the owner's n-th one."""
    world = planner.problem.world
    number, peers = ranges.nth(kept.rank), peers_of(world)[kept.rank]
    arrived = np.full((world, world, int(number.max(initial=-1)) + 1), -1)
    arrived[sent.chunk, sent.rank, ranges.nth(sent.rank * world + sent.chunk)] = puts
    return arrived[kept.rank[:, None], peers, number[:, None]]


def _accumulate(planner: Planner, kept: Units, sent: Units, puts: Ints) -> None:
    """Makes each owner compute its n-th unit onto those of its peers and, in a broadcast, send the sum to them.

    Sums leave after all contributions: a copy stream that sent a sum first would delay its part of a peer's sum.
    """
    planner.wait(kept.step[:, None], _contributions(planner, kept, sent, puts))
    if operator_of(planner.problem).flow is Flow.BROADCAST:
        rank, start, stop, total = (column[:, None] for column in (kept.rank, kept.start, kept.stop, kept.step))
        peers = peers_of(planner.problem.world)[kept.rank]
        put_tiles(planner, rank, peers, (start, stop), after=total[..., None])


def _sum(planner: Planner, kept: Units, sent: Units, puts: Ints) -> None:
    """Makes each owner sum its n-th unit with those of all peers and, in a broadcast, send the sum to them."""
    peers = peers_of(planner.problem.world)[kept.rank]
    contributions = _contributions(planner, kept, sent, puts)
    summed = reduce(planner, kept.rank, kept.at, after=np.column_stack([kept.step, contributions]))
    if operator_of(planner.problem).flow is Flow.BROADCAST:
        rank, start, stop, total = (column[:, None] for column in (kept.rank, kept.start, kept.stop, summed))
        planner.follow(put_tiles(planner, rank, peers, (start, stop), after=total[..., None]), total)


# Memory of a problem.

INDEX_BYTES = 8


def too_large(problem: Problem, machine: Machine) -> str | None:
    """Why *problem* does not fit one rank of *machine*, or None: its operands and its result must fit into memory."""
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
