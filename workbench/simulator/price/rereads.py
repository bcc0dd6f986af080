"""What DRAM gives a fused GEMM, re-reads included, as the reuse tier counts it: its kernel ends no sooner.

A price takes each operand once from memory, beside the loads of every tile from L2. Where few tiles run at once, or
their order is poor, memory gives much more than that, while tiles load and compute. docs/caches.md has what that is
worth on two H200s.
"""

from __future__ import annotations

from kernels.machine import Machine
from kernels.operators import operator
from kernels.plan import Plan
from kernels.problem import Problem
from kernels.schedule import Schedule
from workbench.simulator.cache.turns import each_turn_bytes, programs
from workbench.simulator.price import gemm
from workbench.simulator.price.tiles import resident_blocks

IN_ORDER = "group_rows"
"""The axis of kernels whose tile order is ours to know; a library keeps its own."""
NEAR = 0.5
"""Of a kernel's time: if tiles that find nothing of earlier ones read for less than that, nobody waits for it."""


def residents(machine: Machine, problem: Problem, schedule: Schedule) -> int:
    """Programs of a kernel of ours that share an SM of *machine*: of a GEMM as its tile and its stores let."""
    work = operator(problem.operator).work
    if work != "gemm" or not machine.device.limits:
        return max(1, int(resident_blocks(machine, work)))
    return gemm.fitting(machine, problem, schedule)


def memory_floor_seconds(plan: Plan, machine: Machine, otherwise_s: float) -> float:
    """Seconds in which memory gives and takes what our kernel on rank 0 moves; 0 where nobody knows its caches.

    0, too, where it is far from mattering to a kernel that takes *otherwise_s*: a count takes some milliseconds.
    """
    if operator(plan.problem.operator).work != "gemm" or not plan.schedule.get(IN_ORDER):
        return 0.0
    from workbench.simulator.cache.hierarchy import of_device

    if (on := of_device(machine.device.name)) is None:
        return 0.0
    held, rate = residents(machine, plan.problem, plan.schedule), machine.device.memory_bytes_per_second
    if each_turn_bytes(plan, programs(plan.schedule, on.units * held)) < NEAR * otherwise_s * rate:
        return 0.0
    from workbench.simulator.cache.traffic import of_plan, total  # compiled: half a second of imports

    moved = total(of_plan(plan, on, held))
    return (moved.dram_read + moved.dram_written) / rate
