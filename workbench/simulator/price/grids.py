"""Where kernels of several streams share the SMs of a GPU: how many blocks each has, and how long one of them lasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Grids:
    """Columns by step. A persistent kernel has fewer blocks than tiles; else each block has one tile."""

    blocks: Ints
    """0: the step is no grid, and takes its share at once."""
    tiles: Ints
    """Of all blocks together: each has as many as the others, or the first ones have one more."""
    resident: Ints
    """Blocks that hold one unit of the pool together."""
    tile_seconds: Floats
