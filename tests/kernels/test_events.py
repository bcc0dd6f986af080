"""Every kind of event has the keys that its type says, and crosses processes unchanged."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import pytest
from distributed.protocol import deserialize_bytes, serialize_bytes

from kernels import events
from kernels.events import BirthEvent, ExecutionFields, StreamEvent, WaitingEvent

MADE: tuple[Mapping[str, Any], ...] = (
    events.StageEvent(kind="stage", trial="k", rank=1, stage="time"),
    events.StageEvent(kind="stage", trial="k", rank=1, stage="compile", number=2, of=24),
    events.SampleEvent(kind="sample", trial="k", rank=1, index=3, seconds=1e-3, at=1e9),
    events.ResultEvent(
        kind="result",
        trial="k",
        rank=1,
        correct=None,
        max_relative_error=None,
        spans=[["1/compute/-1/0", 1]],
        facts={"iteration": 3},
    ),
    events.FailureEvent(kind="failure", trial="k", rank=None, stage="hang", message="why"),
    events.OpenedEvent(kind="opened"),
    events.DoneEvent(kind="done"),
    events.BrokenEvent(kind="broken", stage="launch", message="why", witness=True, sticky=False),
    events.RendezvousEvent(kind="rendezvous", host="127.0.0.1", port=4711, secret=None),
    events.GoneEvent(kind="gone", message="why"),
    events.GoneEvent(kind="gone", message="why", rank=1),
    events.StateEvent(kind="state", stopped=True),
    events.HelloEvent(kind="hello", incarnation="i", hello={"versions": {}}),
    events.FailedEvent(kind="failed", message="why"),
    events.GrantedEvent(kind="granted", session="s", places=[{"worker": "w"}]),
    events.RefusedEvent(kind="refused", message="why", for_now=True),
    events.EndedEvent(kind="ended", worker=None, message="why"),
    events.WaitingEvent(kind="waiting", trial=None, world=2, seconds=1.0, why="why"),
)
TYPES = {get_args(get_type_hints(kind)["kind"])[0]: kind for kind in get_args(StreamEvent | BirthEvent | WaitingEvent)}


@pytest.mark.parametrize("event", MADE, ids=lambda event: event["kind"])
def test_an_event_has_the_keys_and_values_that_its_type_says(event: Mapping[str, Any]) -> None:
    hints = get_type_hints(TYPES[event["kind"]], include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired} | get_type_hints(
        ExecutionFields
    ).keys()
    assert hints.keys() - optional <= event.keys() <= hints.keys()


def test_every_kind_is_made_here_by_a_constructor_of_its_own() -> None:
    assert {event["kind"] for event in MADE} == set(TYPES)


@pytest.mark.parametrize("cross", [lambda event: json.loads(json.dumps(event)),
                                   lambda event: deserialize_bytes(serialize_bytes(event))])  # fmt: skip
def test_events_are_the_same_behind_a_pipe_and_behind_dask(cross: Callable[[Any], Any]) -> None:
    assert [cross(event) for event in MADE] == list(MADE)


def test_the_broker_tells_of_no_rank_and_ranks_end_their_orders() -> None:
    brokers = [event["kind"] for event in MADE if event["kind"] in TYPES and not events.is_of_rank(event)]  # type: ignore[arg-type]
    assert brokers == ["granted", "refused", "ended"]
    assert {*events.ENDS, *events.LEISURELY} <= set(TYPES)
    assert not set(events.ENDS) & set(events.LEISURELY)
