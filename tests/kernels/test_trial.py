"""Problems and protocols are values: equal when they ask the same, the same after JSON, and old keys stay."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.trial import (
    MANY_CALLS,
    PROTOCOLS,
    SHORT_BLOCK,
    UNDER_LOAD,
    Protocol,
    Trial,
    compared_as,
    is_one_call,
    protocol_refusal,
    protocol_text,
)

# A Problem is a value: equal when it asks the same, the same after JSON, its sizes read by name.

SHAPES: dict[str, dict[str, int]] = {
    "embedding_all_to_all": {"tables_per_rank": 2, "rows": 100, "dim": 16, "batch": 16, "pooling": 4},
    "gemv_all_reduce": {"n": 32, "k": 64, "tokens": 2},
}


def small(operator: str) -> Problem:
    return problem(operator, SHAPES.get(operator, {"m": 8, "n": 6, "k": 4}), world=2)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_problem_survives_json(operator: str) -> None:
    asked = small(operator)
    again = Problem.from_json(json.loads(json.dumps(asked.to_json())))
    assert again == asked
    assert hash(again) == hash(asked)


def test_the_order_in_which_sizes_are_given_does_not_matter() -> None:
    assert problem("gemm_all_to_all", {"k": 4, "n": 6, "m": 8}) == problem("gemm_all_to_all", {"m": 8, "n": 6, "k": 4})


def test_sizes_may_be_given_as_text() -> None:
    assert problem("gemm_all_to_all", {"m": "8", "n": "6", "k": "4"}) == small("gemm_all_to_all")


def test_sizes_and_words_are_read_by_name() -> None:
    asked = small("embedding_all_to_all")
    assert asked["batch"] == 16
    assert asked.word("indices") == "uniform"


def test_a_word_is_no_count() -> None:
    with pytest.raises(AssertionError, match="indices is the name 'uniform'"):
        small("embedding_all_to_all")["indices"]


@pytest.mark.parametrize(("dtype", "itemsize"), [("float32", 4), ("bfloat16", 2)])
def test_the_dtype_decides_the_bytes_of_an_element(dtype: str, itemsize: int) -> None:
    assert problem("gemm_all_to_all", {"m": 8, "n": 6, "k": 4}, dtype=dtype).itemsize == itemsize


def test_problems_of_different_worlds_differ() -> None:
    shape = {"m": 8, "n": 6, "k": 4}
    assert problem("gemm_all_to_all", shape, world=2) != problem("gemm_all_to_all", shape, world=4)


# A protocol that asks for nothing new reads, writes and keys its trials as it did before there was a choice.

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


@pytest.mark.parametrize(
    ("name", "backend", "what"),
    [("latency", "triton", "one call"), ("latency", "cpu", "many calls"), ("steady", "triton", "steady load"),
     ("device_steady", "triton", "steady load"), ("default", "triton", "many calls"), (None, None, "many calls")],
)  # fmt: skip
def test_times_are_compared_with_those_of_the_same(name: str | None, backend: str | None, what: str) -> None:
    assert compared_as(name, backend) == what
    assert protocol_text(name, backend).endswith("under steady load") is (what == "steady load")


def test_the_seconds_of_load_are_part_of_the_key_and_written_where_there_are_some() -> None:
    steady = PROTOCOLS["steady"]
    assert steady.to_json()["load_seconds"] == steady.load_seconds > 0
    assert all("load_seconds" not in known.to_json() for name, known in PROTOCOLS.items() if name != "steady")
    assert Protocol.from_json(steady.to_json()) == steady


def test_cpu_ranks_refuse_steady_load_in_one_sentence() -> None:
    message = protocol_refusal(PROTOCOLS["steady"], "cpu") or ""
    assert message.startswith("protocol = steady does not run on backend = cpu.")
    assert message.endswith("Accepted: quick, default, thorough, latency.")
    assert protocol_refusal(PROTOCOLS["steady"], "triton") is None
    assert protocol_refusal(PROTOCOLS["default"], "cpu") is None


def test_few_samples_of_a_short_block_are_compared_with_each_other_alone() -> None:
    assert compared_as("burst_device") == SHORT_BLOCK
    assert compared_as("device") == compared_as("default") == MANY_CALLS
    assert compared_as("steady") == UNDER_LOAD
