"""How computed units reach their owners and, where the operator says so, are summed and given to all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.operators import Flow
from kernels.plan import Planner
from kernels.schemes import base


@dataclass(frozen=True, slots=True)
class Unit:
    """A range of one chunk's tiles on one rank, and the step that computes it."""

    chunk: int
    at: tuple[int, int]
    step: int


def deliver(planner: Planner, units: Sequence[Sequence[Unit]], *, in_place: bool = False) -> None:
    """Puts for every unit whose chunk another rank owns, then reduce and broadcast if the operator reduces.

    `units[rank]` are in the order in which they should leave; the n-th unit of a chunk has the same extent on
    every rank, so that sums pair up by it.
    """
    puts = [
        [
            (unit, base.put_tiles(planner, rank, unit.chunk, unit.at, after=[unit.step], in_place=in_place))
            for unit in mine
            if unit.chunk != rank
        ]
        for rank, mine in enumerate(units)
    ]
    if base.stated(planner.problem).reduces:
        arrived = [
            {owner: [put for unit, put in mine if unit.chunk == owner] for owner in range(len(units))} for mine in puts
        ]
        _sum(planner, units, arrived)


def _sum(planner: Planner, units: Sequence[Sequence[Unit]], arrived: Sequence[dict[int, list[int]]]) -> None:
    world = len(units)
    for rank in range(world):
        own = [unit for unit in units[rank] if unit.chunk == rank]
        for number, unit in enumerate(own):
            after = [unit.step] + [arrived[peer][rank][number] for peer in base.peers_from(rank, world)]
            summed = base.reduce(planner, rank, unit.at, after=after)
            if base.stated(planner.problem).flow is Flow.BROADCAST:
                for peer in base.peers_from(rank, world):
                    base.put_tiles(planner, rank, peer, unit.at, after=[summed])
