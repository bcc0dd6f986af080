"""What it costs to move or to sum bytes inside a rank: copies, sums of contributions, what a library leaves packed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from workbench.simulator.price.rates import work_seconds

Floats = NDArray[np.float64]


def copy_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike) -> Floats:
    """Seconds to copy *num_bytes*: one read and one write of each."""
    return work_seconds(machine, "copy", dtype, 2 * np.asarray(num_bytes))


def sum_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike, world: int) -> Floats:
    """Seconds to sum the contributions of *world* ranks to results of *num_bytes*: as many reads, and one write."""
    return work_seconds(machine, "reduce", dtype, (world + 1) * np.asarray(num_bytes))


def unpacks(machine: Machine, problem: Problem, *, in_pieces: bool) -> bool:
    """Whether what a library delivers has to be moved once more.

    NCCL writes whole chunks of rows where they belong. Pieces of them, and pooled vectors, come by source rank.
    """
    return machine.device.kind == "cpu" or in_pieces or operator(problem.operator).work == "gather"
