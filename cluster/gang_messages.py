"""What the gang is told (events) and what it orders (commands): small frozen values, each with the time it happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.hosts import Gpu


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A Dask worker entered the cluster; its rank process is still starting."""

    at: float
    worker: str
    name: str
    host: str


@dataclass(frozen=True, slots=True)
class WorkerSees:
    """A worker says which GPUs it may have, the one that it would take first; its rank process waits for one."""

    at: float
    worker: str
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A Dask worker is no longer there."""

    at: float
    worker: str


@dataclass(frozen=True, slots=True)
class WorkerSilent:
    """A worker that is still connected has not answered for `silent_s`; told again while that goes on."""

    at: float
    worker: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class WorkerAnswers:
    """A worker that was silent answers again."""

    at: float
    worker: str


@dataclass(frozen=True, slots=True)
class Hello:
    """What a rank process runs its trials with, as it said, and on what, as its worker found."""

    source_prints: Mapping[str, str] = field(default_factory=dict)
    """Of the kernels' source that it has loaded, by backend."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the libraries below, by name."""
    device: Mapping[str, Any] = field(default_factory=dict)
    """A `kernels.hardware.Device` as JSON."""


@dataclass(frozen=True, slots=True)
class RankReady:
    """The worker's rank process said hello."""

    at: float
    worker: str
    incarnation: str
    hello: Hello = Hello()
    backend: str = "cpu"
    """triton: it has a GPU, and can do what `cpu` can, too."""


@dataclass(frozen=True, slots=True)
class RankGone:
    """The worker's rank process ended; another one is being started."""

    at: float
    worker: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class RankFailed:
    """The worker's rank process could not be started."""

    at: float
    worker: str
    sentence: str


@dataclass(frozen=True, slots=True)
class RequestMessage:
    """A client wants `world` ranks at once."""

    at: float
    client: str
    stream: str
    world: int
    shares_heap: bool
    backend: str = "cpu"
    across: bool = False
    """Its ranks are linked by the network between hosts, so they must not sit on one alone."""
    expected_s: float | None = None
    """How long its client expects to hold them; None where it cannot say."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A client that waits or holds a grant is alive."""

    at: float
    client: str


@dataclass(frozen=True, slots=True)
class ReleaseMessage:
    """A client gives its grant back, or takes its request back. `spoiled`: its ranks may still be busy."""

    at: float
    client: str
    stream: str
    spoiled: bool
    idle: tuple[str, ...] = ()
    """Workers of a spoiled grant whose ranks said that they came to an end: these live on."""


@dataclass(frozen=True, slots=True)
class DoomMessage:
    """A client found that one rank process of its grant is of no use any more; it keeps the grant."""

    at: float
    client: str
    stream: str
    worker: str


@dataclass(frozen=True, slots=True)
class ClientGone:
    """A client disconnected or died."""

    at: float
    client: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""

    at: float


Event = (
    WorkerJoined
    | WorkerSees
    | WorkerLeft
    | WorkerSilent
    | WorkerAnswers
    | RankReady
    | RankGone
    | RankFailed
    | RequestMessage
    | Heartbeat
    | ReleaseMessage
    | DoomMessage
    | ClientGone
    | Tick
)


@dataclass(frozen=True, slots=True)
class RankSeat:
    """One rank's place in a grant."""

    worker: str
    name: str
    host: str
    incarnation: str
    hello: Hello = field(default_factory=Hello)
    gpu: Gpu | None = None
    """The only one that its rank process sees."""


@dataclass(frozen=True, slots=True)
class GrantMessage:
    """The client holds these workers; rank r is `places[r]`."""

    client: str
    stream: str
    session: str
    places: tuple[RankSeat, ...]


@dataclass(frozen=True, slots=True)
class RefusalMessage:
    """The request cannot be met. `for_now`: it could be, were all workers well that belong to the cluster."""

    client: str
    stream: str
    sentence: str
    for_now: bool = False


@dataclass(frozen=True, slots=True)
class EndMessage:
    """The grant or request was taken away. `worker`: the lost one, or None when the client itself was silent."""

    client: str
    stream: str
    worker: str | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End this rank process now."""

    worker: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class GpuMessage:
    """This worker's rank processes have this GPU, or none, for as long as the worker is there."""

    worker: str
    gpu: Gpu | None


Command = GrantMessage | RefusalMessage | EndMessage | Kill | GpuMessage
