"""Events of all ranks become samples and one outcome; every kind of event crosses processes as it is."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import pytest
from distributed.protocol import deserialize_bytes, serialize_bytes

from kernels import events
from kernels.events import BirthEvent, ExecutionFields, ResultEvent, SampleEvent, StreamEvent, WaitingEvent
from kernels.fabric import TIMES_ARE_NOT, parse
from kernels.hardware import Hardware
from kernels.outcome import (
    ROW_KEYS,
    Failure,
    Gather,
    Measurement,
    Sample,
    Span,
    TileTimes,
    row,
    span,
    span_values,
    timed_how,
)
from kernels.trial import Trial
from tests.kernels.conftest import small

# Events of all ranks become samples and one outcome; the slowest rank's median is the time.


@pytest.fixture
def trial(make_trial: Any) -> Trial:
    made: Trial = make_trial(small("gemm_all_to_all", 2), "fused")
    return made


def sample(trial: Trial, rank: int, index: int, seconds: float) -> SampleEvent:
    return events.SampleEvent(kind="sample", trial=trial.key, rank=rank, index=index, seconds=seconds, at=1.0)


def result(trial: Trial, rank: int, *, correct: bool | None = True, error: float | None = 1e-6) -> ResultEvent:
    spans = [[f"{rank}/compute/-1/0", rank, "compute", "compute", 0.0, 1.0, None]]
    return events.ResultEvent(
        kind="result", trial=trial.key, rank=rank, correct=correct, max_relative_error=error, spans=spans, facts={}
    )


def fed(trial: Trial, *events: dict[str, Any]) -> list[Any]:
    gather = Gather(trial)
    return [gather.feed(event) for event in events]


def test_windows_of_core_use_become_conditions_with_their_samples(trial: Trial) -> None:
    """Two hosts, of which the second was busier; on it most was another gang's, and one window of two was quiet."""
    samples = [{**sample(trial, rank, index, 1.0), "at": 10.0 + index} for rank in (0, 1) for index in range(4)]
    quiet = {"cores": 2.0, "windows": [[9.0, 14.0, 0.1]], "whom": {"other programs": 0.1}}
    busy = {"cores": 4.0, "windows": [[9.5, 12.5, 0.0], [12.5, 14.0, 2.4], [14.0, 15.0, 4.0]],
            "whom": {"other programs": 0.2, "another gang": 0.4}}  # fmt: skip
    results = [{**result(trial, rank), "facts": {"core_use": use}} for rank, use in enumerate((quiet, busy))]
    *_, last = fed(trial, *samples, *results)
    assert [(each["rank"], each["samples"]) for each in last.core_use] == [(0, [0, 3]), (1, [0, 2]), (1, [3, 3])]
    assert last.others_share == pytest.approx(0.6 / 4), "by samples, and of the busier host"
    assert last.others == "0.6 of 4 cores, mostly another gang"
    *_, unread = fed(trial, *samples, result(trial, 0), result(trial, 1))
    assert (unread.core_use, unread.others_share, unread.others) == ((), None, None)


def test_an_outcome_comes_once_every_rank_has_its_result(trial: Trial) -> None:
    times = [sample(trial, 0, 0, 1.0), sample(trial, 1, 0, 3.0), sample(trial, 0, 1, 2.0), sample(trial, 1, 1, 5.0)]
    *before, last = fed(trial, *times, result(trial, 0), result(trial, 1, error=2e-6))
    assert [type(one) for one in before] == [Sample] * 4 + [type(None)]
    assert isinstance(last, Measurement)
    assert last.samples == ((1.0, 2.0), (3.0, 5.0))
    assert last.time_s == 4.0
    assert last.skew_s == 2.5
    assert last.max_relative_error == 2e-6
    assert {span.rank for span in last.spans} == {0, 1}


def test_spans_come_as_lists_with_tiles_or_as_older_ones_without(trial: Trial) -> None:
    tile = TileTimes(3, 17, 0.0, 0.1, 0.5, 1.0)
    sent = Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 1.0, None, 32e-9, (tile,))
    assert span(json.loads(json.dumps(span_values(sent)))) == sent
    assert span(list(span_values(sent))[:7]) == Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 1.0)


def test_a_stream_is_written_only_where_it_is_not_the_first(trial: Trial) -> None:
    first = Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 1.0)
    second = first._replace(stream=1)
    assert len(span_values(first)) == 9
    assert span_values(second) == (*span_values(first), 1)
    assert span(json.loads(json.dumps(span_values(second)))) == second


def test_a_measurement_without_spans_says_why(trial: Trial) -> None:
    unseen = result(trial, 1) | {"facts": {"unseen": "The call failed."}, "spans": []}
    *_, last = fed(trial, sample(trial, 0, 0, 1.0), sample(trial, 1, 0, 1.0), result(trial, 0), unseen)
    assert (last.unseen, row(last)["message"], row(last)["outcome"]) == ("The call failed.",) * 2 + ("measurement",)


@pytest.mark.parametrize(("link", "is_said"), [("one GPU shared by 2 hosts", True), ("network", False)])
def test_times_of_hosts_that_share_a_gpu_are_said_to_be_none(trial: Trial, link: str, is_said: bool) -> None:
    between = replace(trial, fabric=parse("network"))
    heard = sample(between, 0, 0, 1.0), sample(between, 1, 0, 1.0), result(between, 0), result(between, 1)
    *_, last = fed(between, *heard)
    on_hosts = replace(last, hardware=Hardware(model="NVIDIA H100", link=link))
    assert (row(on_hosts)["message"] == TIMES_ARE_NOT) is is_said


def test_a_control_that_did_not_act_is_said_beside_its_time_once(trial: Trial) -> None:
    """By one rank, by all, or read again from a row."""
    missed = {"controls": {"unmet": ["comm_sms = 24 does not limit it."]}}
    for others in (missed, {"controls": {"unmet": []}}, {}):
        by_rank = [result(trial, rank) | {"facts": {"timed": facts}} for rank, facts in enumerate((missed, others))]
        *_, last = fed(trial, sample(trial, 0, 0, 1.0), sample(trial, 1, 0, 1.0), *by_rank)
        assert (last.unmet, row(last)["message"]) == (("comm_sms = 24 does not limit it.",), last.unmet[0])
        assert row(replace(last, unseen=last.unmet[0]))["message"] == last.unmet[0]
        assert row(replace(last, unseen="Nobody saw it."))["message"] == f"{last.unmet[0]} Nobody saw it."


def test_the_first_failure_is_the_outcome(trial: Trial) -> None:
    (failure,) = fed(trial, events.FailureEvent(kind="failure", trial=trial.key, rank=1, stage="hang", message="why"))
    assert failure == Failure(trial=trial, stage="hang", message="why", rank=1)


def test_a_part_has_no_verdict(trial: Trial) -> None:
    *_, last = fed(trial, sample(trial, 0, 0, 1.0), sample(trial, 1, 0, 1.0),
                   result(trial, 0, correct=None, error=None), result(trial, 1, correct=None, error=None))  # fmt: skip
    assert (last.correct, last.max_relative_error) == (None, None)


def test_rows_of_all_outcomes_have_the_same_keys(trial: Trial) -> None:
    measured = Measurement(trial=trial, samples=((1.0,), (2.0,)), correct=True)
    failed = Failure(trial=trial, stage="wrong", message="why")
    assert list(row(measured)) == list(row(failed)) == list(ROW_KEYS)
    assert row(failed)["correct"] is False
    assert row(measured)["samples"] == 2


def test_the_key_is_the_same_after_a_journey_through_json_and_differs_by_part(trial: Trial) -> None:
    assert Trial.from_json(trial.to_json()).key == trial.key
    assert len({trial.key, trial.of_part("compute").key, trial.of_part("communication").key}) == 3


def test_what_the_devices_said_is_kept_by_rank_and_reading(trial: Trial) -> None:
    said = [{"sm_clock_mhz": 1980}, {"sm_clock_mhz": 1755, "throttled": ["power cap"]}]
    first = result(trial, 0) | {"facts": {"conditions": said}}
    *_, last = fed(trial, sample(trial, 0, 0, 1.0), sample(trial, 1, 0, 1.0), first, result(trial, 1))
    assert last.conditions == ({"rank": 0, "reading": 0, **said[0]}, {"rank": 0, "reading": 1, **said[1]})


def test_how_a_trial_was_timed_is_said_once_where_ranks_agree_and_by_rank_where_not(trial: Trial) -> None:
    nccl = [{"NCCL_GRAPH_REGISTER": "0"}, {"NCCL_GRAPH_REGISTER": "1"}]
    ends = [result(trial, rank) | {"facts": {"timed": {"seed": 5, "nccl": nccl[rank]}}} for rank in (0, 1)]
    *_, last = fed(trial, sample(trial, 0, 0, 1.0), sample(trial, 1, 0, 1.0), *ends)
    assert last.facts == {"seed": 5, "nccl": nccl}
    assert timed_how(last) == {"facts": last.facts}


# Every kind of event has the keys that its type says, and crosses processes unchanged.

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
