"""What is checked of the PyTorch operators on GPUs only: graphs, streams, calls without waiting beside slow ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

import kernels.ops
from kernels.operators import OPERATORS, problem
from kernels.reference import bound, expected
from kernels.schedule import Refusal
from tests.kernels.ops.ops_checks import Here, told

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
            seen = kernels.ops.output(operator, first, second, here.group).clone()
        for seed in range(1, 4):
            for place, value in zip((first, second), here.operands(asked, seed), strict=True):
                place.copy_(value)
            graph.replay()
            graph.replay()
            here.right(asked, functional, seed)
            here.right(asked, seen, seed)
        here.right(asked, here.call(operator, *here.operands(asked, 9)), 9)
    kernels.ops.check()


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
    """Microseconds by operator: in a graph with and without the copy into a tensor of its own, and called eagerly."""
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
        a_first_call_inside_a_graph_is_refused,
        calls_on_two_streams_come_one_after_the_other,
        calls_back_to_back_with_slow_ranks,
        what_a_call_costs,
    )
}
