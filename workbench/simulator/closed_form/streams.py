"""Estimates problems pipelined on two streams, for many points at once: one round of a closed form for each problem.

Where play handles events, these rounds advance all points together: the single thread of a CPU rank, or the SMs of a
GPU, some of which both streams want. On a GPU, all parts of a collective are assumed to hold equally many SMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kernels.schemes import axis_rules, library
from workbench.simulator.closed_form.messages import put_costs
from workbench.simulator.closed_form.points import Column, Floats, PointColumns
from workbench.simulator.price import shared
from workbench.simulator.price.messages import hidden_launch_seconds
from workbench.simulator.price.rates import start_seconds, unpacks
from workbench.simulator.price.shared import GridBlocks, of_call, of_ours, sending
from workbench.simulator.price.tiles import in_waves

NEVER = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class _Hop:
    """Messages to all peers, and what the receiver then does with their content; seconds, as columns of points."""

    put: Floats
    """Seconds of the thread for each message."""
    transit: Floats
    """Seconds for which a message holds its link, [peer, point]."""
    delay: Floats
    """Seconds from when a message has left until its receiver continues, [peer, point]."""
    behind: Floats
    """Seconds of the receiver's work once all messages have arrived."""
    lead: Floats
    """Seconds before bytes leave where no thread issues them."""

    def on_the_way(self, links: Sequence[int]) -> Floats:
        """Seconds in which all messages leave, each over the one of *links* that leads to its peer."""
        of_link = [self.transit[np.flatnonzero(np.array(links) == link)].sum(axis=0) for link in dict.fromkeys(links)]
        return np.maximum.reduce([np.zeros(self.put.shape), *of_link])

    def rows(self, chosen: Any) -> _Hop:
        return _Hop(*(np.asarray(getattr(self, each.name))[..., chosen] for each in fields(self)))


def seconds(points: PointColumns) -> Floats:
    """Seconds per problem: whole trials divided by their number of problems. Illegal points get some number, too.

    Ranks meet before the first step; on GPUs each problem's collective has a meeting of its own.
    """
    meets = points.world > 1 and not in_waves(points.machine)
    start = start_seconds(points.machine, one_kernel=False, collective=points.word("collective"), communicates=meets)
    ends = [_all_problems(seen) for seen in points.by_origin()]
    return np.asarray((start + np.maximum.reduce(ends)) / points.number("micro_batches"))


def _all_problems(points: PointColumns) -> Floats:
    """Seconds of all problems of a call, as seen from one rank."""
    counts, total = points.number("micro_batches"), np.zeros(points.count)
    estimate = _on_sms if in_waves(points.machine) else _on_a_thread
    for count in np.unique(counts):
        chosen = np.flatnonzero(counts == count)
        total[chosen] = estimate(points, int(min(count, _MOST_ROUNDS)), chosen)
    return total


_MOST_ROUNDS = 64
"""Most rounds that are estimated: no legal schedule has more problems."""


def _bytes(points: PointColumns, rows: Floats, width: Floats) -> Floats:
    return np.asarray(rows * width * points.problem.itemsize, dtype=float)


def _hops(points: PointColumns) -> Iterator[_Hop]:
    """Collective of one problem as messages, where it is not a library call."""
    width = points.contraction if points.receives else points.columns
    part, none = _bytes(points, points.chunk, width), np.zeros(points.count)
    everything = points.word("collective") == "one_shot"
    sent = points.world * part if everything else part
    reduces = points.operator.reduces and not points.receives
    yield _hop(points, sent, points.reduce(sent) if reduces else none)
    if points.broadcasts and not everything:
        yield _hop(points, part, none)


def _hop(points: PointColumns, num_bytes: Floats, behind: Floats) -> _Hop:
    peers, every = range(points.world - 1), np.zeros(points.count)
    table = [[every + of(peer) for peer in peers] for of in (lambda p: points.transit(p, num_bytes), points.delay)]
    transit, delay = (np.array(rows).reshape(len(peers), points.count) for rows in table)
    puts = put_costs(points, num_bytes)
    again = hidden_launch_seconds(points.machine) if points.by_engine else 0.0  # ranks meet between problems
    return _Hop(puts.on_lane + every, transit, delay - again, behind, puts.elsewhere + again + every)


def _call(points: PointColumns) -> tuple[Floats, Floats]:
    """Seconds of a library call, and of the copies out of its buffer."""
    part = _part(points)
    called = points.collective(_leaving(points)) + np.zeros(points.count)
    if points.broadcasts or not unpacks(points.machine, points.problem, in_pieces=False):
        return called, np.zeros(points.count)
    return called, points.overhead + points.copy(part if points.operator.reduces else points.world * part)


def _part(points: PointColumns) -> Floats:
    return _bytes(points, points.chunk, points.contraction if points.receives else points.columns)


def _leaving(points: PointColumns) -> Floats:
    """Bytes that leave each rank in one call."""
    return (points.world - 1) * _part(points) * (2 if points.broadcasts else 1)


class _Thread:
    """The single thread of a CPU rank: computations fill the time in which communication has nothing for it."""

    def __init__(self, each: Floats, count: int) -> None:
        self.free, self._done = np.zeros(len(each)), np.zeros(len(each), dtype=np.int64)
        self._each, self._count = each, count

    def run(self, ready: Floats, work: Floats, least: int) -> Floats:
        """Runs *work* from *ready* on, after computations that begin before, at least *least*; returns its end."""
        with np.errstate(divide="ignore", invalid="ignore"):
            fitting = np.nan_to_num(np.ceil((ready - self.free) / self._each), nan=0.0, posinf=self._count)
        more = np.clip(fitting, min(least, self._count) - self._done, self._count - self._done)
        more = np.maximum(0, more).astype(np.int64)
        self._done += more
        self.free = np.maximum(self.free + more * self._each, ready) + work
        return self.free


def _on_a_thread(points: PointColumns, count: int, chosen: Any) -> Floats:
    each = (points.everything() + points.overhead + np.zeros(points.count))[chosen]
    goes_first = points.word("comm_priority") == axis_rules.HIGH
    if points.word("collective") in library.CALLS:
        called, unpacked = (column[chosen] for column in _call(points))
        parts = (called, unpacked)
        return _received_calls(each, parts, count) if points.receives else _sent_calls(each, parts, count, goes_first)
    hops = [hop.rows(chosen) for hop in _hops(points)]
    if points.receives:
        return _received(points, each, hops, count, goes_first)
    return _sent(points, each, hops, count, goes_first)


def _sent(points: PointColumns, each: Floats, hops: list[_Hop], count: int, goes_first: bool) -> Floats:
    """When all is done in operators that send: without priority, messages wait for the computation queued before."""
    thread, links = _Thread(each, count), _Links(points, len(each))
    stream, last = np.zeros(len(each)), np.zeros(len(each))
    for number in range(count):
        least = number + (1 if goes_first else 2)
        for hop in hops:
            for peer in range(points.world - 1):
                stream = thread.run(stream, hop.put, least)
                last = np.maximum(last, links.carry(peer, stream, hop))
            if hop.behind.any():
                stream = last = thread.run(links.there, hop.behind, least)
    return np.maximum(last, thread.run(stream, np.zeros(len(each)), count))


def _sent_calls(each: Floats, parts: tuple[Floats, Floats], count: int, goes_first: bool) -> Floats:
    thread, stream, none = _Thread(each, count), np.zeros(len(each)), np.zeros(len(each))
    computed = np.zeros(len(each))
    for number in range(count):
        computed = computed + each if not parts[1].any() else thread.run(none, none, number + 1)
        stream = np.maximum(stream, computed) + parts[0]
        if parts[1].any():
            stream = thread.run(stream, parts[1], number + (1 if goes_first else 2))
    return stream


def _received(points: PointColumns, each: Floats, hops: list[_Hop], count: int, goes_first: bool) -> Floats:
    """When all is done in operators that receive.

    With priority all messages leave first; else computation i goes before the messages of problem i + 2.
    """
    links, free = _Links(points, len(each)), np.zeros(len(each))
    there, done = np.zeros((count, len(each))), np.zeros(len(each), dtype=np.int64)
    every = np.arange(len(each))
    for number in range(count):
        for _ in range(0 if goes_first or number < 2 else number - 1):
            is_next = (done <= number - 2) & (there[np.minimum(done, count - 1), every] <= free)
            free, done = free + is_next * each, done + is_next
        for hop in hops:
            for peer in range(points.world - 1):
                free = free + hop.put
                there[number] = np.maximum(there[number], links.carry(peer, free, hop))
    for number in range(count):
        free = np.where(done <= number, np.maximum(free, there[number]) + each, free)
    return free


def _received_calls(each: Floats, parts: tuple[Floats, Floats], count: int) -> Floats:
    """When all is done if a library call fetches the next problem's operands while one is computed.

    The thread copies them out of the library's buffer.
    """
    free, stream = np.zeros(len(each)), np.zeros(len(each))
    for _ in range(count):
        stream = np.maximum(stream + parts[0], free) + parts[1]
        free = stream + each
    return free


class _Links:
    """Egress links, each of which takes messages in the order in which they are issued."""

    def __init__(self, points: PointColumns, count: int) -> None:
        self._of_peer = points.peer_links
        self._free = {link: np.zeros(count) for link in self._of_peer}
        self.there = np.zeros(count)
        """When the last message so far has arrived."""

    def carry(self, peer: int, issued: Floats, hop: _Hop) -> Floats:
        link = self._of_peer[peer]
        self._free[link] = left = np.maximum(self._free[link], issued) + hop.transit[peer]
        self.there = np.maximum(self.there, left + hop.delay[peer])
        return left + hop.delay[peer]


def _on_sms(points: PointColumns, count: int, chosen: Any) -> Floats:
    has_room, one = _computation(points)
    communicated, after, sending = _collective(points)
    collective = points.word("collective")
    if points.by_engine and points.world > 1:
        one = one.longer_by(shared.own_share_copy_seconds(points.machine, points.sizes, _part(points)))
    communicated = communicated * shared.collective_slowdown(points.machine, collective, points.sending, one)
    slower = shared.computation_slowdown(points.machine, points.world, one)
    if collective in library.CALLS:
        sending = np.where(has_room, 0, sending)
    wanted = -(-one.blocks // one.resident)
    both = shared.wanted_by_both(points.machine, wanted, sending)
    again = one.alone_seconds * -(-one.tiles // one.blocks)
    again = np.where(both * one.resident <= wanted - both, again, one.seconds)  # else they share SMs again
    columns = (points.overhead + slower * one.seconds, points.overhead + slower * again, communicated, after,
               both > 0, wanted > both, both / wanted)  # fmt: skip
    sms = _Sms(points, [np.broadcast_to(column, (points.count,))[chosen] for column in columns], count,
               is_pooled=one.is_pooled)  # fmt: skip
    return sms.run()


def _computation(points: PointColumns) -> tuple[Column, GridBlocks]:
    """Whether SMs have room for a library call next to the computation, and the computation's blocks."""
    padded_to = (
        points.axis(axis_rules.RESIDENT)
        if axis_rules.RESIDENT in points.axes
        else np.zeros(points.count, dtype=np.int64)
    )
    resident, has_room, by_library, in_flight = points.rooms(padded_to)
    one = points.computation(resident, in_flight, points.everything(), points.sending)
    return has_room, (of_call if by_library.all() else of_ours)(points.machine, one)


def _collective(points: PointColumns) -> tuple[Floats, Floats, Column]:
    """Seconds of a collective until the next may begin, further seconds until it is done, and the SMs that it wants."""
    collective, name = points.word("collective"), points.operator.collective
    wanted = sending(points.machine, name, collective, points.sending)
    if collective in library.CALLS:
        called, unpacked = _call(points)
        slower = shared.slower_call(points.machine, points.sizes, points.fabric, _leaving(points), points.sending)
        return called * slower + unpacked, np.zeros(points.count), wanted
    total, after, meets = np.zeros(points.count), np.zeros(points.count), points.world > 1
    if meets:
        total += start_seconds(points.machine, one_kernel=False, collective=collective, communicates=True)
    if collective in shared.SHOTS:
        return total + _shot(points), after, np.where(points.sending > 0, wanted, -(-wanted // shared.PACKED))
    for hop in _hops(points):
        total = total + after + meets * hop.lead + hop.on_the_way(points.peer_links)
        after = hop.delay.max(axis=0, initial=0.0) + hop.behind
    if collective == "copy_engine":  # sums have a separate stream
        return total, after, np.zeros(points.count, dtype=np.int64)
    held_up = np.where(hop.behind > 0, after, 0.0)
    return total + held_up, after - held_up, wanted


def _shot(points: PointColumns) -> Floats:
    """Seconds of one kernel from the first put to the last, without its barrier."""
    hops = list(_hops(points))
    moved = np.sum([hop.on_the_way(points.peer_links) + hop.behind for hop in hops], axis=0)
    return np.asarray(moved + (hops[0].lead if points.world > 1 else 0.0))


class _Sms:
    """The SMs of a GPU: some that both streams want, and the others, which the computation has to itself.

    Blocks of a computation that find the wanted SMs taken run on them later, or on the others in a second round.
    """

    def __init__(self, points: PointColumns, columns: list[Floats], count: int, *, is_pooled: bool) -> None:
        self._each, self._again, self._moved, self._after, self._is_shared, self._has_others, self._share = columns
        self._is_pooled, self._gap, self._lag = is_pooled, points.overhead, shared.crossing_seconds(points.machine)
        self._count, size = count, len(self._each)
        self._receives, self._is_first = points.receives, points.word("comm_priority") == axis_rules.HIGH
        self._wanted, self._others, self._begun = np.zeros(size), np.zeros(size), np.zeros(size)
        self._computed, self._arrived = np.zeros((2, count + 1, size))  # ends; the last row is of what came before
        self._begins, self._moves = np.zeros((2, size), dtype=np.int64)
        self._waits = np.zeros(size, dtype=bool)
        """Whether some blocks of the last computation still wait for an SM."""
        self._every = np.arange(size)

    def run(self) -> Floats:
        """Time at which all problems are done."""
        for _ in range(3 * self._count):
            begin, second, move = self._begin_at(), self._second_at(), self._move_at()
            goes = np.where(self._is_first | self._is_queued_first(), move <= begin, move < begin)
            goes &= (move <= second) if self._is_first else (move < second)
            is_move = goes & np.isfinite(move)
            is_second = ~is_move & self._waits
            is_begin = ~is_move & ~is_second & np.isfinite(begin)
            self._move(is_move, move)
            self._second(is_second, second)
            self._begin(is_begin, begin)
        return np.asarray(np.maximum(self._computed[self._count - 1], self._arrived[self._count - 1] + self._after))

    def _is_queued_first(self) -> Any:
        """Whether the next collective was queued before the next computation, where neither has priority."""
        return self._moves <= self._begins + 1 if self._receives else self._moves < self._begins - 1

    def _begin_at(self) -> Floats:
        """When the next computation begins; never while blocks of the previous one wait."""
        ready = self._computed[self._begins - 1, self._every]
        if self._receives:
            ready = np.maximum(ready, self._arrived[self._begins, self._every] + self._after + self._lag)
            ready = np.where(self._moves > self._begins, ready, NEVER)
        return np.where(self._waits | (self._begins >= self._count), NEVER, ready)

    def _second_at(self) -> Floats:
        """When the waiting blocks get SMs."""
        later = np.where(self._has_others, self._begun + self._each, NEVER)
        return np.where(self._waits, np.minimum(np.maximum(self._begun, self._wanted), later), NEVER)

    def _move_at(self) -> Floats:
        """When the next collective begins."""
        ready = self._arrived[self._moves - 1, self._every] + np.where(self._moves > 0, self._gap, 0.0)
        if not self._receives:
            ready = np.maximum(ready, self._computed[np.minimum(self._moves, self._count), self._every] + self._lag)
            known = self._moves < self._begins - self._waits
            ready = np.where(known, ready, NEVER)
        free = np.minimum(self._wanted, np.where(self._has_others, self._others, NEVER))
        ready = np.where(self._is_shared, np.maximum(ready, free), ready)
        return np.where(self._moves >= self._count, NEVER, ready)

    def _begin(self, chosen: Any, at: Floats) -> None:
        self._begun = np.where(chosen, at, self._begun)
        end = at + self._each
        if self._is_pooled:
            end = self._without_some(at)
            self._wanted = np.where(chosen & self._is_shared, np.maximum(self._wanted, end), self._wanted)
        else:
            self._waits = np.where(chosen, self._is_shared, self._waits)
        self._others = np.where(chosen, end, self._others)
        rows = np.flatnonzero(chosen)
        self._computed[self._begins[rows], rows] = end[rows]
        self._begins = self._begins + chosen

    def _without_some(self, at: Floats) -> Floats:
        """When a computation that begins *at* is done, if others hold some SMs and its blocks share tiles."""
        left, held = 1 - self._share, np.where(self._is_shared, np.maximum(0.0, self._wanted - at), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            throughout = np.where(left > 0, self._each / left, NEVER)
        return at + np.minimum(throughout, self._each + (1 - left) * held)

    def _second(self, chosen: Any, at: Floats) -> None:
        on_wanted = self._wanted <= at
        end = at + np.where(on_wanted, self._each, self._again)
        self._wanted = np.where(chosen & on_wanted, end, self._wanted)
        self._others = np.where(chosen & ~on_wanted, end, self._others)
        rows = np.flatnonzero(chosen)
        self._computed[self._begins[rows] - 1, rows] = end[rows]
        self._waits = self._waits & ~chosen

    def _move(self, chosen: Any, at: Floats) -> None:
        """Begins a collective on the SMs that both want, or on others, which are then the ones that both want."""
        end, on_others = at + self._moved, self._wanted > at
        self._others = np.where(chosen & on_others, np.maximum(self._others, self._wanted), self._others)
        self._wanted = np.where(chosen & self._is_shared, end, self._wanted)
        rows = np.flatnonzero(chosen)
        self._arrived[self._moves[rows], rows] = end[rows]
        self._moves = self._moves + chosen
