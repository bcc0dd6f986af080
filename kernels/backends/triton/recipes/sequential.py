"""Sequential: the computation by cuBLAS or by our kernel alone, then a collective, or the other way round."""

from __future__ import annotations

from functools import partial

from kernels.backends.triton.recipes.base import Compilation, Recipe
from kernels.backends.triton.recipes.fused import OneKernel
from kernels.schemes import fused
from kernels.schemes.reads import KERNEL
from kernels.schemes.sequential import OURS, is_ours
from kernels.trial import Trial


def recipe(one: OneKernel) -> Recipe:
    """Sequential schedules whose computation, where no library makes it, is *one* alone."""
    return Recipe(
        refusal=partial(refusal, one),
        compilations=partial(_compilations, one),
        module="kernels.backends.triton.calls.sequential",
    )


def refusal(one: OneKernel, trial: Trial) -> str | None:
    """Why *one* cannot be the computation of *trial*, or None; a library can always be."""
    if trial.part == "communication" or not is_ours(trial.problem, trial.schedule):
        return None
    sentence = one.refusal(trial)
    chosen = trial.schedule.get(KERNEL) == OURS  # else there is no other
    return f"{KERNEL} = {OURS} cannot be: {sentence} Or {KERNEL} = library." if sentence and chosen else sentence


def _compilations(one: OneKernel, trial: Trial) -> tuple[Compilation, ...]:
    """*one* alone, where it computes."""
    problem, schedule = trial.problem, trial.schedule
    if not is_ours(problem, schedule):
        return ()
    return one.compilations(problem, fused.alone(problem, schedule["tile"]), alone=True)
