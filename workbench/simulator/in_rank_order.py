"""Sums in rank order: everybody computes the same chunk, so that owners are busy one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.simulator.messages import PutCosts
from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.waves import Kernel, tiles_of_chunk


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Of one chunk, whose contributions leave for its owner, who sums them and tells everybody."""

    count: Column
    tiles: Column
    num_bytes: Floats
    puts: PutCosts
    again: PutCosts
    """Of sums on their way to everybody."""
    summing: Floats
    stored: Floats | float
    """By how much the whole kernel is longer since it stores on peers."""
    peers: int

    @property
    def telling(self) -> Floats:
        """How long an owner is busy with one of its slices."""
        return np.asarray(self.summing + self.peers * self.again.on_lane)

    @property
    def begun(self) -> Floats:
        """From when a slice may be summed until it begins to leave."""
        return np.asarray(self.summing + self.again.on_lane - self.again.ahead)


@dataclass(frozen=True, slots=True, eq=False)
class _Owner:
    """When its first and its last slice has all contributions."""

    first: Floats
    last: Floats

    def pace(self, slices: Slices) -> Floats:
        """From one of its sums to the next."""
        between = (self.last - self.first) / np.maximum(1, slices.count - 1)
        return np.maximum(np.maximum(between, slices.telling), 1e-12)


def seconds(points: Points, kernel: Kernel, slices: Slices) -> Floats:
    """When the last owner has told everybody, and all ranks have computed everything.

    An owner's sums go before what it still has to compute, and leave on the link that its contributions to later chunks
    need: so it keeps later owners back, each of which waits for the slowest of those before it.
    """
    owners: list[_Owner] = []
    for chunk in range(points.world):
        ranks = [*range(chunk), chunk + 1] if chunk < points.world - 1 else list(range(chunk))
        ends = [
            [_arrives(points, kernel, slices, (rank, chunk, last), owners) for last in (False, True)] for rank in ranks
        ]
        owners.append(_Owner(*(np.maximum.reduce(each) for each in zip(*ends, strict=True))))
    return np.maximum.reduce([_told(points, kernel, slices, place, owners[place]) for place in (0, points.world - 1)])


def _told(points: Points, kernel: Kernel, slices: Slices, rank: int, owner: _Owner) -> Floats:
    """When *rank* has told everybody its sums, and has computed all."""
    computed = _issued(points, kernel, slices, (rank, points.world - 1, True))
    lane = np.maximum(np.maximum(computed, owner.first) + slices.count * slices.telling, owner.last + slices.telling)
    ends = [lane + points.delay(0)]
    for peer in range(points.world - 1):
        one, on_link = points.transit(peer, slices.num_bytes), points.peer_links.count(points.peer_links[peer])
        begin = slices.begun + on_link * one + points.delay(peer)
        ends += [
            owner.first + begin + (slices.count - 1) * np.maximum(slices.telling, on_link * one),
            owner.last + begin,
        ]
    return np.maximum.reduce(ends)


def _issued(points: Points, kernel: Kernel, slices: Slices, which: tuple[int, int, bool]) -> Floats:
    """When *rank* would have sent the first or the last slice of a chunk if it had nothing to sum."""
    rank, chunk, last = which
    computed = kernel.end(chunk + 1) if last else kernel.end(chunk, slices.tiles)
    done = chunk * slices.count + (slices.count if last else 1)
    sent = done - slices.count * (rank < chunk) if rank != chunk else chunk * slices.count
    return np.asarray(computed + slices.stored * (chunk + last) / points.world + done * points.overhead
                      + sent * slices.puts.on_lane)  # fmt: skip


def _arrives(points: Points, kernel: Kernel, slices: Slices, which: tuple[int, int, bool],
             owners: list[_Owner]) -> Floats:  # fmt: skip
    """When a contribution of *rank* is at the owner of a chunk, behind what *rank* has told as an owner itself."""
    rank, chunk, last = which
    issued, peer = _issued(points, kernel, slices, which), (chunk - rank) % points.world - 1
    one, on_link = points.transit(peer, slices.num_bytes), points.peer_links.count(points.peer_links[peer])
    delay = points.delay(peer)
    if rank > chunk:
        return issued + one + delay
    owner, busy = owners[rank], slices.telling
    left, pace = np.maximum(0.0, issued - owner.first), owner.pace(slices)
    computing = np.maximum(1e-9, 1.0 - busy / pace)  # sums go first: what they leave of the time
    told = np.minimum(slices.count, left / computing / pace)
    others = (on_link - 1) / max(1, points.world - 2)
    since = ((chunk - rank - 1) * others + last) * slices.count + (not last)
    sent = np.minimum(since, 1 + left / _each(points, kernel, slices))
    begin = owner.first + slices.begun
    behind = np.where(left > 0, begin + (told * on_link + sent) * one, 0.0)
    return np.asarray(np.maximum(issued + told * busy + one, behind) + delay)


def _each(points: Points, kernel: Kernel, slices: Slices) -> Floats:
    """From one slice that is computed to the next."""
    computed = (kernel.end(points.world) + slices.stored) / (points.world * slices.count)
    return np.asarray(computed + points.overhead + slices.puts.on_lane)
