"""Calls of fused schedules: each is one launch of our kernel of the problem's computation and flow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, Protocol, cast

import torch

from kernels.backends.triton import recipes, timeline
from kernels.backends.triton.gin.context import NetworkContext
from kernels.backends.triton.kernels.sync import WORDS
from kernels.backends.triton.launch import Call, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.schemes import OperandCalls, carried
from kernels.backends.triton.timeline import WatchedCalls
from kernels.operators import OPERATORS
from kernels.outcome import Span
from kernels.reference import Operands


class FusedKernelModule(Protocol):
    """A file of `kernels/backends/triton/kernels/` that holds a fused kernel."""

    def kernel(self, context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
        """The kernel of *context*'s trial; *alone*: the computation into `context.local` without communication."""


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Our kernel of *context*'s computation and flow; *alone*: see `FusedKernelModule`."""
    recipe = recipes.kernel(context.problem)
    module = cast(FusedKernelModule, import_module(recipe.module_of(context.problem, context.plan.schedule)))
    return module.kernel(context, operands, alone=alone)


def kernels(context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
    """The form that is timed, and for a whole trial also the form that writes stamps."""
    if isinstance(context, NetworkContext) and part == "whole":
        by_courier = OPERATORS[context.problem.operator].work == "gemm"
        return carried.kernels(context, operands) if by_courier else [kernel(context, operands)]
    timed = kernel(context, operands, alone=part == "compute")
    stamps = torch.zeros(1, WORDS.value, dtype=torch.int64, device=context.device)
    return [timed, timed.stamped(stamps)] if part == "whole" else [timed]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
    """One launch for each of *sets*."""
    alone = part == "compute"
    if isinstance(context, NetworkContext) and not alone and OPERATORS[context.problem.operator].work == "gemm":
        return carried.calls(context, sets)
    by_set = [kernel(context, operands, alone=alone) for operands in sets]
    return OperandCalls(launches(by_set), context.local if alone else context.result(), by_set)


def launches(kernels: Sequence[LaunchableKernel]) -> list[Call]:
    """Launches of *kernels*, which only differ in their arguments, so that occupancy is computed once."""
    launch = kernels[0].argument_launcher()
    return [partial(launch, each.arguments) for each in kernels]


def watched(context: Context, timed: OperandCalls) -> WatchedCalls:
    """Calls of a second form of the kernel, which writes stamps."""
    stamps = torch.zeros(timed.components[0].records, WORDS.value, dtype=torch.int64, device=context.device)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_kernel(context.plan, context.rank, timeline.Stamps.read(words, start_ns, tick_s))

    return WatchedCalls(launches([each.stamped(stamps) for each in timed.components]), stamps, spans)
