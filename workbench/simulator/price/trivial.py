"""The trivial estimate: roofline and alpha-beta. What tiers of a simulator are worth is what they know beyond it."""

from __future__ import annotations

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schemes import BASELINE
from workbench.simulator.price.rates import work_seconds
from workbench.simulator.price.routes import routes


def trivial_seconds(problem: Problem, scheme: str, part: str, machine: Machine, fabric: Fabric) -> float:
    """Seconds at the machine's peaks: the baseline's computation and communication follow each other, others overlap.

    *fabric* must be resolved.
    """
    compute, communication = _compute_seconds(problem, machine), _communication_seconds(problem, machine, fabric)
    if part == "compute":
        return compute
    if part == "communication":
        return communication
    return compute + communication if scheme == BASELINE else max(compute, communication)


def _compute_seconds(problem: Problem, machine: Machine) -> float:
    """The roofline: FLOP at the peak, or the bytes of operands and result at the memory's speed."""
    kind = operator(problem.operator)
    bare = machine.device.matrix_flops_per_second
    peak = bare.get(problem.dtype, min(bare.values()))
    return max(kind.flops(problem) / peak, kind.memory_bytes(problem) / machine.device.memory_bytes_per_second)


def _communication_seconds(problem: Problem, machine: Machine, fabric: Fabric) -> float:
    """Alpha and beta: one latency, and the least bytes that leave a rank at the link's speed."""
    if problem.world == 1:
        return 0.0
    num_bytes = operator(problem.operator).wire_bytes(problem)
    ways = routes(problem.world, machine, fabric)
    if fabric.kind == "shared_memory":  # what crosses no wire is copied
        return float(work_seconds(machine, "copy", problem.dtype, 2 * num_bytes))
    route = ways.between(0, 1)
    return float(route.latency_seconds + num_bytes * ways.collective_byte_seconds)
