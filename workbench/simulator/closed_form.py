"""How long each scheme takes, in closed form: the longest of the compute lane, the link, and the ways through both.

All ranks do the same (tile orders and peers are rotated), so that one rank's sends are timed as another's arrivals.
Pieces and slices are taken as equal; times then grow by the same amount from each to the next, and a lane that follows
another is done at the later of two ends: all of its work after the first that reaches it, or its last after the last.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernels.schemes import library
from workbench.simulator.form import fused, in_rank_order
from workbench.simulator.form.calls import bytes_of, library_seconds
from workbench.simulator.form.decomposed import decomposed_receive, decomposed_send
from workbench.simulator.form.slices import slices_of
from workbench.simulator.messages import arrivals, issued_at, one_each, put_costs
from workbench.simulator.points import Floats, Points
from workbench.simulator.price.launches import start_seconds


def seconds(points: Points) -> Floats:
    """Whole trials; what is illegal gets some number, too."""
    points = points.carried_out
    start = start_seconds(points.machine, one_kernel=points.one_kernel, collective=points.word("collective"),
                          communicates=points.world > 1, packets=points.packets)  # fmt: skip
    ends = [_SCHEMES[place.scheme, place.receives](place) for place in points.places()]
    return start + np.broadcast_to(np.maximum.reduce(ends), (points.count,))


def _sequential_send(points: Points) -> Floats:
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


def _once(points: Points, ready: Floats, num_bytes: Floats) -> Floats:
    """One message to every peer, all ready at once: when everybody has them and the sender is free."""
    puts, peers = put_costs(points, num_bytes), range(points.world - 1)
    after = [ready + (peer + 1) * puts.on_lane for peer in peers]
    issued = issued_at(puts, after, [np.full(1, peer + 1) for peer in peers], ready)
    return np.maximum(ready + (points.world - 1) * puts.on_lane, arrivals(points, one_each(issued, num_bytes)))


def _sequential_receive(points: Points) -> Floats:
    work = points.everything() + points.overhead
    shard = bytes_of(points, points.chunk, points.contraction)
    if points.word("collective") in library.CALLS:
        return work + library_seconds(points, shard)
    return _once(points, np.zeros(points.count), shard) + work


def _fused_send(points: Points) -> Floats:
    in_order = points.broadcasts and points.world > 1 and points.word("tile_order") == "natural"
    to_owners = in_rank_order.seconds(points, slices_of(points)) if in_order else fused.to_owners(points)
    return np.where(points.shots == 1, fused.to_all(points), to_owners) if points.packets else to_owners


_SCHEMES: dict[tuple[str, bool], Callable[[Points], Floats]] = {
    ("sequential", False): _sequential_send,
    ("sequential", True): _sequential_receive,
    ("decomposed", False): decomposed_send,
    ("decomposed", True): decomposed_receive,
    ("fused", False): _fused_send,
    ("fused", True): fused.receive,
}
