"""What surrounds the kernels of a gang: NCCL's windows end with their group, and every graph of a trial is verified."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.backends.triton import backend, nccl
from kernels.backends.triton.backend import TritonTrial
from kernels.backends.triton.schemes import OperandCalls, overlapped
from tests.kernels.triton.conftest import gpu_trial

Work = Callable[[], object]

MANY_SETS = 4
UNWRITTEN = 7.0
"""What lies in memory that was allocated."""


class Windows:
    """A group's tuned buffers, which may only be given back while the group is there."""

    def __init__(self, *, broken: bool = False) -> None:
        self.forgotten, self._broken = 0, broken

    def forget(self) -> None:
        if self._broken:
            raise RuntimeError("NCCL communicator was aborted on rank 0.")
        self.forgotten += 1


def test_windows_are_given_back_to_their_own_group_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    group, windows = object(), Windows()
    monkeypatch.setattr(nccl, "_tuned", (group, windows))
    nccl.forget(group)
    assert windows.forgotten == 1
    nccl.forget(object())
    assert windows.forgotten == 1
    nccl.leave()
    assert windows.forgotten == 2
    assert nccl._tuned is None


def test_windows_of_a_group_that_broke_are_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their end would end the process: torch looks for the communicator that they were registered with."""
    windows = Windows(broken=True)
    monkeypatch.setattr(nccl, "_tuned", (object(), windows))
    monkeypatch.setattr(nccl, "_leaked", [])
    nccl.leave()
    assert nccl._leaked == [windows]
    assert nccl._tuned is None


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


class Stream:
    """Does what is put on it, or keeps it while a graph is captured."""

    def __init__(self) -> None:
        self.kept: list[Work] | None = None

    def put(self, work: Work) -> None:
        if self.kept is None:
            work()
        else:
            self.kept.append(work)


class Replayed:
    """As a graph would be: its calls are made once, at capture; what they put on the stream happens at each replay."""

    def __init__(self, context: Any, calls: Any, stream: Stream, *, captured: bool, keeps_nodes: bool = False) -> None:
        assert not keeps_nodes, "no facts of the graph are recorded"
        self.calls, self.works = calls, None
        if captured:
            self.works = stream.kept = []
            for call in calls:
                call()
            stream.kept = None

    def seconds(self) -> float:
        for each in self.calls if self.works is None else self.works:
            each()
        return 1e-3


def prepared(works: list[Work], result: Tensor, monkeypatch: pytest.MonkeyPatch, calls_per_graph: int) -> TritonTrial:
    """A trial whose calls put *works* on the stream, on a gang of one that nobody times."""
    stream = Stream()
    return of_calls(
        [lambda work=work: stream.put(work) for work in works], result, stream, monkeypatch, calls_per_graph
    )


def of_calls(
    each: list[Work], result: Tensor, stream: Stream, monkeypatch: pytest.MonkeyPatch, calls_per_graph: int = 0
) -> TritonTrial:
    """A trial whose calls are *each*."""
    monkeypatch.setattr(backend, "GraphReplay", Replayed)
    gang: Any = SimpleNamespace(barrier=lambda: 0.0, exchange=lambda values: [list(values)], stream=stream)
    asked = gpu_trial("gemm_all_to_all", {"m": 512, "n": 256, "k": 64}, world=2, dtype="bfloat16")
    asked = replace(asked, protocol=replace(asked.protocol, calls_per_graph=calls_per_graph))
    context: Any = SimpleNamespace(failure=lambda: None)
    calls = OperandCalls(each, result)
    return TritonTrial(gang, asked, calls, context)


def rehearsed(one: TritonTrial, result: Tensor) -> list[tuple[int, float]]:
    """At each stop the values that are asked for, and those that are there."""
    return [(values, float(result)) for values in one.rehearse()]


@pytest.mark.parametrize("operator", ["all_gather_gemm", "gemm_reduce_scatter"])
def test_operators_of_torch_are_right_in_memory_that_was_not_written_when_they_were_captured(
    monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    """They allocate their result, at capture as well: then nothing has written it before the first replay."""
    result, stream = torch.zeros(()), Stream()

    def multiplied(first: Tensor) -> Tensor:
        made = torch.full((), UNWRITTEN)
        stream.put(lambda: made.copy_(first))
        return made

    operators = SimpleNamespace(
        fused_all_gather_matmul=lambda first, *_, **__: (None, (multiplied(first),)),
        fused_matmul_reduce_scatter=lambda first, *_: multiplied(first),
    )
    monkeypatch.setattr(torch.ops, "symm_mem", operators)
    context: Any = SimpleNamespace(problem=SimpleNamespace(operator=operator))
    sets = [{"first": torch.tensor(float(number == MANY_SETS - 1)), "second": result} for number in range(MANY_SETS)]
    each = [overlapped.call(context, own, SimpleNamespace(group_name=""), result) for own in sets]
    assert rehearsed(of_calls(each, result, stream, monkeypatch), result) == [(0, 0.0), (1, 1.0)]


def test_poison_lies_where_the_graphs_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is other memory after capture: what is poisoned is that, so a graph that writes nothing shows."""
    result, stream = torch.zeros(()), Stream()

    def call() -> None:
        made = torch.full((), UNWRITTEN)
        if stream.kept is None:
            made.fill_(0.0)
        result.set_(made)

    (_, (_, seen)) = rehearsed(of_calls([call] * MANY_SETS, result, stream, monkeypatch), result)
    assert seen != seen


@pytest.mark.parametrize("calls_per_graph", [0, 1, 3])
def test_a_result_is_that_of_the_first_call_and_then_of_the_last_one_of_the_graphs(
    monkeypatch: pytest.MonkeyPatch, calls_per_graph: int
) -> None:
    result = torch.zeros(())
    each = [lambda number=number: result.fill_(float(number == MANY_SETS - 1)) for number in range(MANY_SETS)]
    one = prepared(each, result, monkeypatch, calls_per_graph)
    assert rehearsed(one, result) == [(0, 0.0), (1, 1.0)]


def test_a_call_that_leaves_the_result_of_the_call_before_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    result = torch.zeros(())
    each = [lambda: result.fill_(0.0)] * (MANY_SETS - 1) + [lambda: None]
    assert rehearsed(prepared(each, result, monkeypatch, 0), result) == [(0, 0.0), (1, 0.0)]


def test_a_graph_in_which_nothing_is_written_leaves_poison(monkeypatch: pytest.MonkeyPatch) -> None:
    result = torch.zeros(())
    left = iter([0.0] * 4)  # the four eager calls write

    def first() -> None:
        result.fill_(next(left, float(result)))

    (_, seen) = rehearsed(prepared([first, *[lambda: None] * 3], result, monkeypatch, 0), result)
    assert seen[0] == 1
    assert seen[1] != seen[1]


def test_every_micro_batch_is_poisoned_shown_and_timed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batch i has values 2 i and 2 i + 1; one that nothing writes shows as poison, and a time is that of one."""
    results = [torch.zeros(()) for _ in range(3)]

    def call(number: int) -> None:
        for micro_batch, result in enumerate(results[:2]):
            result.fill_(2.0 * micro_batch + (number == MANY_SETS - 1))

    one = prepared([lambda number=number: call(number) for number in range(MANY_SETS)], results[0], monkeypatch, 0)
    one.calls = OperandCalls(one.calls.each, results[0], other_results=results[1:])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    one.context.device = None
    seen = [(values, float(one.result())) for values in one.rehearse()]
    assert seen[:2] == [(0, 0.0), (2, 2.0)]
    assert seen[3:5] == [(1, 1.0), (3, 3.0)]
    assert [values for values, _ in seen] == [0, 2, 4, 1, 3, 5]
    assert all(value != value for _, value in (seen[2], seen[5]))
    assert one.run() == 1e-3 / 3


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_call_that_takes_what_came_for_an_earlier_one_shows_also_where_places_take_turns(
    monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """As a GEMV would that reads a packet's place before the packet is there: what lies there is two calls old."""
    result, sent = torch.zeros(()), [0.0] * late

    def call(number: int) -> None:
        sent.append(float(number == MANY_SETS - 1))
        result.fill_(sent[-1 - late])

    each = [lambda number=number: call(number) for number in range(MANY_SETS)]
    assert rehearsed(prepared(each, result, monkeypatch, 0), result)[-1] == (1, 0.0)
