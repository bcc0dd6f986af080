"""What is too large to be laid out: a problem beyond a rank's memory, a schedule of too many steps."""

from __future__ import annotations

from math import prod

from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes.base import TILES_MOST, num_tiles, operator_of
from kernels.schemes.slices import STEPS_MOST, slice_size
from kernels.units import bytes_text

INDEX_BYTES = 8


def too_large(problem: Problem, machine: Machine) -> str | None:
    """Why *problem* does not fit one rank of *machine*, or None: its operands and its result must lie in memory."""
    needed = needed_bytes(problem)
    if needed <= machine.device.memory_bytes:
        return None
    return (
        f"{problem.operator} of these sizes is too large. Its operands and result take {bytes_text(needed)} on "
        f"each rank, but a rank of {machine.name} has {bytes_text(machine.device.memory_bytes)}. Accepted: smaller "
        "sizes, more ranks where they share them, or a machine with more memory."
    )


def needed_bytes(problem: Problem) -> int:
    """Bytes of one rank's operands and result."""
    shapes = operator_of(problem).local(problem)
    return sum(prod(s) * (INDEX_BYTES if name == "indices" else problem.itemsize) for name, s in shapes.items())


def too_many_steps(problem: Problem, schedule: Schedule) -> str | None:
    """Why *schedule* would be cut too finely to be laid out, or None."""
    tiles = num_tiles(problem, schedule["tile"])
    if tiles > TILES_MOST:
        return (
            f"tile = {schedule['tile']} is too small. It cuts one rank's result into {tiles} tiles: {tiles} > "
            f"{TILES_MOST}. Accepted: a larger tile."
        )
    units = -(-tiles // slice_size(problem, schedule)) if schedule.scheme == "fused" else 1
    units = schedule.count("pieces") * problem.world if schedule.scheme == "decomposed" else units
    if units * problem.world <= STEPS_MOST:
        return None
    axis = "slice_tiles" if schedule.scheme == "fused" else "pieces"
    return (
        f"{axis} = {schedule.get(axis, 'default')} sends too many units: {units * problem.world} > "
        f"{STEPS_MOST}. Accepted: fewer and larger ones."
    )
