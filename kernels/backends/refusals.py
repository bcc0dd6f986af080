"""What a backend cannot run, asked where no rank is, and without torch."""

from __future__ import annotations

from kernels.backends.cpu import refusals as cpu_refusals
from kernels.backends.triton import refusals as triton_refusals
from kernels.operators import OPERATORS
from kernels.schemes import reads
from kernels.trial import Trial

_REFUSES = {"cpu": cpu_refusals.refusal, "triton": triton_refusals.refusal}


def refusal(trial: Trial, shares_heap: bool) -> str | None:
    """Why the trial's backend cannot run it, or None.

    A sentence that begins with an axis is about that axis alone, whatever the others are, or about a scheme that has
    one schedule only: another value of the axis is what would be accepted.
    """
    unread = reads.refusal(trial.problem, trial.schedule, trial.backend)
    return _REFUSES[trial.backend](trial, shares_heap) or unread


def dtypes(backend: str, operator: str) -> tuple[str, ...]:
    """The dtypes that the kernels of *backend* know for *operator*, the usual one first."""
    work = OPERATORS[operator].work
    return cpu_refusals.DTYPES if backend == "cpu" else triton_refusals.DTYPES[work]
