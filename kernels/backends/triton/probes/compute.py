"""Computation alone: our kernels and cuBLAS on the shapes of the operators, operands rotated so that they are cold."""

from __future__ import annotations

from functools import partial
from math import prod

import torch

from kernels.backends.triton.calls import fused
from kernels.backends.triton.context import Context, private_bytes, shared_bytes
from kernels.backends.triton.probes.site import Call, Site
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import Refusal, Schedule
from kernels.schemes import expand
from kernels.units import bytes_text


def ours(site: Site, of: Problem, schedule: Schedule, sets: list[Operands]) -> list[Call]:
    """The fused kernel of *of* and *schedule*, alone: nothing is sent or awaited."""
    plan = expand(of, schedule)
    start = shared_bytes(plan)
    _check_room(site, plan, start)
    context = Context(site.heap, plan, site.rank, site.device, start=start, limit_s=site.limit_ns / 1e9)
    launchers = [fused.kernel(context, operands, alone=True).launcher() for operands in sets]
    return [partial(_launch, context, launcher) for launcher in launchers]


def _launch(context: Context, launch: Call) -> None:
    """*context* owns memory of which the kernel has the address only, and a graph empties the allocator's cache."""
    launch()


def _check_room(site: Site, plan: Plan, start: int) -> None:
    """A trial's places lie where peers' bytes land, and nobody sends any meanwhile."""
    needs = start + private_bytes(plan.problem, len(plan.tiles[site.rank]))
    if needs > site.data_bytes:
        raise Refusal(
            f"{plan.problem.operator} needs {bytes_text(needs)} of the heap, but the probes have "
            f"{bytes_text(site.data_bytes)}. Accepted: a smaller shape."
        )


def library(site: Site, of: Problem, sets: list[Operands]) -> list[Call]:
    """cuBLAS on the same operands."""
    extent = OPERATORS[of.operator].extent(of)
    out = torch.empty(extent.rows, extent.columns, dtype=torch.bfloat16, device=site.device)

    def one(left: torch.Tensor, right: torch.Tensor) -> Call:
        return lambda: _multiply(left, right, out)

    return [one(*operands.values()) for operands in sets]


def _multiply(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(left, right, out=out)


def lookup_bytes(of: Problem) -> int:
    """Bytes of the rows that a pooled lookup reads."""
    return prod(of[key] for key in ("batch", "tables_per_rank", "pooling", "dim")) * of.itemsize
