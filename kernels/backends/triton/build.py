"""Which kernels run a trial: one line per kind of operator and scheme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton import embedding, gemv, overlapped, receive, send
from kernels.backends.triton.context import Context
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.library import Sequential
from kernels.operators import OPERATORS, Flow
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
    """One call per set of operands; all of them write the same result."""

    each: list[Call]
    result: Tensor
    """What has to be written anew by every call."""


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
    if trial.schedule.get("collective") == "copy_engine" and stated.work == "gather":
        return (
            f"collective = copy_engine was asked for {trial.problem.operator} on backend = triton, whose owners keep "
            "the rows of all ranks in turns, so that 1 row lies together, where copy engines move a whole share. "
            "Accepted: library, direct."
        )
    if trial.schedule.scheme == "fused" and stated.work == "gemm":
        return (receive if stated.flow is Flow.RECEIVE else send).refusal(trial)
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
    return Calls(launchers, context.local if alone else context.result())


def _overlapped(context: Context, sets: Sequence[Operands], group: Any) -> Calls:
    shape = OPERATORS[context.problem.operator].local(context.problem)["output"]
    result = torch.empty(shape, dtype=context.dtype, device=context.device)
    return Calls([overlapped.call(context, own, group, result) for own in sets], result)


def _sequential(context: Context, sets: Sequence[Operands], part: str, group: Any) -> Calls:
    made = [Sequential(context, own, group) for own in sets]
    each = [_in_order(one, part) for one in made]
    return Calls(each, made[0].result())


def _in_order(one: Sequential, part: str) -> Call:
    """The halves that *part* names, the one that depends on the other last."""
    compute, collective = _compute(one), one.collective()
    if part != "whole":
        return compute if part == "compute" else collective
    first, second = (collective, compute) if one.context.receives else (compute, collective)

    def call() -> None:
        first()
        second()

    return call


def _compute(one: Sequential) -> Call:
    if one.stated.work == "gather":
        return kernel(one.context, one.operands, alone=True).launcher()
    return one.compute()
