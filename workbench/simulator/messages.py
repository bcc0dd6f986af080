"""Equal messages on their way: what issuing them costs, and when the first and the last of them is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.plan import EVERYTHING, Pool
from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.price.messages import Puts, at_once, computes_too, held_seconds, issue_seconds


@dataclass(frozen=True, slots=True)
class PutCosts:
    """One put's cost to its sender: to who computes, or to somebody else."""

    on_lane: Floats
    elsewhere: Floats
    held: Floats
    """What a copy engine holds on to beside it: while the bytes are on the link."""
    ahead: Floats
    """The same of who computes: it lies inside *on_lane*."""
    engines: int
    """How many of such puts somebody else issues at once."""


def put_costs(points: Points, num_bytes: Floats, in_place: bool = False) -> PutCosts:
    """Of puts whose pool is the one that their Plan states."""
    engine = "copy_engine" in (points.word("engine"), points.word("collective"))
    usual = Pool.COPY_ENGINE if engine else Pool.COMPUTE if points.one_kernel else Pool.LINK
    share = points.axis("comm_sms") if "comm_sms" in points.axes else np.full(points.count, EVERYTHING)
    puts = Puts(np.full(points.count, usual), share, in_place, points.packets, points.waits_in_kernels)
    issue = issue_seconds(points.machine, points.problem.dtype, num_bytes, puts, one_kernel=points.one_kernel)
    on_lane = computes_too(points.machine, puts.pool, puts.share)
    held = held_seconds(points.machine, puts, points.transit(0, num_bytes)) if points.world > 1 else np.zeros(1)
    engines = at_once(points.machine, usual, points.world - 1)
    return PutCosts(np.where(on_lane, issue + held, 0.0), np.where(on_lane, 0.0, issue), np.where(on_lane, 0.0, held),
                    np.where(on_lane, held, 0.0), engines)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Messages:
    """Equal messages to every peer. By peer, the next rank's first: when its first and last one is issued."""

    first: Sequence[Floats]
    last: Sequence[Floats]
    per_peer: Column
    num_bytes: Floats
    last_bytes: Floats
    early: Floats
    """By how much the rank that begins first is ahead of the one whose messages these are."""
    peer_by_peer: bool
    """All messages of one peer before those of the next; else one to each peer in turn."""


def arrivals(points: Points, messages: Messages) -> Floats:
    """When all are there: each link takes its messages as they are issued."""
    ends: list[Floats] = [np.zeros(points.count)]
    for link in dict.fromkeys(points.peer_links):
        peers = [peer for peer, its in enumerate(points.peer_links) if its == link]
        one, last = (points.transit(peers[0], size) for size in (messages.num_bytes, messages.last_bytes))
        for place, peer in enumerate(peers):
            left = len(peers) - place
            if messages.peer_by_peer:
                rest = [left * messages.per_peer, (left - 1) * messages.per_peer + 1]
            else:
                rest = [(messages.per_peer - 1) * len(peers) + left, left + 0 * messages.per_peer]
            for issued, behind in zip((messages.first[peer], messages.last[peer]), rest, strict=True):
                ends.append(issued + (behind - 1) * one + last + points.delay(peer))
    return np.maximum.reduce(ends)


def one_each(issued: Sequence[Floats], num_bytes: Floats) -> Messages:
    """One message to every peer."""
    return Messages(issued, issued, np.ones(1, dtype=np.int64), num_bytes, num_bytes, np.zeros(1), False)


def lanes_seconds(puts: PutCosts, count: Column | int) -> Floats:
    """How long lanes of their own have *count* messages to issue, the bytes of the last one not counted."""
    return np.asarray(-(-np.asarray(count) // puts.engines) * (puts.elsewhere + puts.held) - puts.held)


def issued_at(puts: PutCosts, ready: Sequence[Floats], numbers: Sequence[Column], begin: Floats) -> list[Floats]:
    """When messages with these *numbers* (from 1) are issued: as soon as ready, or by a lane of their own.

    Engines have a lane each. They are issued when their bytes begin to leave.
    """
    beside = puts.elsewhere - puts.ahead
    return [np.maximum(r + beside, begin + lanes_seconds(puts, n)) for r, n in zip(ready, numbers, strict=True)]


def first_of_each(points: Points, messages: Messages) -> Floats:
    """When the first message from every peer is there."""
    ends = [np.zeros(points.count)]
    for link in dict.fromkeys(points.peer_links):
        peers = [peer for peer, its in enumerate(points.peer_links) if its == link]
        one = points.transit(peers[0], messages.num_bytes)
        for place, peer in enumerate(peers):
            before = place * (messages.per_peer if messages.peer_by_peer else 1)
            delay = points.delay(peer)
            ends += [messages.first[peer] + one + delay, messages.first[peers[0]] + (before + 1) * one + delay]
    return np.maximum.reduce(ends)
