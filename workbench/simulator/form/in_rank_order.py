"""Sums in rank order: everybody computes the same chunk, so that owners are busy one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.simulator.form.slices import Slices
from workbench.simulator.messages import PutCosts, put_costs
from workbench.simulator.points import Floats, Points

NEVER_IDLE = 1e-9
"""The least share of the time that sums leave to computation: sums that come faster than they are made leave none."""

SOON = 1e-12
"""Seconds from sum to sum at least, so that one divides by no 0."""


def seconds(points: Points, slices: Slices) -> Floats:
    """When the last owner has told everybody, and all ranks have computed everything.

    An owner's sums go before what it still has to compute, and leave on the link that its contributions to later chunks
    need: so it keeps later owners back, each of which waits for the slowest of those before it.
    """
    sums, owners = _Sums(points, slices), list[_Owner]()
    for chunk in range(points.world):
        ranks = [*range(chunk), *([chunk + 1] if chunk < points.world - 1 else [])]  # those behind are alike
        first, last = (
            np.maximum.reduce([sums.arrives(rank, chunk, is_last, owners) for rank in ranks])
            for is_last in (False, True)
        )
        owners.append(_Owner(first, last))
    return np.maximum(sums.everybody(0, owners[0]), sums.everybody(points.world - 1, owners[-1]))


@dataclass(frozen=True, slots=True, eq=False)
class _Owner:
    """When its first and its last slice has all contributions."""

    first: Floats
    last: Floats


class _Sums:
    """Contributions to owners, and sums that they tell."""

    def __init__(self, points: Points, slices: Slices) -> None:
        self._points, self._slices, self._peers = points, slices, points.world - 1
        again, summing = put_costs(points, slices.num_bytes), points.reduce(slices.num_bytes)
        self._busy = np.asarray(summing + self._peers * again.on_lane)
        """How long an owner is busy with one of its slices."""
        self._until_leaving = _until_leaving(summing, again)
        computed = (slices.kernel.end(points.world) + slices.stored) / (points.world * slices.count)
        self._each = computed + points.overhead + slices.puts.on_lane
        """From one slice that is computed to the next."""

    def everybody(self, rank: int, owner: _Owner) -> Floats:
        """When *rank* has told everybody its sums, and has computed all."""
        points, count = self._points, self._slices.count
        begun = np.maximum(self._issued(rank, points.world - 1, is_last=True), owner.first)
        ends = [np.maximum(begun + count * self._busy, owner.last + self._busy) + points.delay(0)]
        for peer in range(self._peers):
            of_slice = points.peer_links.count(points.peer_links[peer]) * points.transit(peer, self._slices.num_bytes)
            there = self._until_leaving + of_slice + points.delay(peer)
            ends += [owner.first + there + (count - 1) * np.maximum(self._busy, of_slice), owner.last + there]
        return np.maximum.reduce(ends)

    def arrives(self, rank: int, chunk: int, is_last: bool, owners: list[_Owner]) -> Floats:
        """When the first or the last contribution of *rank* is at the owner of *chunk*.

        It leaves behind what *rank* has told as an owner until then, and behind its contributions since it began to.
        """
        points, count = self._points, self._slices.count
        issued, peer = self._issued(rank, chunk, is_last=is_last), (chunk - rank) % points.world - 1
        one, on_link = points.transit(peer, self._slices.num_bytes), points.peer_links.count(points.peer_links[peer])
        if rank > chunk:
            return np.asarray(issued + one + points.delay(peer))
        owner, of_others = owners[rank], (on_link - 1) / max(1, points.world - 2)
        left = np.maximum(0.0, issued - owner.first)
        pace = np.maximum((owner.last - owner.first) / np.maximum(1, count - 1), np.maximum(self._busy, SOON))
        computing = np.maximum(NEVER_IDLE, 1 - self._busy / pace) * pace  # sums go first: what they leave of the time
        before = np.minimum(count, left / computing)
        since = ((chunk - rank - 1) * of_others + is_last) * count + (not is_last)
        sent = np.minimum(since, 1 + left / self._each)
        behind = np.where(left > 0, owner.first + self._until_leaving + (before * on_link + sent) * one, 0.0)
        return np.asarray(np.maximum(issued + before * self._busy + one, behind) + points.delay(peer))

    def _issued(self, rank: int, chunk: int, *, is_last: bool) -> Floats:
        """When *rank* would have sent the first or the last slice of *chunk* if it had nothing to sum."""
        points, slices = self._points, self._slices
        computed = slices.kernel.end(chunk + 1) if is_last else slices.kernel.end(chunk, slices.tiles)
        done = chunk * slices.count + (slices.count if is_last else 1)
        sent = chunk * slices.count if rank == chunk else done - slices.count * (rank < chunk)
        stored = slices.stored * (chunk + is_last) / points.world
        return np.asarray(computed + stored + done * points.overhead + sent * slices.puts.on_lane)


def _until_leaving(summing: Floats, again: PutCosts) -> Floats:
    """From when a slice may be summed until it begins to leave."""
    return np.asarray(summing + again.on_lane - again.ahead)
