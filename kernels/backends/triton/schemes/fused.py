"""Calls of fused schedules: a launch of our one kernel each, whichever computation and flow it is of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, Protocol, cast

import torch

from kernels.backends.triton import recipes, timeline
from kernels.backends.triton.kernels.sync import WORDS
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.schemes import Call, OperandCalls
from kernels.backends.triton.timeline import WatchedCalls
from kernels.outcome import Span
from kernels.reference import Operands


class FusedKernelModule(Protocol):
    """A file of `kernels/backends/triton/kernels/` that holds a fused kernel."""

    def kernel(self, context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
        """Its kernel for *context*'s trial; *alone*: the computation into `context.local`, nothing sent or awaited."""


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> LaunchableKernel:
    """Our kernel of *context*'s computation and flow; *alone*: see `FusedKernelModule`."""
    launch = cast(FusedKernelModule, import_module(recipes.kernel(context.problem).module))
    return launch.kernel(context, operands, alone=alone)


def kernels(context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
    """The form that is timed, and of a whole trial the one that is watched."""
    timed = kernel(context, operands, alone=part == "compute")
    stamps = torch.zeros(1, WORDS.value, dtype=torch.int64, device=context.device)
    return [timed, timed.stamped(stamps)] if part == "whole" else [timed]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
    """A launch for each of *sets*."""
    alone = part == "compute"
    made = [kernel(context, operands, alone=alone) for operands in sets]
    return OperandCalls(launches(made), context.local if alone else context.result(), made)


def launches(made: Sequence[LaunchableKernel]) -> list[Call]:
    """What launches each of *made*, which differ in their arguments alone: how many fit an SM is asked once."""
    launch = made[0].launching()
    return [partial(launch, each.arguments) for each in made]


def watched(context: Context, timed: OperandCalls) -> WatchedCalls:
    """A second form of the kernel, whose programs write stamps."""
    stamps = torch.zeros(timed.made[0].records, WORDS.value, dtype=torch.int64, device=context.device)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_kernel(context.plan, context.rank, timeline.Stamps.read(words, start_ns, tick_s))

    return WatchedCalls(launches([each.stamped(stamps) for each in timed.made]), stamps, spans)
