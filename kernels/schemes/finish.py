"""How computed units reach their owners and, where the operator says so, are summed and given to all."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from kernels import ranges
from kernels.operators import Flow
from kernels.plan import Ints, Planner, Range
from kernels.schemes import base


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
    rank, peers = units.rank[:, None], base.peers_of(world)[units.rank]
    start, stop = units.start[:, None], units.stop[:, None]
    sent = base.put_tiles(planner, rank, peers, (start, stop), after=units.step[:, None, None], in_place=in_place)
    chunk, nth = units.chunk[:, None], ranges.nth(units.rank * world + units.chunk)[:, None]
    arrived = np.full((world, world, int(chunk.max(initial=-1)) + 1, int(nth.max(initial=-1)) + 1), -1)
    arrived[peers, rank, chunk, nth] = sent
    base.reduce(planner, units.rank, units.at, after=np.column_stack([units.step, arrived[rank, peers, chunk, nth]]))


def deliver(planner: Planner, units: Units, *, in_place: bool = False, added_up: bool = False) -> None:
    """Puts for every unit whose chunk another rank owns, then reduce and broadcast if the operator reduces.

    *added_up*: own units are computed onto what has arrived, and nothing is left to be summed.
    """
    stays = units.chunk == units.rank
    sent = units.where(~stays)
    puts = base.put_tiles(planner, sent.rank, sent.chunk, sent.at, after=sent.step[:, None], in_place=in_place)
    if base.operator_of(planner.problem).reduces:
        finish = _onto if added_up else _sum
        finish(planner, units.where(stays), sent, puts)


def _contributions(planner: Planner, kept: Units, sent: Units, puts: Ints) -> Ints:
    """[unit, turn] the puts that bring the n-th unit of every peer to the owner's n-th one."""
    world = planner.problem.world
    number, peers = ranges.nth(kept.rank), base.peers_of(world)[kept.rank]
    arrived = np.full((world, world, int(number.max(initial=-1)) + 1), -1)
    arrived[sent.chunk, sent.rank, ranges.nth(sent.rank * world + sent.chunk)] = puts
    return arrived[kept.rank[:, None], peers, number[:, None]]


def _onto(planner: Planner, kept: Units, sent: Units, puts: Ints) -> None:
    """Each owner computes its n-th unit onto the n-th one of every peer, and where all want it, tells them.

    It tells them behind all contributions: a copy stream that told a sum first would keep back what the peer adds to.
    """
    planner.wait(kept.step[:, None], _contributions(planner, kept, sent, puts))
    if base.operator_of(planner.problem).flow is Flow.BROADCAST:
        rank, start, stop, total = (column[:, None] for column in (kept.rank, kept.start, kept.stop, kept.step))
        peers = base.peers_of(planner.problem.world)[kept.rank]
        base.put_tiles(planner, rank, peers, (start, stop), after=total[..., None])


def _sum(planner: Planner, kept: Units, sent: Units, puts: Ints) -> None:
    """Each owner sums its n-th unit when the n-th one of every peer is there, and where all want it, tells them."""
    peers = base.peers_of(planner.problem.world)[kept.rank]
    contributions = _contributions(planner, kept, sent, puts)
    summed = base.reduce(planner, kept.rank, kept.at, after=np.column_stack([kept.step, contributions]))
    if base.operator_of(planner.problem).flow is Flow.BROADCAST:
        rank, start, stop, total = (column[:, None] for column in (kept.rank, kept.start, kept.stop, summed))
        planner.follow(base.put_tiles(planner, rank, peers, (start, stop), after=total[..., None]), total)
