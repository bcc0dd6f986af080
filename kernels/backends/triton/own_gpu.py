"""One GPU for each process of a gang that nobody deals GPUs to: the rank's place in the list that the host shows."""

from __future__ import annotations

import os

VISIBLE = "CUDA_VISIBLE_DEVICES"


def alone(rank: int) -> dict[str, str]:
    """The variable with which a process sees, of the GPUs that this one may see, only the one of this number."""
    shown = os.environ.get(VISIBLE)
    return {VISIBLE: str(rank) if shown is None else shown.split(",")[rank].strip()}


def take(rank: int) -> None:
    """This process is *rank*, and sees its own GPU only; to be called before CUDA begins in it."""
    os.environ.update(alone(rank))
