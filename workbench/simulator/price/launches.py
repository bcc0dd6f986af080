"""What it costs to begin: a call whose ranks meet, and each step that is launched by itself."""

from __future__ import annotations

from kernels.machine import Machine
from kernels.schemes import library

MEETING = ("copy_engine", "direct")
"""Values of `collective` whose ranks meet in a kernel of its own, which is launched before."""


def start_seconds(machine: Machine, *, one_kernel: bool, collective: object, communicates: bool) -> float:
    """Before the first step: all ranks meet, in a kernel of its own or in the one that does everything.

    On GPUs calls follow each other on a stream: ranks meet in kernels that communicate, not around those that do not,
    nor around a library's, whose time contains it.
    """
    costs = machine.costs
    launch = costs.launch_seconds if one_kernel or (communicates and collective in MEETING) else 0.0
    meets = machine.device.kind == "cpu" or (communicates and collective not in library.CALLS)
    return launch + (costs.barrier_seconds if meets else 0.0)


def step_overhead(machine: Machine, *, one_kernel: bool) -> float:
    """Beside a step's work: bookkeeping, and its launch by the host where it is no part of a kernel that runs."""
    return machine.costs.step_seconds + (0.0 if one_kernel else machine.costs.launch_seconds)
