"""Messages in closed form: what issuing them costs, when they arrive, and the slices and calls that send them."""

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

# Equal messages: what issuing them costs, and when the first and the last of them arrives.


@dataclass(frozen=True, slots=True)
class PutCosts:
    """What one put costs its sender, in seconds."""

    on_lane: Floats
    """Seconds that the compute lane spends on it."""
    elsewhere: Floats
    """Seconds that another issuer, such as a copy engine, spends on it."""
    held: Floats
    """Further seconds for which a copy engine is held: while the bytes are on the link."""
    overlap: Floats
    """Seconds of *on_lane* during which the bytes are on the link."""
    engines: int
    """Number of such puts that another issuer has in flight at once."""


def put_costs(points: PointColumns, num_bytes: Floats, in_place: bool = False, *, by_network: bool = False) -> PutCosts:
    """Costs of puts of *num_bytes* by the pool that their Plan gives them; *by_network*: between hosts."""
    engine = "copy_engine" in (points.word("engine"), points.word("collective"))
    usual = Pool.COPY_ENGINE if engine else Pool.COMPUTE if points.one_kernel and not by_network else Pool.LINK
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
    """Equal messages to every peer; lists are by peer, beginning with the next rank."""

    first: Sequence[Floats]
    """When the first message to each peer is issued."""
    last: Sequence[Floats]
    """When the last message to each peer is issued."""
    per_peer: Column
    """Number of messages to each peer."""
    num_bytes: Floats
    """Bytes of each message but the last."""
    last_bytes: Floats
    """Bytes of the last message to each peer."""
    early: Floats
    """Seconds between the start of the first rank and the start of the rank that sends these messages."""
    peer_by_peer: bool
    """Whether all messages to one peer leave before those to the next; else one to each peer in turn."""


def arrivals(points: PointColumns, messages: Messages) -> Floats:
    """When all messages have arrived: each link takes them in the order in which they are issued."""
    ends: list[Floats] = [np.zeros(points.count)]
    for link in dict.fromkeys(points.peer_links):
        peers = [peer for peer, peer_link in enumerate(points.peer_links) if peer_link == link]
        transit, last = (points.transit(peers[0], size) for size in (messages.num_bytes, messages.last_bytes))
        for place, peer in enumerate(peers):
            remaining = len(peers) - place
            if messages.peer_by_peer:
                rest = [remaining * messages.per_peer, (remaining - 1) * messages.per_peer + 1]
            else:
                rest = [(messages.per_peer - 1) * len(peers) + remaining, remaining + 0 * messages.per_peer]
            for issued, behind in zip((messages.first[peer], messages.last[peer]), rest, strict=True):
                ends.append(issued + (behind - 1) * transit + last + points.delay(peer))
    return np.maximum.reduce(ends)


def one_each(issued: Sequence[Floats], num_bytes: Floats) -> Messages:
    """Messages of *num_bytes*, one to every peer, *issued* by peer."""
    return Messages(issued, issued, np.ones(1, dtype=np.int64), num_bytes, num_bytes, np.zeros(1), False)


def lanes_seconds(puts: PutCosts, count: Column | int) -> Floats:
    """Seconds in which separate issuers issue *count* messages, without the transfer of the last one."""
    return np.asarray(-(-np.asarray(count) // puts.engines) * (puts.elsewhere + puts.held) - puts.held)


def issued_at(puts: PutCosts, ready: Sequence[Floats], numbers: Sequence[Column], begin: Floats) -> list[Floats]:
    """When messages with these *numbers* (from 1) are issued, that is, when their bytes begin to leave.

    A message is issued when it is ready, and when its issuer has done those before it. Each copy engine is an issuer.
    """
    lead = puts.elsewhere - puts.overlap
    return [np.maximum(r + lead, begin + lanes_seconds(puts, n)) for r, n in zip(ready, numbers, strict=True)]


def first_of_each(points: PointColumns, messages: Messages) -> Floats:
    """When the first message from every peer has arrived."""
    ends = [np.zeros(points.count)]
    for link in dict.fromkeys(points.peer_links):
        peers = [peer for peer, peer_link in enumerate(points.peer_links) if peer_link == link]
        transit = points.transit(peers[0], messages.num_bytes)
        for place, peer in enumerate(peers):
            before = place * (messages.per_peer if messages.peer_by_peer else 1)
            delay = points.delay(peer)
            ends += [messages.first[peer] + transit + delay, messages.first[peers[0]] + (before + 1) * transit + delay]
    return np.maximum.reduce(ends)


# When a fused kernel's tiles are done: in waves on a GPU, one by one on a CPU rank.


class FusedKernelTimes:
    """Times at which a fused kernel's tiles are done, bookkeeping not counted."""

    tile_seconds: Floats
    """Seconds of one tile, or of one wave."""

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
        """When these tiles are done and stored on peers; the first *before* chunks are the rank's own and stay here."""
        return np.asarray(self.end(chunks, tiles) + self.stored_until(before, chunks * self.tiles + tiles))

    def stored(self, together: Column) -> Floats | float:
        """Seconds that storing on peers adds to all waves; *together*: how many consecutive tiles are of one chunk."""
        points = self._points
        if not self._stores:
            return 0.0
        share = (points.world - 1) / points.world
        of_wave = np.maximum(share, np.minimum(1.0, together / self._slots))
        waves = -(-points.world * self.tiles // self._slots)
        return np.asarray(waves * share / of_wave * self._longer(of_wave * self._slots))

    def stored_until(self, before: int, tiles: Column) -> Floats | float:
        """Seconds that storing adds until *tiles* are done, chunk after chunk; the first *before* chunks stay here."""
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
        sends = self._points.world > 1 and not self._points.between_hosts
        return self.in_waves and self._points.operator.work == "gemm" and sends

    def _longer(self, tiles: Column | Floats) -> Floats:
        """Seconds that a wave takes longer if it stores *tiles* tiles on peers."""
        points = self._points
        num_bytes = tiles * points.tile_m * points.tile_n * points.problem.itemsize
        longer = np.maximum(0.0, num_bytes * points.store_byte_seconds - self.tile_seconds)
        return np.asarray(np.where(points.relayed, 0.0, longer))


def tiles_of_chunk(points: PointColumns) -> Column:
    """Tiles of one chunk."""
    return np.asarray(-(-points.chunk // points.tile_m) * -(-points.columns // points.tile_n))


# A library call, and the copies out of its buffer.


def bytes_of(points: PointColumns, rows: Column, width: Column) -> Floats:
    """Bytes of *rows* x *width* values."""
    return np.asarray(rows * width * points.problem.itemsize, dtype=float)


def sent_bytes(points: PointColumns, rows: Column, width: Column) -> Floats:
    """Bytes on the wire of *rows* x *width* values of a result."""
    return np.asarray(rows * width * points.value_bytes, dtype=float)


def library_seconds(points: PointColumns, part: Floats) -> Floats:
    """Seconds of a library collective that sends *part* bytes to each peer, and of unpacking its result."""
    return call_seconds(points, part) + unpack_seconds(points, part)


def call_seconds(points: PointColumns, part: Floats) -> Floats:
    """Seconds of the call alone, which sends *part* bytes to each peer."""
    return points.collective((points.world - 1) * part * (2 if points.broadcasts else 1))


def unpack_seconds(points: PointColumns, part: Floats) -> Floats:
    """Seconds of the copies after the call; 0 where the library writes results where they belong."""
    if points.broadcasts or not unpacks(points.machine, points.problem, in_pieces=points.in_pieces):
        return np.zeros(points.count)
    return points.overhead + points.copy(part if points.operator.reduces else points.world * part)


# Slices in which a fused kernel sends its results.


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Slices of one chunk."""

    kernel: FusedKernelTimes
    count: Column
    """Number of slices."""
    tiles: Column
    """Tiles of each slice but the last."""
    num_bytes: Floats
    """Bytes of each slice but the last."""
    last_bytes: Floats
    """Bytes of the last slice."""
    puts: PutCosts
    bookkeeping: Floats
    """Seconds of bookkeeping for all slices of the chunk."""
    stored: Floats | float
    """Seconds that storing on peers adds to the whole kernel."""


def slices_of(points: PointColumns) -> Slices:
    """The slices of each chunk."""
    tiles, kernel = tiles_of_chunk(points), FusedKernelTimes(points)
    interleaved, before = axis_rules.alternates(points.word("tile_order")), own_chunks_before(points)
    size = np.minimum(points.slice_tiles, tiles)
    count, result = -(-tiles // size), np.asarray(points.chunk * points.columns * points.value_bytes, dtype=float)
    num_bytes, last_bytes = result * size / tiles, result * (tiles - (count - 1) * size) / tiles
    puts = put_costs(points, num_bytes, in_place=points.word("write") != "staged")
    stored = kernel.stored(size) if interleaved else kernel.stored_until(before, points.world * tiles)
    return Slices(kernel, count, size, num_bytes, last_bytes, puts, count * points.overhead, stored)


def own_chunks_before(points: PointColumns) -> int:
    """Chunks of its own that rank 0 computes before it sends: one in rank order, where all begin with that chunk."""
    return 1 if points.word("tile_order") == "natural" else 0


# Sums that SMs that only send bring to the peer, of two ranks.


def sums_brought(points: PointColumns, messages: Messages, lane: Floats, first: Floats) -> Floats:
    """When both ranks have all sums. The *first* is made at that time, and the last at the end of the *lane*.

    SMs that only send bring them one after another, behind all contributions. Those of the last wave leave at once.
    """
    units, size = messages.per_peer, np.minimum(points.slice_tiles, tiles_of_chunk(points))
    brought = np.minimum(units, -(-np.maximum(0, points.num_tiles // points.world - points.slots) // size))
    transit, delay = points.transit(0, messages.num_bytes), points.delay(0)
    left = arrivals(points, messages) - delay
    waves = -(-points.num_tiles // points.slots)
    last = lane * (1 - 1 / waves)  # when the last of those is made
    sent = np.where(brought > 0, np.maximum(np.maximum(left, first) + brought * transit, last + transit), left)
    alone = (units - brought) * messages.num_bytes * points.last_byte_seconds
    return np.asarray(np.maximum(lane, sent) + alone + delay)
