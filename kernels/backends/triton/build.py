"""Which kernels run a trial: one line per kind of operator and scheme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from kernels.schedule import Refusal
from kernels.trial import Trial

Call = Callable[[], None]

DTYPES = {
    "gemm": ("bfloat16", "float16"),
    "gemv": ("bfloat16", "float16"),
    "gather": ("float32", "bfloat16", "float16"),
}
SCHEMES = ("sequential", "fused")
"""Those that are compared; of decomposed, torch's own operators are one schedule (overlapped.py)."""


@dataclass(frozen=True, slots=True)
class Calls:
    """One call per set of operands."""

    each: list[Call]
    result: Tensor
    """What has to be written anew by every call; where the library writes results of its own, by that of the first."""
    watched: Callable[[], Watched] | None = None
    """Makes the same calls once more, which write down what they do; None where nothing can be seen."""


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why GPU ranks cannot run *trial*, or None."""
    stated = OPERATORS[trial.problem.operator]
    accepted = DTYPES[stated.work]
    if trial.problem.dtype not in accepted:
        return (
            f"dtype = {trial.problem.dtype} was asked for {trial.problem.operator} on backend = triton, whose kernels "
            f"for it know {len(accepted)} dtypes. Accepted: {', '.join(accepted)}."
        )
    if trial.schedule.scheme not in (*SCHEMES, "decomposed"):
        return (
            f"scheme = {trial.schedule.scheme} was asked for on backend = triton, which has kernels for "
            f"{len(SCHEMES)} schemes. Accepted: {', '.join(SCHEMES)}."
        )
    if not shares_heap and trial.world > 1:
        return (
            f"{trial.schedule.scheme} was asked for on GPUs of several hosts, which share 0 bytes of memory. "
            "Accepted: a world that fits one host."
        )
    if trial.schedule.scheme == "decomposed":
        return overlapped.refusal(trial)
    if trial.schedule.scheme == "fused" and (sentence := _without_effect(trial)) is not None:
        return sentence
    if trial.schedule.get("collective") == "copy_engine" and stated.work == "gather":
        return (
            f"collective = copy_engine was asked for {trial.problem.operator} on backend = triton, whose owners keep "
            "the rows of all ranks in turns, so that 1 row lies together, where copy engines move a whole share. "
            "Accepted: library, library_tuned, direct."
        )
    if trial.schedule.scheme == "fused" and stated.work == "gemm":
        return (receive if stated.flow is Flow.RECEIVE else send).refusal(trial)
    return None


def _without_effect(trial: Trial) -> str | None:
    """Why a time of *trial* would say something that its kernel does not do, or None."""
    receives = OPERATORS[trial.problem.operator].flow is Flow.RECEIVE
    for axis, only in (("write", "zero_copy"), ("comm_sms", 0)):
        if not receives and trial.schedule.get(axis, only) != only:
            return (
                f"{axis} = {trial.schedule[axis]} was asked for {trial.problem.operator} on backend = triton, whose "
                f"kernel has 1 way: every block sends what it computed straight to where it belongs. Accepted: {only}."
            )
    return None


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """The fused kernel of *context*'s trial; *alone*: its computation into `context.local`, nothing sent or awaited."""
    stated = OPERATORS[context.problem.operator]
    gemm = receive if stated.flow is Flow.RECEIVE else send
    made = {"gemv": gemv.kernel, "gather": embedding.kernel, "gemm": gemm.kernel}[stated.work]
    return made(context, operands, alone=alone)


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> Calls:
    """What one trial does in *part*, for each set of operands."""
    if context.plan.schedule.scheme == "sequential":
        return _sequential(context, sets, part, group)
    if context.plan.schedule.scheme == "decomposed":
        return _overlapped(context, sets, group)
    if part == "communication":
        raise Refusal(
            "part = communication was asked for of scheme = fused, whose one kernel does both. "
            "Accepted: whole, compute; or scheme = sequential."
        )
    alone = part == "compute"
    launchers = [kernel(context, own, alone=alone).launcher() for own in sets]
    watched = None if alone else partial(_stamped, context, sets)
    return Calls(launchers, context.local if alone else context.result(), watched)


def _stamped(context: Context, sets: Sequence[Operands]) -> Watched:
    """A second form of the fused kernel, whose programs write stamps."""
    made = [kernel(context, own) for own in sets]
    stamps = torch.zeros(made[0].records, WORDS.value, dtype=torch.int64, device=context.device)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_kernel(context.plan, context.rank, timeline.Stamps.read(words, start_ns, tick_s))

    return Watched([one.stamped(stamps).launcher() for one in made], stamps, spans)


def _overlapped(context: Context, sets: Sequence[Operands], group: Any) -> Calls:
    shape = OPERATORS[context.problem.operator].local(context.problem)["output"]
    result = torch.empty(shape, dtype=context.dtype, device=context.device)
    return Calls([overlapped.call(context, own, group, result) for own in sets], result)


def _sequential(context: Context, sets: Sequence[Operands], part: str, group: Any) -> Calls:
    made = [Sequential(context, own, group) for own in sets]
    each = [_halves(one, part) for one in made]
    watched = partial(_marked, context, each) if part == "whole" else None
    return Calls([partial(_in_order, halves) for halves in each], made[0].result(), watched)


def _halves(one: Sequential, part: str) -> tuple[Call, ...]:
    """Those that *part* names, the one that depends on the other last."""
    if part != "whole":
        return (_compute(one) if part == "compute" else one.collective(),)
    compute, collective = _compute(one), one.collective()
    return (collective, compute) if one.context.receives else (compute, collective)


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


def _compute(one: Sequential) -> Call:
    if one.stated.work == "gather":
        return kernel(one.context, one.operands, alone=True).launcher()
    return one.compute()
