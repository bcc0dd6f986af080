"""Decomposed: the operator cut one level finer than the shard, its pieces pipelined (FiCCO)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from kernels import ranges
from kernels.axes import Axis
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import Flow
from kernels.plan import Ints, Plan, Planner
from kernels.problem import Problem
from kernels.ranges import Ranges
from kernels.schedule import Schedule
from kernels.schemes import base, launches, library, reads
from kernels.schemes.base import Blocks, Scheme
from kernels.schemes.finish import Units, deliver

PIECES = (1, 2, 4, 8, 16, 32, 64)
STEPS = {"steps": ("uniform", "local_first"), "grouping": ("fused", "unfused"), "pattern": ("all_to_all", "ring")}
"""Who is served in a step, by axis. The library takes all peers' pieces alike: it goes with the first value of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """What every chunk is cut into, as columns: each piece is one step's share of a chunk."""

    rows: Ranges
    columns: Ranges
    k: Ranges
    rectangle: Ints
    """Pieces of one number are the same rows and columns, over one range of the contraction after the other."""

    def __len__(self) -> int:
        return len(self.rectangle)


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    operator = base.operator_of(problem)
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
    """As operator, or the only one that the operator has."""
    return str(schedule.get("split") or next(iter(base.operator_of(problem).splits)))


def extents(problem: Problem, split: str) -> tuple[int, ...]:
    """How many pieces each direction of *split* can have at the most."""
    operator, extent = base.operator_of(problem), base.operator_of(problem).extent(problem)
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
    direction = base.operator_of(problem).splits[split]
    rows, columns, contraction = counts(schedule, direction)
    extent = base.operator_of(problem).extent(problem)
    for wanted, most in (
        (rows, base.operator_of(problem).chunk_rows(problem)),
        (columns, extent.columns),
        (contraction, extent.contraction),
    ):
        if wanted > most:
            return (
                f"pieces = {count} with split = {split} is too many. A shard is only {most} long that way: {wanted} "
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


def pieces_of(problem: Problem, schedule: Schedule) -> Pieces:
    """The pieces in order, rows outermost."""
    operator, extent = base.operator_of(problem), base.operator_of(problem).extent(problem)
    each = counts(schedule, operator.splits[split_of(problem, schedule)])
    lengths = (operator.chunk_rows(problem), extent.columns, extent.contraction)
    cuts = [base.parts(length, count) for length, count in zip(lengths, each, strict=True)]
    rows, columns, k = (
        (cut[number], cut[number + 1]) for cut, number in zip(cuts, np.indices(each).reshape(3, -1), strict=True)
    )
    return Pieces(rows, columns, k, np.arange(len(k[0])) // each[2])


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The compute steps of every rank in order: each computes one piece of one chunk, or of several.

    Ranks differ in whose chunks come in which turn, and in nothing else.
    """

    chunks: Ints
    """[rank, turn]: every chunk has a turn."""
    turn: Ints
    piece: Ints
    step: Ints
    """Number of the compute step: ascending. These columns are by block: one piece of one chunk."""
    bounds: Ints
    """Block b is tiles bounds[b]..bounds[b + 1] of every rank."""

    @property
    def chunk(self) -> Ints:
        """[rank, block]"""
        return self.chunks[:, self.turn]

    @property
    def first(self) -> Ints:
        """The first block of every compute step, and the end of the last one."""
        return np.append(np.flatnonzero(np.diff(self.step, prepend=-1)), len(self.step))

    @property
    def ranges(self) -> Ranges:
        """The tiles of every compute step."""
        return self.bounds[self.first[:-1]], self.bounds[self.first[1:]]


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    pieces = pieces_of(problem, schedule)
    chunks, (turn, piece, step) = _chunk_orders(problem), _blocks(problem, schedule, len(pieces))
    blocks = Blocks.of(turn, ranges.some(pieces.rows, piece), ranges.some(pieces.columns, piece))
    cut = base.cut(blocks, base.size_of(schedule))
    layout = Layout(chunks, turn, piece, step, cut.bounds)
    tiles = [replace(cut.tiles, chunk=of_rank[cut.tiles.chunk]) for of_rank in chunks]
    planner = Planner(problem, schedule, tiles)
    if base.operator_of(problem).flow is Flow.RECEIVE:
        _receive(planner, layout, pieces)
    else:
        _send(planner, layout, pieces)
    return planner.plan(launches.one_each(problem))


def _chunk_orders(problem: Problem) -> Ints:
    """[rank, turn]: data come from rank - 1 first if every rank sends to rank + 1 first."""
    itself, peers = np.arange(problem.world), base.peers_of(problem.world)
    receives = base.operator_of(problem).flow is Flow.RECEIVE
    return np.column_stack([itself, peers[:, ::-1]] if receives else [peers, itself])


def _blocks(problem: Problem, schedule: Schedule, pieces: int) -> tuple[Ints, Ints, Ints]:
    """Turn, piece and compute step of every block in order."""
    receives, apart = base.operator_of(problem).flow is Flow.RECEIVE, schedule["steps"] == "local_first"
    turns, itself = np.arange(problem.world), 0 if receives else problem.world - 1
    together = np.delete(turns, itself) if apart else turns
    piece, place = np.indices((pieces, len(together)))
    if schedule["pattern"] == "ring":
        place, piece = np.indices((len(together), pieces))
    turn, piece = together[place.ravel()], piece.ravel()
    step = piece if schedule["grouping"] == "fused" else np.arange(len(piece))
    if not apart:
        return turn, piece, step
    local, rest = (np.full(pieces, itself), np.arange(pieces), np.arange(pieces)), (turn, piece, step)
    first, last = (local, rest) if receives else (rest, local)
    later = last[2] + int(first[2].max(initial=-1)) + 1
    return np.append(first[0], last[0]), np.append(first[1], last[1]), np.append(first[2], later)


def _computes(planner: Planner, layout: Layout, pieces: Pieces) -> Ints:
    """[rank, step] the compute steps, which wait for nothing yet."""
    piece, rank = layout.piece[layout.first[:-1]], np.arange(planner.problem.world)[:, None]
    return base.compute(planner, rank, layout.ranges, k=ranges.some(pieces.k, piece))


def _send(planner: Planner, layout: Layout, pieces: Pieces) -> None:
    computed, rank = _computes(planner, layout, pieces), np.arange(planner.problem.world)
    if planner.schedule["engine"] == "library":
        at = ranges.some(layout.ranges, np.arange(computed.shape[1])[:, None])
        library.collective(planner, rank, at, after=computed.T[:, None])
        return
    at = (layout.bounds[:-1], layout.bounds[1:])
    deliver(planner, Units.of(rank[:, None], layout.chunk, at, computed[:, layout.step]))


def _receive(planner: Planner, layout: Layout, pieces: Pieces) -> None:
    """A step waits for its pieces, and for the one that computed the range of the contraction before it."""
    by_library = planner.schedule["engine"] == "library"
    arrived = _library_arrivals(planner, pieces) if by_library else _put_pieces(planner, pieces)
    computed, rank = _computes(planner, layout, pieces), np.arange(planner.problem.world)[:, None]
    of_block = computed[:, layout.step]
    pairs = [(of_block, arrived[rank, layout.chunk, layout.piece])]
    sums = ranges.before(layout.turn * len(pieces) + pieces.rectangle[layout.piece])
    pairs.append((of_block, np.where(sums >= 0, of_block[:, sums], -1)))
    waiting, needed = (np.concatenate(column, axis=None) for column in zip(*pairs, strict=True))
    planner.wait(*ranges.distinct(waiting[needed >= 0], needed[needed >= 0]))


def _put_pieces(planner: Planner, pieces: Pieces) -> Ints:
    """[rank, source, piece] the step after which that piece of the source's rows is on rank; -1: own rows."""
    world, count = planner.problem.world, len(pieces)
    rank, number, turn = np.indices((world, count, world - 1))
    if planner.schedule["pattern"] == "ring":
        rank, turn, number = np.indices((world, world - 1, count))
    peer = base.peers_of(world)[rank, turn]
    rows, k = ranges.some(pieces.rows, number), ranges.some(pieces.k, number)
    arrived = np.full((world, world, count), -1)
    arrived[peer, rank, number] = base.put_rows(planner, rank, peer, rows, k=k)
    return arrived


def _library_arrivals(planner: Planner, pieces: Pieces) -> Ints:
    """The same of collectives, each of which brings one piece of all ranks."""
    number = np.arange(len(pieces))[:, None]
    here = library.gather(planner, rows=ranges.some(pieces.rows, number), k=ranges.some(pieces.k, number)).T
    return np.repeat(here[:, None], planner.problem.world, axis=1)


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
