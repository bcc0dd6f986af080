"""Concurrent: compute and collective of different micro-batches on two streams. Named here; not yet built."""

from __future__ import annotations

from kernels.axes import Axis
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import base
from kernels.schemes.base import Scheme

SENTENCE = (
    "scheme = concurrent does not run yet. It is one of 4 schemes, and 3 run. It needs two streams with "
    "priorities (arXiv:2606.09200). Accepted: sequential, decomposed, fused."
)


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    return (base.tile_axis(problem, machine),)


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    return SENTENCE


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    raise Refusal(SENTENCE)


SCHEME = Scheme(
    name="concurrent",
    idea="Compute and collective of different micro-batches on two streams.",
    source="arXiv:2606.09200",
    axes=_axes,
    refusal=_refusal,
    expand=_expand,
    needs_peer_memory=lambda schedule: True,
    run_by=(),
)
