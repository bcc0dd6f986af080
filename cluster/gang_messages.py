"""Messages of the gang: events that it receives, each with its time, and commands that it returns. All are frozen."""

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
    """A worker reports which GPUs it may have, its preferred one first; its rank process waits for one."""

    at: float
    worker: str
    gpus: tuple[Gpu, ...]
    ranks_on_gpu: int = 1
    """How many workers may have the same GPU, this one included."""


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A Dask worker is no longer there."""

    at: float
    worker: str


@dataclass(frozen=True, slots=True)
class WorkerSilent:
    """A worker that is still connected has not answered for `silent_s`; repeated at every tick."""

    at: float
    worker: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class WorkerAnswers:
    """A worker that was silent answers again."""

    at: float
    worker: str


@dataclass(frozen=True, slots=True)
class Handshake:
    """Handshake of a rank process: its kernels and libraries, and the device that its worker found."""

    source_prints: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints of the kernels' source that it has loaded, by backend."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries, by name."""
    device: Mapping[str, Any] = field(default_factory=dict)
    """A `kernels.hardware.WorkerDevice` as JSON."""


@dataclass(frozen=True, slots=True)
class RankReady:
    """The worker's rank process sent its handshake."""

    at: float
    worker: str
    incarnation: str
    handshake: Handshake = Handshake()
    backend: str = "cpu"
    """Fastest backend of the rank; a `triton` rank has a GPU, and can run trials of `cpu`, too."""


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
    message: str


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
    """The network between hosts links its ranks, so they must not all be on one host."""
    expected_s: float | None = None
    """How long its client expects to hold them; None where it cannot say."""
    shared_as: str | None = None
    """Equal for requests that any of their clients may measure for all (`cluster.shared`); None: for itself alone."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A client that waits for a grant or holds one is alive."""

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
    """Workers of a spoiled grant whose ranks reported that they are done: these live on."""


@dataclass(frozen=True, slots=True)
class DoomMessage:
    """A client reports that one rank process of its grant is unusable; it keeps the grant."""

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
    """The time now, sent at regular intervals, so that the gang notices what is overdue."""

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
    hello: Handshake = field(default_factory=Handshake)
    """Handshake of its rank process; the field is named as in the answer to the client."""
    gpu: Gpu | None = None
    """The GPU that its rank process uses."""


@dataclass(frozen=True, slots=True)
class GrantMessage:
    """The client holds these workers; rank r is `places[r]`."""

    client: str
    stream: str
    session: str
    places: tuple[RankSeat, ...]


@dataclass(frozen=True, slots=True)
class RefusalMessage:
    """The request cannot be met. `for_now`: it could be met if all workers of the cluster were well."""

    client: str
    stream: str
    message: str
    for_now: bool = False


@dataclass(frozen=True, slots=True)
class EndMessage:
    """The grant or request was taken away. `worker`: the lost one, or None when the client itself was silent."""

    client: str
    stream: str
    worker: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Kill:
    """Order to end this rank process now."""

    worker: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class GpuMessage:
    """This worker's rank processes have this GPU, or none, until the worker leaves."""

    worker: str
    gpu: Gpu | None


Command = GrantMessage | RefusalMessage | EndMessage | Kill | GpuMessage
