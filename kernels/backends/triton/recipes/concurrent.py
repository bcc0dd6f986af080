"""Concurrent: the halves of sequential schedules on two streams, for several micro-batches at once."""

from __future__ import annotations

from functools import partial

from kernels.backends.triton.recipes import sequential
from kernels.backends.triton.recipes.base import Compilation, Recipe
from kernels.backends.triton.recipes.fused import OneKernel
from kernels.schemes import fused
from kernels.schemes.sequential import is_ours
from kernels.trial import Trial

TORCH_BLOCKS = 24
"""Most blocks of torch's all-reduces over symmetric memory (torch 2.11, CUDASymmetricMemoryOps.cu, max_num_blocks)."""
TORCH_CALLS = ("one_shot", "two_shot")
"""Values of `collective` that are torch's."""
TUNED = "library_tuned"
"""The value whose number of channels a sweep has chosen."""


def recipe(one: OneKernel) -> Recipe:
    """Concurrent schedules whose computation, where no library makes it, is *one* alone."""
    return Recipe(
        refusal=partial(_refusal, one),
        compilations=partial(_compilations, one),
        module="kernels.backends.triton.calls.concurrent",
    )


def _refusal(one: OneKernel, trial: Trial) -> str | None:
    return sequential.refusal(one, trial) or _of_share(trial)


def _of_share(trial: Trial) -> str | None:
    """Why the collective cannot keep to the SMs that are set aside for it, or None."""
    share, collective = trial.schedule.count("comm_sms"), str(trial.schedule["collective"])
    if collective in TORCH_CALLS and 0 < share < TORCH_BLOCKS:
        return (
            f"comm_sms = {share} does not go with collective = {collective}: torch launches up to {TORCH_BLOCKS} "
            f"blocks for it, and {TORCH_BLOCKS} > {share}. Accepted: comm_sms = 0 or at least {TORCH_BLOCKS}, or "
            "collective = library."
        )
    if collective == TUNED and share:
        return (
            f"comm_sms = {share} does not go with collective = {TUNED}, whose channels a sweep has chosen: they may be "
            f"more than {share}. Accepted: comm_sms = 0, or collective = library."
        )
    return None


def _compilations(one: OneKernel, trial: Trial) -> tuple[Compilation, ...]:
    """*one* alone, where it computes, launched with the SMs that are free; of a whole trial also its stamped form."""
    problem, schedule = trial.problem, trial.schedule
    if trial.part == "communication" or not is_ours(problem, schedule):
        return ()
    timed = one.compilations(problem, fused.alone(problem, schedule["tile"]), alone=True)
    forms = (False, True) if trial.part == "whole" else (False,)
    return tuple(Compilation(made.family, (*made.facts, "beside", form)) for made in timed for form in forms)
