"""The slices in which a kernel's results leave it: how many each chunk has, and what one costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernels.plan import EVERYTHING, Pool
from kernels.schemes import axis_rules
from workbench.simulator.closed_form.points import Column, Floats, PointColumns
from workbench.simulator.price.messages import Puts, at_once, computes_too, held_seconds, issue_seconds
from workbench.simulator.price.rates import unpacks
from workbench.simulator.price.tiles import in_waves

# Equal messages on their way: what issuing them costs, and when the first and the last of them is there.


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


def put_costs(points: PointColumns, num_bytes: Floats, in_place: bool = False) -> PutCosts:
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


def arrivals(points: PointColumns, messages: Messages) -> Floats:
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


def first_of_each(points: PointColumns, messages: Messages) -> Floats:
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


# When a fused kernel's tiles are done, in closed form: in waves on a GPU, one by one on a CPU rank.


class FusedKernelTimes:
    """When a fused kernel's tiles are done, bookkeeping not counted."""

    tile_seconds: Floats
    """Of one of its tiles, or of all that are computed at once."""

    def __init__(self, points: PointColumns) -> None:
        self._points, self.tiles = points, tiles_of_chunk(points)
        m, n = points.tile_m, points.tile_n
        self.in_waves = in_waves(points.machine)
        if self.in_waves:
            self._slots = points.slots
            self.tile_seconds = points.whole_kernel_seconds / -(-points.num_tiles // self._slots)
        else:
            self.tile_seconds = points.one_tile(
                np.minimum(m, points.chunk), np.minimum(n, points.columns), points.contraction
            )
            self._chunk = points.step(1, points.chunk, points.columns, points.contraction)

    def end(self, chunks: int, tiles: Column | int = 0) -> Floats:
        """When *chunks* whole chunks and *tiles* more are done."""
        if self.in_waves:
            return np.asarray(-(-(chunks * self.tiles + tiles) // self._slots) * self.tile_seconds)
        return np.asarray(chunks * self._chunk + np.minimum(self._chunk, tiles * self.tile_seconds))

    def sent(self, before: int, chunks: int, tiles: Column | int = 0) -> Floats:
        """The same where waves store on peers: chunk after chunk, *before* of which are a rank's own."""
        return np.asarray(self.end(chunks, tiles) + self.stored_until(before, chunks * self.tiles + tiles))

    def stored(self, together: Column) -> Floats | float:
        """By how much waves that store on peers are longer. *together*: tiles of a chunk that follow each other."""
        points = self._points
        if not self._stores:
            return 0.0
        share = (points.world - 1) / points.world
        of_wave = np.maximum(share, np.minimum(1.0, together / self._slots))
        waves = -(-points.world * self.tiles // self._slots)
        return np.asarray(waves * share / of_wave * self._longer(of_wave * self._slots))

    def stored_until(self, before: int, tiles: Column) -> Floats | float:
        """The same until *tiles* are done where chunk follows chunk, *before* of which are a rank's own."""
        if not self._stores:
            return 0.0
        slots, begin = self._slots, before * self.tiles
        end = begin + (self._points.world - 1) * self.tiles
        first, last, done = begin // slots, (end - 1) // slots, -(-tiles // slots)
        of_first = self._longer(np.minimum(end, (first + 1) * slots) - begin)
        of_last = self._longer(end - np.maximum(begin, last * slots))
        between = np.maximum(0, np.minimum(done, last) - first - 1) * self._longer(slots)
        return np.asarray((done > first) * of_first + between + ((done > last) & (last > first)) * of_last)

    @property
    def _stores(self) -> bool:
        return self.in_waves and self._points.operator.work == "gemm" and self._points.world > 1

    def _longer(self, tiles: Column | Floats) -> Floats:
        """By how much a wave is longer that stores so many *tiles* on peers."""
        points = self._points
        num_bytes = tiles * points.tile_m * points.tile_n * points.problem.itemsize
        return np.asarray(np.maximum(0.0, num_bytes * points.store_byte_seconds - self.tile_seconds))


def tiles_of_chunk(points: PointColumns) -> Column:
    """Tiles of one chunk."""
    return np.asarray(-(-points.chunk // points.tile_m) * -(-points.columns // points.tile_n))


# A call of the library, and the copies out of its buffer, in closed form.


def bytes_of(points: PointColumns, rows: Column, width: Column) -> Floats:
    """Of *rows* x *width* values."""
    return np.asarray(rows * width * points.problem.itemsize, dtype=float)


def library_seconds(points: PointColumns, part: Floats) -> Floats:
    """A collective of one part per peer, and the unpacking of what it brings."""
    return call_seconds(points, part) + unpack_seconds(points, part)


def call_seconds(points: PointColumns, part: Floats) -> Floats:
    """The call alone, of *part* bytes for each peer."""
    return points.collective((points.world - 1) * part * (2 if points.broadcasts else 1))


def unpack_seconds(points: PointColumns, part: Floats) -> Floats:
    """The copies behind it: none where the library writes results where they belong."""
    if points.broadcasts or not unpacks(points.machine, points.problem, in_pieces=points.in_pieces):
        return np.zeros(points.count)
    return points.overhead + points.copy(part if points.operator.reduces else points.world * part)


# The slices in which a kernel's results leave it: how many each chunk has, and what one costs.


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Of one chunk."""

    kernel: FusedKernelTimes
    count: Column
    tiles: Column
    """Of each but the last."""
    num_bytes: Floats
    last_bytes: Floats
    puts: PutCosts
    marked: Floats
    """Bookkeeping of all of them."""
    stored: Floats | float
    """By how much the whole kernel is longer since it stores on peers."""


def slices_of(points: PointColumns) -> Slices:
    """The slices of each chunk."""
    tiles, kernel = tiles_of_chunk(points), FusedKernelTimes(points)
    in_turns, before = points.word("tile_order") == axis_rules.INTERLEAVED, own_chunks_before(points)
    size = np.minimum(points.slice_tiles, tiles)
    count, result = -(-tiles // size), np.asarray(points.chunk * points.columns * points.value_bytes, dtype=float)
    num_bytes, last_bytes = result * size / tiles, result * (tiles - (count - 1) * size) / tiles
    puts = put_costs(points, num_bytes, in_place=points.word("write") != "staged")
    stored = kernel.stored(size) if in_turns else kernel.stored_until(before, points.world * tiles)
    return Slices(kernel, count, size, num_bytes, last_bytes, puts, count * points.overhead, stored)


def own_chunks_before(points: PointColumns) -> int:
    """How many chunks of its own the rank computes first that begins to send first or last: all in rank order begin
    with rank 0's."""
    return 1 if points.word("tile_order") == "natural" else 0
