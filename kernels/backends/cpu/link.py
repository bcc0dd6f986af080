"""The emulated links: each rank's egress direction carries one message after another at the fabric's rate.

With several emulated hosts a rank has two links, one inside its host and a slower one to the other hosts.

The bytes themselves are copied at memory speed when a put is issued; the link only decides the moment from which the
receiver may see them. No thread is needed, and every scheme crosses the same link. A put that is not in place pays its
copy on the rank and then the whole wire, as a processor does that drives its link itself.
"""

from __future__ import annotations

import numpy as np

from kernels.backends.cpu.heap import clock
from kernels.fabric import LINK_NAMES, Fabric
from kernels.plan import Kind, Plan


class Egress:
    """One rank's outgoing links in one iteration: one for all peers, or one inside its host and one between hosts."""

    def __init__(self, fabric: Fabric, rank: int, world: int) -> None:
        self._links = fabric.links(world) if fabric.emulated else ()
        self._level = [fabric.level(rank, peer, world) for peer in range(world)]
        self._free_at = [0.0] * len(self._links)

    def begin(self, start: float) -> None:
        """Begins an iteration at *start* with idle links."""
        self._free_at = [start] * len(self._links)

    def name(self, peer: int) -> str:
        """The name of the link to *peer* in spans."""
        return LINK_NAMES[self._level[peer]]

    def send(self, num_bytes: int, peer: int) -> tuple[float, float, float]:
        """Puts *num_bytes* for *peer* on their link; returns when they begin to leave, end leaving, and arrive."""
        now = clock()
        if not self._links:
            return now, now, 0.0
        level = self._level[peer]
        link, begins = self._links[level], max(now, self._free_at[level])
        self._free_at[level] = free_at = begins + link.wire_seconds(num_bytes)
        return begins, free_at, free_at + link.latency_seconds


def longest_wire_seconds(plan: Plan, fabric: Fabric) -> float:
    """Seconds for which the busiest link of *plan* carries its bytes, with the last latency; 0 if none is emulated.

    A gap between messages is counted once.
    """
    if not fabric.emulated:
        return 0.0
    world, puts = plan.problem.world, plan.kind == Kind.PUT
    on_each = world // fabric.hosts
    level = (plan.rank // on_each != plan.peer // on_each).astype(int)
    busy = [0.0]
    for number, link in enumerate(fabric.links(world)):
        carried = puts & (level == number)
        leaving = np.bincount(plan.rank[carried], plan.num_bytes[carried])
        busy.append(link.wire_seconds(float(leaving.max(initial=0.0))) + link.latency_seconds)
    return max(busy)
