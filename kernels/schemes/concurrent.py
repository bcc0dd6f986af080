"""The concurrent scheme: computation and collective of different micro-batches on two streams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels import plan
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.occupancy import gemm_block, limits_of, padding
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import COLUMNS, Ints, Kind, Launches, Plan, index_of
from kernels.problem import Problem
from kernels.schedule import Axis, Refusal, Schedule, Value, tile
from kernels.schemes import axis_rules, base, fused, launches, library, sequential
from kernels.schemes.axis_rules import KERNEL, OURS, RESIDENT
from kernels.schemes.base import Scheme, needed_bytes
from kernels.units import bytes_text

# Residency: an SM holds fewer blocks of our computation by padding, and more only by smaller tiles.


def residency_refusal(problem: Problem, size: Value, blocks: int, machine: Machine) -> str | None:
    """Why an SM of *machine* cannot be made to hold *blocks* blocks of tiles of *size*, or None.

    None also where it is unknown before compilation: for kernels other than GEMMs, and machines without limits of SMs.
    """
    if not blocks or not machine.device.limits or base.operator_of(problem).work != "gemm":
        return None
    alone = fused.alone(problem, size)
    block = gemm_block(tile(size), problem.itemsize, alone.count("num_stages"), alone.count("num_warps"),
                       architecture=machine.device.architecture)  # fmt: skip
    try:
        padding(limits_of(machine), block, blocks)
    except Refusal as refused:
        return str(refused)
    return None


def dependent_defaults(
    problem: Problem, machine: Machine, fabric: Fabric, values: Mapping[str, Value]
) -> dict[str, Value]:
    """Defaults for a number of resident blocks among *values*: our kernel, and the largest tile that leaves room."""
    blocks = values.get(RESIDENT)
    if not isinstance(blocks, int) or not blocks:
        return {}
    known = base.tile_axis(problem, machine)
    sizes = sorted(known.values, key=_largest_and_squarest)
    fits = (size for size in (known.default, *sizes) if residency_refusal(problem, size, blocks, machine) is None)
    return {KERNEL: OURS, "tile": next(fits, known.default)}


def _largest_and_squarest(size: Value) -> tuple[int, int]:
    sides = tile(size)
    return -sides.m * sides.n, abs(sides.m - sides.n)


# Repetition of a Plan for several independent problems, whose computations and collectives alternate.


def repeated(one: Plan, count: int) -> Plan:
    """*one* problem's Plan for *count* such problems, in a row on every stream; no step waits for another problem."""
    number = np.repeat(np.arange(count), len(one))
    columns: dict[str, Any] = {name: np.tile(getattr(one, name), count) for name in COLUMNS}
    columns["launch"] += number * len(one.launches)
    columns["index"] = index_of(columns, one.problem.world)
    after = np.tile(one.after, count) + np.repeat(np.arange(count), len(one.after)) * len(one)
    start = plan.bounds(np.tile(np.diff(one.after_start), count))
    return replace(one, **columns, after=after, after_start=start, launches=_launches(one, count))


def _launches(one: Plan, count: int) -> Launches:
    each = one.launches
    rank, stream, priority, resident, grid = (
        np.tile(column, count) for column in (each.rank, each.stream, each.priority, each.resident_blocks, each.grid)
    )
    micro_batch = np.repeat(np.arange(count), len(each))
    computes = np.zeros(len(each), dtype=bool)
    computes[one.launch[one.kind == Kind.COMPUTE]] = True
    comes_in = OPERATORS[one.problem.operator].flow is Flow.RECEIVE
    return Launches(rank, each.name * count, stream, priority, resident, grid, micro_batch,
                    place=_places(micro_batch, np.tile(computes, count) != comes_in))  # fmt: skip


def _places(micro_batch: Ints, begins: np.ndarray) -> Ints:
    """The place of each launch among all: first come, first served.

    The launch that *begins* problem i + 1 is queued before the one that ends problem i can begin: C0, C1, X0, C2, X1
    ... where results are sent, and X0, X1, C0, X2, C1 ... where operands come in.
    """
    return np.where(begins, np.maximum(2 * micro_batch - 1, 0), 2 * micro_batch + 2)


# The scheme.

MICRO_BATCHES = "micro_batches"
FEWEST, MOST = 2, 32
"""Fewest and most problems of one call: one alone has nothing to overlap with."""
SHARES = (0, 4, 8, 16, 24, 32)
"""Numbers of SMs that the computation may leave to the collective."""


def problems(schedule: Schedule) -> int:
    """Number of independent problems in one call of *schedule*: its time is that of the call, divided by them."""
    return int(schedule.get(MICRO_BATCHES) or 1)


def _axes(problem: Problem, machine: Machine, fabric: Fabric) -> tuple[Axis, ...]:
    of_one = {axis.name: axis for axis in sequential.SCHEME.axes(problem, machine, fabric)}
    collective, slots = of_one["collective"], machine.device.slots
    moved_alone = tuple(value for value in collective.values if value != library.OVERLAPPED)
    shares: tuple[Value, ...] = tuple(count for count in SHARES if count < slots)
    known = {
        **of_one,
        MICRO_BATCHES: Axis(
            MICRO_BATCHES, (2, 4, 8, 16), 4, "Independent problems in one call; a time is the call's, divided by them.",
            open=True,
        ),
        "collective": replace(collective, values=moved_alone, doc=collective.doc.partition(" Overlapped")[0]),
        "comm_priority": Axis(
            "comm_priority", (axis_rules.HIGH, axis_rules.NORMAL), axis_rules.HIGH,
            "Whether communication goes first where both could; what runs is never interrupted.",
        ),
        axis_rules.RESIDENT: Axis(
            axis_rules.RESIDENT, (0, 1, 2, 3, 4), 0,
            "Blocks of the computation that an SM holds, by padding of their shared memory; 0: as many as fit.",
        ),
        "comm_sms": Axis(
            "comm_sms", shares, 0,
            f"SMs, of {slots}, that computation leaves to the collective, or to meetings around copies; 0: none set "
            "aside.",
        ),
    }  # fmt: skip
    return tuple(known[name] for name in axis_rules.of_concurrent(problem, machine.backend))


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    blocks = int(schedule.get(axis_rules.RESIDENT) or 0)
    return (
        _count_refusal(schedule)
        or sequential.no_room(problem, schedule, machine)
        or residency_refusal(problem, schedule["tile"], blocks, machine)
        or _memory_refusal(problem, schedule, machine)
    )


def _count_refusal(schedule: Schedule) -> str | None:
    count = problems(schedule)
    if FEWEST <= count <= MOST:
        return None
    rule = (
        f"leaves nothing to overlap with: computation and collective of 1 problem follow each other, and {count} < "
        f"{FEWEST}"
        if count < FEWEST
        else f"is too many: each has operands and a result of its own, and {count} > {MOST}"
    )
    return f"{MICRO_BATCHES} = {count} {rule}. Accepted: {FEWEST} to {MOST}."


def _memory_refusal(problem: Problem, schedule: Schedule, machine: Machine) -> str | None:
    count, each = problems(schedule), needed_bytes(problem)
    if count * each <= machine.device.memory_bytes:
        return None
    return (
        f"{MICRO_BATCHES} = {count} is too many for these sizes. Operands and results take {count} x "
        f"{bytes_text(each)} on each rank, but a rank of {machine.name} has "
        f"{bytes_text(machine.device.memory_bytes)}. Accepted: fewer of them, or smaller sizes."
    )


def _expand(problem: Problem, schedule: Schedule) -> Plan:
    one = sequential.one_by_one(problem, schedule, launches.on_two_streams(problem, schedule))
    return repeated(one, problems(schedule))


SCHEME = Scheme(
    name="concurrent",
    idea="Compute and collective of different micro-batches on two streams.",
    source="arXiv:2606.09200",
    axes=_axes,
    refusal=_refusal,
    expand=_expand,
    needs_peer_memory=sequential.SCHEME.needs_peer_memory,
    run_by=("cpu", "triton"),
    is_compared=False,
    dependent_defaults=dependent_defaults,
)
