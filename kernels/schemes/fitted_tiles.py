"""Where fitted tiles are legal: a GEMM of one rank that only stores, on GPUs that have the instruction.

`kernels/fitted.py` has the tiles themselves.
"""

from __future__ import annotations

from kernels import fitted
from kernels.fitted import ACCEPTED, ARCHITECTURE, ITEMSIZE, STAGES_FEWEST, STEP
from kernels.machine import Machine
from kernels.problem import Problem
from kernels.schedule import Schedule, Tile, Value, tile
from kernels.schemes import axis_rules, base


def is_one(problem: Problem, schedule: Schedule) -> bool:
    """Whether *schedule* computes a GEMM in a fitted tile, as GPUs see it."""
    return base.operator_of(problem).work == "gemm" and fitted.is_fitted(tile(schedule["tile"]))


def is_one_on(problem: Problem, schedule: Schedule, machine: Machine) -> bool:
    """Whether *machine* is of GPUs, and *schedule* computes a GEMM in a fitted tile."""
    return machine.device.kind == "gpu" and is_one(problem, schedule)


def of_problem(problem: Problem) -> str | None:
    """Why no kernel computes *problem* in fitted tiles, as the end of a sentence, or None."""
    contraction = base.operator_of(problem).extent(problem).contraction
    if not axis_rules.stores_alone(problem):
        here = f"{problem.operator} by {problem.world}"
        return f"only the GEMM of {base.ONE_GEMM} by 1 rank has such tiles, and this is {here}"
    if problem.itemsize != ITEMSIZE:
        return f"values of such tiles have {ITEMSIZE} bytes, and those of {problem.dtype} have {problem.itemsize}"
    if contraction <= STEP:
        return f"such tiles take 2 steps of {STEP} at least, and the contraction is {contraction} <= {STEP}"
    return None


def refusal(problem: Problem, schedule: Schedule, architecture: int = ARCHITECTURE) -> str | None:
    """Why GPUs of *architecture* do not compute *problem* in the fitted tile of *schedule*, or None."""
    size, reason = tile(schedule["tile"]), of_problem(problem)
    if schedule.scheme == "decomposed":
        reason = "scheme = decomposed has kernels of 0 such tiles"
    elif architecture != ARCHITECTURE:
        here = f"this is sm_{architecture}" if architecture else "this machine's file names no architecture of NVIDIA"
        reason = f"its instruction exists on sm_{ARCHITECTURE} only, and {here}"
    if reason is not None:
        return f"tile = {size} has a side that is no power of two: {reason}. {ACCEPTED}."
    return fitted.trouble(size) or _of_axis(schedule)


def sides_on(problem: Problem, size: Tile, machine: Machine) -> fitted.Sides | None:
    """The sides of the fitted tile *size* where GPUs of *machine* compute *problem* in it, else None."""
    usual = Schedule("fused", (("tile", str(size)),))
    if refusal(problem, usual, machine.device.architecture) is not None:
        return None
    return fitted.sides(size)


def _of_axis(schedule: Schedule) -> str | None:
    """Why another axis of *schedule* does not go with its tile, or None."""
    size = tile(schedule["tile"])
    sides = fitted.sides(size)
    needed: dict[str, Value] = {"store": "tma", "num_warps": sides.warps, axis_rules.SPLIT_K: axis_rules.WHOLE}
    for axis, value in needed.items():
        if schedule.get(axis, value) != value:
            return (
                f"{axis} = {schedule[axis]} does not go with tile = {size}, a side of which is no power of two: its "
                f"kernel has {axis} = {value} only. Accepted: {axis} = {value}, or sides that are powers of two."
            )
    stages, most = int(schedule.get("num_stages") or STAGES_FEWEST), sides.stages
    if STAGES_FEWEST <= stages <= most:
        return None
    return (
        f"num_stages = {stages} does not go with tile = {size}: shared memory holds {STAGES_FEWEST} to {most} steps of "
        f"{sides.step_bytes} bytes, and {stages} is {'more' if stages > most else 'fewer'}. Accepted: "
        f"{STAGES_FEWEST}..{most}."
    )


def unoffered_stages(problem: Problem, offered: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of stages beyond those *offered* that only small fitted tiles of *problem* have room for."""
    return tuple(range(max(offered) + 1, fitted.STAGES_MOST + 1)) if of_problem(problem) is None else ()
