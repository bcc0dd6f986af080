"""The emulated link: each rank's egress direction carries one message after another at the fabric's rate.

The bytes themselves are copied at memory speed when a put is issued; what the link decides is the moment from which
the receiver may see them. No thread is needed, and every scheme crosses the same link. A put that is not in place pays
its copy on the rank and then the whole wire, as a processor does that drives its own link.
"""

from __future__ import annotations

from kernels.backends.cpu.wait import clock
from kernels.fabric import Fabric


class Egress:
    """One rank's outgoing direction during one iteration."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._free_at = 0.0

    def begin(self, start: float) -> None:
        """A new iteration begins at *start* with an idle link."""
        self._free_at = start

    def send(self, num_bytes: int) -> tuple[float, float, float]:
        """Puts *num_bytes* on the link now: when they begin to leave, when the link is free, when they are there."""
        now = clock()
        if not self.fabric.emulated:
            return now, now, 0.0
        begins = max(now, self._free_at)
        self._free_at = begins + self.fabric.wire_seconds(num_bytes)
        return begins, self._free_at, self._free_at + self.fabric.latency_seconds
