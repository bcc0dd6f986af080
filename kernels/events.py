"""What ranks tell on the way to their outcomes: every kind of event, as a dictionary that crosses processes as it is.

A bench tells of its trials. Its rank process writes that, and what becomes of itself, as lines of JSON into a pipe. The
worker writes the rank into each event and sends batches of them to the client over Dask. The scheduler's broker
answers there, too. Samples come by the thousand: nobody on the way makes another thing of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, TypeGuard

# of a trial on one rank: a bench tells them


class StageEvent(TypedDict):
    """A trial's next stage begins on a rank."""

    kind: Literal["stage"]
    trial: str
    """Its key, here and in every event."""
    rank: int
    stage: str
    """open, compile, verify, warm up, time or timeline."""
    number: NotRequired[int]
    """Of the trial that is compiled, counted from 1."""
    of: NotRequired[int]
    """So many are compiled."""


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
    """What ran a trial, which the client adds to a result; absent where nobody asked."""

    source_print: str
    versions_print: str
    hardware: Mapping[str, Any] | None
    """A `kernels.hardware.Hardware` as JSON."""


class ResultEvent(ExecutionFields):
    """A trial came to its end on a rank."""

    kind: Literal["result"]
    trial: str
    rank: int
    correct: bool | None
    """None for a part, which computes no result."""
    spans: Sequence[Sequence[Any]]
    """Each as `kernels.outcome.span_values` lists it."""
    max_relative_error: float | None
    facts: Mapping[str, Any]
    """How it was timed: iteration, timed, conditions, and unseen where there should be spans and are none."""


class FailureEvent(TypedDict):
    """A trial failed on a rank, or for all of them."""

    kind: Literal["failure"]
    trial: str
    rank: int | None
    """None where it was no rank's fault."""
    stage: str
    message: str


# of a rank process: it tells them itself, or its worker does


class OpenedEvent(TypedDict):
    """The bench is open: what follows is about trials."""

    kind: Literal["opened"]
    rank: NotRequired[int]
    """Of every event of a process: the worker writes it."""


class DoneEvent(TypedDict):
    """The rank came to the end of its list, and waits for orders."""

    kind: Literal["done"]
    rank: NotRequired[int]


class BrokenEvent(TypedDict):
    """The rank came out of its list before its end."""

    kind: Literal["broken"]
    rank: NotRequired[int]
    stage: str
    message: str
    witness: bool
    """It only saw a peer go away or not answer: the cause is probably elsewhere."""
    sticky: bool
    """The process is of no use any more."""


class RendezvousEvent(TypedDict):
    """Where the other ranks find this one."""

    kind: Literal["rendezvous"]
    rank: NotRequired[int]
    host: str
    port: int
    secret: str | None
    """None on loopback, where nobody else comes in."""


class GoneEvent(TypedDict):
    """The rank process has ended."""

    kind: Literal["gone"]
    rank: NotRequired[int]
    message: str


class StateEvent(TypedDict):
    """Somebody stopped the rank process, or let it go on."""

    kind: Literal["state"]
    rank: NotRequired[int]
    stopped: bool


class HelloEvent(TypedDict):
    """A rank process is ready for orders; for its worker alone."""

    kind: Literal["hello"]
    incarnation: str
    hello: Mapping[str, Any]
    """The source that it has loaded, by backend, and the versions of the libraries below."""


class FailedEvent(TypedDict):
    """A rank process could not begin; for its worker alone."""

    kind: Literal["failed"]
    message: str


# of a stream: the broker tells them, and the client itself


class GrantedEvent(TypedDict):
    """The client has its ranks."""

    kind: Literal["granted"]
    session: str
    places: list[dict[str, Any]]
    """By rank: a `cluster.gang_messages.Place` as a dictionary."""


class RefusedEvent(TypedDict):
    """There are no such ranks."""

    kind: Literal["refused"]
    message: str
    for_now: bool
    """There could be, were all workers well."""


class EndedEvent(TypedDict):
    """The grant was taken away."""

    kind: Literal["ended"]
    worker: str | None
    """The lost one; None where the client was silent."""
    message: str


class WaitingEvent(TypedDict):
    """The client waits for ranks; the last one says nothing in `why`."""

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
"""What arrives at a client."""
ToldEvent = TrialEvent | WaitingEvent
"""What a client tells whoever asked for trials."""

ENDS = ("done", "broken", "gone", "rendezvous")
"""After these an order is carried out, or never will be."""
LEISURELY = ("stage", "sample")
"""These may wait for more of their kind; all others leave at once."""


def is_of_rank(event: StreamEvent) -> TypeGuard[RankEvent]:
    """Whether a rank or its worker tells it; if not, the broker does."""
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
