"""What it costs to begin: a call whose ranks meet, and each step that is launched by itself."""

from __future__ import annotations

from kernels.machine import Machine
from kernels.schemes import library

MEETING = ("copy_engine", "direct")
"""Values of `collective` whose ranks meet in a kernel of its own, which is launched before."""
AGAIN = ("direct",)
"""Those of them that meet once more behind, in another kernel. What a copy engine costs contains it."""
TWICE = ("one_shot",)
"""Values of `collective` whose kernel begins and ends with a meeting: it reads what peers may not overwrite."""


def start_seconds(
    machine: Machine, *, one_kernel: bool, collective: object, communicates: bool, packets: bool = False
) -> float:
    """Beside all steps: ranks meet before the first and perhaps after the last, in a kernel of its own or in theirs.

    On GPUs calls follow each other on a stream: ranks meet in kernels that communicate, not around those that do not,
    nor around a library's, whose time contains it. *packets* need no meeting: their place alternates.
    """
    if packets:
        communicates = False
    costs = machine.costs
    launch = costs.launch_seconds if one_kernel or (communicates and collective in MEETING) else 0.0
    meets = machine.device.kind == "cpu" or (communicates and collective not in library.CALLS)
    once = launch + (costs.barrier_seconds if meets else 0.0)
    if machine.device.kind == "cpu" or not communicates:
        return once
    return once + launch * (collective in AGAIN) + costs.barrier_seconds * (collective in (*AGAIN, *TWICE))


def step_overhead(machine: Machine, *, one_kernel: bool) -> float:
    """Beside a step's work: bookkeeping, and its launch by the host where it is no part of a kernel that runs."""
    return machine.costs.step_seconds + (0.0 if one_kernel else machine.costs.launch_seconds)
