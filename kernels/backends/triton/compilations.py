"""Which kernels a trial compiles on GPU ranks, told without torch or Triton: those that two trials share, only once.

Triton compiles a kernel for each combination of constants and options, and of every number whether it is 1, a multiple
of 16, or neither. tests/kernels/triton/test_compilations.py compares this with what Triton itself tells apart.
"""

from __future__ import annotations

from kernels.backends.triton import recipes
from kernels.backends.triton.recipes import Compilation
from kernels.trial import Trial

__all__ = ["AXES", "Compilation", "compilations"]

AXES = ("tile", "store", "num_warps", "num_stages", "slice_tiles", "comm_sms", "shots", "load_hint",
        "store_hint")  # fmt: skip
"""Axes that kernels may be compiled differently for; the others are numbers that a kernel reads."""


def compilations(trial: Trial) -> tuple[Compilation, ...]:
    """The kernels of *trial* that take long: of a whole one also the form that is watched. None for CPU ranks."""
    recipe = recipes.of(trial.problem, trial.schedule)
    if trial.backend != "triton" or trial.part == "communication" or recipe is None:
        return ()
    return recipe.compilations(trial)
