"""Fused: one kernel computes and communicates. What differs from flow to flow is a value, `OneKernel`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernels.axes import tile
from kernels.backends.triton.recipes.base import Compilation, Recipe
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.trial import Trial

DIVISOR = 16
"""Triton asks of numbers and addresses whether they are multiples of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneKernel:
    """The kernel of one computation and flow: fused with its puts, or alone as the computation of another scheme."""

    refusal: Callable[[Trial], str | None]
    """Why it cannot compute a trial, alone or not; or None."""
    ranks_most: int | None = None
    """Ranks that it can reach; None: any number."""
    facts: Callable[[Problem, Schedule, bool], tuple[str, tuple[Any, ...]]]
    """Its family (`Compilation`), and what tells it from others of one dtype and tile; the last argument: alone."""
    module: str
    """Where it stands, with `kernel`, which says what it is launched with (`calls.fused.Launch`)."""

    def compilations(self, problem: Problem, schedule: Schedule, *, alone: bool) -> tuple[Compilation, ...]:
        """What Triton compiles of it for the fused *schedule*: where it is not alone also the form that is watched."""
        family, facts = self.facts(problem, schedule, alone)
        of_all = (problem.dtype, alone, str(tile(schedule["tile"])), *facts)
        return tuple(Compilation(family, (*of_all, watched)) for watched in ((False,) if alone else (False, True)))


def kinds(*numbers: int) -> tuple[int, ...]:
    """Of each number what Triton tells apart."""
    return tuple(1 if number == 1 else DIVISOR if number % DIVISOR == 0 else 0 for number in numbers)


def recipe(one: OneKernel) -> Recipe:
    """Fused schedules whose kernel is *one*."""
    return Recipe(
        refusal=partial(_refusal, one),
        compilations=lambda trial: one.compilations(trial.problem, trial.schedule, alone=trial.part == "compute"),
        module="kernels.backends.triton.calls.fused",
    )


def _refusal(one: OneKernel, trial: Trial) -> str | None:
    if trial.part == "communication":
        return (
            "part = communication does not exist for scheme = fused on backend = triton: its 1 kernel computes and "
            "sends. Accepted: whole, compute; or scheme = sequential."
        )
    if one.ranks_most is not None and trial.world > one.ranks_most:
        return (
            f"world = {trial.world} is too large for {trial.problem.operator} on backend = triton. Its kernel "
            f"takes one descriptor per rank: {trial.world} > {one.ranks_most}. Accepted: world 1..{one.ranks_most}."
        )
    return one.refusal(trial)
