"""SMs that send to peers inside a kernel that computes: how fast, and for how long they are away from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from workbench.simulator.price.messages import sent_byte_seconds

Floats = NDArray[np.float64]


def away(machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any], compute_s: Any) -> Floats:
    """The share of *compute_s* for which they push; then they take tiles like all others.

    *compute_s*: the computation if nobody were away. Of *axes* and *sizes* the numbers may be columns.
    """
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes)
    if byte_seconds is None:
        byte_seconds = np.asarray(1 / machine.dimensions[0].bandwidth_bytes_per_second)
    return np.asarray(np.minimum(1.0, operator(sizes.operator).wire_bytes(sizes) * byte_seconds / compute_s))


def store_byte_seconds(machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any]) -> Floats:
    """Per byte of tiles that all SMs store on peers in a kernel that computes; 0 where nobody measured puts.

    They are as much slower than puts alone as collectives beside a computation were measured to be.
    """
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes) if operator(sizes.operator).work == "gemm" else None
    return np.zeros(1) if byte_seconds is None else np.asarray(byte_seconds * machine.costs.sending_beside)
