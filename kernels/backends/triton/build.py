"""Which kernels run a trial: one line per kind of operator and scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton import embedding, gemv, overlapped, receive, send, timeline
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.meet import write_now
from kernels.backends.triton.kernels.stamp import WORDS
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.library import Sequential
from kernels.backends.triton.watch import Watched
from kernels.operators import OPERATORS, Flow
from kernels.outcome import Span
from kernels.reference import Operands
from kernels.schemes import expand, fused
from kernels.schemes.library import OVERLAPPED
from kernels.schemes.sequential import is_ours

Call = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Calls:
    """One call per set of operands."""

    each: list[Call]
    result: Tensor
    """What has to be written anew by every call, whichever set of operands it takes."""
    watched: Callable[[], Watched] | None = None
    """Makes the same calls once more, which write down what they do; None where nothing can be seen."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What decides the time beside the schedule, for who reads it."""


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """The fused kernel of *context*'s trial; *alone*: its computation into `context.local`, nothing sent or awaited."""
    stated = OPERATORS[context.problem.operator]
    gemm = receive if stated.flow is Flow.RECEIVE else send
    made = {"gemv": gemv.kernel, "gather": embedding.kernel, "gemm": gemm.kernel}[stated.work]
    return made(context, operands, alone=alone)


def alone(context: Context, operands: Operands, one: Sequential | None = None) -> Kernel:
    """Our kernel as the computation of a sequential trial; between the tensors of *one*, or of nobody's collective."""
    plan = expand(context.problem, fused.alone(context.problem, context.plan.schedule["tile"]))
    own = {"operand": one.of_mine("operand")} if one and context.receives else {}
    return kernel(context.computing(plan, own, one.target if one else context.local), operands, alone=True)


def kernels(context: Context, operands: Operands, part: str) -> list[Kernel]:
    """Those of ours that *part* of *context*'s trial compiles longest, with the form that is watched."""
    if part == "communication":
        return []
    if context.plan.schedule.scheme == "sequential":
        return [alone(context, operands)] if is_ours(context.problem, context.plan.schedule) else []
    one = kernel(context, operands, alone=part == "compute")
    stamps = torch.zeros(1, WORDS.value, dtype=torch.int64, device=context.device)
    return [one, one.stamped(stamps)] if part == "whole" else [one]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> Calls:
    """What one trial does in *part*, for each set of operands."""
    if context.plan.schedule.scheme == "sequential":
        overlapped = context.plan.schedule["collective"] == OVERLAPPED
        return _overlapped(context, sets, group) if overlapped else _sequential(context, sets, part, group)
    computes = part == "compute"
    launchers = _launchers([kernel(context, own, alone=computes) for own in sets])
    watched = None if computes else partial(_stamped, context, sets)
    return Calls(launchers, context.local if computes else context.result(), watched)


def _launchers(made: Sequence[Kernel]) -> list[Call]:
    """What launches each of *made*, which differ in their arguments alone: how many fit an SM is asked once."""
    launch = made[0].launching()
    return [partial(launch, one.arguments) for one in made]


def _stamped(context: Context, sets: Sequence[Operands]) -> Watched:
    """A second form of the fused kernel, whose programs write stamps."""
    made = [kernel(context, own) for own in sets]
    stamps = torch.zeros(made[0].records, WORDS.value, dtype=torch.int64, device=context.device)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_kernel(context.plan, context.rank, timeline.Stamps.read(words, start_ns, tick_s))

    return Watched(_launchers([one.stamped(stamps) for one in made]), stamps, spans)


def _overlapped(context: Context, sets: Sequence[Operands], group: Any) -> Calls:
    shape = OPERATORS[context.problem.operator].local(context.problem)["output"]
    result = torch.empty(shape, dtype=context.dtype, device=context.device)
    return Calls([overlapped.call(context, own, group, result) for own in sets], result)


def _sequential(context: Context, sets: Sequence[Operands], part: str, group: Any) -> Calls:
    made = Sequential(context, sets, group)
    each = _halves(made, part)
    watched = partial(_marked, context, each) if part == "whole" else None
    return Calls([partial(_in_order, halves) for halves in each], made.result(), watched, made.facts)


def _halves(one: Sequential, part: str) -> list[tuple[Call, ...]]:
    """By set of operands, those that *part* names, the one that depends on the other last."""
    computes = [] if part == "communication" else [_computes(one)]
    collectives = [] if part == "compute" else [[one.collective(number) for number in range(len(one.sets))]]
    halves = (*collectives, *computes) if one.context.receives else (*computes, *collectives)
    return list(zip(*halves, strict=True))


def _in_order(halves: Sequence[Call]) -> None:
    for half in halves:
        half()


def _marked(context: Context, each: Sequence[Sequence[Call]]) -> Watched:
    """The moment after each half is written by the stream."""
    ends = torch.zeros(2, dtype=torch.int64, device=context.device)

    def call(halves: Sequence[Call]) -> None:
        for number, half in enumerate(halves):
            half()
            write_now[(1,)](ends[number:], num_warps=1)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_halves(context.plan, context.rank, (words - start_ns).tolist(), tick_s)

    return Watched([partial(call, halves) for halves in each], ends, spans)


def _computes(one: Sequential) -> list[Call]:
    """By set of operands."""
    if is_ours(one.context.problem, one.context.plan.schedule):
        return _launchers([alone(one.context, own, one) for own in one.sets])
    return [one.compute(number) for number in range(len(one.sets))]
