"""Kernels that share a GPU: their blocks take SMs one by one as these come free, and none is ever interrupted."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from workbench.simulator.price.costs import Grids

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Event = tuple[float, int, int]
"""When, of which step, and what: 0 it gives its share back, 1 others see it, -n blocks of it give n units back."""


class Dealer:
    """Deals the units of pools to the blocks of grids.

    Blocks of the highest priority go first; of one priority those of the grid that has begun, then the lowest place.
    A block keeps its unit for all of its tiles.
    """

    def __init__(self, grids: Grids, queue: Ints, priority: Ints, lead: Floats) -> None:
        self._blocks, self._tiles = grids.blocks.tolist(), grids.tiles.tolist()
        self._resident, self._seconds = grids.resident.tolist(), grids.tile_seconds.tolist()
        self._priority, self._lead = priority.tolist(), lead.tolist()
        self._dealt, self._running = [0] * len(self._blocks), [0] * len(self._blocks)
        self.queues = frozenset(queue[grids.blocks > 0].tolist())
        self._begun: dict[int, list[int]] = {queue: [] for queue in self.queues}
        assert not np.isin(queue[grids.blocks == 0], list(self.queues)).any(), "a pool has grids alone, or none"

    def deal(self, queue: int, free: int, heads: list[int], step_at: list[int], now: float,
             events: list[Event]) -> tuple[int, list[int]]:  # fmt: skip
        """The units that are left of *free*, and the steps that have begun. *heads*: places that are ready, a heap."""
        begun, started = self._begun[queue], list[int]()
        while free and (heads or begun):
            step = max(begun, key=lambda each: self._priority[each], default=-1)
            if heads and (step < 0 or self._priority[step_at[heads[0]]] > self._priority[step]):
                step = step_at[heappop(heads)]
                begun.append(step)
                started.append(step)
            free -= self._give(step, free, now, events)
            if self._dealt[step] == self._blocks[step]:
                begun.remove(step)
        return free, started

    def _give(self, step: int, free: int, now: float, events: list[Event]) -> int:
        """As many blocks of *step* as *free* units hold begin; how many units they take."""
        resident, first = self._resident[step], self._dealt[step]
        count = min(self._blocks[step] - first, free * resident)
        each, more = divmod(self._tiles[step], self._blocks[step])
        longer = max(0, min(first + count, more) - first)
        units, held = -(-count // resident), -(-longer // resident)
        lead = self._lead[step] if not first else 0.0
        for number, tiles in ((held, each + 1), (units - held, each)):
            if number:
                heappush(events, (now + lead + tiles * self._seconds[step], step, -number))
                self._running[step] += 1
        self._dealt[step] = first + count
        return units

    def is_done(self, step: int) -> bool:
        """Some blocks of *step* have ended: whether they were the last."""
        self._running[step] -= 1
        return not self._running[step] and self._dealt[step] == self._blocks[step]
