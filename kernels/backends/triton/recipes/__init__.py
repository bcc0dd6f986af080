"""The table of what GPU ranks run: scheme by flow, one module each. Its words load without torch or Triton."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.backends.triton.recipes import (
    concurrent,
    decomposed,
    fused,
    fused_gather,
    fused_gemv,
    fused_receive,
    fused_send,
    overlapped,
    sequential,
)
from kernels.backends.triton.recipes.base import Compilation, Recipe
from kernels.backends.triton.recipes.fused import OneKernel
from kernels.operators import OPERATORS, Flow
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import SCHEMES
from kernels.schemes.library import OVERLAPPED

__all__ = ["KERNELS", "TABLE", "Compilation", "Recipe", "kernel", "of", "schemes"]

KERNELS: Mapping[tuple[str, Flow], OneKernel] = {
    ("gemm", Flow.SEND): fused_send.KERNEL,
    ("gemm", Flow.BROADCAST): fused_send.KERNEL,
    ("gemm", Flow.RECEIVE): fused_receive.KERNEL,
    ("gemv", Flow.BROADCAST): fused_gemv.KERNEL,
    ("gather", Flow.SEND): fused_gather.KERNEL,
}
"""Our kernel of each computation and flow."""

TABLE: Mapping[str, Mapping[tuple[str, Flow], Recipe]] = {
    "sequential": {flow: sequential.recipe(one) for flow, one in KERNELS.items()},
    "concurrent": {flow: concurrent.recipe(one) for flow, one in KERNELS.items()},
    OVERLAPPED: {("gemm", Flow.SEND): overlapped.RECIPE, ("gemm", Flow.RECEIVE): overlapped.RECIPE},
    "decomposed": {flow: decomposed.RECIPE for flow in KERNELS if flow[0] == "gemm"},
    "fused": {flow: fused.recipe(one) for flow, one in KERNELS.items()},
}
"""By scheme, then by computation and flow. A collective that is a scheme of its own has a line of its own."""


def of(problem: Problem, schedule: Schedule) -> Recipe | None:
    """How *schedule* runs *problem* on GPUs, or None where it does not."""
    collective = str(schedule.get("collective"))
    return TABLE.get(collective if collective in TABLE else schedule.scheme, {}).get(_flow(problem))


def kernel(problem: Problem) -> OneKernel:
    """Our kernel of *problem*'s computation and flow."""
    return KERNELS[_flow(problem)]


def schemes(problem: Problem) -> tuple[str, ...]:
    """The schemes that run *problem* on GPUs."""
    return tuple(name for name in SCHEMES if _flow(problem) in TABLE.get(name, {}))


def _flow(problem: Problem) -> tuple[str, Flow]:
    operator = OPERATORS[problem.operator]
    return operator.work, operator.flow
