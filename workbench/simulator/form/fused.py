"""One kernel in closed form: its slices leave when they are computed, or are computed when their rows are there."""

from __future__ import annotations

import numpy as np

from kernels.schemes import reads
from workbench.simulator.form.behind import OwnUnits, behind_operands, finish, operands
from workbench.simulator.form.calls import bytes_of
from workbench.simulator.form.rows import Rows, wave_by_wave
from workbench.simulator.form.slices import Slices, own_chunks_before, slices_of
from workbench.simulator.messages import Messages, arrivals, first_of_each, issued_at, put_costs
from workbench.simulator.points import Floats, Points
from workbench.simulator.waves import Kernel, tiles_of_chunk


def to_all(points: Points) -> Floats:
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


def to_owners(points: Points) -> Floats:
    """Each slice leaves for its owner when it is computed, who sums contributions."""
    order, slices = points.word("tile_order"), slices_of(points)
    kernel, puts, peers, each = slices.kernel, slices.puts, points.world - 1, points.overhead + slices.puts.on_lane
    in_turns, before = order == reads.IN_TURNS, own_chunks_before(points)
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


def _one_by_one(points: Points, slices: Slices, each: Floats, before: int) -> tuple[list[Floats], list[Floats]]:
    """When the first and the last slice for each peer is computed: chunk after chunk, *before* of which are own."""
    kernel, peers, marked = slices.kernel, points.world - 1, before * slices.marked
    first = [kernel.sent(before, before + p, slices.tiles) + marked + (p * slices.count + 1) * each
             for p in range(peers)]  # fmt: skip
    last = [kernel.sent(before, before + p + 1) + marked + (p + 1) * slices.count * each for p in range(peers)]
    return first, last


def _in_turns(points: Points, slices: Slices, each: Floats, _: int) -> tuple[list[Floats], list[Floats]]:
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


def _round_seconds(points: Points, slices: Slices, each: Floats) -> Floats:
    """Of a slice of every chunk."""
    return np.asarray(slices.kernel.end(points.world) / slices.count + (points.world - 1) * each + points.overhead)


def receive(points: Points) -> Floats:
    """Until all rows are there and computed."""
    across = -(-points.columns // points.tile_n)
    rows = -(-points.slice_tiles // across) * points.tile_m
    slices = -(-points.chunk // rows)
    part = bytes_of(points, points.chunk, points.contraction) / slices
    kernel = Kernel(points)
    if kernel.in_waves:
        return wave_by_wave(points, kernel, Rows(slices, part, -(-rows // points.tile_m) * across))
    chunk = kernel.end(points.world) / points.world
    unstage = points.overhead + points.copy(part) if points.word("write") == "staged" else np.zeros(points.count)
    one = chunk / slices + points.overhead
    total = slices * (points.world * one + (points.world - 1) * unstage)
    ordered = points.word("tile_order") != "rotated"
    last = np.maximum(one, kernel.tile_seconds + points.overhead) + unstage
    return behind_operands(points, operands(points, part, slices), total, (one + unstage, last), ordered=ordered)
