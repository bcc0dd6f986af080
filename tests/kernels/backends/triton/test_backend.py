"""What surrounds the kernels of a gang: windows, graphs, and operands that fill three times the L2."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.backends.base import Hang, Seat
from kernels.backends.triton import backend, nccl, timing
from kernels.backends.triton.backend import (
    COLD,
    TURN,
    TritonTrial,
    copies_of,
    of_micro_batches,
    operand_sets,
    times_l2,
    values_of,
)
from kernels.backends.triton.memory import DeviceHeap
from kernels.backends.triton.schemes import OperandCalls, overlapped
from kernels.fabric import parse
from kernels.operators import problem
from kernels.reference import alternated, expected, operands, partial
from kernels.schedule import Refusal
from tests.kernels.backends.triton.conftest import gpu_trial

# What surrounds the kernels of a gang: NCCL's windows end with their group, and every graph of a trial is verified.

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

    def __init__(
        self, context: Any, calls: Any, stream: Stream, *, captured: bool, keeps_nodes: bool = False,
        barrier: None = None,
    ) -> None:  # fmt: skip
        assert not keeps_nodes, "no facts of the graph are recorded"
        assert barrier is None, "ranks of one host meet by their own memory"
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


# Operands fill three times the L2 where that takes no more than 64 sets, and every fourth set has other values.

MIB = 1 << 20
L2 = 50 * MIB
CPU = torch.device("cpu")
GEMM = problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=2)


@pytest.mark.parametrize(
    ("num_bytes", "copies"),
    [(1 * MIB, 64), (150 * MIB // 64, 64), (5 * MIB, 32), (49 * MIB, 4), (60 * MIB, 4), (75 * MIB, 2), (500 * MIB, 1)],
)
def test_copies_are_as_many_as_keep_the_l2_cold_and_at_most_64(num_bytes: int, copies: int) -> None:
    assert copies_of(num_bytes, L2) == copies
    assert copies == 64 or copies * num_bytes >= 3 * L2
    assert copies < TURN - 1 or copies % TURN == 0


@pytest.fixture
def small_l2(monkeypatch: pytest.MonkeyPatch) -> Any:
    """small_l2(bytes): what every GPU has."""
    return lambda num_bytes: monkeypatch.setattr(backend, "l2_bytes", lambda device: num_bytes)


def size_of(of: Any) -> int:
    return sum(tensor.nbytes for tensor in operands(of, 0, 0).values())


def test_copies_have_the_two_values_of_the_seed_in_turns(small_l2: Any) -> None:
    small_l2(2 * size_of(GEMM))
    sets = operand_sets(GEMM, 1, CPU, seed=7)
    assert [values_of(number) for number in range(8)] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert len(sets) == 8
    both = [operands(GEMM, 1, 7, values=values) for values in (0, 1)]
    for number, own in enumerate(sets):
        assert list(own) == list(both[0])
        assert all(torch.equal(own[name], both[values_of(number)][name]) for name in own)
    assert len({tensor.data_ptr() for own in sets for tensor in own.values()}) == 8 * len(sets[0])
    assert times_l2(sets, CPU) == 4.0


@pytest.mark.parametrize(("share", "cold", "copies"), [(4.0, True, 1), (2.0, True, 2), (1e-9, False, 1)])
def test_operands_that_fill_the_l2_by_one_or_two_copies_are_shared_but_for_what_alternates(
    small_l2: Any, share: float, cold: bool, copies: int
) -> None:
    small_l2(int(size_of(GEMM) / share))
    sets = operand_sets(GEMM, 0, CPU, cold=cold)
    assert len(sets) == TURN
    places = {name: len({own[name].data_ptr() for own in sets}) for name in sets[0]}
    assert places == {name: copies + (name == alternated(GEMM)) for name in places}


@pytest.mark.parametrize(
    ("operator", "shape", "name"),
    [
        ("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, "expert"),
        ("gemm_all_reduce", {"m": 16, "n": 64, "k": 16}, "a"),
        ("all_gather_gemm", {"m": 640, "n": 32, "k": 16}, "shard"),
        ("all_to_all_gemm", {"m": 640, "n": 32, "k": 16}, "tokens"),
        ("gemv_all_reduce", {"n": 64, "k": 64, "tokens": 2}, "activations"),
        ("embedding_all_to_all", {"tables_per_rank": 2, "rows": 50, "dim": 8, "batch": 16, "pooling": 3}, "indices"),
    ],
)
def test_the_values_differ_in_one_operand_and_in_the_whole_output(
    operator: str, shape: dict[str, int], name: str
) -> None:
    of = problem(operator, shape, world=2)
    both = [operands(of, 0, 3, values=values) for values in (0, 1)]
    assert [each for each in both[0] if not torch.equal(both[0][each], both[1][each])] == [name] == [alternated(of)]
    truths = [expected(of, 0, 3, values=values) for values in (0, 1)]
    assert not torch.isclose(*truths).any()
    computed = partial(of, operands(of, 0, 3, values=1), slice(None)) if name not in ("shard", "tokens") else None
    if operator == "embedding_all_to_all":
        assert computed is not None
        assert torch.equal(truths[1][:, : computed.shape[1]], computed[: len(truths[1])])


@pytest.mark.parametrize("share", [0.4, 1.0, 4.0, 400.0])
def test_micro_batches_share_no_operand_that_another_one_may_have_left_in_the_l2(small_l2: Any, share: float) -> None:
    """Each has values of its own, in turns as the first has; only what fills the L2 three times is not copied."""
    small_l2(l2 := int(size_of(GEMM) / share))
    first, count = operand_sets(GEMM, 1, CPU, seed=7), 3
    every = of_micro_batches(first, count, GEMM, 1, CPU, seed=7)
    assert every[0] is first
    places: dict[int, set[int]] = {}
    for micro_batch, sets in enumerate(every):
        for number, own in enumerate(sets):
            there = operands(GEMM, 1, 7, values=2 * micro_batch + values_of(number))
            assert all(torch.equal(own[name], there[name]) for name in there)
            for name, tensor in own.items():
                if name == alternated(GEMM) or tensor.nbytes < COLD * l2:
                    places.setdefault(micro_batch, set()).add(tensor.data_ptr())
        assert len({tuple(t.data_ptr() for t in own.values()) for own in sets}) == len(
            {tuple(t.data_ptr() for t in own.values()) for own in first}
        )
    shared = [a & b for a in places.values() for b in places.values() if a is not b]
    assert not any(shared)


# Between hosts every trial makes a call before any rank waits at a meeting.


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)


def loaded_trial(log: list[str], failure: str | None = None) -> TritonTrial:
    gang: Any = SimpleNamespace(
        stream=None, barrier=lambda: log.append("met on the host"), give_up=lambda: log.append("gave up")
    )
    context: Any = SimpleNamespace(failure=lambda: failure, device=None)
    trial = gpu_trial("gemm_all_to_all", {"m": 512, "n": 256, "k": 64}, world=2, dtype="bfloat16")
    calls = [lambda number=number: log.append(f"call {number}") for number in range(2)]
    return TritonTrial(gang, trial, OperandCalls(calls, torch.zeros(())), context)


def test_a_trial_is_loaded_by_one_call_and_the_ranks_meet_on_the_host(no_gpu: None) -> None:
    log: list[str] = []
    loaded_trial(log).load()
    assert log == ["call 0", "met on the host"]


def test_a_peer_that_does_not_come_to_the_first_call_is_a_hang(no_gpu: None) -> None:
    log: list[str] = []
    with pytest.raises(Hang, match="Rank 0 waited"):
        loaded_trial(log, "Rank 0 waited 6 s.").load()
    assert log == ["call 0", "gave up"]


@pytest.mark.parametrize("shares_heap", [False, True])
def test_only_between_hosts_trials_are_loaded_once_all_signals_are_there(
    no_gpu: None, monkeypatch: pytest.MonkeyPatch, shares_heap: bool
) -> None:
    log: list[str] = []
    rank_backend: Any = object.__new__(backend.TritonBackend)
    rank_backend.seat = Seat(rank=0, world=2, session="s", shares_heap=shares_heap)
    rank_backend._device, rank_backend._network, rank_backend.stream = torch.device("cpu"), None, None
    rank_backend._group = SimpleNamespace(nccl=None, barrier=lambda: log.append("met on the host"))
    monkeypatch.setattr(rank_backend, "_heap_for", lambda num_bytes, puts: None)
    monkeypatch.setattr(rank_backend, "_operands", lambda trials: [[{}]])
    monkeypatch.setattr(rank_backend, "_compile", lambda *_: log.append("compiled"))
    monkeypatch.setattr(rank_backend, "_context", lambda *_, **__: SimpleNamespace(failure=lambda: None, device=None))
    made = OperandCalls([lambda: log.append("call")], torch.zeros(()))
    monkeypatch.setattr(backend, "runner", lambda trial: SimpleNamespace(calls=lambda *_: made))
    one = gpu_trial("gemm_all_to_all", {"m": 512, "n": 256, "k": 64}, world=2, dtype="bfloat16")
    assert len(rank_backend.prepare([one, replace(one, part="compute")])) == 2
    loaded = [] if shares_heap else ["call", "met on the host"] * 2
    assert log == ["compiled", "met on the host", *loaded]


# Where the library moves everything between hosts, no GIN is needed.


@pytest.mark.parametrize("puts", [False, True])
def test_only_a_block_that_puts_between_hosts_needs_a_window(monkeypatch: pytest.MonkeyPatch, puts: bool) -> None:
    rank_backend: Any = object.__new__(backend.TritonBackend)
    rank_backend.seat = Seat(rank=1, world=2, session="s", shares_heap=False)
    rank_backend._device, rank_backend._group, rank_backend._heap = torch.device("cpu"), object(), None
    window = SimpleNamespace(heap=lambda num_bytes: f"a window of {num_bytes}")
    monkeypatch.setattr(
        rank_backend, "_network_gang", lambda: window if puts else pytest.fail("a communicator was made")
    )
    monkeypatch.setattr(backend, "DeviceHeap", lambda group, device, size, shared: SimpleNamespace(
        capacity=size, shared=shared))  # fmt: skip
    heap = rank_backend._heap_for(1 << 29, puts)
    if puts:
        assert heap == f"a window of {1 << 29}"
    else:
        assert (heap.capacity, heap.shared) == (1 << 29, False)
        assert rank_backend._heap_for(1 << 20, puts) is heap, "it stays"


def test_memory_that_nobody_shares_is_allocated_by_torch_alone(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 30))
    met: list[str] = []
    members: Any = SimpleNamespace(
        seat=Seat(rank=1, world=2, session="s", shares_heap=False), nccl=None,
        exchange=lambda values: [[float(1 << 20)], list(values)], barrier=lambda: met.append("met"),
    )  # fmt: skip
    heap = DeviceHeap(members, torch.device("cpu"), 1 << 12, shared=False)
    assert heap.tensor(1, 256, (4,), torch.int32).tolist() == [0] * 4
    assert met == ["met"]
    with pytest.raises(Refusal, match=r"the fullest one has 1 MiB free|the fullest one has 1.05 MB free"):
        DeviceHeap(members, torch.device("cpu"), 1 << 21, shared=False)


@pytest.mark.parametrize(
    ("fabric", "made_by"), [("network", timing.LibraryBarrier), ("nvlink", None), ("shared_gpu", None)]
)
def test_samples_of_the_library_between_hosts_begin_with_its_all_reduce(
    monkeypatch: pytest.MonkeyPatch, fabric: str, made_by: type | None
) -> None:
    trial = loaded_trial([])
    trial.trial = replace(trial.trial, fabric=parse(fabric))
    trial.backend._nccl = "the group"  # type: ignore[misc]
    make = trial._barrier
    assert (make is None) is (made_by is None)
    if make is None:
        return
    log: list[object] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda word, group: log.append((word.tolist(), group)))
    monkeypatch.setattr(timing, "write_now", {(1,): lambda stamp, num_warps: log.append(stamp.numel())})
    barrier = make(torch.zeros(2, dtype=torch.int64))
    barrier()
    assert isinstance(barrier, timing.LibraryBarrier)
    assert log == [([0], "the group"), 2], "the ranks meet, then the clock is read"
