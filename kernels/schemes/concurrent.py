"""Concurrent: computation and collective of different micro-batches on two streams (resource-aware overlap)."""

from __future__ import annotations

from dataclasses import replace

from kernels.axes import Axis, Value
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import launches, library, reads, residency, sequential
from kernels.schemes.base import Scheme
from kernels.schemes.limits import needed_bytes
from kernels.schemes.micro_batches import repeated
from kernels.units import bytes_text

MICRO_BATCHES = "micro_batches"
FEWEST, MOST = 2, 32
"""Problems of one call: one alone has nothing to overlap with."""
SHARES = (0, 4, 8, 16, 24, 32)
"""SMs that the computation may leave to the collective; 0: none."""


def problems(schedule: Schedule) -> int:
    """Independent problems that one call of *schedule* works on: a time is that of the call, divided by them."""
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
            "comm_priority", (reads.HIGH, reads.NORMAL), reads.HIGH,
            "Whether communication goes first where both could; what runs is never interrupted.",
        ),
        reads.RESIDENT: Axis(
            reads.RESIDENT, (0, 1, 2, 3, 4), 0,
            "Blocks of the computation that an SM holds, by padding of their shared memory; 0: as many as fit.",
        ),
        "comm_sms": Axis(
            "comm_sms", shares, 0,
            f"SMs, of {slots}, that computation leaves to the collective, or to meetings around copies; 0: none set "
            "aside.",
        ),
    }  # fmt: skip
    return tuple(known[name] for name in reads.of_concurrent(problem, machine.backend))


def _refusal(problem: Problem, schedule: Schedule, machine: Machine, fabric: Fabric) -> str | None:
    blocks = int(schedule.get(reads.RESIDENT) or 0)
    return (
        _of_count(schedule)
        or residency.refusal(problem, schedule["tile"], blocks, machine)
        or _of_memory(problem, schedule, machine)
    )


def _of_count(schedule: Schedule) -> str | None:
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


def _of_memory(problem: Problem, schedule: Schedule, machine: Machine) -> str | None:
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
    beside=residency.beside,
)
