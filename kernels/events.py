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


def stage(trial: str, rank: int, name: str) -> StageEvent:
    """Stage *name* begins."""
    return {"kind": "stage", "trial": trial, "rank": rank, "stage": name}


def compiles(trial: str, rank: int, number: int, of: int) -> StageEvent:
    """Trial *number* of *of* is compiled now."""
    return {"kind": "stage", "trial": trial, "rank": rank, "stage": "compile", "number": number, "of": of}


def sample(trial: str, rank: int, index: int, seconds: float, at: float) -> SampleEvent:
    """Iteration *index* took *seconds* and ended at the Unix time *at*."""
    return {"kind": "sample", "trial": trial, "rank": rank, "index": index, "seconds": seconds, "at": at}


def result(
    trial: str, rank: int, *, correct: bool | None, max_relative_error: float | None,
    spans: Sequence[Sequence[Any]], facts: Mapping[str, Any],
) -> ResultEvent:  # fmt: skip
    """What came of a trial on one rank, beside its samples."""
    return {"kind": "result", "trial": trial, "rank": rank, "correct": correct, "spans": spans,
            "max_relative_error": max_relative_error, "facts": facts}  # fmt: skip


def failure(trial: str, rank: int | None, stage: str, message: str) -> FailureEvent:
    """*message* says why there is no result; *stage* is one of `kernels.outcome.STAGES`."""
    return {"kind": "failure", "trial": trial, "rank": rank, "stage": stage, "message": message}


def opened() -> OpenedEvent:
    """The bench is open."""
    return {"kind": "opened"}


def done() -> DoneEvent:
    """The list is done."""
    return {"kind": "done"}


def broken(stage: str, message: str, *, witness: bool = False, sticky: bool = False) -> BrokenEvent:
    """The list is broken off in *stage*."""
    return {"kind": "broken", "stage": stage, "message": message, "witness": witness, "sticky": sticky}


def rendezvous(host: str, port: int, secret: str | None) -> RendezvousEvent:
    """Ranks meet at *host* and *port*."""
    return {"kind": "rendezvous", "host": host, "port": port, "secret": secret}


def gone(message: str, rank: int | None = None) -> GoneEvent:
    """The process ended; *rank* where it is not the worker that tells so."""
    return {"kind": "gone", "message": message} if rank is None else {"kind": "gone", "rank": rank, "message": message}


def state(stopped: bool) -> StateEvent:
    """The process was stopped, or goes on."""
    return {"kind": "state", "stopped": stopped}


def hello(incarnation: str, says: Mapping[str, Any]) -> HelloEvent:
    """A process is ready."""
    return {"kind": "hello", "incarnation": incarnation, "hello": says}


def failed(message: str) -> FailedEvent:
    """A process could not begin."""
    return {"kind": "failed", "message": message}


def granted(session: str, places: list[dict[str, Any]]) -> GrantedEvent:
    """Ranks are granted."""
    return {"kind": "granted", "session": session, "places": places}


def refused(message: str, for_now: bool) -> RefusedEvent:
    """Ranks are refused."""
    return {"kind": "refused", "message": message, "for_now": for_now}


def ended(worker: str | None, message: str) -> EndedEvent:
    """A grant is taken away."""
    return {"kind": "ended", "worker": worker, "message": message}


def waiting(world: int, seconds: float, why: str) -> WaitingEvent:
    """*world* ranks are waited for."""
    return {"kind": "waiting", "trial": None, "world": world, "seconds": seconds, "why": why}
