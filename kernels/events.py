"""All kinds of events: dictionaries that ranks report on the way to outcomes, and that cross processes unchanged.

A bench reports on its trials. Its rank process writes these events and those about itself as lines of JSON into a pipe.
The worker writes the rank into each event and sends batches of them to the client over Dask. The scheduler's broker
answers there, too. Samples come by the thousand, so no process on the way converts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, TypeGuard

# Events of a trial on one rank, from a bench.


class StageEvent(TypedDict):
    """The next stage of a trial begins on a rank."""

    kind: Literal["stage"]
    trial: str
    """Key of the trial, here and in every event."""
    rank: int
    stage: str
    """One of open, compile, verify, warm up, time and timeline."""
    number: NotRequired[int]
    """Number of the trial that is compiled, from 1."""
    of: NotRequired[int]
    """Number of trials to compile."""


class SampleEvent(TypedDict):
    """One iteration was timed on a rank."""

    kind: Literal["sample"]
    trial: str
    rank: int
    index: int
    seconds: float
    at: float
    """Unix time at which it ended."""


class ExecutionFields(TypedDict, total=False):
    """What ran a trial, which the client adds to a result; absent where it is not needed."""

    source_print: str
    """Fingerprint of the kernels' source."""
    versions_print: str
    """Fingerprint of the libraries' versions."""
    hardware: Mapping[str, Any] | None
    """A `kernels.hardware.Hardware` as JSON."""


class ResultEvent(ExecutionFields):
    """A trial has ended on a rank."""

    kind: Literal["result"]
    trial: str
    rank: int
    correct: bool | None
    """None for a part, which computes no result."""
    spans: Sequence[Sequence[Any]]
    """Spans in the form of `kernels.outcome.span_values`."""
    max_relative_error: float | None
    facts: Mapping[str, Any]
    """How it was timed: iteration, timed, conditions, and unseen where spans are missing."""


class FailureEvent(TypedDict):
    """A trial failed on a rank, or for all of them."""

    kind: Literal["failure"]
    trial: str
    rank: int | None
    """The rank that failed; None where none of them caused it."""
    stage: str
    """One of `kernels.outcome.STAGES`."""
    message: str
    """Why there is no result."""


# Events of a rank process, from itself or its worker.


class OpenedEvent(TypedDict):
    """The bench is open: the next events are about trials."""

    kind: Literal["opened"]
    rank: NotRequired[int]
    """The rank, which the worker writes into every event of a process."""


class DoneEvent(TypedDict):
    """The rank has finished its list, and waits for orders."""

    kind: Literal["done"]
    rank: NotRequired[int]


class BrokenEvent(TypedDict):
    """The rank left its list before the end."""

    kind: Literal["broken"]
    rank: NotRequired[int]
    stage: str
    message: str
    witness: bool
    """Whether it only lost a peer or got no answer, so that the cause is probably elsewhere."""
    sticky: bool
    """Whether the process is unusable from now on."""


class RendezvousEvent(TypedDict):
    """The address at which the other ranks reach this one."""

    kind: Literal["rendezvous"]
    rank: NotRequired[int]
    host: str
    port: int
    secret: str | None
    """None on loopback, which other hosts cannot reach."""


class GoneEvent(TypedDict):
    """The rank process has ended."""

    kind: Literal["gone"]
    rank: NotRequired[int]
    message: str


class StateEvent(TypedDict):
    """The rank process was stopped or continued by a signal."""

    kind: Literal["state"]
    rank: NotRequired[int]
    stopped: bool


class HelloEvent(TypedDict):
    """A rank process is ready for orders; only its worker gets this event."""

    kind: Literal["hello"]
    incarnation: str
    hello: Mapping[str, Any]
    """Fingerprints of the source that it has loaded, by backend, and the versions of the libraries below."""


class FailedEvent(TypedDict):
    """A rank process could not start; only its worker gets this event."""

    kind: Literal["failed"]
    message: str


# Events of a stream, from the broker or the client itself.


class GrantedEvent(TypedDict):
    """The client has its ranks."""

    kind: Literal["granted"]
    session: str
    places: list[dict[str, Any]]
    """The `cluster.gang_messages.Place` of each rank, as a dictionary."""


class RefusedEvent(TypedDict):
    """The cluster does not have the requested ranks."""

    kind: Literal["refused"]
    message: str
    for_now: bool
    """Whether there would be such ranks if all workers were well."""


class EndedEvent(TypedDict):
    """The grant was taken away."""

    kind: Literal["ended"]
    worker: str | None
    """The worker that was lost; None where the client was silent."""
    message: str


class WaitingEvent(TypedDict):
    """The client waits for ranks; in the last such event `why` is empty."""

    kind: Literal["waiting"]
    trial: None
    world: int
    seconds: float
    why: str


TrialEvent = StageEvent | SampleEvent | ResultEvent | FailureEvent
ProcessEvent = OpenedEvent | DoneEvent | BrokenEvent | RendezvousEvent | GoneEvent | StateEvent
BirthEvent = HelloEvent | FailedEvent
BrokerEvent = GrantedEvent | RefusedEvent | EndedEvent
RankEvent = TrialEvent | ProcessEvent
StreamEvent = RankEvent | BrokerEvent
"""Events that arrive at a client."""
ProgressEvent = TrialEvent | WaitingEvent
"""Events that a client reports to the code that requested the trials."""

ENDS = ("done", "broken", "gone", "rendezvous")
"""Kinds after which an order has been carried out, or never will be."""
LEISURELY = ("stage", "sample")
"""Kinds that may wait to be sent in batches; all others leave at once."""


def is_of_rank(event: StreamEvent) -> TypeGuard[RankEvent]:
    """Whether the event is from a rank or its worker; if not, it is from the broker."""
    return event["kind"] not in ("granted", "refused", "ended")
