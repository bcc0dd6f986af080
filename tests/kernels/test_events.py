"""Every kind of event has one constructor that makes what its type says, and crosses processes as it is."""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import pytest
from distributed.protocol import deserialize_bytes, serialize_bytes

from kernels import events
from kernels.events import BirthEvent, ExecutionFields, StreamEvent, WaitingEvent

MADE: tuple[Mapping[str, Any], ...] = (
    events.stage("k", 1, "time"),
    events.compiles("k", 1, 2, 24),
    events.sample("k", 1, 3, 1e-3, 1e9),
    events.result("k", 1, correct=None, max_relative_error=None, spans=[["1/compute/-1/0", 1]], facts={"iteration": 3}),
    events.failure("k", None, "hang", "why"),
    events.opened(),
    events.done(),
    events.broken("launch", "why", witness=True),
    events.rendezvous("127.0.0.1", 4711, None),
    events.gone("why"),
    events.gone("why", 1),
    events.state(stopped=True),
    events.hello("i", {"versions": {}}),
    events.failed("why"),
    events.granted("s", [{"worker": "w"}]),
    events.refused("why", for_now=True),
    events.ended(None, "why"),
    events.waiting(2, 1.0, "why"),
)
TYPES = {get_args(get_type_hints(kind)["kind"])[0]: kind for kind in get_args(StreamEvent | BirthEvent | WaitingEvent)}
CONSTRUCTORS = [
    function for name, function in inspect.getmembers(events, inspect.isfunction)
    if function.__module__ == events.__name__ and not name.startswith("is_")
]  # fmt: skip


@pytest.mark.parametrize("event", MADE, ids=lambda event: event["kind"])
def test_an_event_has_the_keys_and_values_that_its_type_says(event: Mapping[str, Any]) -> None:
    hints = get_type_hints(TYPES[event["kind"]], include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired} | get_type_hints(
        ExecutionFields
    ).keys()
    assert hints.keys() - optional <= event.keys() <= hints.keys()


def test_every_kind_is_made_here_by_a_constructor_of_its_own() -> None:
    assert {event["kind"] for event in MADE} == set(TYPES)
    made = {function.__annotations__["return"] for function in CONSTRUCTORS}
    assert made == {kind.__name__ for kind in TYPES.values()}


@pytest.mark.parametrize("cross", [lambda event: json.loads(json.dumps(event)),
                                   lambda event: deserialize_bytes(serialize_bytes(event))])  # fmt: skip
def test_events_are_the_same_behind_a_pipe_and_behind_dask(cross: Callable[[Any], Any]) -> None:
    assert [cross(event) for event in MADE] == list(MADE)


def test_the_broker_tells_of_no_rank_and_ranks_end_their_orders() -> None:
    brokers = [event["kind"] for event in MADE if event["kind"] in TYPES and not events.is_of_rank(event)]  # type: ignore[arg-type]
    assert brokers == ["granted", "refused", "ended"]
    assert {*events.ENDS, *events.LEISURELY} <= set(TYPES)
    assert not set(events.ENDS) & set(events.LEISURELY)
