"""Which kernels and library calls the steps of a Plan belong to: one kernel, a few in order, or one for each step."""

from __future__ import annotations

import numpy as np

from kernels.operators import OPERATORS, Flow
from kernels.plan import ANY_STREAM, Ints, Kind, Launched, Launches
from kernels.problem import Problem
from kernels.schedule import Schedule

KERNELS = {
    ("gemm", False): "gemm_send", ("gemm", True): "gemm_receive", ("gemv", False): "gemv_all_reduce",
    ("gather", False): "embedding",
}  # fmt: skip
"""Our fused kernels: by what is computed, and whether its operand comes in."""
PUSHED = {
    "direct": "put_rows", "copy_engine": "copy_rows", "one_shot": "one_shot_all_reduce",
    "two_shot": "two_shot_all_reduce",
}  # fmt: skip
"""Collectives that are made of puts; all others are the library's and have their operator's name."""


def one_kernel(problem: Problem, schedule: Schedule) -> Launched:
    """All that a rank does is one kernel."""
    operator = OPERATORS[problem.operator]
    name, grid = KERNELS[operator.work, operator.flow is Flow.RECEIVE], int(schedule.get("grid") or 0)

    def launched(rank: Ints, kind: Ints) -> tuple[Launches, Ints]:
        ranks = np.arange(problem.world)
        return Launches.of(ranks, (name,) * problem.world, stream=0, grid=grid), rank.copy()

    return launched


def in_order(problem: Problem, schedule: Schedule) -> Launched:
    """Computation, collective and the copies out of its buffer follow each other as the operator's flow says."""
    operator = OPERATORS[problem.operator]
    collective = PUSHED.get(str(schedule["collective"]), operator.collective)
    first, *rest = ["compute", collective, "unpack"]
    names = [*rest, first] if operator.flow is Flow.RECEIVE else [first, *rest]
    place = np.full(len(Kind), names.index(collective))
    place[Kind.COMPUTE], place[Kind.COPY] = names.index("compute"), names.index("unpack")

    def launched(rank: Ints, kind: Ints) -> tuple[Launches, Ints]:
        numbers, launch = np.unique(rank * len(names) + place[kind], return_inverse=True)
        ranks, places = np.divmod(numbers, len(names))
        return Launches.of(ranks, [names[at] for at in places], stream=0), launch

    return launched


def one_each(problem: Problem) -> Launched:
    """Every step is launched by itself as soon as what it waits for is there."""
    names = [kind.word for kind in Kind]
    names[Kind.COLLECTIVE] = OPERATORS[problem.operator].collective
    by_kind = np.array(names, dtype=object)

    def launched(rank: Ints, kind: Ints) -> tuple[Launches, Ints]:
        return Launches.of(rank, by_kind[kind].tolist(), stream=ANY_STREAM), np.arange(len(rank))

    return launched
