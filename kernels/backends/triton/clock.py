"""The GPU's clock (globaltimer), measured before it is trusted: no moment is known better than its tick."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from kernels.backends.triton.kernels.clock import steps
from kernels.units import seconds_text

READS = 50_000
"""About a millisecond: many ticks, also of a clock that ticks once a microsecond."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What one GPU's clock was found to be."""

    tick_s: float
    """The smallest difference of two moments that are not the same."""
    read_s: float
    """What reading it takes."""

    def __str__(self) -> str:
        return f"ticks every {seconds_text(self.tick_s)}, read in {seconds_text(self.read_s)}"


@cache
def measured(device: torch.device) -> Clock:
    """Of *device*, once for each process."""
    found = torch.zeros(2, dtype=torch.int64, device=device)
    steps[(1,)](found, READS, num_warps=1)
    smallest, whole = found.tolist()
    return Clock(smallest / 1e9, whole / 1e9 / READS)
