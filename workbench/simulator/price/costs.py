"""Costs of a Plan's steps: seconds and pools, and the blocks of kernels that share SMs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Grids:
    """Grids of thread blocks, as columns by step. A persistent kernel has fewer blocks than tiles, others one each."""

    blocks: Ints
    """Number of blocks; 0: the step is no grid, and takes its share at once."""
    tiles: Ints
    """Tiles of all blocks together: each has as many as the others, or the first ones have one more."""
    resident: Ints
    """Most blocks that share one unit of the pool."""
    tile_seconds: Floats
    """Seconds per tile of a block that shares its unit with as many as can be resident."""
    alone_seconds: Floats
    """Seconds per tile of a block that has a unit to itself."""
    is_pooled: Bools
    """Whether each block takes the next tile of all when it is done with one; it has a unit of its own."""
    shared_seconds: Floats
    """Least seconds for all tiles of a pooled grid, by however many blocks: the limit of memory, or of a link."""
    room: Ints
    """Units that must be free before the first of its blocks begins."""
    packs: Bools
    """Whether as many of its blocks as can be resident share a unit if a step of the other kind runs when it begins."""
    computes: Bools
    """Which of a rank's two kinds the step is: True if it computes, False if it moves or processes bytes."""
    slowdown: Floats
    """How many times as long a tile takes while a step of the other kind is under way."""
    gap_seconds: float = 0.0
    """Seconds from the end of a launch until the next one on its stream is ready."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepCosts:
    """Costs by step. A step holds its share for `issue`, then its link for `transit`; others see it `delay` later.

    During the last `overlap` of `issue`, its bytes are on the link already if the link is free.
    """

    pool: Ints
    """Pool of the step's rank that it runs on; a CPU rank has one thread, so it issues its puts on COMPUTE."""
    share: Ints
    """Units of that pool that the step holds, or EVERYTHING."""
    capacity: Ints
    """Units by rank and pool."""
    issue: Floats
    link: Ints
    """Number of the egress link; -1 for steps that send nothing."""
    level: Ints
    """Dimension of the egress link: 0 for links to neighbours, more for links to ranks further away."""
    transit: Floats
    overlap: Floats
    delay: Floats
    start_seconds: float
    """Seconds before the first step of every rank."""
    grids: Grids | None = None
    """Steps whose blocks take units one by one; their `issue` is then the time before the first blocks begin."""
