"""The slices in which a kernel's results leave it: how many each chunk has, and what one costs."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.simulator.messages import PutCosts
from workbench.simulator.points import Column, Floats
from workbench.simulator.waves import Kernel


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Of one chunk."""

    kernel: Kernel
    count: Column
    tiles: Column
    """Of each but the last."""
    num_bytes: Floats
    last_bytes: Floats
    puts: PutCosts
    marked: Floats
    """Bookkeeping of all of them."""
    stored: Floats | float
    """By how much the whole kernel is longer since it stores on peers."""
