"""Decomposed: the operator cut one level finer than the shard, its pieces pipelined (FiCCO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from kernels.axes import Axis
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import Flow
from kernels.plan import Plan, Planner
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import base, launches, library, reads
from kernels.schemes.base import Block, Scheme
from kernels.schemes.finish import Unit, deliver

PIECES = (1, 2, 4, 8, 16, 32, 64)
STEPS = {"steps": ("uniform", "local_first"), "grouping": ("fused", "unfused"), "pattern": ("all_to_all", "ring")}
"""Who is served in a step, by axis. The library takes all peers' pieces alike: it goes with the first value of each."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One step's share of every chunk."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    k: tuple[int, int]

    def of(self, chunk: int) -> Block:
        return Block(chunk, *self.rows, *self.columns)


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    operator = base.stated(problem)
    splits = tuple(operator.splits)
    engines: tuple[str, ...] = ("copy_engine", "sm", "library") if machine.device.copy_engines else ("sm", "library")
    engines = tuple(e for e in engines if e != "library" or not (fabric.emulated or problem.world == 1))
    engines = ("library",) if fabric.kind == "network" and problem.world > 1 else engines
    most = min(max(extents(problem, split)) for split in splits[:1])
    pieces = tuple(p for p in PIECES if p <= most)
    alone = engines == ("library",)  # on a network, where nobody else moves the pieces
    served = {axis: values[:1] if alone else values for axis, values in STEPS.items()}
    why = " The library is alone here, and takes the pieces of all peers in a step alike." if alone else ""
    known = (
        base.tile_axis(problem, machine),
        Axis("pieces", pieces, min(8, pieces[-1]), "How many pieces each shard is cut into.", open=True),
        Axis("split", splits, splits[0], "The direction of the cut."),
        Axis(
            "steps",
            served["steps"],
            "uniform",
            f"Every step alike, or this rank's own shard apart: first when data come in, last when they go out.{why}",
        ),
        Axis("grouping", served["grouping"], "fused", f"One computation per step, or one per peer's piece.{why}"),
        Axis("pattern", served["pattern"], "all_to_all", f"Each step talks to all peers, or to one.{why}"),
        Axis(
            "engine",
            engines,
            engines[0],
            "Who moves the pieces: a copy engine, the SMs (a CPU rank itself), or the library.",
        ),
    )
    return tuple(axis for axis in known if axis.name in reads.of_decomposed(problem))


def split_of(problem: Problem, schedule: Schedule) -> str:
    """As stated, or the only one that the operator has."""
    return str(schedule.get("split") or next(iter(base.stated(problem).splits)))


def extents(problem: Problem, split: str) -> tuple[int, ...]:
    """How many pieces each direction of *split* can have at the most."""
    operator, extent = base.stated(problem), base.stated(problem).extent(problem)
    direction, rows = operator.splits[split], operator.chunk_rows(problem)
    if direction == "rows_and_contraction":
        return rows, extent.contraction
    return ({"rows": rows, "columns": extent.columns, "contraction": extent.contraction}[direction],)


def counts(schedule: Schedule, direction: str) -> tuple[int, int, int]:
    """Pieces along rows, columns and contraction."""
    count = schedule.count("pieces")
    if direction == "rows_and_contraction":
        rows = next(r for r in range(isqrt(count), 0, -1) if count % r == 0)
        return rows, 1, count // rows
    return (
        count if direction == "rows" else 1,
        count if direction == "columns" else 1,
        count if direction == "contraction" else 1,
    )


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    split, count = split_of(problem, schedule), schedule.count("pieces")
    direction = base.stated(problem).splits[split]
    rows, columns, contraction = counts(schedule, direction)
    extent = base.stated(problem).extent(problem)
    for asked, most in (
        (rows, base.stated(problem).chunk_rows(problem)),
        (columns, extent.columns),
        (contraction, extent.contraction),
    ):
        if asked > most:
            return (
                f"pieces = {count} with split = {split} is too many. A shard is only {most} long that way: {asked} "
                f"> {most}. Accepted: at most {most} that way."
            )
    if schedule["pattern"] == "ring" and schedule["grouping"] == "fused":
        return (
            "grouping = fused does not go with pattern = ring. A ring step has 1 peer's piece, and fused groups "
            "world - 1 of them. Accepted: grouping = unfused, or pattern = all_to_all."
        )
    if schedule["pattern"] == "ring" and schedule["steps"] == "local_first":
        return (
            "steps = local_first changes nothing with pattern = ring: both values give 1 plan, because a ring "
            "already keeps this rank's own shard apart. Accepted: steps = uniform, or pattern = all_to_all."
        )
    if schedule["engine"] == "library":
        return _library_refusal(schedule)
    return None


def _library_refusal(schedule: Schedule) -> str | None:
    """A library collective takes every peer's piece at once."""
    for axis in reversed(STEPS):
        needed = STEPS[axis][0]
        if schedule[axis] != needed:
            return (
                f"{axis} = {schedule[axis]} does not go with engine = library: 1 library call takes the pieces of "
                f"all peers in a step alike. Accepted: {axis} = {needed}, or another engine."
            )
    return None


def pieces_of(problem: Problem, schedule: Schedule) -> list[Piece]:
    """The pieces in order, rows outermost."""
    extent = base.stated(problem).extent(problem)
    rows, columns, contraction = counts(schedule, base.stated(problem).splits[split_of(problem, schedule)])
    return [
        Piece(r, c, k)
        for r in base.parts(base.stated(problem).chunk_rows(problem), rows)
        for c in base.parts(extent.columns, columns)
        for k in base.parts(extent.contraction, contraction)
    ]


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    layouts = [_layout(problem, schedule, rank) for rank in range(problem.world)]
    cuts = [
        base.cut([block for group in layout for block in group.blocks], base.size_of(schedule)) for layout in layouts
    ]
    planner = Planner(problem, schedule, [each.tiles for each in cuts])
    if base.stated(problem).flow is Flow.RECEIVE:
        _receive(planner, layouts, cuts)
    else:
        _send(planner, layouts, cuts)
    return planner.plan(launches.one_each(problem))


@dataclass(frozen=True, slots=True)
class Group:
    """What one compute step computes: pieces of one or several chunks."""

    blocks: tuple[Block, ...]
    numbers: tuple[int, ...]
    """Piece number of each block."""
    k: tuple[int, int]


def _layout(problem: Problem, schedule: Schedule, rank: int) -> list[Group]:
    """The compute steps of *rank* in order."""
    pieces = list(enumerate(pieces_of(problem, schedule)))
    receives, peers = base.stated(problem).flow is Flow.RECEIVE, _peers(problem, schedule, rank)
    apart = schedule["steps"] == "local_first"
    own_inside = [] if apart else [rank]
    inside = [*own_inside, *peers] if receives else [*peers, *own_inside]
    if schedule["pattern"] == "ring":
        groups = [Group((p.of(c),), (n,), p.k) for c in inside for n, p in pieces]
    elif schedule["grouping"] == "unfused":
        groups = [Group((p.of(c),), (n,), p.k) for n, p in pieces for c in inside]
    else:
        groups = [Group(tuple(p.of(c) for c in inside), (n,) * len(inside), p.k) for n, p in pieces if inside]
    if not apart:
        return groups
    own = [Group((p.of(rank),), (n,), p.k) for n, p in pieces]
    return [*own, *groups] if receives else [*groups, *own]


def _peers(problem: Problem, schedule: Schedule, rank: int) -> list[int]:
    """Peers in the order of this rank's steps: data come from rank - 1 first if every rank sends to rank + 1 first."""
    sends_to = base.peers_from(rank, problem.world)
    return sends_to[::-1] if base.stated(problem).flow is Flow.RECEIVE else sends_to


def _bounds(layout: Sequence[Group], order: base.Cut) -> list[list[tuple[int, int]]]:
    """Range of tiles of each block of each group."""
    ranges = iter(range(len(order.bounds) - 1))
    return [[order.range_of(next(ranges)) for _ in group.blocks] for group in layout]


def _send(planner: Planner, layouts: Sequence[Sequence[Group]], cuts: Sequence[base.Cut]) -> None:
    units: list[list[Unit]] = []
    steps: list[list[tuple[int, tuple[int, int]]]] = []
    for rank, (layout, order) in enumerate(zip(layouts, cuts, strict=True)):
        mine, done = [], []
        for group, ranges in zip(layout, _bounds(layout, order), strict=True):
            at = (ranges[0][0], ranges[-1][1])
            step = base.compute(planner, rank, at, k=group.k)
            done.append((step, at))
            mine += [Unit(block.chunk, span, step) for block, span in zip(group.blocks, ranges, strict=True)]
        units.append(mine)
        steps.append(done)
    if planner.schedule["engine"] == "library":
        for same in zip(*steps, strict=True):
            library.collective(planner, [at for _, at in same], after=[step for step, _ in same])
    else:
        deliver(planner, units)


def _receive(planner: Planner, layouts: Sequence[Sequence[Group]], cuts: Sequence[base.Cut]) -> None:
    pieces = pieces_of(planner.problem, planner.schedule)
    arrived = (
        _library_arrivals(planner, pieces) if planner.schedule["engine"] == "library" else _put_pieces(planner, pieces)
    )
    for rank, (layout, order) in enumerate(zip(layouts, cuts, strict=True)):
        last: dict[tuple[int, int, int], int] = {}
        for group, ranges in zip(layout, _bounds(layout, order), strict=True):
            keys = [(block.chunk, block.row_start, block.col_start) for block in group.blocks]
            after = {
                step
                for block, number in zip(group.blocks, group.numbers, strict=True)
                for step in arrived[rank].get((block.chunk, number), ())
            }
            after |= {last[key] for key in keys if key in last}
            step = base.compute(planner, rank, (ranges[0][0], ranges[-1][1]), k=group.k, after=sorted(after))
            last.update(dict.fromkeys(keys, step))


Arrivals = list[dict[tuple[int, int], tuple[int, ...]]]
"""By rank: (source chunk, piece number) -> the steps after which that piece is there."""


def _put_pieces(planner: Planner, pieces: Sequence[Piece]) -> Arrivals:
    world = planner.problem.world
    arrived: Arrivals = [{} for _ in range(world)]
    ring = planner.schedule["pattern"] == "ring"
    for rank in range(world):
        peers = base.peers_from(rank, world)
        pairs = (
            [(p, n) for p in peers for n in range(len(pieces))]
            if ring
            else [(p, n) for n in range(len(pieces)) for p in peers]
        )
        for peer, number in pairs:
            step = base.put_rows(planner, rank, peer, pieces[number].rows, k=pieces[number].k)
            arrived[peer][rank, number] = (step,)
    return arrived


def _library_arrivals(planner: Planner, pieces: Sequence[Piece]) -> Arrivals:
    world = planner.problem.world
    arrived: Arrivals = [{} for _ in range(world)]
    for number, piece in enumerate(pieces):
        for rank, step in enumerate(library.gather(planner, rows=piece.rows, k=piece.k)):
            arrived[rank].update({(chunk, number): (step,) for chunk in range(world)})
    return arrived


SCHEME = Scheme(
    name="decomposed",
    idea="Cut the operator finer than the shard and pipeline the pieces.",
    source="arXiv:2512.10236",
    axes=_axes,
    refusal=_refusal,
    expand=_expand,
    needs_peer_memory=lambda schedule: schedule["engine"] != "library",
    run_by=("cpu",),
)
