"""Sequential, collective = overlapped: torch's own operators, which compute and communicate at once."""

from __future__ import annotations

from kernels.backends.triton.recipes.base import Recipe
from kernels.schemes.library import OVERLAPPED
from kernels.trial import Trial


def _refusal(trial: Trial) -> str | None:
    """Why torch has no such part, or None."""
    if trial.part == "whole":
        return None
    return (
        f"part = {trial.part} does not exist for collective = {OVERLAPPED}: 1 operator of torch computes and "
        "communicates. Accepted: whole; or another collective."
    )


RECIPE = Recipe(refusal=_refusal, compilations=lambda trial: (), module="kernels.backends.triton.calls.overlapped")
"""It compiles nothing: torch did."""
