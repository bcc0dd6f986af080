"""Kernels that put between hosts in closed form: collected slices, one put for each, copies; rows that are stored on.

Ranks of a host compute the chunks of another host in turns, so that the part of a slice that comes last to its carrier
is computed at the end of that host's chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.fabric import ranks_on_host
from kernels.schemes import axis_rules
from workbench.simulator.closed_form.messages import FusedKernelTimes, bytes_of, put_costs, tiles_of_chunk
from workbench.simulator.closed_form.points import Column, Floats, PointColumns


def legal(points: PointColumns) -> Column:
    """Which points obey the rules of `kernels.schemes.hosts`: ranks of hosts, and whole rows of tiles."""
    each, on_each = points.sharing, ranks_on_host(points.fabric, points.machine, points.world)
    across = -(-points.columns // points.tile_n)
    is_whole = (points.world % each == 0) & (on_each % each == 0)
    return np.asarray(is_whole & (each < points.world) & (points.axis("slice_tiles") >= across))


@dataclass(frozen=True, slots=True, eq=False)
class _Far:
    """Puts to other hosts: *first* and *last* are when the first and last to each host are issued, the next host first.

    *by_host*: whether all puts to one host leave before those to the next; else one to each in turn.
    """

    first: Sequence[Floats]
    last: Sequence[Floats]
    count: Column
    num_bytes: Floats
    by_host: bool


def _arrivals(points: PointColumns, each: int, far: _Far) -> Floats:
    """When all puts to other hosts have arrived: each link takes them in the order in which they are issued."""
    ends = [np.zeros(points.count)]
    peers = [host * each - 1 for host in range(1, points.world // each)]
    for link in dict.fromkeys(points.peer_links[peer] for peer in peers):
        here = [at for at, peer in enumerate(peers) if points.peer_links[peer] == link]
        transit, delay = points.transit(peers[here[0]], far.num_bytes), points.delay(peers[here[0]])
        for place, at in enumerate(here):
            left = len(here) - place
            behind = [left * far.count, (left - 1) * far.count + 1]
            if not far.by_host:
                behind = [(far.count - 1) * len(here) + left, left + 0 * far.count]
            ends += [issued + number * transit + delay
                     for issued, number in zip((far.first[at], far.last[at]), behind, strict=True)]  # fmt: skip
    return np.maximum.reduce(ends)


def _by_sharing(points: PointColumns, seconds: Callable[[PointColumns, int], Floats]) -> Floats:
    """*seconds* of all points, for each number of ranks of a host that share a put."""
    total = np.zeros(points.count)
    for each in np.unique(points.sharing).tolist():
        if each < points.world and points.world % each == 0:
            total = np.where(points.sharing == each, seconds(points, each), total)
    return total


def _mate(points: PointColumns, each: int) -> int:
    """The place among peers of a rank of the same host."""
    return 0 if points.origin % each < each - 1 else points.world - 2


# Results.


def send(points: PointColumns) -> Floats:
    """Seconds until all slices have left, have arrived and are copied."""
    return _by_sharing(points, lambda of, each: _Results(of, each).seconds())


class _Results:
    """One rank of hosts of *each* ranks, which computes, stores inside the host, puts to others, and copies."""

    def __init__(self, points: PointColumns, each: int) -> None:
        self._points, self._each, self._hosts = points, each, points.world // each
        self._kernel, self._tiles = FusedKernelTimes(points), tiles_of_chunk(points)
        self._size = np.minimum(points.slice_tiles, self._tiles)
        self._count = -(-self._tiles // self._size)
        self._part = bytes_of(points, points.chunk, points.columns) / self._count
        self._near = put_costs(points, self._part, in_place=True).on_lane
        self._far = put_costs(points, each * self._part, by_network=True)
        self._chunk_s = self._count * (points.overhead + self._near)
        """Seconds that a chunk of other ranks takes in addition to its tiles."""
        self._carried_s = self._count * (self._far.on_lane - self._near)
        """Those that the chunk that the rank itself carries takes more."""

    def seconds(self) -> Floats:
        points, others = self._points, self._hosts - 1
        copy = points.overhead + points.copy(self._each * self._part)
        far = self._puts()
        there = _arrivals(points, self._each, far)
        lane = self._kernel.end(points.world) + (points.world - 1) * self._chunk_s + others * self._carried_s
        lane = lane + self._count * points.overhead
        ends = [lane + others * self._count * copy, there + copy]
        if self._each > 1:
            mate = _mate(points, self._each)
            transit, delay = points.transit(mate, self._part), points.delay(mate)
            near = self._hosts * (self._each - 1) * self._count
            ends += [self._first_s + near * transit + delay, lane - self._kernel.end(1) + transit + delay]
        return np.maximum.reduce(np.broadcast_arrays(*ends))

    @property
    def _first_s(self) -> Floats:
        """When the first slice is computed."""
        return np.asarray(self._kernel.end(0, self._size) + self._points.overhead + self._near)

    def _puts(self) -> _Far:
        interleaved = self._points.word("tile_order") == axis_rules.INTERLEAVED
        ready = list((self._in_rounds if interleaved else self._in_blocks)())
        first = [self._collected(computed, number, 1) for number, (computed, _) in enumerate(ready)]
        last = [self._collected(computed, number, self._count) for number, (_, computed) in enumerate(ready)]
        return _Far(first, last, self._count, self._each * self._part, not interleaved)

    def _collected(self, computed: Floats, number: int, slices: Column | int) -> Floats:
        """When a slice for the *number*-th host is with its carrier, and is issued; its last part is *computed*."""
        points, puts = self._points, self._far.on_lane + self._far.elsewhere
        if self._each == 1:
            return np.asarray(computed + puts)
        mate = _mate(points, self._each)
        transit, delay = points.transit(mate, self._part), points.delay(mate)
        behind = (number * self._count + slices) * (self._each - 1)
        on_way = np.maximum(transit, self._first_s + behind * transit - computed) + delay
        if not self._kernel.in_waves and points.word("tile_order") != "natural":  # one thread ends its step first
            step = self._kernel.end(1) / self._count + points.overhead
            on_way = np.ceil(on_way / step) * step
        return np.asarray(computed + on_way + puts)

    def _in_blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """By host, when the last part of its first and last slice is computed: chunk after chunk."""
        points, each = self._points, self._each
        before = each if points.word("tile_order") == "natural" else 0
        one_slice = self._points.overhead + self._near
        for block in range(self._hosts - 1):
            chunks = before + block * each + each - 1
            sent = (chunks - bool(before)) * self._chunk_s + (block + (each > 1)) * self._carried_s
            sent = sent + bool(before) * self._count * points.overhead
            yield (self._kernel.end(chunks, self._size) + sent + one_slice,
                   self._kernel.end(chunks + 1) + sent + self._chunk_s)  # fmt: skip

    def _in_rounds(self) -> Iterator[tuple[Floats, Floats]]:
        """The same where one slice of every chunk of other hosts is computed in turn."""
        others, each, count = self._hosts - 1, self._each, self._count
        far = others * each
        sent = (far * self._chunk_s + others * self._carried_s) / count
        for block in range(others):
            share = (block + 1) / others
            if self._kernel.in_waves:
                of_last = self._tiles - (count - 1) * self._size
                yield (self._kernel.end(0, (block + 1) * each * self._size) + share * sent,
                       self._kernel.end(0, far * self._tiles - (others - 1 - block) * each * of_last)
                       + (count - 1 + share) * sent)  # fmt: skip
                continue
            round_s = self._kernel.end(far) / count + sent
            yield share * round_s, (count - 1 + share) * round_s


# Operand rows.


def receive(points: PointColumns) -> Floats:
    """Seconds until all rows have arrived and are computed, where ranks of a host share puts."""
    return _by_sharing(points, _received)


def _received(points: PointColumns, each: int) -> Floats:
    """Rows of other hosts come from the rank of the same place there, or one hop later from ranks of this host."""
    others, tiles, kernel = points.world // each - 1, tiles_of_chunk(points), FusedKernelTimes(points)
    size = np.minimum(points.slice_tiles, tiles)
    count = -(-tiles // size)
    part = bytes_of(points, points.chunk, points.contraction) / count
    puts, near = put_costs(points, part, by_network=True), put_costs(points, part)
    chunk = kernel.end(points.world) / points.world
    one = chunk / count + points.overhead
    spread = (others + 1) * (each - 1) * near.on_lane
    lane = kernel.end(points.world) + count * (points.world * points.overhead + others * puts.on_lane + spread)
    on_gpu = kernel.in_waves
    issue = puts.on_lane + puts.elsewhere
    if on_gpu:  # all slices to one host, then the next
        numbers = [(host * count + 1, (host + 1) * count) for host in range(others)]
    else:
        numbers = [(host + 1 + 0 * count, (count - 1) * others + host + 1) for host in range(others)]
    far = _Far([first * issue for first, _ in numbers], [last * issue for _, last in numbers], count, part, on_gpu)
    there = _arrivals(points, each, far)
    peer, mate = each - 1, _mate(points, each)
    hop = np.zeros(points.count)
    if each > 1:
        hop = near.on_lane + near.elsewhere + points.transit(mate, part) + points.delay(mate)
    begin, remote = issue + points.transit(peer, part) + points.delay(peer), others * each * chunk
    least, others_of = kernel.tile_seconds + points.overhead, each - 1
    if on_gpu:  # the last slices of all ranks of a host are in the same waves
        waves = -(-(others_of * size) // points.slots)
        tail = np.maximum(each * one, hop + waves * kernel.tile_seconds + others_of * points.overhead)
        begin, remote = _first_wave(points, each, kernel, (count, size), (begin, points.transit(peer, part), hop))
    else:
        tail = np.maximum(each * one, hop + others_of * np.maximum(one, least))
    remote = remote + others * each * count * points.overhead
    return np.maximum.reduce(np.broadcast_arrays(lane, begin + remote, there + tail))


def _first_wave(
    points: PointColumns, each: int, kernel: FusedKernelTimes, slices: tuple[Column, Column],
    arrives: tuple[Floats, Floats, Floats],
) -> tuple[Floats, Floats]:  # fmt: skip
    """When the first wave with rows of another host begins, and seconds from then on.

    *slices*: of a rank's rows, and tiles of each. *arrives*: when the first slice of another host does, how much later
    each further one, and one that a rank of this host stores on.
    """
    (count, size), (first, further, hop) = slices, arrives
    tiles, slots = tiles_of_chunk(points), points.slots
    before = each * tiles // slots
    wanted = np.minimum((before + 1) * slots, points.world * tiles) - each * tiles
    number = np.clip(-(-wanted // size), 1, count)
    begin = first + (number - 1) * further + np.where(wanted > tiles, hop, 0.0)
    return begin, (-(-points.world * tiles // slots) - before) * kernel.tile_seconds
