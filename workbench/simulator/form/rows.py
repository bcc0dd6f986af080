"""A kernel on a GPU that waits for rows: which wave waits for which slice, and when that is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.simulator.messages import put_costs
from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.waves import Kernel, tiles_of_chunk

TOGETHER = 1e-6
"""Of a message: arrivals that are nearer than this are at one time."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Slices of rows that a kernel waits for."""

    count: Column
    """Of each rank's rows."""
    num_bytes: Floats
    tiles: Column


def wave_by_wave(points: Points, kernel: Kernel, slices: Rows) -> Floats:
    """A kernel on a GPU: a wave is done after the last of its rows came, and those that follow it come after that.

    In rank order one of the last three ranks is the slowest: a wave that ends with own rows waits for nobody.
    """
    peers = points.world - 1
    each = put_costs(points, slices.num_bytes).on_lane + points.overhead
    ends = [slices.count * (peers * each + points.overhead) + kernel.end(points.world)]
    for place in range(peers, max(-1, peers - 3), -1) if points.word("tile_order") == "natural" else (0,):
        ends += _Waiting(points, kernel, slices, place).ends()
    return np.maximum.reduce(ends)


class _Waiting:
    """A rank whose own rows are the *place*-th chunk that it computes. Counts are floats: numpy divides them faster."""

    def __init__(self, points: Points, kernel: Kernel, slices: Rows, place: int) -> None:
        self._points, self._place, self._tile_seconds = points, place, kernel.tile_seconds
        self._count, self._size, self._slots, self._tiles = (
            column.astype(float) for column in (slices.count, slices.tiles, points.slots, tiles_of_chunk(points))
        )
        puts = put_costs(points, slices.num_bytes)
        self._each, self._ahead = puts.on_lane + puts.elsewhere, puts.ahead
        self._remote = [chunk for chunk in range(points.world) if chunk != place]
        self._ends = [self._waves((chunk + 1) * self._tiles) for chunk in range(points.world - 1)]
        self._ends.append(-self._waves(-points.world * self._tiles))
        """By chunk the waves that are done with it."""
        self._transit = [points.transit(peer, slices.num_bytes) for peer in range(points.world - 1)]
        self._delay = [points.delay(peer) for peer in range(points.world - 1)]
        order = points.word("tile_order") if len(set(points.peer_links)) == 1 else None
        self._one_by_one, self._by_rank = order == "rotated", order == "natural"
        """Whether chunks come one after the other, or a slice of each at one time."""

    def ends(self) -> Iterator[Floats]:
        """When all is computed, by what is left after an arrival.

        What is left grows less with each wave, and arrivals come later by the same time each: so the first and the last
        waves decide. Of slices that are in one wave the last to come counts.
        """
        for chunk in dict.fromkeys((self._remote[0], *self._remote[-2:])):
            begin = chunk * self._tiles
            last = self._waves(begin + (self._count - 1) * self._size)
            for wave in (self._waves(begin), last - 1, last):
                behind = np.floor(((wave + 1) * self._slots - 0.5 - begin) / self._size)
                nth = np.minimum(np.maximum(behind, 0.0), self._count - 1)
                there = self._arrival(chunk, nth)
                waves, steps = self._left(chunk, nth, there)
                yield there + waves * self._tile_seconds + steps * self._points.overhead

    def _left(self, chunk: int, nth: Floats, there: Floats) -> tuple[Floats, Floats]:
        """Waves and steps that nobody can have computed before the *nth* slice of *chunk* is there.

        Own rows are computed while others are awaited, and so is what has come by then of chunks that are later.
        """
        if self._one_by_one:
            return self._ends[-1] - self._begun(chunk, nth), (self._points.world - chunk) * self._count - nth
        waves, steps = self._ends[chunk] - self._begun(chunk, nth), self._count - nth
        for other in (number for number in self._remote if number != chunk):
            come = nth + (chunk > self._place > other) if self._by_rank else self._come(other, there)
            waves = waves + self._ends[other] - self._begun(other, come)
            steps = steps + self._count - come
        return waves, steps

    def _begun(self, chunk: int, nth: Floats) -> Floats:
        """Waves that are done before the *nth* slice of *chunk*; with all of them, those that end with the chunk."""
        return np.minimum(self._waves(chunk * self._tiles + nth * self._size), self._ends[chunk])

    def _waves(self, tiles: Floats) -> Floats:
        """Whole waves in so many tiles."""
        return np.asarray(np.floor((tiles + 0.5) / self._slots))

    def _peer(self, chunk: int) -> int:
        return chunk - (chunk > self._place)

    def _turns(self, chunk: int, links: Sequence[int]) -> tuple[int, int, int]:
        """How *chunk* comes: behind so many chunks for other ranks, then each slice with those for so many ranks.

        The last number is of ranks that a slice goes to after this one. Ranks send to who waits for them first: in
        rotated orders to one peer after the other, in rank order each slice to all that wait for it in the same turn.
        *links*: of the peers, the same number for those that share one.
        """
        peer = self._peer(chunk)
        others = links.count(links[peer])
        match self._points.word("tile_order"):
            case "rotated":
                return links[:peer].count(links[peer]), 1, 0
            case "natural":
                behind = self._points.world - 1 - self._place - (chunk > self._place)
                return 0, others, behind if len(set(links)) == 1 else 0
            case _:
                before = min(peer, others - 1)
                return before, others - before, 0

    def _number(self, chunk: int, nth: Floats, links: Sequence[int]) -> Floats:
        """Of the *nth* slice of *chunk* among those that share a link, from 1."""
        before, together, after = self._turns(chunk, links)
        return before * self._count + (nth + 1) * together - after

    def _arrival(self, chunk: int, nth: Floats) -> Floats:
        """When the *nth* slice of *chunk* is there."""
        peer, links = self._peer(chunk), self._points.peer_links
        one, issued = self._transit[peer], self._number(chunk, nth, [0] * len(links)) * self._each
        on_link = self._each + self._number(chunk, nth, links) * one
        return np.asarray(np.maximum(on_link, issued + one) - self._ahead + self._delay[peer])

    def _come(self, chunk: int, now: Floats) -> Floats:
        """How many slices of *chunk* have come before *now*."""
        peer, links = self._peer(chunk), self._points.peer_links
        one, since = self._transit[peer], now - self._delay[peer] + self._ahead
        ways = [((since - self._each) / one, links)]
        if np.any(self._each):
            ways.append(((since - one) / self._each, [0] * len(links)))
        most = self._count
        for number, of_links in ways:
            before, together, after = self._turns(chunk, of_links)
            come = np.ceil((number - (TOGETHER - after) - before * self._count) / together) - 1
            most = np.fmin(most, come)
        return np.maximum(most, 0.0)
