"""What a recipe is: how GPU ranks run one scheme over one flow, in words; what runs it is imported on use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernels.trial import Trial


class Compilation(NamedTuple):
    """One kernel that Triton compiles; equal ones are compiled once."""

    family: str
    """What takes about the same time to compile."""
    facts: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one scheme runs over one flow. Forms and shells ask it, which have neither torch nor Triton."""

    refusal: Callable[[Trial], str | None]
    """Why it cannot run a trial, or None."""
    compilations: Callable[[Trial], tuple[Compilation, ...]]
    """What tells the kernels of a trial that take long to compile from others: one for each of `kernels`, in order."""
    module: str
    """Where its `kernels`, `calls` and `watched` stand (`calls.Runner`)."""
