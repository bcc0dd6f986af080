"""What a rank process is told to do: two orders, each a dictionary that goes through Dask and a pipe as it is."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict

from cluster.watchdog import Deadlines

# What a client asks a cluster for: trials of one backend, and a gang of ranks that can run them.


class DispatchedTrial(Protocol):
    """What dispatch needs to know of a trial: `kernels.trial.DispatchedTrial`."""

    @property
    def key(self) -> str:
        """The same in every process."""

    @property
    def backend(self) -> str:
        """Whose ranks can run it: those of cpu are any worker's."""

    @property
    def across(self) -> bool:
        """Whether the network links its ranks, so that they must sit on several hosts."""

    def to_json(self) -> dict[str, Any]:
        """What the rank process makes the trial from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What a stream needs."""

    world: int
    shares_heap: bool
    """Whether the ranks write into each other's memory and so must sit on one host."""
    limits: Deadlines
    cancelled: threading.Event
    across: bool = False
    """Whether the network links the ranks, so that they must sit on several hosts."""
    backend: str = "cpu"
    """What the ranks must have."""
    source_print: str | None = None
    """The client's own kernels, which the ranks must have; None when it is enough that they have the same."""
    replaced: set[str] = field(default_factory=set)
    """Workers whose rank process was started anew for this stream, because it had other kernels or libraries."""


# What a rank process is told to do: two orders, each a dictionary that goes through Dask and a pipe as it is.


class SeatWords(TypedDict):
    """A `kernels.backends.base.Seat` on its way to its rank."""

    rank: int
    world: int
    session: str
    """The ranks whose benches were opened together; the bench stays open for as long as this stays."""
    shares_heap: bool
    rendezvous: tuple[str, int, str | None] | None
    """Host, port and secret, behind the pipe a list; None: a rank alone meets nobody."""
    addresses: list[str]
    """By rank: where the others find it."""
    deadline_s: float


class RendezvousOrder(TypedDict):
    """Open a place where the ranks of a session meet, and tell where it is."""

    order: Literal["rendezvous"]
    session: str
    host: str
    guarded: bool
    """Whether ranks of other hosts come in, who must know a secret."""


class RunOrder(TypedDict):
    """Time these trials, all ranks together."""

    order: Literal["run"]
    seat: SeatWords
    trials: list[dict[str, Any]]
    """Each as its `to_json` says."""


Order = RendezvousOrder | RunOrder
