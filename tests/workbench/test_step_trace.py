"""A step written for other tools: the Chakra nodes have the step's graph, times and bytes; Perfetto its timeline."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workbench.cli.app import app
from workbench.machines import shipped_machine
from workbench.reports.traces import COMM_COLL_NODE, COMP_NODE, chakra, perfetto
from workbench.results.files import CHAKRA
from workbench.simulator.scaling.model import model
from workbench.simulator.scaling.network import of_machine
from workbench.simulator.scaling.prices import Prices
from workbench.simulator.scaling.step import CONFIGURATIONS, StepSetting, StepTime, step


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
