"""Collectives of the library (NCCL, gloo) as steps, which are opaque and called by all ranks together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels.fabric import Fabric
from kernels.operators.base import Flow
from kernels.plan import Ints, Kind, Planner, Pool, Range, Step
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Value
from kernels.schemes import axis_rules, base

CALLS = ("library", "library_tuned")
"""Values of `collective` that call the library: with its default settings, or on GPUs with the fastest of a sweep."""

OVERLAPPED = "overlapped"
"""The value of `collective` for one operator of torch that computes meanwhile."""
OVERLAPPED_OPERATORS = ("all_gather_gemm", "gemm_reduce_scatter")
"""Operators with OVERLAPPED: `torch.ops.symm_mem.fused_all_gather_matmul` and `fused_matmul_reduce_scatter`."""
OVERLAPPED_AXES: Mapping[str, Value] = {
    "pieces": 1, "split": "rows", "steps": "uniform", "grouping": "unfused", "pattern": "ring", "engine": "copy_engine",
    axis_rules.LAUNCHES: axis_rules.PER_PIECE,
}  # fmt: skip
"""The decomposed schedule that torch's operators run: shards in a ring, moved by copy engines, a cuBLAS call each."""


def executed_schedule(schedule: Schedule) -> Schedule:
    """The schedule whose Plan *schedule* has: a decomposed one for torch's overlapped operators, else *schedule*."""
    if schedule.scheme != "sequential" or schedule["collective"] != OVERLAPPED:
        return schedule
    return Schedule("decomposed", (("tile", schedule["tile"]), *OVERLAPPED_AXES.items()))


def emulated_link_refusal(problem: Problem, axis: Axis, value: Value, fabric: Fabric) -> str | None:
    """Why the library cannot move bytes over *fabric*, or None: an emulated link delays only our puts."""
    if value != "library" or value in axis.values or not fabric.emulated or problem.world == 1:
        return None
    accepted = ", ".join(str(other) for other in axis.values)
    return (
        f"{axis.name} = library does not run on an emulated link. Only our own puts cross that link; the library "
        f"(NCCL, gloo) would go past it. Accepted: {accepted}; library where the link is real."
    )


def collective(planner: Planner, rank: Ints, at: Range, *, after: Ints) -> None:
    """Adds collectives over tiles *at* of every *rank*, each after all of *after*, and copies out of their buffers."""
    problem, world = planner.problem, planner.problem.world
    operator, whole = base.operator_of(problem), base.result_bytes(planner, rank, at)
    share = 2 if operator.flow is Flow.BROADCAST else 1
    step = Step(rank, Kind.COLLECTIVE, Pool.LIBRARY, tiles=at, num_bytes=share * whole * (world - 1) // world)
    called = planner.add(step, after)
    if operator.collective == "all_reduce":
        return
    # results of an all-to-all lie by source rank in the library's buffer, and are permuted to the result's layout
    received = whole // world if operator.reduces else whole
    step = Step(rank, Kind.COPY, Pool.COMPUTE, tiles=at, num_bytes=2 * received)
    planner.follow(planner.add(step, called[..., None]), called)


def gather(planner: Planner, *, rows: Range, k: Range | None = None) -> Ints:
    """Adds collectives that bring operand rows *rows* of every rank's shard to every rank (or its share).

    Returns the steps after which they can be read: [rank], or [range, rank] for columns of ranges.
    """
    problem, world = planner.problem, planner.problem.world
    span = k or base.full_k(problem)
    one, rank = base.operand_bytes(problem, rows, span), np.arange(world)
    step = Step(rank, Kind.COLLECTIVE, Pool.LIBRARY, rows=rows, k=span, num_bytes=(world - 1) * one)
    called = planner.add(step)
    copied = base.unstage(planner, rank, None, rows, span, after=called[..., None])
    planner.follow(copied, called)
    return copied
