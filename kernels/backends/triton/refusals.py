"""Why the triton backend cannot run a trial. Forms and command lines ask here, without torch or Triton."""

from __future__ import annotations

from kernels.backends.triton import recipes
from kernels.operators import OPERATORS
from kernels.trial import Trial

LINK = "nvlink"
DTYPES = {
    "gemm": ("bfloat16", "float16"),
    "gemv": ("bfloat16", "float16"),
    "gather": ("float32", "bfloat16", "float16"),
}


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why GPU ranks cannot run *trial*, or None."""
    accepted = DTYPES[OPERATORS[trial.problem.operator].work]
    if trial.problem.dtype not in accepted:
        return (
            f"dtype = {trial.problem.dtype} does not run {trial.problem.operator} on backend = triton. Its kernels "
            f"know {len(accepted)} dtypes. Accepted: {', '.join(accepted)}."
        )
    if trial.fabric.kind != LINK:
        return (
            f"fabric = {trial.fabric.kind} cannot be measured on backend = triton. GPUs store over the 1 link that "
            f"they have; any other is simulated only. Accepted: {LINK}."
        )
    recipe = recipes.of(trial.problem, trial.schedule)
    if recipe is None:
        schemes = recipes.schemes(trial.problem)
        return (
            f"scheme = {trial.schedule.scheme} does not run on backend = triton, which has kernels for "
            f"{len(schemes)} schemes. Accepted: {', '.join(schemes)}."
        )
    if not shares_heap and trial.world > 1:
        return (
            f"{trial.schedule.scheme} does not run on GPUs of several hosts, which share 0 bytes of memory. "
            "Accepted: a world that fits one host."
        )
    return recipe.refusal(trial)
