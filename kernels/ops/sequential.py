"""The sequential operators of a caller's tensors: a computation of torch (cuBLAS), and a collective before or after it.

The collective is the library's, on the caller's process group (`library`); torch's over symmetric memory (`one_shot`,
`two_shot`); torch's own operator that computes meanwhile (`overlapped`); or stores of the SMs between two barriers
(`direct`). All but `overlapped` compute by the same call of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed import _functional_collectives

from kernels.operators import OPERATORS
from kernels.operators.base import Flow, ResultLayout
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import BASELINE

collectives: Any = _functional_collectives  # a group may be its name, which its types leave out

Operands = Mapping[str, Tensor]


class PreparedCall(Protocol):
    """One problem and schedule of one rank, ready to be called with new operands."""

    fresh: bool
    """Whether each result has memory to itself; else it is valid until the next call."""

    def __call__(self, operands: Operands) -> Tensor:
        """The result of this rank, on the current stream."""

    def failure(self) -> str | None:
        """What went wrong in calls that have ended, or None; it does not wait for the stream."""


# The computation, and exchanges of rows by the library.


def computed(problem: Problem, operands: Operands, out: Tensor | None = None) -> Tensor:
    """[M, N] what one rank computes before its collective, by torch; into *out* if that is given."""
    first, second = operands.values()
    if OPERATORS[problem.operator].work != "gather":
        return torch.mm(first, second) if out is None else torch.mm(first, second, out=out)
    pooled = pooled_rows(first, second)
    return pooled if out is None else out.copy_(pooled)


def pooled_rows(tables: Tensor, indices: Tensor) -> Tensor:
    """[batch, T * dim] sums of the looked-up rows; *tables* [T, rows, dim], *indices* int64 [batch, T, pooling]."""
    count, rows, dim = tables.shape
    places = indices + rows * torch.arange(count, device=indices.device)[:, None]
    pooled = torch.nn.functional.embedding_bag(places.flatten(0, 1), tables.flatten(0, 1), mode="sum")
    return pooled.view(-1, count * dim)


def gathered(rows: Tensor, group: Any) -> Tensor:
    """The rows of all ranks, in rank order. *group*: a process group, its name, or None for a rank alone."""
    if group is None:
        return rows
    return collectives.wait_tensor(collectives.all_gather_tensor(rows.contiguous(), 0, group))


def exchanged(rows: Tensor, group: Any) -> Tensor:
    """The chunks that this rank gets, by source, where chunk p of *rows* goes to rank p; *group* as in `gathered`."""
    if group is None:
        return rows
    return collectives.wait_tensor(collectives.all_to_all_single(rows.contiguous(), None, None, group))


def summed(rows: Tensor, group: Any) -> Tensor:
    """The sum over ranks, on all of them; *group* as in `gathered`."""
    return rows if group is None else collectives.wait_tensor(collectives.all_reduce(rows, "sum", group))


def scattered(rows: Tensor, group: Any) -> Tensor:
    """This rank's chunk of the sum over ranks; *group* as in `gathered`."""
    if group is None:
        return rows
    return collectives.wait_tensor(collectives.reduce_scatter_tensor(rows, "sum", 0, group))


class LibraryCall:
    """torch computes, then or before the library communicates; a rank alone only computes."""

    fresh = True

    def __init__(self, problem: Problem, group: Any) -> None:
        self._problem, self._group = problem, group if problem.world > 1 else None

    def __call__(self, operands: Operands) -> Tensor:
        operator, group = OPERATORS[self._problem.operator], self._group
        if operator.flow is Flow.RECEIVE:
            first, second = operands.values()
            move = gathered if operator.collective == "all_gather" else exchanged
            return torch.mm(move(first, group), second)
        local = computed(self._problem, operands)
        if operator.flow is Flow.BROADCAST:
            return summed(local, group)
        if operator.reduces:
            return scattered(local, group)
        received = exchanged(local, group)
        if operator.layout is ResultLayout.ROWS:
            return received
        by_source = received.view(self._problem.world, -1, received.shape[1])  # [source, sample, column]
        return by_source.transpose(0, 1).reshape(by_source.shape[1], -1)

    def failure(self) -> str | None:
        """None: the library raises its own errors."""
        return None


def is_of_library(problem: Problem, schedule: Schedule) -> bool:
    """Whether *schedule* is a `LibraryCall`: on GPUs also where a rank alone has nothing to communicate."""
    return schedule.scheme == BASELINE and (schedule["collective"] == "library" or problem.world == 1)
