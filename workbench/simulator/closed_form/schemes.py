"""How long each scheme takes, in closed form: the longest of the compute lane, the link, and the ways through both.

All ranks do the same (tile orders and peers are rotated), so that one rank's sends are timed as another's arrivals.
Pieces and slices are taken as equal; times then grow by the same amount from each to the next, and a lane that follows
another is done at the later of two ends: all of its work after the first that reaches it, or its last after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from kernels.schemes import axis_rules, library
from kernels.schemes.decomposed import adds_up, own_in_one
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
    slices_of,
    tiles_of_chunk,
    unpack_seconds,
)
from workbench.simulator.closed_form.points import Column, Floats, PointColumns
from workbench.simulator.price.rates import start_seconds, step_overhead

# What depends on messages: sums and their way to everybody, and computation behind operands.


@dataclass(frozen=True, slots=True)
class OwnUnits:
    """A sender's own units, where they are summed."""

    computed: Floats
    """When the first of them is computed."""
    comes_last: bool
    """After all that leaves for peers."""
    onto: Floats | None = None
    """What one of them takes, where it is computed onto what has arrived and nothing else sums."""


def finish(points: PointColumns, messages: Messages, lane: Floats, own_units: OwnUnits) -> Floats:
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


def operands(points: PointColumns, part: Floats, per_peer: Column, ring: bool = False) -> Messages:
    """Operand pieces for every peer, all ready at once."""
    peers, puts = points.world - 1, put_costs(points, part)
    ring = ring and puts.engines == 1  # engines serve several peers at once
    numbers = [peer * (per_peer if ring else 1) + 1 + 0 * per_peer for peer in range(peers)]
    lasts = [number + (per_peer - 1) * (1 if ring else peers) for number in numbers]
    first, last = (issued_at(puts, [n * puts.on_lane for n in which], which, np.zeros(1)) for which in (numbers, lasts))
    return Messages(first, last, per_peer, part, part, np.zeros(1), ring)


def behind_operands(points: PointColumns, messages: Messages, total: Floats, each: tuple[Floats, Floats], *,
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


def _first_on_link(points: PointColumns, messages: Messages, link: int) -> Floats:
    """When the first message of a link is there."""
    peer = points.peer_links.index(link)
    return np.asarray(messages.first[peer] + points.transit(peer, messages.num_bytes) + points.delay(peer))


def _from_hosts(points: PointColumns, messages: Messages, one: Floats, there: Floats, *, ordered: bool) -> list[Floats]:
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


# A kernel on a GPU that waits for rows: which wave waits for which slice, and when that is there.

TOGETHER = 1e-6
"""Of a message: arrivals that are nearer than this are at one time."""


@dataclass(frozen=True, slots=True)
class AwaitedRows:
    """Slices of rows that a kernel waits for."""

    count: Column
    """Of each rank's rows."""
    num_bytes: Floats
    tiles: Column


def wave_by_wave(points: PointColumns, kernel: FusedKernelTimes, slices: AwaitedRows) -> Floats:
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

    def __init__(self, points: PointColumns, kernel: FusedKernelTimes, slices: AwaitedRows, place: int) -> None:
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


# What pieces of a decomposed schedule take to compute: their mean, and the first and last of one launch.


def cuts(points: PointColumns) -> tuple[Column, Column, Column]:
    """Pieces along rows, columns and contraction, as kernels.schemes.decomposed cuts them."""
    count, direction = points.number("pieces"), points.direction
    one = np.ones_like(count)
    if direction != "rows_and_contraction":
        return tuple(count if direction == d else one for d in ("rows", "columns", "contraction"))  # type: ignore[return-value]
    kinds, which = np.unique(count, return_inverse=True)
    rows = np.array([next(r for r in range(int(c**0.5), 0, -1) if c % r == 0) for c in kinds])[which]
    return rows, one, count // rows


def _sizes(length: Column, count: Column) -> list[tuple[Column, Floats]]:
    """How long the shorter and the longer of *count* pieces are, where there are any, and their shares of them."""
    longer = length % count
    pieces = [(np.maximum(1, length // count), (count - longer) / count)]
    return [*pieces, (length // count + 1, longer / count)] if longer.any() else pieces


def piece_seconds(points: PointColumns, chunks: int) -> Floats:
    """The mean step that computes one piece of *chunks* chunks: pieces differ by a row, a column or a k."""
    if not chunks:
        return np.zeros(points.count)
    if points.word(axis_rules.LAUNCHES) == axis_rules.ONE:
        return _of_one_launch(points, chunks) + step_overhead(points.machine, one_kernel=True)
    lengths = (points.chunk, points.columns, points.contraction)
    sizes = [_sizes(length, count) for length, count in zip(lengths, cuts(points), strict=True)]
    mean = np.zeros(points.count)
    for (rows, of_rows), (columns, of_columns), (k, of_k) in product(*sizes):
        mean = mean + of_rows * of_columns * of_k * points.step(chunks, rows, columns, k)
    return mean + points.overhead


def _of_one_launch(points: PointColumns, chunks: int) -> Floats:
    """The same in a launch that computes all: its waves run on through all pieces."""
    in_waves = FusedKernelTimes(points).end(points.world) * chunks / (points.world * points.number("pieces"))
    ranges = cuts(points)[2]
    if not (ranges > 1).any():
        return in_waves
    before, last = _of_ranges(points, chunks)
    return np.where(ranges > 1, ((ranges - 1) * before + last) / ranges, in_waves)


def _of_ranges(points: PointColumns, chunks: int) -> tuple[Floats, Floats]:
    """A piece of one launch, which waits for its range of the contraction, and the last one of its rows and columns.

    Its tiles are as many waves as they are of the slots. Only the first wave waits; the others are of the last piece.
    """
    down, across, ranges = cuts(points)
    rows, columns, k = points.chunk / down, points.columns / across, points.contraction / ranges
    waves = chunks * np.ceil(rows / points.tile_m) * np.ceil(columns / points.tile_n) / points.slots
    of_wave = points.one_tile(points.tile_m, points.tile_n, points.contraction)
    waiting, least = of_wave * np.minimum(1.0, waves) / ranges, points.least(chunks * rows, columns, k)
    whole = of_wave * np.maximum(0.0, waves - 1.0)
    return np.maximum(waiting, least), np.maximum(waiting + whole, least)


def first_seconds(points: PointColumns, chunks: int, mean: Floats) -> Floats:
    """The first of pieces that take *mean* on the average: of one launch it is done with the waves in which it is."""
    if points.word(axis_rules.LAUNCHES) != axis_rules.ONE or not chunks:
        return mean
    down, across, _ = cuts(points)
    tiles = chunks * -(-points.chunk // (down * points.tile_m)) * -(-points.columns // (across * points.tile_n))
    return np.maximum(mean, -(-tiles // points.slots) * FusedKernelTimes(points).tile_seconds)


def last_seconds(points: PointColumns, chunks: int, mean: Floats) -> Floats:
    """The same of the last of pieces that wait: its tiles begin when it is there."""
    ranges, in_waves = cuts(points)[2], first_seconds(points, chunks, mean)
    if points.word(axis_rules.LAUNCHES) != axis_rules.ONE or not (ranges > 1).any():
        return in_waves
    return np.where(ranges > 1, _of_ranges(points, chunks)[1], in_waves)


def begin_seconds(points: PointColumns) -> float:
    """What the one launch of all computation takes to begin, which no piece of it does again."""
    if points.word(axis_rules.LAUNCHES) != axis_rules.ONE:
        return 0.0
    return points.overhead - step_overhead(points.machine, one_kernel=True)


def own_seconds(points: PointColumns) -> Floats:
    """All steps of a rank's own shard, where they are apart."""
    if not own_in_one(points.problem, points.worded):
        return points.number("pieces") * piece_seconds(points, 1)
    return points.step(1, points.chunk, points.columns, points.contraction) + points.overhead


# Pieces in closed form: they leave when they are computed, or are computed when they are there.


def on_streams(points: PointColumns) -> bool:
    """Whether each call begins when what the one before brought has been unpacked: both have one stream."""
    return points.word(axis_rules.LAUNCHES) is not None


def _calls_on_a_stream(pieces: Column, work: Floats, call: Floats, unpack: Floats) -> Floats:
    """*pieces* that are computed, sent by a call, and unpacked where nothing is computed just then.

    An unpacking waits for the piece that is under way: so as many whole pieces are computed as a call takes. When none
    is left, each call follows the one before at once.
    """
    computed = np.maximum(1, np.ceil(call / work)).astype(np.int64)
    beside = (pieces - 1) // computed
    return np.asarray(work + beside * (computed * work + unpack) + (pieces - beside) * (call + unpack))


def decomposed_send(points: PointColumns) -> Floats:
    """Until all pieces have left, are there, and are summed where they are contributions."""
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
    late = np.maximum(0, pieces - 2) if adds_up(points.problem, points.worded) else pieces - 1
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
    onto = one if adds_up(points.problem, points.worded) else None
    return finish(points, messages, lane, OwnUnits(computed, ring or apart, onto))


def decomposed_receive(points: PointColumns) -> Floats:
    """Until all pieces are there and computed."""
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


# One kernel in closed form: its slices leave when they are computed, or are computed when their rows are there.


def to_all(points: PointColumns) -> Floats:
    """Everybody sends each slice of everything to all peers, and sums alone what has come."""
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


def fused_to_owners(points: PointColumns) -> Floats:
    """Each slice leaves for its owner when it is computed, who sums contributions."""
    order, slices = points.word("tile_order"), slices_of(points)
    kernel, puts, peers, each = slices.kernel, slices.puts, points.world - 1, points.overhead + slices.puts.on_lane
    in_turns, before = order == axis_rules.INTERLEAVED, own_chunks_before(points)
    first, last = (_in_turns if in_turns else _one_by_one)(points, slices, each, before)
    begin = early = np.zeros(points.count)
    if peers:
        begin = kernel.sent(before, before, slices.tiles) + before * slices.marked + each
        early = begin - kernel.sent(0, 0, slices.tiles) - each if before else early
    messages = Messages(issued_at(puts, first, [p * slices.count + 1 for p in range(peers)], begin),
                        issued_at(puts, last, [(p + 1) * slices.count for p in range(peers)], begin),
                        slices.count, slices.num_bytes, slices.last_bytes, early, not in_turns)  # fmt: skip
    sent = slices.stored + peers * slices.count * each
    lane = kernel.end(points.world) + sent + slices.marked
    own_units = OwnUnits(kernel.end(peers, slices.tiles) + sent + points.overhead, True)
    if in_turns:
        own_units = OwnUnits(_round_seconds(points, slices, each), False)
    return finish(points, messages, lane, own_units)


def _one_by_one(points: PointColumns, slices: Slices, each: Floats, before: int) -> tuple[list[Floats], list[Floats]]:
    """When the first and the last slice for each peer is computed: chunk after chunk, *before* of which are own."""
    kernel, peers, marked = slices.kernel, points.world - 1, before * slices.marked
    first = [kernel.sent(before, before + p, slices.tiles) + marked + (p * slices.count + 1) * each
             for p in range(peers)]  # fmt: skip
    last = [kernel.sent(before, before + p + 1) + marked + (p + 1) * slices.count * each for p in range(peers)]
    return first, last


def _in_turns(points: PointColumns, slices: Slices, each: Floats, _: int) -> tuple[list[Floats], list[Floats]]:
    """The same where a slice of each chunk is computed in turns: on a GPU it is done with the waves in which it is."""
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
    """Of a slice of every chunk."""
    return np.asarray(slices.kernel.end(points.world) / slices.count + (points.world - 1) * each + points.overhead)


def receive(points: PointColumns) -> Floats:
    """Until all rows are there and computed."""
    across = -(-points.columns // points.tile_n)
    rows = -(-points.slice_tiles // across) * points.tile_m
    slices = -(-points.chunk // rows)
    part = bytes_of(points, points.chunk, points.contraction) / slices
    kernel = FusedKernelTimes(points)
    if kernel.in_waves:
        return wave_by_wave(points, kernel, AwaitedRows(slices, part, -(-rows // points.tile_m) * across))
    chunk = kernel.end(points.world) / points.world
    unstage = points.overhead + points.copy(part) if points.word("write") == "staged" else np.zeros(points.count)
    one = chunk / slices + points.overhead
    total = slices * (points.world * one + (points.world - 1) * unstage)
    ordered = points.word("tile_order") != "rotated"
    last = np.maximum(one, kernel.tile_seconds + points.overhead) + unstage
    return behind_operands(points, operands(points, part, slices), total, (one + unstage, last), ordered=ordered)


# Sums in rank order: everybody computes the same chunk, so that owners are busy one after the other.

NEVER_IDLE = 1e-9
"""The least share of the time that sums leave to computation: sums that come faster than they are made leave none."""

SOON = 1e-12
"""Seconds from sum to sum at least, so that one divides by no 0."""


def in_rank_order_seconds(points: PointColumns, slices: Slices) -> Floats:
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

    def __init__(self, points: PointColumns, slices: Slices) -> None:
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


# How long each scheme takes, in closed form: the longest of the compute lane, the link, and the ways through both.


def seconds(points: PointColumns) -> Floats:
    """Whole trials; what is illegal gets some number, too."""
    points = points.carried_out
    start = start_seconds(points.machine, one_kernel=points.one_kernel, collective=points.word("collective"),
                          communicates=points.world > 1, packets=points.packets)  # fmt: skip
    ends = [_SCHEMES[place.scheme, place.receives](place) for place in points.places()]
    return start + np.broadcast_to(np.maximum.reduce(ends), (points.count,))


def _sequential_send(points: PointColumns) -> Floats:
    work = points.everything() + points.overhead
    part = bytes_of(points, points.chunk, points.columns)
    if points.word("collective") in library.CALLS:
        return work + library_seconds(points, part)
    sent = points.world * part if points.word("collective") == "one_shot" else part
    done = _once(points, work, sent)
    if points.operator.reduces:
        done = done + points.reduce(sent)
    if points.broadcasts and points.word("collective") != "one_shot":
        done = _once(points, done, part)
    return done


def _once(points: PointColumns, ready: Floats, num_bytes: Floats) -> Floats:
    """One message to every peer, all ready at once: when everybody has them and the sender is free."""
    puts, peers = put_costs(points, num_bytes), range(points.world - 1)
    after = [ready + (peer + 1) * puts.on_lane for peer in peers]
    issued = issued_at(puts, after, [np.full(1, peer + 1) for peer in peers], ready)
    return np.maximum(ready + (points.world - 1) * puts.on_lane, arrivals(points, one_each(issued, num_bytes)))


def _sequential_receive(points: PointColumns) -> Floats:
    work = points.everything() + points.overhead
    shard = bytes_of(points, points.chunk, points.contraction)
    if points.word("collective") in library.CALLS:
        return work + library_seconds(points, shard)
    return _once(points, np.zeros(points.count), shard) + work


def _fused_send(points: PointColumns) -> Floats:
    in_order = points.broadcasts and points.world > 1 and points.word("tile_order") == "natural"
    to_owners = in_rank_order_seconds(points, slices_of(points)) if in_order else fused_to_owners(points)
    return np.where(points.shots == 1, to_all(points), to_owners) if points.packets else to_owners


_SCHEMES: dict[tuple[str, bool], Callable[[PointColumns], Floats]] = {
    ("sequential", False): _sequential_send,
    ("sequential", True): _sequential_receive,
    ("decomposed", False): decomposed_send,
    ("decomposed", True): decomposed_receive,
    ("fused", False): _fused_send,
    ("fused", True): receive,
}
