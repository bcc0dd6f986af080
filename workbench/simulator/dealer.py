"""Kernels that share a GPU: their blocks take SMs one by one as these come free, and none is ever interrupted."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from workbench.simulator.price.costs import Grids

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Event = tuple[float, int, int]
"""When, of which step, and what: 0 it gives its share back, 1 others see it, 2 the launch behind its own is ready, -n
blocks of it on n units have ended, or are at the end of a tile."""


class Dealer:
    """Deals the units of pools to the blocks of grids.

    Blocks of the highest priority go first; of one priority those of the grid that has begun, then the lowest place.
    Blocks are spread over all units that are free. A block keeps its unit for all of its tiles; one of a pooled grid as
    long as there are tiles that nobody has taken.
    """

    def __init__(self, grids: Grids, queue: Ints, priority: Ints, lead: Floats, rank: Ints) -> None:
        self._blocks, self._tiles = grids.blocks.tolist(), grids.tiles.tolist()
        self._resident, self._is_pooled = grids.resident.tolist(), grids.is_pooled.tolist()
        self._seconds, self._alone = grids.tile_seconds.tolist(), grids.alone_seconds.tolist()
        self._shared = grids.shared_seconds.tolist()
        self._priority, self._lead = priority.tolist(), lead.tolist()
        count = len(self._blocks)
        self._dealt, self._pending, self._busy = [0] * count, [0] * count, [0] * count
        self._left = grids.tiles.tolist()
        self._room, self._packs = grids.room.tolist(), grids.packs.tolist()
        self._beside, self._kind = grids.beside.tolist(), (2 * rank + grids.computes).tolist()
        self._under_way = [0] * (2 * int(rank.max(initial=0)) + 2)
        self.gap_seconds = grids.gap_seconds
        self.queues = frozenset(queue[grids.blocks > 0].tolist())
        self._begun: dict[int, list[int]] = {queue: [] for queue in self.queues}
        assert not np.isin(queue[grids.blocks == 0], list(self.queues)).any(), "a pool has grids alone, or none"

    def deal(self, queue: int, free: int, heads: list[int], step_at: list[int], now: float,
             events: list[Event]) -> tuple[int, list[int]]:  # fmt: skip
        """The units that are left of *free*, and the steps that have begun. *heads*: places that are ready, a heap."""
        begun, started, without_room = self._begun[queue], list[int](), list[int]()
        while free and (heads or begun):
            if heads and self._room[step_at[heads[0]]] > free:
                without_room.append(heappop(heads))
                continue
            step = max(begun, key=lambda each: self._priority[each], default=-1)
            if heads and (step < 0 or self._priority[step_at[heads[0]]] > self._priority[step]):
                step = step_at[heappop(heads)]
                begun.append(step)
                started.append(step)
                self.begins(step)
            give = self._give_pooled if self._is_pooled[step] else self._give
            free -= give(step, free, now, events)
            if self._dealt[step] == self._blocks[step]:
                begun.remove(step)
        for place in without_room:
            heappush(heads, place)
        return free, started

    def begins(self, step: int) -> None:
        """*step*, of a grid or not, is under way."""
        self._under_way[self._kind[step]] += 1

    def leaves(self, step: int) -> None:
        """It is not any more."""
        self._under_way[self._kind[step]] -= 1

    def _slower(self, step: int) -> float:
        """Times as long as usual that a tile of *step* takes now."""
        return self._beside[step] if self._under_way[self._kind[step] ^ 1] else 1.0

    def _give(self, step: int, free: int, now: float, events: list[Event]) -> int:
        """As many blocks of *step* as *free* units hold begin; how many units they take."""
        resident, first = self._resident[step], self._dealt[step]
        count = min(self._blocks[step] - first, free * resident)
        together = -(-count // free)
        if self._packs[step] and self._under_way[self._kind[step] ^ 1]:
            together = resident
        each, more = divmod(self._tiles[step], self._blocks[step])
        longer = max(0, min(first + count, more) - first)
        units, held = -(-count // together), -(-longer // together)
        lead, seconds = self._lead[step] if not first else 0.0, self._alone[step]
        if together > 1:
            seconds += (self._seconds[step] - seconds) * (together - 1) / (resident - 1)
        seconds *= self._slower(step)
        for number, tiles in ((held, each + 1), (units - held, each)):
            if number:
                heappush(events, (now + lead + tiles * seconds, step, -number))
                self._pending[step] += 1
        self._dealt[step] = first + count
        return units

    def _give_pooled(self, step: int, free: int, now: float, events: list[Event]) -> int:
        """The same of a pooled grid: blocks that find no tile are done at once."""
        first = self._dealt[step]
        count = min(self._blocks[step] - first, free, self._left[step])
        if count:
            self._take(step, count, now + (self._lead[step] if not first else 0.0), events)
        self._dealt[step] = first + count if self._left[step] else self._blocks[step]
        return count

    def _take(self, step: int, count: int, now: float, events: list[Event]) -> None:
        """So many blocks take a tile each."""
        self._left[step] -= count
        self._busy[step] += count
        floor = self._shared[step] * self._busy[step] / self._tiles[step]
        heappush(events, (now + self._slower(step) * max(self._seconds[step], floor), step, -count))
        self._pending[step] += 1

    def end(self, step: int, units: int, now: float, events: list[Event]) -> int:
        """Blocks of *step* on so many *units* have ended, or a tile of each: how many units they give back."""
        self._pending[step] -= 1
        if not self._is_pooled[step]:
            return units
        self._busy[step] -= units
        count = min(units, self._left[step])
        if count:
            self._take(step, count, now, events)
        return units - count

    def is_done(self, step: int) -> bool:
        """Whether no block of *step* runs, or will."""
        is_dealt = self._dealt[step] == self._blocks[step] or (self._is_pooled[step] and not self._left[step])
        return is_dealt and not self._pending[step]
