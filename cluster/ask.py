"""What a client asks a cluster for: trials of one backend, and a gang of ranks that can run them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster.deadline import Limits


class Trial(Protocol):
    """What dispatch needs to know of a trial: `kernels.trial.Trial`."""

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
class Ask:
    """What a stream needs."""

    world: int
    shares_heap: bool
    """Whether the ranks write into each other's memory and so must sit on one host."""
    limits: Limits
    cancelled: threading.Event
    across: bool = False
    """Whether the network links the ranks, so that they must sit on several hosts."""
    backend: str = "cpu"
    """What the ranks must have."""
    source_print: str | None = None
    """The client's own kernels, which the ranks must have; None when it is enough that they have the same."""
    replaced: set[str] = field(default_factory=set)
    """Workers whose rank process was started anew for this stream, because it had other kernels or libraries."""
