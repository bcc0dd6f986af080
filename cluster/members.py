"""What the gang knows of each worker, client, grant and session, and on whom it can count: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.gpus import Gpu
from cluster.stimulus import Hello, Place, Requested

MOST_DEATHS = 3
"""After so many starts of its rank process that failed in a row nobody counts on a worker, until one succeeds."""
GIVE_UP_S = 14.0
"""So long after its last answer requests count on a worker; it is away sooner (pulse.py)."""
HELD_FACTOR, HELD_LEAST_S = 4.0, 10.0
"""A silent client loses a grant that it has held for so many times what it expected to, and for so long at least."""


@dataclass(slots=True)
class Member:
    """A worker: there, silent, or gone a moment ago."""

    address: str
    name: str
    host: str
    gpu: Gpu | None = None
    incarnation: str | None = None
    hello: Hello = field(default_factory=Hello)
    backend: str = ""
    """Nothing until its rank process said hello once."""
    session: str = ""
    busy: bool = False
    deaths: int = 0
    """Starts of its rank process that failed, in a row."""
    last_death: str = ""
    silent_s: float = 0.0
    """How long it has not answered, once that is too long."""
    left_at: float = 0.0
    """When it left; of one that is there, nothing."""
    lost: bool = False
    """It left, and did not come back in time."""

    @property
    def ready(self) -> bool:
        """Whether a rank process waits there, or is busy."""
        return self.incarnation is not None and not self.silent_s

    @property
    def free(self) -> bool:
        return self.ready and not self.busy

    @property
    def trouble(self) -> str:
        """Why nobody counts on it for now, or nothing: what is only starting will come."""
        if self.lost:
            return "it left the cluster and did not come back"
        if self.silent_s > GIVE_UP_S:
            return f"it has not answered for more than {GIVE_UP_S:.0f} s"
        if self.deaths >= MOST_DEATHS:
            return f"{self.deaths} starts of its rank process failed in a row, the last one: {self.last_death}"
        return ""


@dataclass(slots=True)
class Customer:
    """A client that asked once."""

    seen: float
    seconds: float
    """Granted seconds of the grants that ended, never below what newcomers start with."""
    sessions: dict[int, str] = field(default_factory=dict)
    """The session last granted, by world."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Who holds which workers; by client and stream."""

    since: float
    places: tuple[Place, ...]
    expected_s: float | None

    def is_overdue(self, at: float) -> bool:
        """Whether its expected time has passed several times over."""
        return self.expected_s is not None and at - self.since > max(HELD_LEAST_S, HELD_FACTOR * self.expected_s)


@dataclass(frozen=True, slots=True)
class Session:
    """Workers whose benches were opened together."""

    workers: tuple[str, ...]
    shares_heap: bool
    across: bool

    def suits(self, request: Requested) -> bool:
        """Whether benches opened for this session can serve the request."""
        opened_for = (len(self.workers), self.shares_heap, self.across)
        return opened_for == (request.world, request.shares_heap, request.across)
