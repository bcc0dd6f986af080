"""What a rank process is told to do: two orders, each a dictionary that goes through Dask and a pipe as it is."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


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
