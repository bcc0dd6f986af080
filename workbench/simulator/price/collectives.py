"""What a call of the library (NCCL, gloo) costs: as it was measured, or a fixed cost and a share of the link."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.machine import TUNED, Machine
from workbench.simulator.price.routes import Routes

Floats = NDArray[np.float64]


def call_seconds(machine: Machine, ways: Routes, name: str, num_bytes: ArrayLike, by: object = None) -> Floats:
    """Seconds of collective *name* in which *num_bytes* leave each rank; *by*: the schedule's `collective`."""
    measured = measured_seconds(machine, name, ways.world, num_bytes, by)
    if measured is not None:
        return measured
    moved = np.asarray(num_bytes) * ways.collective_byte_seconds / machine.costs.library_share
    return np.asarray(machine.costs.library_seconds + moved)


def measured_seconds(machine: Machine, name: str, world: int, num_bytes: ArrayLike, by: object = None) -> Floats | None:
    """Seconds of one call of the library in which *num_bytes* leave each rank, as measured; None where it was not.

    Straight lines in log size and log time; below the smallest as long as that, above the largest as fast. *by*: the
    schedule's `collective`; `library_tuned` has a curve of its own where its settings were compared.
    """
    if by == "library_tuned":
        tuned = measured_seconds(machine, f"{TUNED}{name}", world, num_bytes)
        return measured_seconds(machine, name, world, num_bytes) if tuned is None else tuned
    known = sorted((c.num_bytes, c.seconds) for c in machine.collectives if (c.name, c.world) == (name, world))
    if not known:
        return None
    sizes, times = np.array(known).T
    leaving = np.maximum(np.asarray(num_bytes, dtype=np.float64), 1.0)
    inside = np.exp(np.interp(np.log(leaving), np.log(sizes), np.log(times)))
    return np.asarray(inside * np.maximum(1.0, leaving / sizes[-1]))
