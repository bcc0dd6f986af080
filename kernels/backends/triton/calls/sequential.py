"""Calls of sequential schedules: a computation and a collective, one after the other on a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton import timeline
from kernels.backends.triton.calls import Call, Calls
from kernels.backends.triton.calls import fused as one_kernel
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.meet import write_now
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.library import Sequential
from kernels.backends.triton.watch import Watched
from kernels.outcome import Span
from kernels.reference import Operands
from kernels.schemes import expand, fused
from kernels.schemes.sequential import is_ours


def kernels(context: Context, operands: Operands, part: str) -> list[Kernel]:
    """Our kernel alone, where it computes; watched it is the same."""
    if part == "communication" or not is_ours(context.problem, context.plan.schedule):
        return []
    return [alone(context, operands, {}, context.local)]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> Calls:
    """The half that *part* names, or both, for each of *sets*."""
    both = Sequential(context, sets, group)
    halves = _halves(both, part)
    return Calls([partial(_in_order, each) for each in halves], both.result(), halves, both.facts)


def watched(context: Context, timed: Calls) -> Watched:
    """The moment after each half is written by the stream."""
    ends = torch.zeros(2, dtype=torch.int64, device=context.device)

    def call(halves: Sequence[Call]) -> None:
        for number, half in enumerate(halves):
            half()
            write_now[(1,)](ends[number:], num_warps=1)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_halves(context.plan, context.rank, (words - start_ns).tolist(), tick_s)

    return Watched([partial(call, halves) for halves in timed.made], ends, spans)


def _halves(both: Sequential, part: str) -> list[tuple[Call, ...]]:
    """By set of operands, those that *part* names, the one that depends on the other last."""
    computes = [] if part == "communication" else [computations(both)]
    collectives = [] if part == "compute" else [[both.collective(number) for number in range(len(both.sets))]]
    halves = (*collectives, *computes) if both.context.receives else (*computes, *collectives)
    return list(zip(*halves, strict=True))


def _in_order(halves: Sequence[Call]) -> None:
    for half in halves:
        half()


def computations(both: Sequential) -> list[Call]:
    """By set of operands."""
    if not is_ours(both.context.problem, both.context.plan.schedule):
        return [both.compute(number) for number in range(len(both.sets))]
    return one_kernel.launches(own_kernels(both))


def own_kernels(both: Sequential) -> list[Kernel]:
    """By set of operands our kernel alone, which computes where *both*'s collective finds it, or leaves it."""
    places = {"operand": both.here("operand")} if both.context.receives else {}
    return [alone(both.context, operands, places, both.target) for operands in both.sets]


def alone(context: Context, operands: Operands, places: Mapping[str, Tensor], target: Tensor) -> Kernel:
    """Our kernel alone into *target*; *places*: this rank's tensors that lie elsewhere than in symmetric memory."""
    plan = expand(context.problem, fused.alone(context.problem, context.plan.schedule["tile"]))
    return one_kernel.kernel(context.computing(plan, places, target), operands, alone=True)
