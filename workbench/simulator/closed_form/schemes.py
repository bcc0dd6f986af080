"""Estimates each scheme in closed form: the longest of the compute lane, the link, and the paths through both.

All ranks do the same (tile orders and peers are rotated), so one rank's sends are timed as another's arrivals. Pieces
and slices are assumed to be equal, so times grow by the same amount from each to the next. A lane that follows another
is then done at the later of two ends: all of its work after the first piece that reaches it, or its last piece after
the last that reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from kernels.schemes import axis_rules, library
from kernels.schemes.decomposed import adds_up, own_in_one
from kernels.schemes.fused import GROUP
from kernels.schemes.spanning import MIDWAY_SECONDS, limits_of
from workbench.simulator.closed_form import hosts
from workbench.simulator.closed_form.messages import (
    FusedKernelTimes,
    Messages,
    PutCosts,
    Slices,
    arrivals,
    bytes_of,
    call_seconds,
    first_of_each,
    issued_at,
    lanes_seconds,
    library_seconds,
    one_each,
    own_chunks_before,
    put_costs,
    sent_bytes,
    slices_of,
    sums_brought,
    tiles_of_chunk,
    unpack_seconds,
)
from workbench.simulator.closed_form.points import Column, Floats, PointColumns
from workbench.simulator.price.rates import start_seconds, step_overhead

# Work that waits for messages: sums and their broadcast, and computation that needs operands.


@dataclass(frozen=True, slots=True)
class OwnUnits:
    """The sender's own units, to which contributions are added."""

    computed: Floats
    """When the first own unit is computed."""
    comes_last: bool
    """Whether own units are computed after all that leaves for peers."""
    onto: Floats | None = None
    """Seconds of one own unit, if it is computed onto what has arrived and nothing else sums; else None."""
    summed: float = 1.0
    """Share of own units that are added to others: in a ring those that do not come first."""


def finish(points: PointColumns, messages: Messages, lane: Floats, own_units: OwnUnits) -> Floats:
    """When everything is done: arrivals, sums that need them, and the broadcast of the sums if the operator has one."""
    there = arrivals(points, messages)
    if not points.operator.reduces:
        return np.maximum(lane, there)
    part, units, peers = messages.num_bytes, messages.per_peer, points.world - 1
    arrived, again = first_of_each(points, messages), put_costs(points, part)
    if own_units.onto is None:
        summing = points.reduce(part)
        lane_seconds = own_units.summed * summing
        summed = np.maximum(own_units.computed, arrived) + summing
    else:
        summing, lane_seconds = own_units.onto, np.zeros(points.count)
        summed = np.maximum(own_units.computed, arrived + summing)
        lane = np.maximum(lane, arrived + units * summing)
    if not points.broadcasts:
        return np.maximum(lane + units * lane_seconds, there + summing)
    if points.relayed.all():
        return sums_brought(points, messages, lane + units * lane_seconds, summed)
    sends = peers * again.on_lane
    lane = lane + units * (lane_seconds + sends)
    last = np.maximum(lane - sends, there + summing)
    ready = [last + (peer + 1) * again.on_lane for peer in range(peers)]
    issued = issued_at(again, ready, [np.full(1, peer + 1) for peer in range(peers)], last)
    broadcast = arrivals(points, one_each(issued, part))
    summed = summed + again.on_lane + again.elsewhere
    busy = [np.zeros(points.count)]
    for peer in range(peers):
        transit, delay = points.transit(peer, part), points.delay(peer)
        link_seconds = points.peer_links.count(points.peer_links[peer]) * transit
        left = there - messages.early - delay
        if own_units.comes_last:  # all sums leave after all contributions
            ends = [np.maximum(summed, left) + units * link_seconds]
        else:  # the last sums but one are computed during the last unit, and leave after its contributions
            ends = [summed + units * link_seconds, left + np.minimum(2, units) * link_seconds]
        begin = messages.first[0] - messages.early
        issued_first = again.elsewhere - transit  # begin and ends contain it
        ends += [begin + 2 * units * link_seconds, begin + lanes_seconds(again, 2 * units * peers) - issued_first,
                 ends[0] - units * link_seconds + lanes_seconds(again, units * peers) - issued_first]  # fmt: skip
        busy += [end + delay for end in ends]
    return np.maximum.reduce([lane, broadcast, *busy])


def operands(points: PointColumns, part: Floats, per_peer: Column, ring: bool = False) -> Messages:
    """Messages with operand pieces for every peer, all ready at once."""
    peers, puts = points.world - 1, put_costs(points, part, by_network=points.between_hosts)
    ring = ring and puts.engines == 1  # engines serve several peers at once
    numbers = [peer * (per_peer if ring else 1) + 1 + 0 * per_peer for peer in range(peers)]
    lasts = [number + (per_peer - 1) * (1 if ring else peers) for number in numbers]
    first, last = (issued_at(puts, [n * puts.on_lane for n in each], each, np.zeros(1)) for each in (numbers, lasts))
    return Messages(first, last, per_peer, part, part, np.zeros(1), ring)


def behind_operands(points: PointColumns, messages: Messages, total: Floats, each: tuple[Floats, Floats], *,
                    together: bool = False, ordered: bool = False) -> Floats:  # fmt: skip
    """When a computation of *total* seconds that waits for operands is done, from what remains after each arrival.

    *each*: seconds of computation with one operand piece, and with the last one, whose tiles begin when it has arrived.
    *together*: each step needs a piece of every peer. *ordered*: all ranks send in rank order, which is worst for the
    last rank, whose pieces of a round all arrive at once.
    """
    peers, count = points.world - 1, messages.per_peer
    sent = put_costs(points, messages.num_bytes, by_network=points.between_hosts)
    ends = [count * peers * sent.on_lane + total]
    there, (of_piece, after) = arrivals(points, messages), each
    if peers and points.fabric.hosts > 1 and not together:
        ends += _from_hosts(points, messages, of_piece, there, ordered=ordered)
    elif peers and (together or ordered):
        begin = first_of_each(points, messages)
        ends += [begin + count * (1 if together else peers) * of_piece,
                 there + (0 if together else peers - 1) * of_piece + after]  # fmt: skip
    elif peers:
        ends += [there + after]
        begins = {link: _first_on_link(points, messages, link) for link in dict.fromkeys(points.peer_links)}
        for begin in begins.values():  # all that no link has brought before remains to be computed
            later = (np.where(other >= begin, points.peer_links.count(link), 0) for link, other in begins.items())
            ends += [begin + count * sum(later) * of_piece]
    return np.maximum.reduce(np.broadcast_arrays(*ends))


def _first_on_link(points: PointColumns, messages: Messages, link: int) -> Floats:
    """When the first message over a link has arrived."""
    peer = points.peer_links.index(link)
    return np.asarray(messages.first[peer] + points.transit(peer, messages.num_bytes) + points.delay(peer))


def _from_hosts(
    points: PointColumns, messages: Messages, of_piece: Floats, there: Floats, *, ordered: bool
) -> list[Floats]:
    """Ends of a computation that waits for operands from several hosts, where each link has its own period.

    All ranks of one host send to another host's ranks in their order, so the last of these gets a piece of each of them
    at once; in rank order it gets a piece of every rank on other hosts.
    """
    on_each = points.world // points.fabric.hosts
    ends = [there + (points.world - on_each if ordered else on_each) * of_piece]
    for link in dict.fromkeys(points.peer_links):
        peer, on_link = points.peer_links.index(link), points.peer_links.count(link)
        transit = points.transit(peer, messages.num_bytes)
        begin = messages.first[peer] + (on_link if ordered else 1) * transit + points.delay(peer)
        ends.append(begin + messages.per_peer * on_link * of_piece)
    return ends


# A kernel on a GPU that waits for rows: which wave waits for which slice, and when that arrives.

SIMULTANEOUS = 1e-6
"""Share of a message's time; arrivals closer than this count as simultaneous."""


@dataclass(frozen=True, slots=True)
class AwaitedRows:
    """Slices of rows that a kernel waits for."""

    count: Column
    """Number of slices of each rank's rows."""
    num_bytes: Floats
    tiles: Column


def wave_by_wave(points: PointColumns, kernel: FusedKernelTimes, slices: AwaitedRows) -> Floats:
    """When a kernel on a GPU is done whose waves wait for rows: a wave begins when the last of its rows has arrived.

    In rank order, one of the last three ranks is the slowest: a wave that ends with own rows waits for no peer.
    """
    peers = points.world - 1
    each = put_costs(points, slices.num_bytes, by_network=points.between_hosts).on_lane + points.overhead
    ends = [slices.count * (peers * each + points.overhead) + kernel.end(points.world)]
    for place in range(peers, max(-1, peers - 3), -1) if points.word("tile_order") == "natural" else (0,):
        ends += _WaitingRank(points, kernel, slices, place).ends()
    return np.maximum.reduce(ends)


class _WaitingRank:
    """A rank whose own rows are the *place*-th chunk that it computes. Counts are floats: numpy divides them faster."""

    def __init__(self, points: PointColumns, kernel: FusedKernelTimes, slices: AwaitedRows, place: int) -> None:
        self._points, self._place, self._tile_seconds = points, place, kernel.tile_seconds
        self._count, self._size, self._slots, self._tiles = (
            column.astype(float) for column in (slices.count, slices.tiles, points.slots, tiles_of_chunk(points))
        )
        puts = put_costs(points, slices.num_bytes, by_network=points.between_hosts)
        self._each, self._overlap = puts.on_lane + puts.elsewhere, puts.overlap
        self._remote = [chunk for chunk in range(points.world) if chunk != place]
        self._ends = [self._waves((chunk + 1) * self._tiles) for chunk in range(points.world - 1)]
        self._ends.append(-self._waves(-points.world * self._tiles))
        """By chunk, the waves that are done when the chunk is."""
        self._transit = [points.transit(peer, slices.num_bytes) for peer in range(points.world - 1)]
        self._delay = [points.delay(peer) for peer in range(points.world - 1)]
        order = points.word("tile_order") if len(set(points.peer_links)) == 1 else None
        self._one_by_one, self._by_rank = order == "rotated", order == "natural"
        """Whether chunks arrive one after the other, or a slice of each at the same time."""

    def ends(self) -> Iterator[Floats]:
        """When all is computed, from what remains after some arrivals.

        What remains shrinks with each wave, and arrivals are equally spaced, so the first and the last waves decide. Of
        the slices of one wave, the last to arrive counts.
        """
        for chunk in dict.fromkeys((*self._remote[:1], *self._remote[-2:])):
            begin = chunk * self._tiles
            last = self._waves(begin + (self._count - 1) * self._size)
            for wave in (self._waves(begin), last - 1, last):
                behind = np.floor(((wave + 1) * self._slots - 0.5 - begin) / self._size)
                nth = np.minimum(np.maximum(behind, 0.0), self._count - 1)
                there = self._arrival(chunk, nth)
                waves, steps = self._remaining(chunk, nth, there)
                yield there + waves * self._tile_seconds + steps * self._points.overhead

    def _remaining(self, chunk: int, nth: Floats, there: Floats) -> tuple[Floats, Floats]:
        """Waves and steps that cannot have been computed before the *nth* slice of *chunk* arrives.

        Own rows are computed during the wait, and so is what has arrived by then of later chunks.
        """
        if self._one_by_one:
            return self._ends[-1] - self._begun(chunk, nth), (self._points.world - chunk) * self._count - nth
        waves, steps = self._ends[chunk] - self._begun(chunk, nth), self._count - nth
        for other in (number for number in self._remote if number != chunk):
            arrived = nth + (chunk > self._place > other) if self._by_rank else self._num_arrived(other, there)
            waves = waves + self._ends[other] - self._begun(other, arrived)
            steps = steps + self._count - arrived
        return waves, steps

    def _begun(self, chunk: int, nth: Floats) -> Floats:
        """Waves that are done before the *nth* slice of *chunk*; after the last one, those that end with the chunk."""
        return np.minimum(self._waves(chunk * self._tiles + nth * self._size), self._ends[chunk])

    def _waves(self, tiles: Floats) -> Floats:
        """Whole waves in *tiles* tiles."""
        return np.asarray(np.floor((tiles + 0.5) / self._slots))

    def _peer(self, chunk: int) -> int:
        return chunk - (chunk > self._place)

    def _send_order(self, chunk: int, links: Sequence[int]) -> tuple[int, int, int]:
        """Chunks that leave before *chunk*, ranks that get each of its slices, and how many of these are served later.

        Ranks send first to those that wait for them first: in rotated orders to one peer after the other, in rank order
        each slice to all that wait for it in the same turn. *links*: by peer, the same number for those that share one.
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
        """Number of the *nth* slice of *chunk* among the slices that share a link, from 1."""
        before, together, after = self._send_order(chunk, links)
        return before * self._count + (nth + 1) * together - after

    def _arrival(self, chunk: int, nth: Floats) -> Floats:
        """When the *nth* slice of *chunk* arrives."""
        peer, links = self._peer(chunk), self._points.peer_links
        transit, issued = self._transit[peer], self._number(chunk, nth, [0] * len(links)) * self._each
        on_link = self._each + self._number(chunk, nth, links) * transit
        return np.asarray(np.maximum(on_link, issued + transit) - self._overlap + self._delay[peer])

    def _num_arrived(self, chunk: int, now: Floats) -> Floats:
        """Number of slices of *chunk* that have arrived before *now*."""
        peer, links = self._peer(chunk), self._points.peer_links
        transit, since = self._transit[peer], now - self._delay[peer] + self._overlap
        limits = [((since - self._each) / transit, links)]
        if np.any(self._each):
            limits.append(((since - transit) / self._each, [0] * len(links)))
        most = self._count
        for number, of_links in limits:
            before, together, after = self._send_order(chunk, of_links)
            arrived = np.ceil((number - (SIMULTANEOUS - after) - before * self._count) / together) - 1
            most = np.fmin(most, arrived)
        return np.maximum(most, 0.0)


# Seconds to compute the pieces of a decomposed schedule: their mean, and the first and last of one launch.


def cuts(points: PointColumns) -> tuple[Column, Column, Column]:
    """Number of pieces along rows, columns and contraction, as kernels.schemes.decomposed cuts them."""
    count, direction = points.number("pieces"), points.direction
    uncut = np.ones_like(count)
    if direction != "rows_and_contraction":
        return tuple(count if direction == d else uncut for d in ("rows", "columns", "contraction"))  # type: ignore[return-value]
    counts, which = np.unique(count, return_inverse=True)
    rows = np.array([next(r for r in range(int(c**0.5), 0, -1) if c % r == 0) for c in counts])[which]
    return rows, uncut, count // rows


def _sizes(length: Column, count: Column) -> list[tuple[Column, Floats]]:
    """Lengths of the shorter and, if there are any, the longer of *count* pieces, each with its share of the pieces."""
    longer = length % count
    pieces = [(np.maximum(1, length // count), (count - longer) / count)]
    return [*pieces, (length // count + 1, longer / count)] if longer.any() else pieces


def piece_seconds(points: PointColumns, chunks: int) -> Floats:
    """Mean seconds of a step that computes one piece of *chunks* chunks: pieces differ by a row, a column or a k."""
    if not chunks:
        return np.zeros(points.count)
    if points.word(axis_rules.LAUNCHES) == axis_rules.ONE:
        return _one_launch_seconds(points, chunks) + step_overhead(points.machine, one_kernel=True)
    lengths = (points.chunk, points.columns, points.contraction)
    sizes = [_sizes(length, count) for length, count in zip(lengths, cuts(points), strict=True)]
    mean = np.zeros(points.count)
    for (rows, of_rows), (columns, of_columns), (k, of_k) in product(*sizes):
        mean = mean + of_rows * of_columns * of_k * points.step(chunks, rows, columns, k)
    return mean + points.overhead


def _one_launch_seconds(points: PointColumns, chunks: int) -> Floats:
    """Mean seconds of a piece in a launch that computes all pieces, whose waves span them."""
    in_waves = FusedKernelTimes(points).end(points.world) * chunks / (points.world * points.number("pieces"))
    ranges = cuts(points)[2]
    if not (ranges > 1).any():
        return in_waves
    before, last = _range_seconds(points, chunks)
    return np.where(ranges > 1, ((ranges - 1) * before + last) / ranges, in_waves)


def _range_seconds(points: PointColumns, chunks: int) -> tuple[Floats, Floats]:
    """Seconds of a piece of one launch that waits for its range of the contraction, and of the last range.

    The number of waves is tiles over slots. Only the first wave waits; the others count for the last range.
    """
    down, across, ranges = cuts(points)
    rows, columns, k = points.chunk / down, points.columns / across, points.contraction / ranges
    waves = chunks * np.ceil(rows / points.tile_m) * np.ceil(columns / points.tile_n) / points.slots
    of_wave = points.one_tile(points.tile_m, points.tile_n, points.contraction)
    waiting, least = of_wave * np.minimum(1.0, waves) / ranges, points.least(chunks * rows, columns, k)
    whole = of_wave * np.maximum(0.0, waves - 1.0)
    return np.maximum(waiting, least), np.maximum(waiting + whole, least)


def first_seconds(points: PointColumns, chunks: int, mean: Floats) -> Floats:
    """Seconds of the first of the pieces, which take *mean* on average: in one launch it ends with its waves."""
    if points.word(axis_rules.LAUNCHES) != axis_rules.ONE or not chunks:
        return mean
    down, across, _ = cuts(points)
    tiles = chunks * -(-points.chunk // (down * points.tile_m)) * -(-points.columns // (across * points.tile_n))
    return np.maximum(mean, -(-tiles // points.slots) * FusedKernelTimes(points).tile_seconds)


def last_seconds(points: PointColumns, chunks: int, mean: Floats) -> Floats:
    """Seconds of the last of the pieces that wait: its tiles begin when its operands have arrived."""
    ranges, in_waves = cuts(points)[2], first_seconds(points, chunks, mean)
    if points.word(axis_rules.LAUNCHES) != axis_rules.ONE or not (ranges > 1).any():
        return in_waves
    return np.where(ranges > 1, _range_seconds(points, chunks)[1], in_waves)


def begin_seconds(points: PointColumns) -> float:
    """Seconds in which the single launch of all computation begins; no piece pays this again."""
    if points.word(axis_rules.LAUNCHES) != axis_rules.ONE:
        return 0.0
    return points.overhead - step_overhead(points.machine, one_kernel=True)


def own_seconds(points: PointColumns) -> Floats:
    """Seconds of all steps of a rank's own shard, if these are separate steps."""
    if not own_in_one(points.problem, points.text_values):
        return points.number("pieces") * piece_seconds(points, 1)
    return points.step(1, points.chunk, points.columns, points.contraction) + points.overhead


# Decomposed schedules: pieces are sent when computed, or computed when they arrive.


def on_streams(points: PointColumns) -> bool:
    """Whether calls and unpacking share a stream, so that a call begins after the previous result is unpacked."""
    return points.word(axis_rules.LAUNCHES) is not None


def _calls_on_a_stream(pieces: Column, work: Floats, call: Floats, unpack: Floats) -> Floats:
    """Seconds of *pieces* that are computed, sent by a call, and unpacked while nothing is computed.

    Unpacking waits for the piece in progress, so whole pieces are computed during a call. When none remains, each call
    follows the previous one at once.
    """
    computed = np.maximum(1, np.ceil(call / work)).astype(np.int64)
    hidden = (pieces - 1) // computed  # calls behind computations
    return np.asarray(work + hidden * (computed * work + unpack) + (pieces - hidden) * (call + unpack))


def decomposed_send(points: PointColumns) -> Floats:
    """Seconds until all pieces have been sent, have arrived, and have been summed if they are contributions."""
    peers, pieces = points.world - 1, points.number("pieces")
    part = bytes_of(points, points.chunk, points.columns) / pieces
    apart, in_one = points.word("steps") == "local_first", points.word(axis_rules.LAUNCHES) == axis_rules.ONE
    if points.word("engine") == "library":
        work = piece_seconds(points, points.world)
        call, unpack = call_seconds(points, part), unpack_seconds(points, part)
        if on_streams(points) and not points.broadcasts:
            return _calls_on_a_stream(pieces, work, call, unpack)
        behind = np.maximum(work + pieces * call, pieces * work + call) + unpack
        return np.maximum(pieces * (work + unpack), behind)
    puts, one = put_costs(points, part), piece_seconds(points, 1)
    ring, alone = points.word("pattern") == "ring", points.word("grouping") == "unfused"
    zero = np.zeros(points.count)
    if ring or alone:
        each = one + puts.on_lane
        step = pieces if ring else np.ones_like(pieces)
        period = each if ring else peers * each + (zero if apart else one)
        first = [(peer * step + 1) * each for peer in range(peers)]
        lane = begin_seconds(points) + pieces * peers * each + own_seconds(points)
    else:
        group = piece_seconds(points, peers + (not (apart or in_one)))
        period = group + peers * puts.on_lane
        begun = begin_seconds(points) + first_seconds(points, peers, group)
        first = [begun + (peer + 1) * puts.on_lane for peer in range(peers)]
        lane = begin_seconds(points) + pieces * period + (own_seconds(points) if apart or in_one else zero)
    between = one if in_one and not (apart or alone or ring) else zero  # own pieces, a step each
    period = period + between
    late = np.maximum(0, pieces - 2) if adds_up(points.problem, points.text_values) else pieces - 1
    ready = [begin + (pieces - 1) * (period - between) + late * between for begin in first]
    numbers = [(p * pieces + 1, (p + 1) * pieces) if ring else (p + 1 + 0 * pieces, (pieces - 1) * peers + p + 1)
               for p in range(peers)]  # fmt: skip
    begin = first[0] if peers else zero
    issued = (
        issued_at(puts, first, [n for n, _ in numbers], begin),
        issued_at(puts, ready, [n for _, n in numbers], begin),
    )
    messages = Messages(*issued, pieces, part, part, zero, ring)
    computed = pieces * peers * each + one if ring else lane - (pieces - 1) * one if apart else period
    onto = one if adds_up(points.problem, points.text_values) else None
    return finish(points, messages, lane, OwnUnits(computed, ring or apart, onto))


def decomposed_receive(points: PointColumns) -> Floats:
    """Seconds until all pieces have arrived and are computed."""
    peers, pieces = points.world - 1, points.number("pieces")
    part = bytes_of(points, points.chunk, points.contraction) / pieces
    everything, one = piece_seconds(points, points.world), piece_seconds(points, 1)
    if points.word("engine") == "library":
        call, unpack = call_seconds(points, part), points.overhead + points.copy(points.world * part)
        if on_streams(points):
            return call + unpack + (pieces - 1) * (np.maximum(call, everything) + unpack) + everything
        return np.maximum(call + pieces * (unpack + everything), pieces * call + unpack + everything)
    ring, alone = points.word("pattern") == "ring", points.word("grouping") == "unfused"
    if ring or alone:
        total = begin_seconds(points) + pieces * peers * one + own_seconds(points)
        return behind_operands(points, operands(points, part, pieces, ring), total, (one, last_seconds(points, 1, one)))
    if points.word("steps") == "local_first" or points.word(axis_rules.LAUNCHES) == axis_rules.ONE:
        remote = piece_seconds(points, peers)
        total = begin_seconds(points) + own_seconds(points) + pieces * remote
        each = (remote, last_seconds(points, peers, remote))
        return behind_operands(points, operands(points, part, pieces), total, each, together=True)
    return behind_operands(
        points, operands(points, part, pieces), pieces * everything, (everything,) * 2, together=True
    )


# Fused schedules: slices are sent when computed, or computed when their rows arrive.


def fused_one_shot(points: PointColumns) -> Floats:
    """Seconds if each rank sends every slice to all peers, and sums all contributions itself."""
    peers, tiles, kernel = points.world - 1, tiles_of_chunk(points), FusedKernelTimes(points)
    size = np.minimum(points.slice_tiles, tiles)
    units = points.world * -(-tiles // size)
    part = np.asarray(points.chunk * points.columns * points.value_bytes * size / tiles, dtype=float)
    put, summing = put_costs(points, part, in_place=True).on_lane, points.reduce(part)
    sent = kernel.end(points.world) + units * (points.overhead + peers * put)
    first = [kernel.end(0, size) + points.overhead + (peer + 1) * put for peer in range(peers)]
    last = [sent - (peers - 1 - peer) * put for peer in range(peers)]
    messages = Messages(first, last, units, part, part, np.zeros(points.count), False)
    begin, there = first_of_each(points, messages), arrivals(points, messages)
    return np.maximum.reduce([sent + units * summing, begin + units * summing, there + summing])


def fused_scattered(points: PointColumns) -> Floats:
    """Seconds if tiles span the rows of all ranks, and each slice leaves for the owners of its rows.

    They add them where the operator reduces. In one shot all ranks own all rows; else an all-reduce's sums leave for
    all ranks.
    """
    one_shot, peers = axis_rules.spans_in_one_shot(points.problem), points.world - 1
    whole, waves, in_wave = _waves_of_span(points)
    steps, parts = _parts_of_span(points, one_shot=one_shot)
    all_bytes = sent_bytes(points, points.rows if one_shot else points.chunk, points.columns)
    part, rest = all_bytes * np.minimum(1.0, in_wave), all_bytes * (1.0 - (waves - 1) * in_wave)
    put = put_costs(points, all_bytes / parts, in_place=True).on_lane
    sent = whole + steps * points.overhead + peers * parts * put
    first = [whole / waves + points.overhead + (peer + 1) * put for peer in range(peers)]
    last = [sent - (peers - 1 - peer) * put for peer in range(peers)]
    there = arrivals(points, Messages(first, last, waves, part, rest, np.zeros(points.count), False))
    if not points.operator.reduces:
        return there
    summing = points.reduce(all_bytes / parts)
    if one_shot or not points.broadcasts:
        return np.maximum(sent + parts * summing, there + summing)
    rows = (1.0 - (waves - 1) * in_wave) * points.rows  # of the last wave: a part of each owner's, or all of one owner
    owned = np.where(GROUP * points.tile_m < points.rows, np.minimum(points.chunk, rows), rows / points.world)
    summed = np.maximum(sent + parts * (summing + peers * put), there + summing)
    return _sent_to_all(points, summed, sent_bytes(points, owned, points.columns))


def _waves_of_span(points: PointColumns) -> tuple[Floats, Column, Floats]:
    """Of tiles that span ranks: seconds of all, in how many waves or slices they end, and the share of a whole one."""
    if FusedKernelTimes(points).in_waves:
        return points.whole_kernel_seconds, -(-points.num_tiles // points.slots), points.slots / points.num_tiles
    whole = points.step(1, points.rows, points.columns, points.contraction)
    return whole, -(-points.num_tiles // points.slice_tiles), points.slice_tiles / points.num_tiles


def _parts_of_span(points: PointColumns, *, one_shot: bool) -> tuple[Column, Floats]:
    """Slices of tiles that span ranks, and how many of them have rows of one owner."""
    steps, down = -(-points.num_tiles // points.slice_tiles), np.minimum(GROUP, -(-points.rows // points.tile_m))
    rows = np.minimum(points.rows, np.minimum(points.slice_tiles, down) * points.tile_m)
    owners = points.world if one_shot else np.minimum(points.world, -(-rows // points.chunk))
    return steps, np.maximum(1.0, steps * owners / points.world)


def fused_send(points: PointColumns) -> Floats:
    """Seconds if each slice is sent to its owner when it is computed, and owners sum contributions."""
    order, slices = points.word("tile_order"), slices_of(points)
    kernel, puts, peers, each = slices.kernel, slices.puts, points.world - 1, points.overhead + slices.puts.on_lane
    interleaved, before = axis_rules.alternates(order), own_chunks_before(points)
    first, last = (_interleaved if interleaved else _one_by_one)(points, slices, each, before)
    begin = early = np.zeros(points.count)
    if peers:
        begin = kernel.sent(before, before, slices.tiles) + before * slices.bookkeeping + each
        early = begin - kernel.sent(0, 0, slices.tiles) - each if before else early
    messages = Messages(issued_at(puts, first, [p * slices.count + 1 for p in range(peers)], begin),
                        issued_at(puts, last, [(p + 1) * slices.count for p in range(peers)], begin),
                        slices.count, slices.num_bytes, slices.last_bytes, early, not interleaved)  # fmt: skip
    sent = slices.stored + peers * slices.count * each
    lane = kernel.end(points.world) + sent + slices.bookkeeping
    own_units = OwnUnits(kernel.end(peers, slices.tiles) + sent + points.overhead, True)
    if interleaved:
        added = 1 - 1 / points.world if order == axis_rules.RING else 1.0
        own_units = OwnUnits(_round_seconds(points, slices, each), False, summed=added)
    return finish(points, messages, lane, own_units)


def _one_by_one(points: PointColumns, slices: Slices, each: Floats, before: int) -> tuple[list[Floats], list[Floats]]:
    """When the first and the last slice for each peer is computed, chunk after chunk; the first *before* stay here."""
    kernel, peers, bookkeeping = slices.kernel, points.world - 1, before * slices.bookkeeping
    first = [kernel.sent(before, before + p, slices.tiles) + bookkeeping + (p * slices.count + 1) * each
             for p in range(peers)]  # fmt: skip
    last = [kernel.sent(before, before + p + 1) + bookkeeping + (p + 1) * slices.count * each for p in range(peers)]
    return first, last


def _interleaved(points: PointColumns, slices: Slices, each: Floats, _: int) -> tuple[list[Floats], list[Floats]]:
    """When they are computed if the slices of all chunks are interleaved; on a GPU a slice ends with its waves."""
    kernel, peers = slices.kernel, points.world - 1
    if not kernel.in_waves:
        round_s = _round_seconds(points, slices, each)
        first = [(p + 1) / points.world * round_s for p in range(peers)]
        return first, [(slices.count - 1) * round_s + of_first for of_first in first]
    tiles, rounds = tiles_of_chunk(points), (slices.count - 1) * (peers * each + points.overhead) + slices.stored
    of_last = tiles - (slices.count - 1) * slices.tiles
    first = [kernel.end(0, (p + 1) * slices.tiles) + (p + 1) * each for p in range(peers)]
    last = [kernel.end(0, points.world * tiles - (peers - p) * of_last) + rounds + (p + 1) * each for p in range(peers)]
    return first, last


def _round_seconds(points: PointColumns, slices: Slices, each: Floats) -> Floats:
    """Seconds of one slice of every chunk."""
    return np.asarray(slices.kernel.end(points.world) / slices.count + (points.world - 1) * each + points.overhead)


def fused_receive(points: PointColumns) -> Floats:
    """Seconds until all rows have arrived and are computed."""
    across = -(-points.columns // points.tile_n)
    rows = -(-points.slice_tiles // across) * points.tile_m
    slices = -(-points.chunk // rows)
    part = bytes_of(points, points.chunk, points.contraction) / slices
    kernel = FusedKernelTimes(points)
    if kernel.in_waves:
        return wave_by_wave(points, kernel, AwaitedRows(slices, part, -(-rows // points.tile_m) * across))
    chunk = kernel.end(points.world) / points.world
    staged = points.word("write") == "staged" and not points.between_hosts
    unstage = points.overhead + points.copy(part) if staged else np.zeros(points.count)
    one = chunk / slices + points.overhead
    total = slices * (points.world * one + (points.world - 1) * unstage)
    ordered = points.word("tile_order") != "rotated"
    last = np.maximum(one, kernel.tile_seconds + points.overhead) + unstage
    return behind_operands(points, operands(points, part, slices), total, (one + unstage, last), ordered=ordered)


def fused_spanning(points: PointColumns) -> Floats:
    """Seconds until the rows of all ranks are here, its own copied, and computed; in ranges where some only push."""
    shard = bytes_of(points, points.chunk, points.contraction)
    ends = [np.where(points.pushers > 0, end / points.contraction, 1.0) for end in limits_of(points.contraction)]

    def here(part: Floats) -> Floats:
        """When this part of each rank's bytes has come, and the rank's own is copied."""
        copied = (points.world - 1) * put_costs(points, part).on_lane + points.overhead
        return np.asarray(np.maximum(_sent_to_all(points, np.zeros(points.count), part), copied + points.copy(part)))

    computed = points.whole_kernel_seconds
    if not FusedKernelTimes(points).in_waves:
        computed = points.step(1, points.rows, points.columns, points.contraction)
    waves = np.maximum(1.0, points.num_tiles / points.slots)
    come, multiplied, ranges = here(ends[0] * shard), np.zeros(points.count), np.ones(points.count)
    for end, then in pairwise([*ends, np.ones(points.count)]):
        come = np.maximum(come + (end - multiplied) * computed / waves, here(then * shard))
        multiplied, ranges = end, ranges + (then > end)
    steps, midway = -(-points.num_tiles // points.slice_tiles) * ranges, MIDWAY_SECONDS * (points.pushers > 0)
    return np.asarray(come + midway + steps * points.overhead + computed * (1.0 - multiplied / waves))


# Sums in rank order: all ranks compute the same chunk, so that owners are busy one after the other.

NEVER_IDLE = 1e-9
"""Least share of the time that sums leave to computation; contributions that come faster than sums would leave none."""

LEAST_PERIOD_S = 1e-12
"""Least seconds from sum to sum, so that nothing is divided by 0."""


def fused_in_rank_order(points: PointColumns, slices: Slices) -> Floats:
    """Seconds until the last owner has sent its sums to all ranks, and all ranks have computed everything.

    An owner's sums take precedence over its remaining computation, and use the link that its contributions to later
    chunks need. So it delays later owners, each of which waits for the slowest of those before it.
    """
    sums, owners = _Sums(points, slices), list[_Owner]()
    for chunk in range(points.world):
        ranks = [*range(chunk), *([chunk + 1] if chunk < points.world - 1 else [])]  # later ranks are alike
        first, last = (
            np.maximum.reduce([sums.arrives(rank, chunk, is_last, owners) for rank in ranks])
            for is_last in (False, True)
        )
        owners.append(_Owner(first, last))
    return np.maximum(sums.all_sent(0, owners[0]), sums.all_sent(points.world - 1, owners[-1]))


@dataclass(frozen=True, slots=True, eq=False)
class _Owner:
    """Times at which an owner's first and last slice have all contributions."""

    first: Floats
    last: Floats


class _Sums:
    """Contributions to owners, and the sums that owners send to all ranks."""

    def __init__(self, points: PointColumns, slices: Slices) -> None:
        self._points, self._slices, self._peers = points, slices, points.world - 1
        again, summing = put_costs(points, slices.num_bytes), points.reduce(slices.num_bytes)
        self._busy = np.asarray(summing + self._peers * again.on_lane)
        """Seconds for which an owner is busy with one of its slices."""
        self._until_leaving = _until_leaving(summing, again)
        computed = (slices.kernel.end(points.world) + slices.stored) / (points.world * slices.count)
        self._each = computed + points.overhead + slices.puts.on_lane
        """Seconds from one computed slice to the next."""

    def all_sent(self, rank: int, owner: _Owner) -> Floats:
        """When all ranks have the sums of *rank*, and it has computed everything."""
        points, count = self._points, self._slices.count
        begun = np.maximum(self._issued(rank, points.world - 1, is_last=True), owner.first)
        ends = [np.maximum(begun + count * self._busy, owner.last + self._busy) + points.delay(0)]
        for peer in range(self._peers):
            of_slice = points.peer_links.count(points.peer_links[peer]) * points.transit(peer, self._slices.num_bytes)
            there = self._until_leaving + of_slice + points.delay(peer)
            ends += [owner.first + there + (count - 1) * np.maximum(self._busy, of_slice), owner.last + there]
        return np.maximum.reduce(ends)

    def arrives(self, rank: int, chunk: int, is_last: bool, owners: list[_Owner]) -> Floats:
        """When the first or the last contribution of *rank* arrives at the owner of *chunk*.

        It leaves after the sums that *rank* has sent as an owner by then, and after its contributions since the first.
        """
        points, count = self._points, self._slices.count
        issued, peer = self._issued(rank, chunk, is_last=is_last), (chunk - rank) % points.world - 1
        transit, on_link = (
            points.transit(peer, self._slices.num_bytes),
            points.peer_links.count(points.peer_links[peer]),
        )
        if rank > chunk:
            return np.asarray(issued + transit + points.delay(peer))
        owner, of_others = owners[rank], (on_link - 1) / max(1, points.world - 2)
        left = np.maximum(0.0, issued - owner.first)
        pace = np.maximum((owner.last - owner.first) / np.maximum(1, count - 1), np.maximum(self._busy, LEAST_PERIOD_S))
        computing = np.maximum(NEVER_IDLE, 1 - self._busy / pace) * pace  # sums take precedence over computation
        before = np.minimum(count, left / computing)
        since = ((chunk - rank - 1) * of_others + is_last) * count + (not is_last)
        sent = np.minimum(since, 1 + left / self._each)
        behind = np.where(left > 0, owner.first + self._until_leaving + (before * on_link + sent) * transit, 0.0)
        return np.asarray(np.maximum(issued + before * self._busy + transit, behind) + points.delay(peer))

    def _issued(self, rank: int, chunk: int, *, is_last: bool) -> Floats:
        """When *rank* would have issued the first or the last slice of *chunk* if it had nothing to sum."""
        points, slices = self._points, self._slices
        computed = slices.kernel.end(chunk + 1) if is_last else slices.kernel.end(chunk, slices.tiles)
        done = chunk * slices.count + (slices.count if is_last else 1)
        sent = chunk * slices.count if rank == chunk else done - slices.count * (rank < chunk)
        stored = slices.stored * (chunk + is_last) / points.world
        return np.asarray(computed + stored + done * points.overhead + sent * slices.puts.on_lane)


def _until_leaving(summing: Floats, again: PutCosts) -> Floats:
    """Seconds from when a slice may be summed until it begins to leave."""
    return np.asarray(summing + again.on_lane - again.overlap)


# Whole trials of each scheme.


def seconds(points: PointColumns) -> Floats:
    """Seconds of whole trials. Illegal points get some number, too."""
    points = points.carried_out
    start = start_seconds(points.machine, one_kernel=points.one_kernel, collective=points.word("collective"),
                          communicates=points.world > 1, packets=points.packets)  # fmt: skip
    ends = [_SCHEMES[seen.scheme, seen.receives](seen) for seen in points.by_origin()]
    return start + np.broadcast_to(np.maximum.reduce(ends), (points.count,))


def _sequential_send(points: PointColumns) -> Floats:
    work = points.everything() + points.overhead
    part = bytes_of(points, points.chunk, points.columns)
    if points.word("collective") in library.CALLS:
        return work + library_seconds(points, part)
    sent = points.world * part if points.word("collective") == "one_shot" else part
    done = _sent_to_all(points, work, sent)
    if points.operator.reduces:
        done = done + points.reduce(sent)
    if points.broadcasts and points.word("collective") != "one_shot":
        done = _sent_to_all(points, done, part)
    return done


def _sent_to_all(points: PointColumns, ready: Floats, num_bytes: Floats) -> Floats:
    """When all peers have a message that is *ready* for all of them at once, and the sender is free."""
    puts, peers = put_costs(points, num_bytes), range(points.world - 1)
    after = [ready + (peer + 1) * puts.on_lane for peer in peers]
    issued = issued_at(puts, after, [np.full(1, peer + 1) for peer in peers], ready)
    return np.maximum(ready + (points.world - 1) * puts.on_lane, arrivals(points, one_each(issued, num_bytes)))


def _sequential_receive(points: PointColumns) -> Floats:
    work = points.everything() + points.overhead
    shard = bytes_of(points, points.chunk, points.contraction)
    if points.word("collective") in library.CALLS:
        return work + library_seconds(points, shard)
    return _sent_to_all(points, np.zeros(points.count), shard) + work


def _fused_send(points: PointColumns) -> Floats:
    if points.between_hosts:
        return hosts.send(points)
    if points.spans:
        return fused_scattered(points)
    if points.relayed.any() and not points.relayed.all():
        return points.apart(points.relayed, _fused_send)
    in_order = points.broadcasts and points.world > 1 and points.word("tile_order") == "natural"
    to_owners = fused_in_rank_order(points, slices_of(points)) if in_order else fused_send(points)
    return np.where(points.shots == 1, fused_one_shot(points), to_owners) if points.packets else to_owners


def _fused_receive(points: PointColumns) -> Floats:
    if points.spans:
        return fused_spanning(points)
    if not points.between_hosts:
        return fused_receive(points)
    seconds = np.zeros(points.count)
    if (points.sharing == 1).any():
        seconds = np.where(points.sharing == 1, fused_receive(points), seconds)
    return np.where(points.sharing > 1, hosts.receive(points), seconds) if (points.sharing > 1).any() else seconds


_SCHEMES: dict[tuple[str, bool], Callable[[PointColumns], Floats]] = {
    ("sequential", False): _sequential_send,
    ("sequential", True): _sequential_receive,
    ("decomposed", False): decomposed_send,
    ("decomposed", True): decomposed_receive,
    ("fused", False): _fused_send,
    ("fused", True): _fused_receive,
}
