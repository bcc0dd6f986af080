"""Runs and steps written for other tools: streams, SMs and tasks as threads and nodes, on which nothing overlaps."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernels.outcome import Measurement, Span, TileTimes
from kernels.trial import Trial
from tests.workbench.conftest import uncalibrated  # noqa: F401
from workbench.cli.app import app
from workbench.machines import shipped_machine
from workbench.reports import traces
from workbench.reports.traces import COMM_COLL_NODE, COMP_NODE, chakra, perfetto
from workbench.results import metrics
from workbench.results.files import CHAKRA
from workbench.results.store import Store
from workbench.simulator.scaling.model import model
from workbench.simulator.scaling.network import of_machine
from workbench.simulator.scaling.prices import Prices
from workbench.simulator.scaling.step import CONFIGURATIONS, StepSetting, StepTime, step

# The trace of a run: streams and engines as threads, and on GPUs a thread for each SM, on which nothing overlaps.

US = 1e-6
TILES = (
    TileTimes(0, 7, 0.0, 0.0, 10 * US, 12 * US),
    TileTimes(1, 7, 1 * US, 4 * US, 11 * US, 11 * US),  # beside the first
    TileTimes(2, 7, 12 * US, 12 * US, 20 * US, 21 * US),  # after it
    TileTimes(3, 9, 0.0, 0.0, 10 * US, 12 * US),
)
SPANS = (
    Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 20 * US, None, 1 * US, TILES),
    Span("0/put/1/0", 0, "put", "link", 10 * US, 21 * US, "0/compute/-1/0", 1 * US,
         (TileTimes(5, 9, 13 * US, 13 * US, 13 * US, 21 * US),)),
    Span("1/compute/-1/0", 1, "compute", "compute", 0.0, 20 * US, None, 1 * US),
)  # fmt: skip


@pytest.fixture
def events(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement], tmp_path: Path
) -> list[dict[str, Any]]:
    measured, run = replace(measure(make_trial()), spans=SPANS), store.begin_run({}, {})
    store.add_outcome(run, measured, metrics.row_of(measured, run))
    written: list[dict[str, Any]] = json.loads(traces.write(store, run, tmp_path / "t.json").read_text())["traceEvents"]
    return written


def named(events: list[dict[str, Any]], process: int) -> dict[int, str]:
    return {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == process}


def test_streams_and_engines_come_first_then_each_sm_and_its_blocks(events: list[dict[str, Any]]) -> None:
    assert list(named(events, 1).values()) == ["computes", "link", "SM 7", "SM 7, block 2", "SM 9"]
    assert list(named(events, 2).values()) == ["computes"]
    assert [number for number in named(events, 1) if number >= traces.FIRST_SM] == sorted(named(events, 1))[2:]


def test_two_streams_have_a_thread_each(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement], tmp_path: Path
) -> None:
    spans = (*SPANS, Span("1/compute/-1/1", 1, "compute", "compute", 5 * US, 9 * US, stream=1))
    measured, run = replace(measure(make_trial()), spans=spans), store.begin_run({}, {})
    store.add_outcome(run, measured, metrics.row_of(measured, run))
    events = json.loads(traces.write(store, run, tmp_path / "t.json").read_text())["traceEvents"]
    assert list(named(events, 2).values()) == ["stream 0", "stream 1"]
    threads = {event["name"]: event["tid"] for event in events if event["pid"] == 2 and event["ph"] == "X"}
    assert threads == {"1/compute/-1/0": 0, "1/compute/-1/1": 1}


def test_every_tile_is_there_once_under_its_step_and_nothing_overlaps(events: list[dict[str, Any]]) -> None:
    threads = named(events, 1)
    by_thread = defaultdict(list)
    for event in (event for event in events if event["ph"] == "X" and event["tid"] >= traces.FIRST_SM):
        by_thread[threads[event["tid"]]].append(event)
    times = {thread: [(e["name"], round(e["ts"]), round(e["ts"] + e["dur"])) for e in of_thread]
             for thread, of_thread in by_thread.items()}  # fmt: skip
    compute, put = "0/compute/-1/0", "0/put/1/0"
    assert times == {
        "SM 7": [(compute, 0, 10), ("send", 10, 12), (compute, 12, 20), ("send", 20, 21)],
        "SM 7, block 2": [("wait", 1, 4), (compute, 4, 11)],
        "SM 9": [(compute, 0, 10), ("send", 10, 12), (put, 13, 21)],
    }
    for of_thread in times.values():
        assert all(before[2] <= after[1] for before, after in pairwise(of_thread))
    assert {e["args"]["step"] for of_thread in by_thread.values() for e in of_thread} == {compute, put}
    assert by_thread["SM 9"][-1]["args"] == {"step": put, "program": 5}


def test_timelines_of_a_schedule_are_a_process_each_and_lanes_and_sms_of_all_ranks_are_its_threads() -> None:
    simulated = (
        Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 20 * US),
        Span("0/compute/-1/1", 0, "compute", "compute", 5 * US, 25 * US),
        Span("0/compute/-1/2", 0, "compute", "compute", 20 * US, 30 * US),
    )
    trace = json.loads(traces.timelines("fused, tiles per slice 8", {"measured": SPANS, "simulated": simulated}))
    events = trace["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {1: "measured: fused, tiles per slice 8", 2: "simulated: fused, tiles per slice 8"}
    lanes = ["rank 0 computes", "rank 0 link", "rank 1 computes"]
    assert list(named(events, 1).values()) == [*lanes, "rank 0 SM 7", "rank 0 SM 7, block 2", "rank 0 SM 9"]
    assert list(named(events, 2).values()) == ["rank 0 computes", "rank 0 computes, 2"]
    threads = {event["name"]: event["tid"] for event in events if event["pid"] == 2 and event["ph"] == "X"}
    assert threads == {"0/compute/-1/0": 0, "0/compute/-1/1": 1, "0/compute/-1/2": 0}, "nothing overlaps on a thread"


def test_sms_of_two_ranks_in_one_process_are_threads_of_their_own() -> None:
    both = (*SPANS, SPANS[0]._replace(step="1/compute/-1/1", rank=1))
    events = json.loads(traces.timelines("fused", {"measured": both}))["traceEvents"]
    names = list(named(events, 1).values())
    assert len(names) == len(set(names)) == 10
    assert "rank 1 SM 9" in names


def test_a_schedule_without_timelines_is_no_trace() -> None:
    with pytest.raises(ValueError, match=r"fused cannot become a trace: 0 of 2 timelines of it were kept\. Accepted"):
        traces.timelines("fused", {"measured": (), "simulated": ()})


def test_steps_say_how_exact_they_are(events: list[dict[str, Any]]) -> None:
    steps = [event for event in events if event["ph"] == "X" and event["tid"] < traces.FIRST_SM]
    assert [event["args"]["waited_for"] for event in steps] == [None, "0/compute/-1/0", None]
    assert [event["args"]["clock_tick_us"] for event in steps] == pytest.approx([1.0] * 3)


# A step written for other tools: the Chakra nodes have the step's graph, times and bytes; Perfetto its timeline.


@pytest.fixture(scope="module", params=["sequential", "fused"])
def made(request: pytest.FixtureRequest) -> StepTime:
    machine = shipped_machine("h200_ib")
    setting = StepSetting(model=model("dlrm"), prices=Prices(machine, of_machine(machine, 16)))
    return step(setting, *([CONFIGURATIONS[request.param]] if request.param in CONFIGURATIONS else []))


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a protobuf message, read as its documentation says."""
    at = 0
    while at < len(message):
        key, at = number(message, at)
        value, at = number(message, at)
        if key & 7 == 2:
            yield key >> 3, message[at : at + value]
            at += value
        else:
            yield key >> 3, value


def number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 128:
            return value, at


def messages(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        length, at = number(content, at)
        yield content[at : at + length]
        at += length


def node(message: bytes) -> dict:
    read: dict = {"attributes": {}, "after": []}
    for field, value in fields(message):
        if field == 10:
            name, *values = (each for _, each in fields(value))
            read["attributes"][name.decode()] = values[0]
        elif field == 5:
            at = 0
            while at < len(value):
                other, at = number(value, at)
                read["after"].append(other)
        else:
            read[{1: "id", 2: "name", 3: "type", 6: "start", 7: "duration"}[field]] = value
    return read


def test_chakra_nodes_are_the_tasks_with_their_waits_times_and_bytes(made: StepTime) -> None:
    first, *others = messages(chakra(made, "any"))
    assert list(fields(first)) == [(1, b"0.0.4")]
    nodes = [node(message) for message in others]
    assert [one["id"] for one in nodes] == list(range(1, len(nodes) + 1))
    assert all(other < one["id"] for one in nodes for other in one["after"]), "no cycle"
    computes = [one for one in nodes if one["type"] == COMP_NODE]
    collectives = [one for one in nodes if one["type"] == COMM_COLL_NODE]
    assert len(collectives) == sum(task.group is not None for task in made.tasks)
    overlapping = sum(task.overlaps for task in made.tasks)
    assert len(nodes) == len(computes) + len(collectives) == len(made.tasks) + overlapping
    assert sum(one["attributes"]["duration_nanos"] for one in computes) == pytest.approx(
        1e9 * sum(task.compute_s or task.seconds for task in made.tasks if task.group is None or task.compute_s),
        abs=len(nodes),
    )
    assert [one["attributes"]["comm_size"] for one in collectives] == [
        round(task.num_bytes) for task in made.tasks if task.group is not None
    ]
    assert {one["attributes"]["comm_type"] for one in collectives} == {0, 6}, "all-reduce and all-to-all"
    last = max(range(len(made.tasks)), key=lambda at: made.timed.finish[at])
    assert any(one["name"].decode() == made.tasks[last].name for one in nodes)


def test_perfetto_has_a_thread_for_each_resource_and_ends_with_the_step(made: StepTime) -> None:
    trace = json.loads(perfetto(made, "DLRM"))
    threads = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"]
    assert threads == ["compute", "level 0", "level 1"]
    ends = [event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert max(ends) <= 1e6 * made.timed.time_s * (1 + 1e-9)


def test_the_command_writes_both_and_refuses_two_steps_and_other_files(tmp_path: Path) -> None:
    asked = ["predict-step", "dlrm", "--world", "16", "--machine", "h200_ib", "--json"]
    graph, line = tmp_path / "step.et", tmp_path / "step.json"
    told = CliRunner().invoke(
        app, [*asked, "--configuration", "fused", "--chakra", str(graph), "--perfetto", str(line)]
    )
    assert told.exit_code == 0
    assert CHAKRA.is_one(graph)
    assert json.loads(line.read_text())["traceEvents"]
    refused = CliRunner().invoke(
        app, [*asked, "--network-rate", "1e9", "--network-rate", "2e9", "--chakra", str(graph)]
    )
    assert "--network-rate has 2 values, and 1 step is written" in str(refused.exception)
    graph.write_text("a letter")
    kept = CliRunner().invoke(app, [*asked, "--chakra", str(graph)])
    assert "is not a Chakra trace of the workbench" in str(kept.exception)
    assert graph.read_text() == "a letter"
