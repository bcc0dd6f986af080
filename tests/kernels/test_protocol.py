"""A protocol that asks for nothing new reads, writes and keys its trials as it did before there was a choice."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.trial import PROTOCOLS, Protocol, Trial, is_one_call, protocol_text

RECORDINGS = sorted((Path(__file__).parents[2] / "data" / "recordings").glob("*.jsonl"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_trials_of_recordings_keep_their_keys(path: Path) -> None:
    for line in map(json.loads, path.read_text().splitlines()):
        trial = Trial.from_json(line["trial"])
        assert trial.key == line["key"]
        assert trial.to_json() == line["trial"]


def test_only_a_number_of_calls_that_was_asked_for_is_written() -> None:
    default, latency = PROTOCOLS["default"], PROTOCOLS["latency"]
    assert "calls_per_graph" not in default.to_json()
    assert latency.to_json()["calls_per_graph"] == 1
    for asked in (default, latency, replace(default, calls_per_graph=7)):
        assert Protocol.from_json(asked.to_json()) == asked


@pytest.mark.parametrize(
    ("name", "backend", "once"),
    [("latency", "triton", True), ("device_latency", "triton", True), ("latency", "cpu", False),
     ("default", None, False), ("device", "triton", False), (None, None, False)],
)  # fmt: skip
def test_one_call_per_graph_is_told_by_its_name(name: str | None, backend: str | None, once: bool) -> None:
    assert is_one_call(name, backend) is once
    assert protocol_text(name, backend).endswith("one call per graph") is once
