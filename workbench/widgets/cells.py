"""The cells of a landscape: every combination of two axes estimated by the closed form, as rows like any others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.protocol import is_one_call
from kernels.schemes import problems
from workbench.forecast import COUNTED_MOST
from workbench.one_problem import link_of, question_of
from workbench.simulator import grid
from workbench.simulator.price.routes import are_measured
from workbench.simulator.price.shared import shares_are_measured
from workbench.space import columns, combinations, values
from workbench.widgets.asking import Asked

Row = Mapping[str, Any]


def cells(asked: Asked, machine: Machine, fabric: Fabric, x: str, y: str) -> list[dict[str, Any]]:
    """One row per legal combination of axes *x* and *y* over the resolved *fabric*; Refusal of too many."""
    problem = asked.problem()
    choice = replace(asked, swept=(x, y)).choice(asked.scheme, machine)
    points = columns(values(choice, problem, machine, asked.link(), COUNTED_MOST))
    seconds = grid.times(problem, asked.scheme, points, machine, fabric)
    same = {
        "outcome": "estimate", "source": "estimated", "operator": asked.operator, "shape": dict(problem.shape),
        "dtype": problem.dtype, "world": problem.world, "scheme": asked.scheme, "backend": machine.backend,
        "machine": machine.name, "fabric": str(fabric), "part": "whole",
        "calibrated": machine.calibrated is not None and are_measured(problem.world, machine, fabric)
        and shares_are_measured(problems(asked.schedule(machine)), machine),
    }  # fmt: skip
    return [
        {**same, "axes": axes, "time_s": float(time_s)}
        for axes, time_s in zip(combinations(points), seconds, strict=True)
        if isfinite(time_s)
    ]


def same_problem(asked: Asked) -> Callable[[Row], bool]:
    """Whether a row is of the problem and link that are asked for, on whatever machine; one call per graph or many."""
    problem, link = asked.problem(), link_of(str(asked.link()))
    question = question_of(problem.to_json())

    def same(row: Row) -> bool:
        backend = row.get("backend")
        alike = is_one_call(row.get("protocol"), backend) == is_one_call(asked.protocol, backend)
        is_estimate = row.get("source") == "estimated"
        return (is_estimate or alike) and question_of(row) == question and link_of(row.get("fabric") or "") == link

    return same
