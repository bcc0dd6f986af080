"""A kernel on a GPU that waits for rows: which wave waits for which slice, and when that is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workbench.simulator.messages import put_costs
from workbench.simulator.points import Column, Floats, Points
from workbench.simulator.waves import Kernel, tiles_of_chunk


@dataclass(frozen=True, slots=True)
class Rows:
    """Slices of rows that a kernel waits for."""

    count: Column
    """Of each rank's rows."""
    num_bytes: Floats
    tiles: Column


def wave_by_wave(points: Points, kernel: Kernel, slices: Rows) -> Floats:
    """A kernel on a GPU: a wave is done after the last of its rows came, and those that follow it come after that.

    Own rows are computed while others are awaited, wherever they stand in the order.
    """
    peers = points.world - 1
    each = put_costs(points, slices.num_bytes).on_lane + points.overhead
    ends = [slices.count * (peers * each + points.overhead) + kernel.end(points.world)]
    for own in (peers, peers - 1) if points.word("tile_order") == "natural" else (0,):
        ends += _after_arrivals(points, kernel, slices, own)
    return np.maximum.reduce(ends)


def _after_arrivals(points: Points, kernel: Kernel, slices: Rows, own: int) -> Iterator[Floats]:
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


def _arrival(points: Points, slices: Rows, chunks: tuple[int, int], nth: Column) -> Floats:
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
