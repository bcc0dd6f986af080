"""What playing a Plan needs to know of its steps: seconds, pools, and of kernels that share SMs their blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Grids:
    """Columns by step. A persistent kernel has fewer blocks than tiles; else each block has one tile."""

    blocks: Ints
    """0: the step is no grid, and takes its share at once."""
    tiles: Ints
    """Of all blocks together: each has as many as the others, or the first ones have one more."""
    resident: Ints
    """Blocks that hold one unit of the pool together, where there are so many of them."""
    tile_seconds: Floats
    """Of a block that shares its unit with as many as can be resident."""
    alone_seconds: Floats
    """The same of a block that has a unit to itself."""
    is_pooled: Bools
    """Each block takes the next tile of all when it is done with one. Pooled grids have a unit for each block."""
    shared_seconds: Floats
    """All tiles of a pooled grid together are never faster, by however many blocks: memory, or a link."""
    room: Ints
    """Units that must be free for the first of its blocks to begin."""
    packs: Bools
    """As many of its blocks as can be resident share a unit if it begins beside a step of the other kind."""
    computes: Bools
    """All steps of a rank are of two kinds: they compute, or they move bytes or work on what has come."""
    beside: Floats
    """A tile takes so many times as long while a step of the other kind is under way."""
    gap_seconds: float = 0.0
    """From the end of a launch until the one behind it on its stream is ready."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepCosts:
    """By step. A step holds its share for `issue`, then its egress link for `transit`; others see it `delay` later.

    The last `ahead` of what it holds its share for lies on the link already, where the link is free.
    """

    pool: Ints
    """Of its rank; a CPU rank has one thread, so that it issues its puts on COMPUTE."""
    share: Ints
    """Units of that pool, or EVERYTHING."""
    capacity: Ints
    """Units by rank and pool."""
    issue: Floats
    link: Ints
    """Number of the egress link; -1 for steps that send nothing."""
    level: Ints
    """0 for links to neighbours, more for links to who is further away: of the first dimension or a later one."""
    transit: Floats
    ahead: Floats
    delay: Floats
    start_seconds: float
    """Before the first step of every rank."""
    grids: Grids | None = None
    """Steps whose blocks take units one by one: their `issue` is what passes before the first of them begin."""
