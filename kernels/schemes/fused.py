"""Fused: one kernel, in which a workgroup sends its result as soon as it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise

import numpy as np

from kernels.axes import Axis, Tile, Value, tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import Flow
from kernels.plan import Plan, Planner, Tiles
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import base, launches, reads
from kernels.schemes.base import Block, Cut, Scheme
from kernels.schemes.finish import Unit, deliver
from kernels.schemes.slices import SLICES, TURNS, slice_size

COMM_SMS = 16
"""SMs whose bulk copies fill a GPU's links; B200s are reported to need about 15."""
GROUP = 8
"""Rows of GEMM tiles computed together on GPUs: 4 are 7 % faster than 1 at 8192 x 8192 x 7168 on H200s, 8 2 % more."""
ARRIVING = 4
"""Rows of tiles whose operand arrives, and is then computed, together."""
STORE, STAGES = "tma", 3
"""How tiles leave by default, and how many steps of the contraction are loaded ahead."""


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    known = {axis.name: axis for axis in (*_plan_axes(problem, machine), *_kernel_axes(problem, machine))}
    return tuple(known[name] for name in reads.of_fused(problem, machine.backend))


def _plan_axes(problem: Problem, machine: Machine) -> tuple[Axis, ...]:
    of_tiles = base.tile_axis(problem, machine)
    tiles = base.num_tiles(problem, of_tiles.default)
    sizes = tuple(2**e for e in range(tiles.bit_length()))
    usual = max(size for size in sizes if size <= _slice(problem, machine, tiles))
    return (
        of_tiles,
        _tile_order(problem, machine),
        Axis("slice_tiles", sizes, usual, "How many tiles one signal announces.", open=True),
        Axis(
            "write",
            ("zero_copy", "staged"),
            "zero_copy",
            "Straight into the peer's buffer, or through a staging buffer.",
        ),
    )


def _tile_order(problem: Problem, machine: Machine) -> Axis:
    """Sums wait in the epilogue of own tiles for what peers send: their own rows come last there."""
    stated = base.stated(problem)
    sliced = stated.flow is not Flow.RECEIVE and "slice_tiles" in reads.of_fused(problem, machine.backend)
    orders = ("remote_first", "rotated", "natural", *((reads.IN_TURNS,) if sliced else ()))
    in_turns = machine.device.kind == "gpu" and stated.flow is Flow.SEND and not stated.reduces
    return Axis(
        "tile_order",
        orders,
        reads.IN_TURNS if in_turns else "rotated",
        "Whose rows come first: remote ones in rank order, remote ones from the next rank on, as they lie, or a "
        "slice of each in turns. When data come in, the first two begin with a rank's own rows, which need no "
        "wire.",
    )


def _slice(problem: Problem, machine: Machine, tiles: int) -> int:
    """Most tiles of a default slice: an eighth of a rank's, and on GPUs a wave has slices of all ranks."""
    most = max(1, tiles // SLICES)
    stated = base.stated(problem)
    if machine.device.kind == "cpu" or stated.work != "gemm":
        return most
    if stated.flow is Flow.RECEIVE:
        return _arriving(problem, base.default_tile(problem, machine))
    a_share = max(1, machine.device.slots // (2 * problem.world))
    return min(most, a_share if stated.reduces else max(1, min(a_share, tiles // TURNS)))


def _arriving(problem: Problem, size: Tile) -> int:
    """Tiles of a slice of rows that come in: what is computed together arrives together."""
    across = -(-base.stated(problem).extent(problem).columns // size.n)
    return max(1, min(base.above(ARRIVING * across), base.num_tiles(problem, str(size)) // problem.world))


def _warps(problem: Problem) -> int:
    return 8 if base.stated(problem).work == "gemm" else 4


def _rows_together(problem: Problem) -> int:
    return 1 if base.stated(problem).flow is Flow.RECEIVE else GROUP


def _comm_sms(problem: Problem, offered: Sequence[int]) -> int:
    """Rows that come in need somebody who sends them while others compute; results are sent by who computed them."""
    return COMM_SMS if COMM_SMS in offered and base.stated(problem).flow is Flow.RECEIVE else 0


def _kernel_axes(problem: Problem, machine: Machine) -> tuple[Axis, ...]:
    """What only a kernel of ours on a GPU has."""
    slots = machine.device.slots
    blocks = tuple(b for b in (0, 4, 8, 16, 32) if b < slots)
    return (
        Axis(
            "store", ("tma", "registers"), STORE,
            "Tiles leave by the bulk copy engine, or by the stores of every thread.",
        ),
        Axis("num_warps", (4, 8), _warps(problem), "Warps of a block."),
        Axis("num_stages", (2, 3, 4), STAGES, "How many steps of the contraction are loaded ahead."),
        *_group_rows(problem),
        Axis("grid", (0, slots, 2 * slots), 0, "Persistent blocks; 0 = as many as fit at once."),
        Axis("comm_sms", blocks, _comm_sms(problem, blocks), "SMs that communicate first; 0 = all compute and send."),
    )  # fmt: skip


def _group_rows(problem: Problem) -> tuple[Axis, ...]:
    """Where rows come in, their slices say which rows are computed together."""
    stated = base.stated(problem)
    if stated.work != "gemm":
        return ()
    usual = _rows_together(problem)
    doc = "How many rows of tiles are computed together, column by column. A wave of them reads fewer operands."
    if stated.flow is Flow.RECEIVE:
        doc = "1: the rows of a slice are computed column by column; 0: row by row."
        return (Axis("group_rows", (0, 1), usual, doc),)
    return (Axis("group_rows", (1, 2, 4, 8, 16), usual, doc),)


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    if fabric.kind == "network":
        return (
            "scheme = fused does not run on fabric = network. Its kernel stores into its peers' memory, and it "
            "reaches 0 of world - 1 peers on other hosts. Accepted: sequential, or decomposed with engine = "
            "library."
        )
    return None


Slice = tuple[int, tuple[int, int]]
"""Whose rows, and the range of the rank's tiles."""


def _order(problem: Problem, schedule: Schedule, rank: int) -> tuple[Tiles, list[Slice]]:
    """All tiles of *rank* and the slices they leave in: chunk after chunk, or one slice of each chunk in turns."""
    chunks, size = chunk_order(problem, schedule, rank), slice_size(problem, schedule)
    found = base.cut([base.whole_chunk(problem, chunk) for chunk in chunks], base.size_of(schedule))
    if group := schedule.get("group_rows"):
        found = Cut(_grouped(found.tiles, int(group) * base.size_of(schedule).m), found.bounds)
    by_chunk = [
        [(chunk, (start, min(start + size, stop))) for start in range(*found.range_of(block), size)]
        for block, chunk in enumerate(chunks)
        for stop in [found.bounds[block + 1]]
    ]
    if schedule["tile_order"] != reads.IN_TURNS:
        return found.tiles, [each for slices in by_chunk for each in slices]
    return _in_turns(found.tiles, [each for turn in zip(*by_chunk, strict=True) for each in turn])


def _grouped(tiles: Tiles, rows: int) -> Tiles:
    """Inside each chunk *rows* rows at a time, column by column: tiles that run together read fewer operands."""
    first = np.cumsum(np.diff(tiles.chunk, prepend=-1) != 0)  # chunks stay in their order
    return _taken(tiles, np.lexsort((tiles.row_start, tiles.col_start, tiles.row_start // rows, first)))


def _by_columns(cut: Cut) -> Tiles:
    """Inside each block column by column, for the same reason."""
    block = np.repeat(np.arange(len(cut.bounds) - 1), np.diff(cut.bounds))
    return _taken(cut.tiles, np.lexsort((cut.tiles.row_start, cut.tiles.col_start, block)))


def _taken(tiles: Tiles, order: np.ndarray) -> Tiles:
    """*tiles* in another order."""
    return Tiles(*(getattr(tiles, column.name)[order] for column in fields(Tiles)))


def _in_turns(tiles: Tiles, slices: Sequence[Slice]) -> tuple[Tiles, list[Slice]]:
    """*tiles* in the order of *slices*, and the slices' new ranges."""
    order = np.concatenate([np.arange(*at) for _, at in slices])
    bounds = np.cumsum([0, *(stop - start for _, (start, stop) in slices)])
    return _taken(tiles, order), [
        (chunk, (int(i), int(j))) for (chunk, _), (i, j) in zip(slices, pairwise(bounds), strict=True)
    ]


def chunk_order(problem: Problem, schedule: Schedule, rank: int) -> list[int]:
    """Chunks in the order in which *rank* computes them."""
    others = base.peers_from(rank, problem.world)
    receives = base.stated(problem).flow is Flow.RECEIVE
    match schedule["tile_order"]:
        case "natural":
            return list(range(problem.world))
        case "remote_first":
            others = sorted(others)
        case _:
            others = others[::-1] if receives else others
    return [rank, *others] if receives else [*others, rank]


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    if base.stated(problem).flow is Flow.RECEIVE:
        return _receive(problem, schedule)
    orders = [_order(problem, schedule, rank) for rank in range(problem.world)]
    planner = Planner(problem, schedule, [tiles for tiles, _ in orders])
    units = [
        [Unit(chunk, at, base.compute(planner, rank, at)) for chunk, at in slices]
        for rank, (_, slices) in enumerate(orders)
    ]
    deliver(planner, units, in_place=schedule.get("write") != "staged")
    return planner.plan(launches.one_kernel(problem, schedule))


def slice_rows(problem: Problem, schedule: Schedule) -> list[tuple[int, int]]:
    """Operand rows that travel with one signal: those of the rows of tiles that slice_tiles tiles lie in."""
    size, extent = base.size_of(schedule), base.stated(problem).extent(problem)
    across = -(-extent.columns // size.n)
    rows = -(-schedule.count("slice_tiles") // across) * size.m
    length = base.stated(problem).chunk_rows(problem)
    return [(start, min(start + rows, length)) for start in range(0, length, rows)]


def _receive(problem: Problem, schedule: Schedule) -> Plan:
    world, slices = problem.world, slice_rows(problem, schedule)
    columns = base.stated(problem).extent(problem).columns
    blocks = [
        [Block(c, *rows, 0, columns) for c in chunk_order(problem, schedule, rank) for rows in slices]
        for rank in range(world)
    ]
    cuts = [base.cut(mine, base.size_of(schedule)) for mine in blocks]
    if schedule.get("group_rows"):
        cuts = [Cut(_by_columns(each), each.bounds) for each in cuts]
    planner = Planner(problem, schedule, [each.tiles for each in cuts])
    arrived = _put_slices(planner, slices)
    for rank, (mine, order) in enumerate(zip(blocks, cuts, strict=True)):
        for number, block in enumerate(mine):
            after = [arrived[rank][block.chunk, block.row_start]] if block.chunk != rank else []
            base.compute(planner, rank, order.range_of(number), after=after)
    return planner.plan(launches.one_kernel(problem, schedule))


def _put_slices(planner: Planner, slices: Sequence[tuple[int, int]]) -> list[dict[tuple[int, int], int]]:
    """By rank: (source, first row) -> the step after which that slice can be read."""
    world = planner.problem.world
    arrived: list[dict[tuple[int, int], int]] = [{} for _ in range(world)]
    for rank in range(world):
        for rows in slices:
            for peer in _send_order(planner, rank):
                arrived[peer][rank, rows[0]] = base.put_rows(planner, rank, peer, rows)
    if planner.schedule.get("write") == "staged":
        ends, whole = dict(slices), base.full_k(planner.problem)
        for rank in range(world):
            arrived[rank] = {
                (source, row): base.unstage(planner, rank, source, (row, ends[row]), whole, after=[step])
                for (source, row), step in arrived[rank].items()
            }
    return arrived


def _send_order(planner: Planner, rank: int) -> list[int]:
    peers = base.peers_from(rank, planner.problem.world)
    return peers if planner.schedule["tile_order"] == "rotated" else sorted(peers)


def alone(problem: Problem, size: Value) -> Schedule:
    """How a GPU's fused kernel with tiles of *size* computes alone: rows as they lie, the other axes at their default.

    It needs no Machine, so that ranks can put it together.
    """
    usual: dict[str, Value] = {
        "tile": size, "store": STORE, "num_warps": _warps(problem), "num_stages": STAGES,
        "group_rows": _rows_together(problem), "tile_order": "natural", "slice_tiles": _arriving(problem, tile(size)),
        "grid": 0, "comm_sms": 0,
    }  # fmt: skip
    known = tuple((name, usual[name]) for name in reads.of_fused(problem, "triton"))
    return reads.read(problem, Schedule("fused", known), "triton")


def order_alone(problem: Problem, size: Value) -> Cut:
    """The tiles of every rank in the order in which `alone` computes them, a block for each chunk."""
    tiles = _expand(problem, alone(problem, size)).tiles[0]
    return Cut(tiles, tuple(np.searchsorted(tiles.chunk, np.arange(problem.world + 1)).tolist()))


SCHEME = Scheme(
    name="fused",
    idea="One kernel: a workgroup sends its result as soon as it is done.",
    source="arXiv:2305.06942",
    axes=_axes,
    refusal=_refusal,
    expand=_expand,
    needs_peer_memory=lambda schedule: True,
    run_by=("cpu", "triton"),
    is_operator=True,
)
