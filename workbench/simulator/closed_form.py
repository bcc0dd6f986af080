"""How long each scheme takes, in closed form: the longest of the compute lane, the link, and the ways through both.

All ranks do the same (tile orders and peers are rotated), so that one rank's sends are timed as another's arrivals.
Pieces and slices are taken as equal; times then grow by the same amount from each to the next, and a lane that follows
another is done at the later of two ends: all of its work after the first that reaches it, or its last after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from kernels.schemes import library, reads
from kernels.schemes.decomposed_plan import adds_up, own_in_one
from workbench.simulator import in_rank_order
from workbench.simulator.messages import (
    Messages,
    PutCosts,
    arrivals,
    first_of_each,
    issued_at,
    lanes_seconds,
    one_each,
    put_costs,
)
from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.price.launches import start_seconds, step_overhead
from workbench.simulator.price.memory import unpacks
from workbench.simulator.waves import Kernel, tiles_of_chunk


def seconds(points: Points) -> Floats:
    """Whole trials; what is illegal gets some number, too."""
    points = points.carried_out
    start = start_seconds(points.machine, one_kernel=points.one_kernel, collective=points.word("collective"),
                          communicates=points.world > 1, packets=points.packets)  # fmt: skip
    ends = [_SCHEMES[place.scheme, place.receives](place) for place in points.places()]
    return start + np.broadcast_to(np.maximum.reduce(ends), (points.count,))


def _bytes(points: Points, rows: Column, width: Column) -> Floats:
    return np.asarray(rows * width * points.problem.itemsize, dtype=float)


def _sequential_send(points: Points) -> Floats:
    work = points.everything() + points.overhead
    part = _bytes(points, points.chunk, points.columns)
    if points.word("collective") in library.CALLS:
        return work + _library_call(points, part)
    sent = points.world * part if points.word("collective") == "one_shot" else part
    done = _once(points, work, sent)
    if points.operator.reduces:
        done = done + points.reduce(sent)
    if points.broadcasts and points.word("collective") != "one_shot":
        done = _once(points, done, part)
    return done


def _once(points: Points, ready: Floats, num_bytes: Floats) -> Floats:
    """One message to every peer, all ready at once: when everybody has them and the sender is free."""
    puts, peers = put_costs(points, num_bytes), range(points.world - 1)
    after = [ready + (peer + 1) * puts.on_lane for peer in peers]
    issued = issued_at(puts, after, [np.full(1, peer + 1) for peer in peers], ready)
    return np.maximum(ready + (points.world - 1) * puts.on_lane, arrivals(points, one_each(issued, num_bytes)))


def _library_call(points: Points, part: Floats) -> Floats:
    """A collective of one part per peer, and the unpacking of what it brings."""
    return _call(points, part) + _unpack(points, part)


def _call(points: Points, part: Floats) -> Floats:
    return points.collective((points.world - 1) * part * (2 if points.broadcasts else 1))


def _unpack(points: Points, part: Floats) -> Floats:
    if points.broadcasts or not unpacks(points.machine, points.problem, in_pieces=points.in_pieces):
        return np.zeros(points.count)
    return points.overhead + points.copy(part if points.operator.reduces else points.world * part)


def _sequential_receive(points: Points) -> Floats:
    work = points.everything() + points.overhead
    shard = _bytes(points, points.chunk, points.contraction)
    if points.word("collective") in library.CALLS:
        return work + _library_call(points, shard)
    return _once(points, np.zeros(points.count), shard) + work


def cuts(points: Points) -> tuple[Column, Column, Column]:
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


def _piece(points: Points, chunks: int) -> Floats:
    """The mean step that computes one piece of *chunks* chunks: pieces differ by a row, a column or a k."""
    if not chunks:
        return np.zeros(points.count)
    if points.word(reads.LAUNCHES) == reads.ONE:
        return _of_one_launch(points, chunks) + step_overhead(points.machine, one_kernel=True)
    lengths = (points.chunk, points.columns, points.contraction)
    sizes = [_sizes(length, count) for length, count in zip(lengths, cuts(points), strict=True)]
    mean = np.zeros(points.count)
    for (rows, of_rows), (columns, of_columns), (k, of_k) in product(*sizes):
        mean = mean + of_rows * of_columns * of_k * points.step(chunks, rows, columns, k)
    return mean + points.overhead


def _of_one_launch(points: Points, chunks: int) -> Floats:
    """The same in a launch that computes all: its waves run on through all pieces."""
    in_waves = Kernel(points).end(points.world) * chunks / (points.world * points.number("pieces"))
    ranges = cuts(points)[2]
    if not (ranges > 1).any():
        return in_waves
    before, last = _of_ranges(points, chunks)
    return np.where(ranges > 1, ((ranges - 1) * before + last) / ranges, in_waves)


def _of_ranges(points: Points, chunks: int) -> tuple[Floats, Floats]:
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


def _first_piece(points: Points, chunks: int, mean: Floats) -> Floats:
    """The first of pieces that take *mean* on the average: of one launch it is done with the waves in which it is."""
    if points.word(reads.LAUNCHES) != reads.ONE or not chunks:
        return mean
    down, across, _ = cuts(points)
    tiles = chunks * -(-points.chunk // (down * points.tile_m)) * -(-points.columns // (across * points.tile_n))
    return np.maximum(mean, -(-tiles // points.slots) * Kernel(points).tile_seconds)


def _last_piece(points: Points, chunks: int, mean: Floats) -> Floats:
    """The same of the last of pieces that wait: its tiles begin when it is there."""
    ranges, in_waves = cuts(points)[2], _first_piece(points, chunks, mean)
    if points.word(reads.LAUNCHES) != reads.ONE or not (ranges > 1).any():
        return in_waves
    return np.where(ranges > 1, _of_ranges(points, chunks)[1], in_waves)


def _launched(points: Points) -> float:
    """What the one launch of all computation takes to begin, which no piece of it does again."""
    if points.word(reads.LAUNCHES) != reads.ONE:
        return 0.0
    return points.overhead - step_overhead(points.machine, one_kernel=True)


def _own(points: Points) -> Floats:
    """All steps of a rank's own shard, where they are apart."""
    if not own_in_one(points.problem, points.worded):
        return points.number("pieces") * _piece(points, 1)
    return points.step(1, points.chunk, points.columns, points.contraction) + points.overhead


def _on_streams(points: Points) -> bool:
    """Whether each call begins when what the one before brought has been unpacked: both have one stream."""
    return points.word(reads.LAUNCHES) is not None


def _calls_on_a_stream(pieces: Column, work: Floats, call: Floats, unpack: Floats) -> Floats:
    """*pieces* that are computed, sent by a call, and unpacked where nothing is computed just then.

    An unpacking waits for the piece that is under way: so as many whole pieces are computed as a call takes. When none
    is left, each call follows the one before at once.
    """
    computed = np.maximum(1, np.ceil(call / work)).astype(np.int64)
    beside = (pieces - 1) // computed
    return np.asarray(work + beside * (computed * work + unpack) + (pieces - beside) * (call + unpack))


def _decomposed_send(points: Points) -> Floats:
    peers, pieces = points.world - 1, points.number("pieces")
    part = _bytes(points, points.chunk, points.columns) / pieces
    apart, in_one = points.word("steps") == "local_first", points.word(reads.LAUNCHES) == reads.ONE
    if points.word("engine") == "library":
        work = _piece(points, points.world)
        call, unpack = _call(points, part), _unpack(points, part)
        if _on_streams(points) and not points.broadcasts:
            return _calls_on_a_stream(pieces, work, call, unpack)
        behind = np.maximum(work + pieces * call, pieces * work + call) + unpack
        return np.maximum(pieces * (work + unpack), behind)
    puts, one = put_costs(points, part), _piece(points, 1)
    ring, alone = points.word("pattern") == "ring", points.word("grouping") == "unfused"
    zero = np.zeros(points.count)
    if ring or alone:
        each = one + puts.on_lane
        step = pieces if ring else np.ones_like(pieces)
        period = each if ring else peers * each + (zero if apart else one)
        first = [(peer * step + 1) * each for peer in range(peers)]
        lane = _launched(points) + pieces * peers * each + _own(points)
    else:
        group = _piece(points, peers + (not (apart or in_one)))
        period = group + peers * puts.on_lane
        begun = _launched(points) + _first_piece(points, peers, group)
        first = [begun + (peer + 1) * puts.on_lane for peer in range(peers)]
        lane = _launched(points) + pieces * period + (_own(points) if apart or in_one else zero)
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
    return _finish(points, messages, lane, _Own(computed, ring or apart, onto))


@dataclass(frozen=True, slots=True)
class _Own:
    """A sender's own units, where they are summed."""

    computed: Floats
    """When the first of them is computed."""
    comes_last: bool
    """After all that leaves for peers."""
    onto: Floats | None = None
    """What one of them takes, where it is computed onto what has arrived and nothing else sums."""


def _finish(points: Points, messages: Messages, lane: Floats, own_units: _Own) -> Floats:
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


def _decomposed_receive(points: Points) -> Floats:
    peers, pieces = points.world - 1, points.number("pieces")
    part = _bytes(points, points.chunk, points.contraction) / pieces
    everything, one = _piece(points, points.world), _piece(points, 1)
    if points.word("engine") == "library":
        call, unpack = _call(points, part), points.overhead + points.copy(points.world * part)
        if _on_streams(points):
            return call + unpack + (pieces - 1) * (np.maximum(call, everything) + unpack) + everything
        return np.maximum(call + pieces * (unpack + everything), pieces * call + unpack + everything)
    ring, alone = points.word("pattern") == "ring", points.word("grouping") == "unfused"
    if ring or alone:
        total = _launched(points) + pieces * peers * one + _own(points)
        return _behind(points, _operands(points, part, pieces, ring), total, (one, _last_piece(points, 1, one)))
    if points.word("steps") == "local_first" or points.word(reads.LAUNCHES) == reads.ONE:
        remote = _piece(points, peers)
        total = _launched(points) + _own(points) + pieces * remote
        each = (remote, _last_piece(points, peers, remote))
        return _behind(points, _operands(points, part, pieces), total, each, together=True)
    return _behind(points, _operands(points, part, pieces), pieces * everything, (everything,) * 2, together=True)


def _operands(points: Points, part: Floats, per_peer: Column, ring: bool = False) -> Messages:
    """Operand pieces for every peer, all ready at once."""
    peers, puts = points.world - 1, put_costs(points, part)
    ring = ring and puts.engines == 1  # engines serve several peers at once
    numbers = [peer * (per_peer if ring else 1) + 1 + 0 * per_peer for peer in range(peers)]
    lasts = [number + (per_peer - 1) * (1 if ring else peers) for number in numbers]
    first, last = (issued_at(puts, [n * puts.on_lane for n in which], which, np.zeros(1)) for which in (numbers, lasts))
    return Messages(first, last, per_peer, part, part, np.zeros(1), ring)


def _behind(points: Points, messages: Messages, total: Floats, each: tuple[Floats, Floats], *, together: bool = False,
            ordered: bool = False) -> Floats:  # fmt: skip
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


def _fused_send(points: Points) -> Floats:
    to_owners = _fused_to_owners(points)
    if not points.packets:
        return to_owners
    return np.where(points.shots == 1, _fused_to_all(points), to_owners)


def _fused_to_all(points: Points) -> Floats:
    """Everybody sends each slice of everything to all peers, and sums alone what has come."""
    peers, tiles, kernel = points.world - 1, tiles_of_chunk(points), Kernel(points)
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


def _fused_to_owners(points: Points) -> Floats:
    peers, tiles, kernel = points.world - 1, tiles_of_chunk(points), Kernel(points)
    size = np.minimum(points.slice_tiles, tiles)
    slices = -(-tiles // size)
    result = np.asarray(points.chunk * points.columns * points.value_bytes, dtype=float)
    part, last_part = result * size / tiles, result * (tiles - (slices - 1) * size) / tiles
    puts = put_costs(points, part, in_place=points.word("write") != "staged")
    marked, each = slices * points.overhead, points.overhead + puts.on_lane
    before = 1 if points.word("tile_order") == "natural" else 0
    first = [kernel.end(before + p, size) + before * marked + (p * slices + 1) * each for p in range(peers)]
    last = [kernel.end(before + p + 1, 0) + before * marked + (p + 1) * slices * each for p in range(peers)]
    in_turns = points.word("tile_order") == reads.IN_TURNS
    stored = kernel.stores(size if in_turns else tiles)
    if points.broadcasts and points.word("tile_order") == "natural" and peers:
        one = in_rank_order.Slices(
            slices, size, part, puts, put_costs(points, part), points.reduce(part), stored, peers
        )
        return in_rank_order.seconds(points, kernel, one)
    last = [each_last + (p + 1) / peers * stored for p, each_last in enumerate(last)]
    begin = first[0] if peers else np.zeros(points.count)
    early = begin - kernel.end(0, size) - each if peers and before else np.zeros(points.count)
    if in_turns:
        round_s = kernel.end(points.world) / slices + peers * each + points.overhead
        first = [(p + 1) / points.world * round_s for p in range(peers)]
        last = [(slices - 1) * round_s + each_first for each_first in first]
        if kernel.in_waves:  # whose slices are done with the waves in which they are
            beside, left = (slices - 1) * (peers * each + points.overhead), tiles - (slices - 1) * size
            first = [kernel.end(0, (p + 1) * size) + (p + 1) * each for p in range(peers)]
            last = [kernel.end(0, points.world * tiles - (peers - p) * left) + stored + beside + (p + 1) * each
                    for p in range(peers)]  # fmt: skip
    messages = Messages(issued_at(puts, first, [p * slices + 1 for p in range(peers)], begin),
                        issued_at(puts, last, [(p + 1) * slices for p in range(peers)], begin),
                        slices, part, last_part, early, not in_turns)  # fmt: skip
    sent = peers * slices * each
    lane = kernel.end(points.world, 0) + stored + sent + marked
    own_units = _Own(kernel.end(peers, size) + stored + sent + points.overhead, True)
    if in_turns:
        own_units = _Own(round_s, False)
    return _finish(points, messages, lane, own_units)


def _fused_receive(points: Points) -> Floats:
    across = -(-points.columns // points.tile_n)
    rows = -(-points.slice_tiles // across) * points.tile_m
    slices = -(-points.chunk // rows)
    part = _bytes(points, points.chunk, points.contraction) / slices
    kernel = Kernel(points)
    if kernel.in_waves:
        return _wave_by_wave(points, kernel, _Rows(slices, part, -(-rows // points.tile_m) * across))
    chunk = kernel.end(points.world) / points.world
    unstage = points.overhead + points.copy(part) if points.word("write") == "staged" else np.zeros(points.count)
    one = chunk / slices + points.overhead
    total = slices * (points.world * one + (points.world - 1) * unstage)
    ordered = points.word("tile_order") != "rotated"
    last = np.maximum(one, kernel.tile_seconds + points.overhead) + unstage
    return _behind(points, _operands(points, part, slices), total, (one + unstage, last), ordered=ordered)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Slices of rows that a kernel waits for."""

    count: Column
    """Of each rank's rows."""
    num_bytes: Floats
    tiles: Column


def _wave_by_wave(points: Points, kernel: Kernel, slices: _Rows) -> Floats:
    """A kernel on a GPU: a wave is done after the last of its rows came, and those that follow it come after that.

    Own rows are computed while others are awaited, wherever they stand in the order.
    """
    peers = points.world - 1
    each = put_costs(points, slices.num_bytes).on_lane + points.overhead
    ends = [slices.count * (peers * each + points.overhead) + kernel.end(points.world)]
    for own in (peers, peers - 1) if points.word("tile_order") == "natural" else (0,):
        ends += _after_arrivals(points, kernel, slices, own)
    return np.maximum.reduce(ends)


def _after_arrivals(points: Points, kernel: Kernel, slices: _Rows, own: int) -> Iterator[Floats]:
    """When a rank is done whose rows are the *own*-th chunk, by what is left to compute after an arrival.

    Of slices that are in one wave the last to come counts: of those of each chunk the first wave's, the last wave's,
    and that of the wave before.
    """
    tiles, slots = tiles_of_chunk(points), points.slots
    own_waves = _waves_before(points, (own + 1) * tiles) - _waves_before(points, own * tiles)
    for chunk in (number for number in range(points.world) if number != own):
        begin, ahead = chunk * tiles, chunk < own
        last = (begin + (slices.count - 1) * slices.tiles) // slots
        for wave in (begin // slots, last - 1, last):
            nth = np.clip(((wave + 1) * slots - 1 - begin) // slices.tiles, 0, slices.count - 1)
            left = (
                _waves_before(points, points.world * tiles) - (begin + nth * slices.tiles) // slots - ahead * own_waves
            )
            steps = (points.world - chunk - ahead) * slices.count - nth
            yield _arrival(points, slices, (chunk, own), nth) + left * kernel.tile_seconds + steps * points.overhead


def _waves_before(points: Points, tiles: Column) -> Column:
    """Waves that are done before so many tiles of a kernel have all begun to wait; with all of them, all."""
    return np.where(tiles < points.world * tiles_of_chunk(points), tiles // points.slots, -(-tiles // points.slots))


def _arrival(points: Points, slices: _Rows, chunks: tuple[int, int], nth: Column) -> Floats:
    """When the *nth* slice of a chunk is there; *chunks*: its number and that of own rows.

    Ranks send first to whom it is the first to wait for: in rotated orders one peer after the other. In rank order they
    send each slice to all that wait for it in the same turn; then the last ranks are the slowest.
    """
    (chunk, own), links, puts = chunks, points.peer_links, put_costs(points, slices.num_bytes)
    peer = chunk - (chunk > own)
    others = links.count(links[peer])
    before, together, after = 0, others, 0
    if points.word("tile_order") == "rotated":
        before, together = links[:peer].count(links[peer]), 1
    elif points.word("tile_order") == "natural":
        after = int(chunk < own < points.world - 1 == others)  # who is not the last is not the last to be sent to
    else:
        before = min(peer, others - 1)
        together = others - before
    on_link = before * slices.count + (nth + 1) * together - after
    number = on_link if others == points.world - 1 else peer * slices.count + (nth + 1)
    one, first = points.transit(peer, slices.num_bytes), puts.on_lane + puts.elsewhere
    issued = number * first - puts.ahead
    return np.asarray(np.maximum(first - puts.ahead + on_link * one, issued + one) + points.delay(peer))


_SCHEMES: dict[tuple[str, bool], Callable[[Points], Floats]] = {
    ("sequential", False): _sequential_send,
    ("sequential", True): _sequential_receive,
    ("decomposed", False): _decomposed_send,
    ("decomposed", True): _decomposed_receive,
    ("fused", False): _fused_send,
    ("fused", True): _fused_receive,
}
