"""The sequential scheme, the baseline of every comparison: the compute kernel, then the collective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kernels import plan
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators.base import Flow
from kernels.plan import Ints, Launched, Plan, Planner, Range
from kernels.problem import Problem
from kernels.schedule import Axis, Schedule, Value
from kernels.schemes import axis_rules, base, decomposed, fused, launches, library
from kernels.schemes.base import Scheme, TileCut, Units, deliver, exchange

OURS = axis_rules.OURS
KERNELS = ("library", OURS)
"""Values of `kernel`, which lookups and CPU ranks do not have."""


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    pushed = ("two_shot", "one_shot") if base.operator_of(problem).flow is Flow.BROADCAST else ("direct",)
    shares_lie_together = base.operator_of(problem).work != "gather"  # a copy engine moves a whole share of rows
    if machine.device.copy_engines and base.operator_of(problem).flow is not Flow.BROADCAST and shares_lie_together:
        pushed = (*pushed, "copy_engine")
    ours_first = (*pushed, "library")
    every = (
        *library.CALLS,
        *pushed,
        *((library.OVERLAPPED,) if problem.operator in library.OVERLAPPED_OPERATORS else ()),
    )
    by_link = {"emulated": pushed, "network": ("library",), "nvlink": every, "shared_gpu": every}
    values = by_link.get(fabric.kind, ours_first)
    values = pushed if problem.world == 1 else values  # a rank alone has no peers for a collective
    doc = (
        "Who moves the bytes: the library (NCCL, gloo; tuned: as a sweep found it fastest), our puts (direct; "
        "all-reduce: one_shot, two_shot), or copy engines."
    )
    if library.OVERLAPPED in values:
        doc += " Overlapped: torch's own operator, which computes meanwhile."
    known = {
        "tile": base.tile_axis(problem, machine),
        "collective": Axis("collective", values, values[0], doc),
        axis_rules.KERNEL: Axis(
            axis_rules.KERNEL, KERNELS, KERNELS[0], "Who computes: cuBLAS, or our kernel without its sends."
        ),
    }
    return tuple(known[name] for name in axis_rules.of_sequential(problem, machine.backend))


def is_ours(problem: Problem, schedule: Schedule) -> bool:
    """Whether a GPU computes *schedule* in one launch of our kernel: as requested, or because there is no other."""
    return base.operator_of(problem).work == "gather" or schedule.get(axis_rules.KERNEL) == OURS


def of_half(axes: Mapping[str, Value], part: str) -> dict[str, Value]:
    """*axes* without those that do not affect *part* alone; all of them for torch's operators, which are one call.

    Computation does not depend on the collective, and the library's computation not on the tile.
    """
    if axes.get("collective") == library.OVERLAPPED:
        return dict(axes)
    by_library = ("tile",) if axes.get(axis_rules.KERNEL) == KERNELS[0] else ()
    ignored = ("collective", *by_library) if part == "compute" else (axis_rules.KERNEL,)
    return {name: value for name, value in axes.items() if name not in ignored}


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    if schedule[axis_rules.KERNEL] == OURS and schedule["collective"] == library.OVERLAPPED:
        return (
            f"kernel = {OURS} does not go with collective = {library.OVERLAPPED}: 1 operator of torch computes and "
            "communicates. Accepted: kernel = library, or another collective."
        )
    return no_room(problem, schedule, machine)


def no_room(problem: Problem, schedule: Schedule, machine: Machine) -> str | None:
    """Why an SM of *machine* has no room for our kernel, if it is the one that computes, or None."""
    if schedule.get(axis_rules.KERNEL) != OURS:
        return None
    return fused.no_room(problem, fused.alone(problem, schedule["tile"]), machine)


def _order(problem: Problem, schedule: Schedule) -> TileCut:
    """All tiles, chunk after chunk, or in the order of our kernel where it is the one that computes."""
    if schedule.get(axis_rules.KERNEL) == OURS:
        return fused.order_alone(problem, schedule["tile"])
    return base.cut(base.whole_chunks(problem, np.arange(problem.world)), base.size_of(schedule))


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    if schedule["collective"] == library.OVERLAPPED:
        return replace(decomposed.expand(problem, library.executed_schedule(schedule)), schedule=schedule)
    return one_by_one(problem, schedule, launches.in_order(problem, schedule))


def one_by_one(problem: Problem, schedule: Schedule, launched: Launched) -> Plan:
    """The Plan with all of the computation as one step, then all of the collective; *launched* makes the launches."""
    order = _order(problem, schedule)
    planner = Planner(problem, schedule, [order.tiles] * problem.world)
    everything = (0, len(order.tiles))
    if base.operator_of(problem).flow is Flow.RECEIVE:
        _receive(planner, everything)
    else:
        _send(planner, everything, order)
    return planner.plan(launched)


def _send(planner: Planner, everything: Range, order: TileCut) -> None:
    rank, peers = np.arange(planner.problem.world), base.peers_of(planner.problem.world)
    computed = base.compute(planner, rank, everything)
    if planner.schedule["collective"] in library.CALLS:
        library.collective(planner, rank, everything, after=computed)
    elif planner.schedule["collective"] == "one_shot":
        exchange(planner, Units.of(rank, 0, everything, computed))
    else:
        chunk = np.column_stack([peers, rank])
        deliver(planner, Units.of(rank[:, None], chunk, plan.some(order.ranges, chunk), computed[:, None]))


def _receive(planner: Planner, everything: Range) -> None:
    world, rows = planner.problem.world, (0, base.operator_of(planner.problem).chunk_rows(planner.problem))
    rank, peers = np.arange(world), base.peers_of(world)
    if planner.schedule["collective"] in library.CALLS:
        here = library.gather(planner, rows=rows)[:, None]
    else:
        here = _from_peers(base.put_rows(planner, rank[:, None], peers, rows))
    base.compute(planner, rank, everything, after=here)


def _from_peers(sent: Ints) -> Ints:
    """[rank, turn] the put that arrives from each peer; *sent*: the puts to each; peers as in `peers_of`."""
    peers = base.peers_of(len(sent))
    by_peer = np.empty((len(sent), len(sent)), dtype=np.int64)
    by_peer[np.arange(len(sent))[:, None], peers] = sent
    return by_peer[peers, np.arange(len(sent))[:, None]]


SCHEME = Scheme(
    name="sequential",
    idea="Compute everything, then communicate everything: the baseline.",
    source="arXiv:2305.06942",
    axes=_axes,
    refusal=_refusal,
    expand=_expand,
    needs_peer_memory=lambda schedule: schedule["collective"] not in library.CALLS,
    run_by=("cpu", "triton"),
    is_operator=True,
)
