"""What depends on messages: sums and their way to everybody, and computation behind operands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.simulator.messages import (
    Messages,
    arrivals,
    first_of_each,
    issued_at,
    lanes_seconds,
    one_each,
    put_costs,
)
from workbench.simulator.points import Column, Floats, Points


@dataclass(frozen=True, slots=True)
class OwnUnits:
    """A sender's own units, where they are summed."""

    computed: Floats
    """When the first of them is computed."""
    comes_last: bool
    """After all that leaves for peers."""
    onto: Floats | None = None
    """What one of them takes, where it is computed onto what has arrived and nothing else sums."""


def finish(points: Points, messages: Messages, lane: Floats, own_units: OwnUnits) -> Floats:
    """Arrivals and what depends on them: sums, and where the operator says so their way to everybody."""
    there = arrivals(points, messages)
    if not points.operator.reduces:
        return np.maximum(lane, there)
    part, units, peers = messages.num_bytes, messages.per_peer, points.world - 1
    arrived, again = first_of_each(points, messages), put_costs(points, part)
    if own_units.onto is None:
        summing, beside = points.reduce(part), points.reduce(part)
        summed = np.maximum(own_units.computed, arrived) + summing
    else:
        summing, beside = own_units.onto, np.zeros(points.count)
        summed = np.maximum(own_units.computed, arrived + summing)
        lane = np.maximum(lane, arrived + units * summing)
    if not points.broadcasts:
        return np.maximum(lane + units * beside, there + summing)
    sends = peers * again.on_lane
    lane = lane + units * (beside + sends)
    last = np.maximum(lane - sends, there + summing)
    ready = [last + (peer + 1) * again.on_lane for peer in range(peers)]
    issued = issued_at(again, ready, [np.full(1, peer + 1) for peer in range(peers)], last)
    broadcast = arrivals(points, one_each(issued, part))
    summed = summed + again.on_lane + again.elsewhere
    busy = [np.zeros(points.count)]
    for peer in range(peers):
        one, delay = points.transit(peer, part), points.delay(peer)
        round_trip = points.peer_links.count(points.peer_links[peer]) * one
        left = there - messages.early - delay
        if own_units.comes_last:  # all sums leave behind all contributions
            ways = [np.maximum(summed, left) + units * round_trip]
        else:  # the last sums but one are made while the last unit is computed, and leave behind its contributions
            ways = [summed + units * round_trip, left + np.minimum(2, units) * round_trip]
        begin, issued_first = (
            messages.first[0] - messages.early,
            again.elsewhere - one,
        )  # which is in begin, and in ways
        ways += [begin + 2 * units * round_trip, begin + lanes_seconds(again, 2 * units * peers) - issued_first,
                 ways[0] - units * round_trip + lanes_seconds(again, units * peers) - issued_first]  # fmt: skip
        busy += [way + delay for way in ways]
    return np.maximum.reduce([lane, broadcast, *busy])


def operands(points: Points, part: Floats, per_peer: Column, ring: bool = False) -> Messages:
    """Operand pieces for every peer, all ready at once."""
    peers, puts = points.world - 1, put_costs(points, part)
    ring = ring and puts.engines == 1  # engines serve several peers at once
    numbers = [peer * (per_peer if ring else 1) + 1 + 0 * per_peer for peer in range(peers)]
    lasts = [number + (per_peer - 1) * (1 if ring else peers) for number in numbers]
    first, last = (issued_at(puts, [n * puts.on_lane for n in which], which, np.zeros(1)) for which in (numbers, lasts))
    return Messages(first, last, per_peer, part, part, np.zeros(1), ring)


def behind_operands(points: Points, messages: Messages, total: Floats, each: tuple[Floats, Floats], *,
                    together: bool = False, ordered: bool = False) -> Floats:  # fmt: skip
    """Computation of *total* that waits for operands: what is left of it after an arrival.

    *each*: what is computed with one of them, and with the last, whose tiles begin when it is there.
    *together*: each step wants a piece of every peer; *ordered*: everybody sends in rank order, which is worst for the
    last rank, whose pieces of a round all come at once.
    """
    peers, count = points.world - 1, messages.per_peer
    ways = [count * peers * put_costs(points, messages.num_bytes).on_lane + total]
    there, (one, after) = arrivals(points, messages), each
    if peers and points.fabric.hosts > 1 and not together:
        ways += _from_hosts(points, messages, one, there, ordered=ordered)
    elif peers and (together or ordered):
        begin = first_of_each(points, messages)
        ways += [begin + count * (1 if together else peers) * one, there + (0 if together else peers - 1) * one + after]
    elif peers:
        ways += [there + after]
        begins = {link: _first_on_link(points, messages, link) for link in dict.fromkeys(points.peer_links)}
        for begin in begins.values():  # all that no link has brought before is still to be computed
            later = (np.where(its >= begin, points.peer_links.count(link), 0) for link, its in begins.items())
            ways += [begin + count * sum(later) * one]
    return np.maximum.reduce(np.broadcast_arrays(*ways))


def _first_on_link(points: Points, messages: Messages, link: int) -> Floats:
    """When the first message of a link is there."""
    peer = points.peer_links.index(link)
    return np.asarray(messages.first[peer] + points.transit(peer, messages.num_bytes) + points.delay(peer))


def _from_hosts(points: Points, messages: Messages, one: Floats, there: Floats, *, ordered: bool) -> list[Floats]:
    """The same of operands from several hosts: each link has its own rhythm.

    All ranks of one host send to another one's ranks in their order, so that the last of these has a piece of each of
    them at once; in rank order it has a piece of every rank on other hosts.
    """
    on_each = points.world // points.fabric.hosts
    ways = [there + (points.world - on_each if ordered else on_each) * one]
    for link in dict.fromkeys(points.peer_links):
        peer, on_link = points.peer_links.index(link), points.peer_links.count(link)
        transit = points.transit(peer, messages.num_bytes)
        begin = messages.first[peer] + (on_link if ordered else 1) * transit + points.delay(peer)
        ways.append(begin + messages.per_peer * on_link * one)
    return ways
