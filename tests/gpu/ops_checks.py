"""What is checked of the PyTorch operators on GPUs only: graphs, streams, calls without waiting beside slow ranks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import kernels.ops
from kernels.operators import OPERATORS, problem
from kernels.ops import registered
from kernels.ops.arguments import process_group
from kernels.reference import bound, expected
from kernels.schedule import Refusal
from tests.kernels.ops.ops_checks import BRIEF_SECONDS, Here, every_operator_is_right, told

NOISE_MOST_CYCLES = 400_000
"""About 0.2 ms: some dozens of calls of a peer."""
TIMED_CALLS, REPLAYS = 20, 9
TIMED_GEMM = {"m": 4096, "n": 4096, "k": 1792}
TIMED: dict[str, dict[str, int]] = {
    "embedding_all_to_all": {"tables_per_rank": 16, "rows": 10_000, "dim": 128, "batch": 4096, "pooling": 16},
    "gemv_all_reduce": {"n": 8192, "k": 8192, "tokens": 1},
}


def a_graph_is_replayed_with_changed_inputs(here: Here) -> None:
    """Two calls of each operator in a graph, the second on what the first has left; replayed without waiting."""
    for operator in OPERATORS:
        asked = here.problem(operator)
        first, second = here.operands(asked, 0)
        here.right(asked, here.call(operator, first, second), 0)  # a call before the capture
        graph = torch.cuda.CUDAGraph()
        here.meet()
        with _captured(graph):
            functional = here.call(operator, first, second)
            seen = kernels.ops.output(operator, first, second, here.group, here.schedule).clone()
        for seed in range(1, 4):
            for place, value in zip((first, second), here.operands(asked, seed), strict=True):
                place.copy_(value)
            graph.replay()
            graph.replay()
            here.right(asked, functional, seed)
            here.right(asked, seen, seed)
        here.right(asked, here.call(operator, *here.operands(asked, 9)), 9)
    kernels.ops.check()


def two_graphs_in_turns_share_a_heap(here: Here) -> None:
    """Graphs with some operators in common, replayed in an order that all ranks draw alike, without waiting."""
    kept: list[tuple[torch.cuda.CUDAGraph, list[tuple[Any, Tensor, list[Tensor]]]]] = []
    for operators in (tuple(OPERATORS), tuple(reversed(OPERATORS))[: len(OPERATORS) // 2]):
        calls = [(asked := here.problem(name), list(here.operands(asked, 0))) for name in operators]
        for asked, pair in calls:
            here.right(asked, here.call(asked.operator, *pair), 0)  # a call before the capture
        graph, results = torch.cuda.CUDAGraph(), []
        here.meet()
        with _captured(graph):
            results = [here.call(asked.operator, *pair) for asked, pair in calls]
        kept.append((graph, [(asked, got, pair) for (asked, pair), got in zip(calls, results, strict=True)]))
    chance = random.Random(0)
    for seed in range(1, 4):
        for asked, _, pair in (each for _, calls in kept for each in calls):
            for place, value in zip(pair, here.operands(asked, seed), strict=True):
                place.copy_(value)
        for number in (0, 1, *(chance.randrange(2) for _ in range(40)), 0, 1):
            if chance.random() < 0.2 and here.rank == 0:
                torch.cuda._sleep(NOISE_MOST_CYCLES)
            kept[number][0].replay()
        for asked, got, _ in (each for _, calls in kept for each in calls):
            here.right(asked, got, seed)
    kernels.ops.check()


def a_rank_that_replays_once_more_ends_by_the_deadline(here: Here) -> None:
    """It says what it waited for; after `close` on all ranks they go on."""
    for operator in ("gemm_reduce_scatter", "all_gather_gemm", "gemv_all_reduce", "embedding_all_to_all"):
        asked = here.problem(operator)
        first, second = here.operands(asked, 0)
        here.right(asked, here.call(operator, first, second, here.brief), 0)
        graph = torch.cuda.CUDAGraph()
        here.meet()
        with _captured(graph):
            here.call(operator, first, second, here.brief)
        graph.replay()
        kernels.ops.check()
        here.meet()
        if here.rank == 0:
            begin = time.monotonic()
            graph.replay()
            told(kernels.ops.Hang, "Rank 0 waited", kernels.ops.check)
            took = time.monotonic() - begin
            assert took < BRIEF_SECONDS + 2, f"{operator}: the replay that nobody joined took {took:.1f} s"
        here.meet()
        kernels.ops.close(here.brief)
        here.right(asked, here.call(operator, *here.operands(asked, 1), here.brief), 1)


def calls_beside_another_groups_collective(here: Here, calls: int) -> None:
    """Every second rank begins with the collective, on another stream: neither waits for SMs that the other holds."""
    asked = problem("gemm_all_to_all", TIMED_GEMM, dtype=here.dtype, world=here.world)
    gathered = problem("all_gather_gemm", TIMED_GEMM, dtype=here.dtype, world=here.world)
    pairs = {each: here.operands(each, 0) for each in (asked, gathered)}
    other, beside = process_group(here.other), torch.cuda.Stream()
    values = torch.ones(1 << 24, device=here.device)
    torch.distributed.all_reduce(values, group=other)
    for each, pair in pairs.items():
        here.right(each, here.call(each.operator, *pair), 0)
    torch.cuda.synchronize()
    here.meet()
    for number in range(calls):
        each = (asked, gathered)[number % 2]

        def collective() -> None:
            with torch.cuda.stream(beside):
                torch.distributed.all_reduce(values, group=other)

        if (number + here.rank) % 2:
            collective()
            time.sleep(0.002)
        got = here.call(each.operator, *pairs[each])
        if not (number + here.rank) % 2:
            time.sleep(0.002)
            collective()
        values.fill_(1.0) if number % 16 == 15 else None
    torch.cuda.synchronize()
    kernels.ops.check()
    here.right(each, got, 0)


def a_first_call_inside_a_graph_is_refused(here: Here) -> None:
    asked = here.problem("gemm_all_to_all", 11)
    first, second = here.operands(asked, 0)

    def capture() -> None:
        with _captured(torch.cuda.CUDAGraph()):
            here.call("gemm_all_to_all", first, second)

    told(Refusal, "Accepted: one call before the capture", capture)
    here.right(asked, here.call("gemm_all_to_all", first, second), 0)


def calls_on_two_streams_come_one_after_the_other(here: Here) -> None:
    asked = here.problem("gemm_reduce_scatter")
    streams, kept = [torch.cuda.Stream() for _ in range(2)], []
    for seed in range(12):
        with torch.cuda.stream(streams[seed % 2]):
            kept.append(here.call("gemm_reduce_scatter", *here.operands(asked, seed)))
    torch.cuda.synchronize()
    for seed, got in enumerate(kept):
        here.right(asked, got, seed)


def calls_back_to_back_with_slow_ranks(here: Here, operator: str, calls: int) -> None:
    """Nothing waits on the host; the stream itself compares each result, every second time with the other sign."""
    asked = here.problem(operator)
    first, second = here.operands(asked, 0)
    other = -first
    truth = expected(asked, here.rank, 0, here.device)
    limit = bound(asked, asked.world + 1) * truth.square().mean().sqrt()
    chance, wrong = random.Random(here.rank), torch.zeros((), dtype=torch.int64, device=here.device)
    noise = torch.randn(1024, 1024, device=here.device)
    for number in range(calls):
        if chance.random() < 0.1:
            torch.cuda._sleep(chance.randrange(NOISE_MOST_CYCLES))
        odd = number % 2
        operand = (other if odd else first).clone()  # of this call alone
        make = kernels.ops.output if number % 3 == 0 else _functional
        got = make(operator, operand, second, here.group)
        if chance.random() < 0.1:
            noise = noise @ noise * 1e-3
        wrong += ((got.double() - (-truth if odd else truth)).abs() > limit).sum() + got.isnan().sum()
    assert int(wrong) == 0, f"{operator}: {int(wrong)} values of {calls} calls were wrong"
    kernels.ops.check()


def _captured(graph: torch.cuda.CUDAGraph) -> Any:
    """NCCL's watchdog may ask after its work in the meantime, on a thread of its own."""
    return torch.cuda.graph(graph, capture_error_mode="thread_local")


def _functional(operator: str, first: Tensor, second: Tensor, group: str) -> Tensor:
    made: Tensor = getattr(torch.ops.workbench, operator)(first, second, group)
    return made


def what_a_call_costs(here: Here) -> dict[str, Any]:
    """Microseconds by operator: in a graph with and without the copy into a tensor of its own, and called eagerly.

    The other groups are destroyed before, since kernels leave SMs free beside them: it is the last check of a gang.
    """
    for name in (here.other, here.brief):
        torch.distributed.destroy_process_group(process_group(name))
    kernels.ops.close()
    rows: dict[str, Any] = {}
    for operator in OPERATORS:
        asked = problem(operator, TIMED.get(operator, TIMED_GEMM), dtype=here.dtype, world=here.world)
        first, second = here.operands(asked, 0)
        rows[operator] = {
            name: _microseconds(here, partial(make, operator, first, second, here.group), captured)
            for name, make, captured in (
                ("graph", _functional, True),
                ("graph, zero copy", kernels.ops.output, True),
                ("eager", _functional, False),
            )
        }
    kernels.ops.check()
    return rows


HOST_CALLS, QUEUE = 320, 16
"""Eager calls whose host time is taken, and how many are enqueued before the host waits: a full queue would block."""


def where_host_time_goes(here: Here) -> dict[str, Any]:
    """Median host microseconds of an eager call by operator, and of its nested parts; then the same, launched directly.

    `total` - `ours` is torch's dispatch, and the copy of a result that lies in symmetric memory; `ours` - `prepared` is
    the reading of arguments, locks and the search for failures; `prepared` - `triton`, or - `maps` - `launch`, is the
    result's memory, views or addresses; `triton` - `launcher` is Triton's binder. `launcher` - `tensor_maps` and
    `launch` are the driver's launch. `tensor_maps` encodes descriptors, `maps` finds them, and `maps_encoded` is `maps`
    where none is known, as with operands at new addresses. Each part is timed in calls of its own.
    `eager` and `graph` are one call of TIMED_CALLS in a row, as GPU time from the first to the last; what a call costs
    over its graph is their difference.
    """
    from triton.backends.nvidia import driver
    from triton.runtime.jit import JITFunction

    from kernels.backends.triton.direct_launch import DirectLaunch, TensorMaps, launch_directly
    from kernels.backends.triton.repeated import Repeated
    from kernels.ops import registered

    by_triton: dict[str, tuple[Any, str]] = {
        "triton": (JITFunction, "run"), "launcher": (driver.CudaLauncher, "__call__"),
        "tensor_maps": (driver, "make_tensordesc_arg"),
    }  # fmt: skip
    directly: dict[str, tuple[Any, str]] = {"maps": (TensorMaps, "of"), "launch": (DirectLaunch, "__call__")}
    rows: dict[str, Any] = {}
    for way, parts in (("", by_triton), (" directly", directly)):
        kernels.ops.close()
        launch_directly(bool(way))
        try:
            for operator in OPERATORS:
                asked = problem(operator, TIMED.get(operator, TIMED_GEMM), dtype=here.dtype, world=here.world)
                call = partial(_functional, operator, *here.operands(asked, 0), here.group)
                common = {"ours": (registered, "call"), "prepared": (Repeated, "__call__")}
                rows[operator + way] = _split(here, call, common | parts)
                if way:
                    encoded = _Clock(partial(_encoded, TensorMaps.of))
                    with mock.patch.object(TensorMaps, "of", lambda *given, _clock=encoded: _clock(*given)):
                        rows[operator + way]["maps_encoded"] = _host_microseconds(here, call, encoded)
        finally:
            launch_directly(True)
    kernels.ops.check()
    return rows


def _split(here: Here, call: Callable[[], Tensor], parts: dict[str, tuple[Any, str]]) -> dict[str, float]:
    """Microseconds of *call*, of its *parts* by name (who has the function, and its name), in a graph, and eagerly."""
    call()
    times = {"total": _host_microseconds(here, call, call)}
    for name, (owner, attribute) in parts.items():
        clock = _Clock(getattr(owner, attribute))
        with mock.patch.object(owner, attribute, lambda *given, _clock=clock, **named: _clock(*given, **named)):
            times[name] = _host_microseconds(here, call, clock)
    return times | {
        "graph": _microseconds(here, call, captured=True),
        "eager": _microseconds(here, call, captured=False),
    }


def candidates_twice(here: Here, operator: str, shape: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every candidate of one problem by name, as a choice at set-up times them, and again, set up anew.

    The first result of each is compared with the reference before anything is timed.
    """
    from kernels.ops import gpu

    asked, device = problem(operator, shape, dtype=here.dtype, world=here.world), torch.device(here.device)
    first, second = here.operands(asked, 0)
    operands = dict(zip(OPERATORS[operator].operands(), (first, second), strict=True))
    kernels.ops.close()
    calls = registered.calls_of((here.group, device))
    legal = {name: str(made) for name in gpu.OFFERED if (made := calls.choices.legal(name, asked)) is not None}
    for text in legal.values():
        here.right(asked, getattr(torch.ops.workbench, operator)(first, second, here.group, text), 0)
    answers: dict[str, Any] = {"schedules": legal}
    for when in ("seconds", "again"):
        kernels.ops.close()
        seconds = calls.measure(asked, list(legal.values()), operands)
        answers[when] = {name: seconds[text] for name, text in legal.items() if text in seconds}
    return answers


def direct_launches_are_right(here: Here) -> None:
    """All operators with fresh operands, and in a graph whose inputs change; their kernels are launched directly."""
    from kernels.backends.triton.direct_launch import DirectLaunch

    kernels.ops.close()
    launches = _Clock(DirectLaunch.__call__)
    try:
        with mock.patch.object(DirectLaunch, "__call__", lambda *given: launches(*given)):
            for operator in OPERATORS:
                launches.calls = 0
                here.call(operator, *here.operands(here.problem(operator), 0))
                assert launches.calls == 1, f"{operator}: {launches.calls} of 1 call was launched directly"
            every_operator_is_right(here, schedule="fused")
            a_graph_is_replayed_with_changed_inputs(here)
    finally:
        kernels.ops.close()


def _encoded(of: Callable[..., list[Any]], maps: Any, *view: Any) -> list[Any]:
    """The arguments of a descriptor, whose map is made anew."""
    maps.forget()
    return of(maps, *view)


class _Clock:
    """A function that adds up what its calls take."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self.nanoseconds, self.calls = function, 0, 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        begin = time.perf_counter_ns()
        try:
            return self._function(*given, **named)
        finally:
            self.nanoseconds += time.perf_counter_ns() - begin


def _host_microseconds(here: Here, call: Callable[[], Tensor], of: Any) -> float:
    """Median over calls of what *of* takes in each: a `_Clock` inside it, or the call itself."""
    clock = of if isinstance(of, _Clock) else None
    whole, times = _Clock(call), []
    here.meet()
    for number in range(HOST_CALLS):
        watched = clock or whole
        watched.nanoseconds = 0
        whole()
        times.append(watched.nanoseconds / 1e3)
        if number % QUEUE == QUEUE - 1:
            torch.cuda.synchronize()
            here.meet()
    return round(median(times), 2)


def _microseconds(here: Here, call: Callable[[], Tensor], captured: bool) -> float:
    call()
    torch.cuda.synchronize()
    here.meet()
    graph = torch.cuda.CUDAGraph()
    if captured:
        with _captured(graph):
            for _ in range(TIMED_CALLS):
                call()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        here.meet()
        begin.record()
        if captured:
            graph.replay()
        else:
            for _ in range(TIMED_CALLS):
                call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / TIMED_CALLS)
    return round(median(times), 1)


CHECKS: dict[str, Callable[..., Any]] = {
    check.__name__: check
    for check in (
        a_graph_is_replayed_with_changed_inputs,
        candidates_twice,
        direct_launches_are_right,
        two_graphs_in_turns_share_a_heap,
        a_rank_that_replays_once_more_ends_by_the_deadline,
        calls_beside_another_groups_collective,
        a_first_call_inside_a_graph_is_refused,
        calls_on_two_streams_come_one_after_the_other,
        calls_back_to_back_with_slow_ranks,
        what_a_call_costs,
        where_host_time_goes,
    )
}
