"""The axes of a scheme on each backend: some are read by GPU ranks alone, some by CPU ranks alone."""

from __future__ import annotations

from collections.abc import Sequence

from kernels import fabric as fabrics
from kernels.axes import Axis
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes import axes
from workbench.machines import LAPTOP, shipped_machine

TYPICAL = {"cpu": LAPTOP, "triton": "h200_nvl8"}
"""By backend a machine whose ranks have every axis."""
RANKS = {"cpu": "CPU ranks", "triton": "GPU ranks"}


def of_backend(backend: str, problem: Problem, scheme: str) -> tuple[Axis, ...]:
    """The axes of *scheme* for *problem* on ranks of *backend*; none where they cannot hold it."""
    machine = shipped_machine(TYPICAL[backend])
    try:
        return axes(problem, scheme, machine, fabrics.parse(fabrics.usual(machine, problem.world)))
    except Refusal:
        return ()


def elsewhere(name: str, backend: str, problem: Problem, schemes: Sequence[str]) -> str | None:
    """Of an axis that no scheme has on *backend*: who has it; None where nobody does."""
    for other in TYPICAL:
        having = [scheme for scheme in schemes if name in {axis.name for axis in of_backend(other, problem, scheme)}]
        if other != backend and having:
            return (f"{name} is an axis of {', '.join(having)} on {RANKS[other]} (backend = {other}), and these are "
                    f"{RANKS[backend]}.")  # fmt: skip
    return None
