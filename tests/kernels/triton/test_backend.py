"""What surrounds the kernels of a gang: NCCL's windows end with their group, and every graph of a trial is verified."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.backends.triton import backend as triton_backend
from kernels.backends.triton import nccl
from kernels.backends.triton.backend import TritonTrial
from tests.kernels.triton.conftest import gpu_trial

MANY_SETS = 4


class Windows:
    """A group's tuned buffers, which may only be given back while the group is there."""

    def __init__(self) -> None:
        self.forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


def test_windows_are_given_back_to_their_own_group_and_dropped_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    group, windows = object(), Windows()
    monkeypatch.setattr(nccl, "_made", (group, windows))
    nccl.forget(group)
    assert windows.forgotten == 1
    nccl.forget(object())  # of the next gang: the group before has been destroyed
    assert windows.forgotten == 1
    assert nccl._made is None


def test_settings_are_those_of_the_process_without_places_on_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl.torch.cuda.nccl, "version", lambda: (2, 28, 9))
    environment = {
        "NCCL_GRAPH_REGISTER": "0",
        "NCCL_DEBUG_FILE": "log of rank 0",
        "NCCL_VERSION": "2.28.3-1",
        "HOME": "/x",
    }
    assert nccl.settings(environment) == {
        "version": "2.28.9", "NCCL_DEBUG_FILE": "set", "NCCL_GRAPH_REGISTER": "0",
    }  # fmt: skip


class Replayed:
    """As a graph would be: what it plays, it plays when asked for its seconds."""

    def __init__(self, context: Any, calls: Any, stream: Any, *, captured: bool) -> None:
        self.calls = calls

    def seconds(self) -> float:
        for call in self.calls:
            call()
        return 1e-3


class Result:
    """What calls write: which values of the operands it is of."""

    def __init__(self) -> None:
        self.value = 0.0

    def fill_(self, value: float) -> None:
        self.value = value


def prepared(each: list[Any], result: Result, monkeypatch: pytest.MonkeyPatch, calls_per_graph: int) -> TritonTrial:
    """A trial whose calls are *each*, on a gang of one that nobody times."""
    monkeypatch.setattr(triton_backend, "Replay", Replayed)
    gang: Any = SimpleNamespace(barrier=lambda: 0.0, exchange=lambda values: [list(values)], stream=None)
    asked = gpu_trial("gemm_all_to_all", {"m": 512, "n": 256, "k": 64}, world=2, dtype="bfloat16")
    asked = replace(asked, protocol=replace(asked.protocol, calls_per_graph=calls_per_graph))
    context: Any = SimpleNamespace(failure=lambda: None)
    calls: Any = SimpleNamespace(each=each, result=result)
    return TritonTrial(gang, asked, calls, context)


def rehearsed(one: TritonTrial, result: Result) -> list[tuple[int, float]]:
    """At each stop the values that are asked for, and those that are there."""
    return [(values, result.value) for values in one.rehearse()]


@pytest.mark.parametrize("calls_per_graph", [0, 1, 3])
def test_a_result_is_that_of_the_first_call_and_then_of_the_last_one_of_the_graphs(
    monkeypatch: pytest.MonkeyPatch, calls_per_graph: int
) -> None:
    result = Result()
    each = [lambda number=number: result.fill_(float(number == MANY_SETS - 1)) for number in range(MANY_SETS)]
    one = prepared(each, result, monkeypatch, calls_per_graph)
    assert rehearsed(one, result) == [(0, 0.0), (1, 1.0)]


def test_a_call_that_leaves_the_result_of_the_call_before_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result()
    each = [lambda: result.fill_(0.0)] * (MANY_SETS - 1) + [lambda: None]
    assert rehearsed(prepared(each, result, monkeypatch, 0), result) == [(0, 0.0), (1, 0.0)]


def test_a_graph_in_which_nothing_is_written_leaves_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Result()
    left = iter([0.0] * 4)  # the four eager calls write

    def first() -> None:
        result.value = next(left, result.value)

    (_, seen) = rehearsed(prepared([first, *[lambda: None] * 3], result, monkeypatch, 0), result)
    assert seen[0] == 1
    assert seen[1] != seen[1]


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_call_that_takes_what_came_for_an_earlier_one_shows_also_where_places_take_turns(
    monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """As a GEMV would that reads a packet's place before the packet is there: what lies there is two calls old."""
    result, sent = Result(), [0.0] * late

    def call(number: int) -> None:
        sent.append(float(number == MANY_SETS - 1))
        result.value = sent[-1 - late]

    each = [lambda number=number: call(number) for number in range(MANY_SETS)]
    assert rehearsed(prepared(each, result, monkeypatch, 0), result)[-1] == (1, 0.0)
