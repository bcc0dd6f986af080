"""The cells of a landscape: every combination of two axes estimated by the closed form, as rows like any others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import Any

from kernels.fabric import Fabric
from kernels.machine import Machine
from workbench.simulator import grid
from workbench.widgets.asking import Asked
from workbench.widgets.planned import columns, each

Row = Mapping[str, Any]


def cells(asked: Asked, machine: Machine, fabric: Fabric, x: str, y: str) -> list[dict[str, Any]]:
    """One row per legal combination of axes *x* and *y* over the resolved *fabric*; Refusal of too many."""
    problem = asked.problem()
    points = columns(replace(asked, swept=(x, y)), asked.scheme, machine)
    seconds = grid.times(problem, asked.scheme, points, machine, fabric)
    same = {
        "outcome": "estimate", "source": "estimated", "operator": asked.operator, "shape": dict(problem.shape),
        "dtype": problem.dtype, "world": problem.world, "scheme": asked.scheme, "backend": machine.backend,
        "machine": machine.name, "fabric": str(fabric), "part": "whole", "calibrated": machine.calibrated is not None,
    }  # fmt: skip
    return [
        {**same, "axes": axes, "time_s": float(time_s)}
        for axes, time_s in zip(each(points), seconds, strict=True)
        if isfinite(time_s)
    ]


def same_problem(asked: Asked) -> Callable[[Row], bool]:
    """Whether a row is of the problem and link that are asked for; whatever machine or protocol it is from."""
    problem, link = asked.problem(), _ratio(str(asked.link()))
    wanted = {
        "operator": problem.operator, "shape": dict(problem.shape), "dtype": problem.dtype, "world": problem.world,
    }  # fmt: skip

    def same(row: Row) -> bool:
        return all(row.get(key) == value for key, value in wanted.items()) and _ratio(str(row.get("fabric"))) == link

    return same


@lru_cache(maxsize=256)
def _ratio(fabric: str) -> tuple[str, str]:
    """The kind of link and its wire : compute; the bandwidth that follows from it is a matter of the machine."""
    kind, _, rest = fabric.partition(":")
    numbers = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    return kind, numbers.get("wire_to_compute", "")
