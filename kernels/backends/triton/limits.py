"""What our kernels cannot take, in words alone: the sentences that several of them share."""

from __future__ import annotations

from kernels.axes import tile
from kernels.backends.triton.tiles import check
from kernels.schedule import Refusal
from kernels.trial import Trial

RANKS_MOST = 8
"""Descriptors are arguments of a GEMM's kernel, one per rank."""
BULK_BYTES = 16
"""What rows that the bulk copy engine moves must be multiples of."""


def of_tile(trial: Trial) -> str | None:
    """Why no kernel of ours walks the tiles of *trial*, or None."""
    try:
        check(trial.problem, tile(trial.schedule["tile"]))
    except Refusal as refusal:
        return str(refusal)
    return None


def of_gemm(trial: Trial) -> str | None:
    """Why no GEMM kernel computes *trial*, or None: all of them load operands by the bulk copy engine."""
    problem = trial.problem
    for key in ("k", "n"):
        if problem[key] * problem.itemsize % BULK_BYTES:
            step = BULK_BYTES // problem.itemsize
            low = problem[key] // step * step
            near = " or ".join(str(size) for size in (low, low + step) if size)
            return (
                f"{key} = {problem[key]} does not run {problem.operator} on backend = triton. Bulk copies move "
                f"multiples of {BULK_BYTES} bytes, and a row has {problem[key] * problem.itemsize}. Accepted: "
                f"multiples of {step}, such as {near}."
            )
    return of_tile(trial)
