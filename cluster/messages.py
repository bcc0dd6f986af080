"""What a client sends: its request for a gang of ranks, and the orders to each rank process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Protocol, TypedDict

from cluster.watchdog import Deadlines

# The request: trials of one backend, and a gang of ranks that can run them.


class DispatchedTrial(Protocol):
    """What dispatch needs to know about a trial; `kernels.trial.Trial` has it."""

    @property
    def key(self) -> str:
        """Name of the trial, the same in every process."""

    @property
    def backend(self) -> str:
        """Backend of the ranks that can run it; every worker can run backend cpu."""

    @property
    def across(self) -> bool:
        """Whether the network links its ranks, so that they must be on several hosts."""

    def to_json(self) -> dict[str, Any]:
        """The trial as JSON, for the rank process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What one stream of trials needs: how many ranks, of which kind, and for how long at most."""

    world: int
    shares_heap: bool
    """Whether the ranks write into each other's memory and so must be on one host."""
    limits: Deadlines
    cancelled: threading.Event
    across: bool = False
    """Whether the network links the ranks, so that they must be on several hosts."""
    backend: str = "cpu"
    """Backend that the ranks must have."""
    source_print: str | None = None
    """Fingerprint of the client's kernels, which the ranks must have; None: all ranks must only have the same."""
    shared_as: str | None = None
    """What others may ask as well, so that it is measured once; None: measured for this client alone."""
    replaced: set[str] = field(default_factory=set)
    """Workers whose rank process was restarted for this stream, because it had other kernels or libraries."""


# Orders to a rank process: dictionaries that go through Dask and a pipe unchanged.


class SeatMessage(TypedDict):
    """A `kernels.backends.base.Seat` on its way to its rank."""

    rank: int
    world: int
    session: str
    """Name of the ranks whose benches were opened together; the bench stays open until the name changes."""
    shares_heap: bool
    rendezvous: tuple[str, int, str | None] | None
    """Host, port and secret (a list after JSON); None for a single rank."""
    addresses: list[str]
    """Address of each rank, for the others."""
    deadline_s: float
    ranks_on_gpu: int
    """How many rank processes take turns on this rank's GPU; 1: it has it alone, or has none."""


class RendezvousOrder(TypedDict):
    """Open a rendezvous for the ranks of a session, and report its address."""

    order: Literal["rendezvous"]
    session: str
    host: str
    guarded: bool
    """Whether ranks of other hosts connect, which must then know a secret."""


class RunOrder(TypedDict):
    """Run and time these trials, all ranks together."""

    order: Literal["run"]
    seat: SeatMessage
    trials: list[dict[str, Any]]
    """Each as its `to_json` returned it."""
    reads_use: NotRequired[dict[str, Any]]
    """`incarnations` of the gang on the rank's host, and the `client`'s host and process: this rank's worker reads the
    core use there."""


Order = RendezvousOrder | RunOrder
