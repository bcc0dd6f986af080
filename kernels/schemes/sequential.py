"""Sequential: the compute kernel, then the collective. The baseline of every comparison."""

from __future__ import annotations

from dataclasses import replace

from kernels.axes import Axis
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import Flow
from kernels.plan import Plan, Planner
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import base, decomposed, fused, launches, library, reads
from kernels.schemes.base import Cut, Scheme
from kernels.schemes.finish import Unit, deliver

OURS = "ours"
KERNELS = ("library", OURS)
"""Values of `kernel`; lookups have ours alone, and CPU ranks their own."""


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    own = ("two_shot", "one_shot") if base.stated(problem).flow is Flow.BROADCAST else ("direct",)
    shares_lie_together = base.stated(problem).work != "gather"  # a copy engine moves a whole share of rows
    if machine.device.copy_engines and base.stated(problem).flow is not Flow.BROADCAST and shares_lie_together:
        own = (*own, "copy_engine")
    ours_first = (*own, "library")
    every = (*library.CALLS, *own, *((library.OVERLAPPED,) if problem.operator in library.OVERLAPPED_OPERATORS else ()))
    values = {"emulated": own, "network": ("library",), "nvlink": every}.get(fabric.kind, ours_first)
    values = own if problem.world == 1 else values  # a rank alone has nobody to call a collective with
    doc = (
        "Who moves the bytes: the library (NCCL, gloo; tuned: as a sweep found it fastest), our puts (direct; "
        "all-reduce: one_shot, two_shot), or copy engines."
    )
    if library.OVERLAPPED in values:
        doc += " Overlapped: torch's own operator, which computes meanwhile."
    known = {
        "tile": base.tile_axis(problem, machine),
        "collective": Axis("collective", values, values[0], doc),
        reads.KERNEL: Axis(reads.KERNEL, KERNELS, KERNELS[0], "Who computes: cuBLAS, or our kernel without its sends."),
    }
    return tuple(known[name] for name in reads.of_sequential(problem, machine.backend))


def is_ours(problem: Problem, schedule: Schedule) -> bool:
    """Whether a GPU computes the sequential *schedule* by our kernel: asked for, or because there is no other."""
    return base.stated(problem).work == "gather" or schedule[reads.KERNEL] == OURS


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    if schedule[reads.KERNEL] == OURS and schedule["collective"] == library.OVERLAPPED:
        return (
            f"kernel = {OURS} does not go with collective = {library.OVERLAPPED}: 1 operator of torch computes and "
            "communicates. Accepted: kernel = library, or another collective."
        )
    return None


def _order(problem: Problem, schedule: Schedule) -> Cut:
    """All tiles, chunk after chunk: of our kernel as it computes them."""
    if schedule[reads.KERNEL] == OURS:
        return fused.order_alone(problem, schedule["tile"])
    return base.cut([base.whole_chunk(problem, chunk) for chunk in range(problem.world)], base.size_of(schedule))


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    if schedule["collective"] == library.OVERLAPPED:
        return replace(decomposed.SCHEME.expand(problem, library.carried_out(schedule)), schedule=schedule)
    world, order = problem.world, _order(problem, schedule)
    planner = Planner(problem, schedule, [order.tiles] * world)
    everything = (0, len(order.tiles))
    if base.stated(problem).flow is Flow.RECEIVE:
        _receive(planner, everything)
        return planner.plan(launches.in_order(problem, schedule))
    steps = [base.compute(planner, rank, everything) for rank in range(world)]
    if schedule["collective"] in library.CALLS:
        library.collective(planner, [everything] * world, after=steps)
    elif schedule["collective"] == "one_shot":
        _one_shot(planner, everything, steps)
    else:
        deliver(
            planner,
            [[Unit(c, order.range_of(c), steps[r]) for c in (*base.peers_from(r, world), r)] for r in range(world)],
        )
    return planner.plan(launches.in_order(problem, schedule))


def _receive(planner: Planner, everything: tuple[int, int]) -> None:
    world, rows = planner.problem.world, (0, base.stated(planner.problem).chunk_rows(planner.problem))
    if planner.schedule["collective"] in library.CALLS:
        arrived = library.gather(planner, rows=rows)
        for rank in range(world):
            base.compute(planner, rank, everything, after=[arrived[rank]])
        return
    puts = [
        {peer: base.put_rows(planner, rank, peer, rows) for peer in base.peers_from(rank, world)}
        for rank in range(world)
    ]
    for rank in range(world):
        base.compute(planner, rank, everything, after=[puts[peer][rank] for peer in base.peers_from(rank, world)])


def _one_shot(planner: Planner, everything: tuple[int, int], steps: list[int]) -> None:
    """Everybody sends everything to everybody and sums alone: (world - 1) x the bytes, one hop."""
    world = planner.problem.world
    puts = [
        {
            peer: base.put_tiles(planner, rank, peer, everything, after=[steps[rank]])
            for peer in base.peers_from(rank, world)
        }
        for rank in range(world)
    ]
    for rank in range(world):
        after = [steps[rank], *(puts[peer][rank] for peer in base.peers_from(rank, world))]
        base.reduce(planner, rank, everything, after=after)


SCHEME = Scheme(
    name="sequential",
    idea="Compute everything, then communicate everything: the baseline.",
    source="arXiv:2305.06942",
    axes=_axes,
    refusal=_refusal,
    expand=_expand,
    needs_peer_memory=lambda schedule: schedule["collective"] not in library.CALLS,
    run_by=("cpu", "triton"),
)
