"""Collectives of the library (NCCL, gloo) as steps: opaque, made by all ranks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.axes import Axis, Value
from kernels.fabric import Fabric
from kernels.operators import Flow
from kernels.plan import Kind, Planner, Pool, Step
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import base

CALLS = ("library", "library_tuned")
"""Values of `collective` that call the library: as it comes, or on GPUs as a sweep of its settings found it fastest."""

OVERLAPPED = "overlapped"
"""The value of `collective` that is one operator of torch, which computes meanwhile."""
OVERLAPPED_OPERATORS = ("all_gather_gemm", "gemm_reduce_scatter")
"""Operators that torch has so: `torch.ops.symm_mem.fused_all_gather_matmul` and `fused_matmul_reduce_scatter`."""
OVERLAPPED_AXES: Mapping[str, Value] = {
    "pieces": 1, "split": "rows", "steps": "uniform", "grouping": "unfused", "pattern": "ring", "engine": "copy_engine",
}  # fmt: skip
"""The decomposed schedule that these are: shard by shard in a ring, moved by copy engines."""


def carried_out(asked: Schedule) -> Schedule:
    """The schedule whose Plan *asked* has: of torch's overlapped operators a decomposed one, else its own."""
    if asked.scheme != "sequential" or asked["collective"] != OVERLAPPED:
        return asked
    return Schedule("decomposed", (("tile", asked["tile"]), *OVERLAPPED_AXES.items()))


def past_the_link(problem: Problem, axis: Axis, value: Value, fabric: Fabric) -> str | None:
    """Why the library cannot be who moves the bytes over *fabric*, or None: an emulated link delays our puts alone."""
    if value != "library" or value in axis.values or not fabric.emulated or problem.world == 1:
        return None
    accepted = ", ".join(str(other) for other in axis.values)
    return (
        f"{axis.name} = library does not run on an emulated link. Only our own puts cross that link; the library "
        f"(NCCL, gloo) would go past it. Accepted: {accepted}; library where the link is real."
    )


def collective(planner: Planner, at: Sequence[tuple[int, int]], *, after: Sequence[int]) -> list[int]:
    """One collective over every rank's tiles *at*, once all of *after* are done; then out of its buffer, by rank."""
    problem, world = planner.problem, planner.problem.world
    share = 2 if base.stated(problem).flow is Flow.BROADCAST else 1
    ends = []
    for rank in range(world):
        whole = base.result_bytes(problem, planner.tiles[rank], at[rank])
        sent = share * whole * (world - 1) // world
        step = planner.add(Step(rank, Kind.COLLECTIVE, Pool.LIBRARY, tiles=at[rank], num_bytes=sent), after)
        ends.append(_unpack(planner, rank, at[rank], step))
    return ends


def _unpack(planner: Planner, rank: int, at: tuple[int, int], step: int) -> int:
    """All-to-all results lie by source rank in the library's buffer; where the result does not, they are permuted."""
    if base.stated(planner.problem).collective == "all_reduce":
        return step
    whole = base.result_bytes(planner.problem, planner.tiles[rank], at)
    received = whole // planner.problem.world if base.stated(planner.problem).reduces else whole
    return planner.add(Step(rank, Kind.COPY, Pool.COMPUTE, tiles=at, num_bytes=2 * received), [step])


def gather(planner: Planner, *, rows: tuple[int, int], k: tuple[int, int] | None = None) -> list[int]:
    """One collective that brings operand rows *rows* of every rank's shard to every rank (or its share), by rank."""
    problem, world = planner.problem, planner.problem.world
    span = k or base.full_k(problem)
    one = base.operand_bytes(problem, rows, span)
    ends = []
    for rank in range(world):
        step = planner.add(Step(rank, Kind.COLLECTIVE, Pool.LIBRARY, rows=rows, k=span, num_bytes=(world - 1) * one))
        ends.append(base.unstage(planner, rank, -1, rows, span, after=[step]))
    return ends
