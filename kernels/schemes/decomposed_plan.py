"""What a decomposed schedule expands to: pieces in order, who computes which together, and what waits for what."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt

import numpy as np

from kernels import ranges
from kernels.operators import Flow
from kernels.plan import Ints, Plan, Planner
from kernels.problem import Problem
from kernels.ranges import Ranges
from kernels.schedule import Schedule
from kernels.schemes import base, launches, library
from kernels.schemes.base import Blocks
from kernels.schemes.finish import Units, deliver
from kernels.schemes.reads import LAUNCHES, ONE, PER_PIECE


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

    def and_all(self) -> Pieces:
        """These, and behind them one that is all of them."""
        rows, columns, k = (
            (np.append(start, 0), np.append(stop, stop[-1])) for start, stop in (self.rows, self.columns, self.k)
        )
        return Pieces(rows, columns, k, np.append(self.rectangle, 0))


def split_of(problem: Problem, schedule: Schedule) -> str:
    """As operator, or the only one that the operator has."""
    return str(schedule.get("split") or next(iter(base.operator_of(problem).splits)))


def counts(count: int, direction: str) -> tuple[int, int, int]:
    """Of *count* pieces those along rows, columns and contraction."""
    if direction == "rows_and_contraction":
        rows = next(r for r in range(isqrt(count), 0, -1) if count % r == 0)
        return rows, 1, count // rows
    return (
        count if direction == "rows" else 1,
        count if direction == "columns" else 1,
        count if direction == "contraction" else 1,
    )


def pieces_of(problem: Problem, schedule: Schedule) -> Pieces:
    """The pieces in order, rows outermost."""
    operator, extent = base.operator_of(problem), base.operator_of(problem).extent(problem)
    each = counts(schedule.count("pieces"), operator.splits[split_of(problem, schedule)])
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


def expand(problem: Problem, schedule: Schedule) -> Plan:
    """The Plan of a complete schedule. Only those of GPUs say how many launches compute."""
    pieces = pieces_of(problem, schedule)
    chunks, (turn, piece, step) = _chunk_orders(problem), _blocks(problem, schedule, len(pieces))
    known = pieces.and_all()
    blocks = Blocks.of(turn, ranges.some(known.rows, piece), ranges.some(known.columns, piece))
    cut = base.cut(blocks, base.size_of(schedule))
    layout = Layout(chunks, turn, piece, step, cut.bounds)
    tiles = [replace(cut.tiles, chunk=of_rank[cut.tiles.chunk]) for of_rank in chunks]
    planner = Planner(problem, schedule, tiles)
    if base.operator_of(problem).flow is Flow.RECEIVE:
        _receive(planner, layout, pieces)
    else:
        _send(planner, layout, pieces)
    launched = launches.one_each if schedule.get(LAUNCHES) is None else launches.on_streams
    return planner.plan(launched(problem, schedule))


def adds_up(problem: Problem, schedule: Schedule) -> bool:
    """Whether own pieces are computed onto the partial sums that arrived, so that no separate addition is left.

    Own pieces are then steps of their own. Contributions of several peers lie apart: only the epilogue of our one
    kernel adds them all.
    """
    if schedule.get(LAUNCHES) is None or schedule["engine"] == "library" or not base.operator_of(problem).reduces:
        return False
    apart = schedule["steps"] == "local_first" or schedule["grouping"] == "unfused"
    return schedule[LAUNCHES] == ONE or (apart and problem.world <= 2)


def own_in_one(problem: Problem, schedule: Schedule) -> bool:
    """Whether a GPU computes its own shard in one step, first or last: nothing that it waits for comes in pieces.

    Launches of smaller pieces would only take longer. Own pieces of a sum meet those of peers, one after the other.
    """
    by_itself = schedule.get(LAUNCHES) == PER_PIECE and schedule["steps"] == "local_first"
    return by_itself and not base.operator_of(problem).reduces


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
    if not apart and schedule.get(LAUNCHES) == ONE:  # one launch has its own pieces apart all the same
        step = np.cumsum(np.diff(piece * 2 + (turn == itself), prepend=-1) != 0) - 1
    if not apart:
        return turn, piece, step
    shard = np.array([pieces]) if own_in_one(problem, schedule) else np.arange(pieces)  # see Pieces.and_all
    local, rest = (np.full_like(shard, itself), shard, np.arange(len(shard))), (turn, piece, step)
    first, last = (local, rest) if receives else (rest, local)
    later = last[2] + int(first[2].max(initial=-1)) + 1
    return np.append(first[0], last[0]), np.append(first[1], last[1]), np.append(first[2], later)


def _computes(planner: Planner, layout: Layout, pieces: Pieces) -> Ints:
    """[rank, step] the compute steps, which wait for nothing yet."""
    piece, rank = layout.piece[layout.first[:-1]], np.arange(planner.problem.world)[:, None]
    return base.compute(planner, rank, layout.ranges, k=ranges.some(pieces.and_all().k, piece))


def _send(planner: Planner, layout: Layout, pieces: Pieces) -> None:
    computed, rank = _computes(planner, layout, pieces), np.arange(planner.problem.world)
    if planner.schedule["engine"] == "library":
        at = ranges.some(layout.ranges, np.arange(computed.shape[1])[:, None])
        library.collective(planner, rank, at, after=computed.T[:, None])
        return
    at = (layout.bounds[:-1], layout.bounds[1:])
    added_up = adds_up(planner.problem, planner.schedule)
    deliver(planner, Units.of(rank[:, None], layout.chunk, at, computed[:, layout.step]), added_up=added_up)


def _receive(planner: Planner, layout: Layout, pieces: Pieces) -> None:
    """A step waits for its pieces, and for the one that computed the range of the contraction before it."""
    by_library = planner.schedule["engine"] == "library"
    arrived = _library_arrivals(planner, pieces) if by_library else _put_pieces(planner, pieces)
    computed, rank = _computes(planner, layout, pieces), np.arange(planner.problem.world)[:, None]
    of_block = computed[:, layout.step]
    pairs = [(of_block, arrived[rank, layout.chunk, layout.piece])]
    sums = ranges.before(layout.turn * len(pieces) + pieces.and_all().rectangle[layout.piece])
    pairs.append((of_block, np.where(sums >= 0, of_block[:, sums], -1)))
    waiting, needed = (np.concatenate(column, axis=None) for column in zip(*pairs, strict=True))
    planner.wait(*ranges.distinct(waiting[needed >= 0], needed[needed >= 0]))


def _put_pieces(planner: Planner, pieces: Pieces) -> Ints:
    """[rank, source, piece] the step after which that piece of the source's rows is on rank; -1: own rows.

    The last piece is all of them, which only own rows are.
    """
    world, count = planner.problem.world, len(pieces)
    rank, number, turn = np.indices((world, count, world - 1))
    if planner.schedule["pattern"] == "ring":
        rank, turn, number = np.indices((world, world - 1, count))
    peer = base.peers_of(world)[rank, turn]
    rows, k = ranges.some(pieces.rows, number), ranges.some(pieces.k, number)
    arrived = np.full((world, world, count + 1), -1)
    arrived[peer, rank, number] = base.put_rows(planner, rank, peer, rows, k=k)
    return arrived


def _library_arrivals(planner: Planner, pieces: Pieces) -> Ints:
    """The same of collectives, each of which brings one piece of all ranks."""
    number = np.arange(len(pieces))[:, None]
    here = library.gather(planner, rows=ranges.some(pieces.rows, number), k=ranges.some(pieces.k, number)).T
    return np.repeat(here[:, None], planner.problem.world, axis=1)
