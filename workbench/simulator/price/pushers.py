"""SMs that send to peers inside a kernel that computes: how fast, and for how long they are away from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.axes import tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes.base import num_tiles
from workbench.simulator.price import gemm, tiles
from workbench.simulator.price.messages import sent_byte_seconds

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Waves:
    """In what waves a kernel computes, some of whose SMs may push."""

    count: int
    share: float
    """Of all tiles, those of a whole wave."""
    seconds: float
    """Of one; 0 where nobody says."""
    away_s: float
    """By how much all of them are longer than if nobody pushed."""


def away(machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any], compute_s: Any) -> Floats:
    """The share of *compute_s* for which they push; then they take tiles like all others.

    *compute_s*: the computation if nobody were away. Of *axes* and *sizes* the numbers may be columns.
    """
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes)
    if byte_seconds is None:
        byte_seconds = np.asarray(1 / machine.dimensions[0].bandwidth_bytes_per_second)
    return np.asarray(np.minimum(1.0, operator(sizes.operator).wire_bytes(sizes) * byte_seconds / compute_s))


def waves(machine: Machine, sizes: Problem, schedule: Schedule, push_s: float) -> list[Waves]:
    """Our kernel in *schedule* while its SMs that send push for *push_s* seconds; none where tiles are done one by one.

    One for each number of SMs that compute, from the fewest on: those that have pushed are free to compute, and none
    has to. So links that are faster need not slow a kernel whose first wave then waits for more rows. *sizes*: of one
    rank.
    """
    if not tiles.in_waves(machine):
        return []
    number, most = num_tiles(sizes, schedule["tile"]), int(tiles.slots(machine))
    if operator(sizes.operator).work != "gemm":
        return [Waves(-(-number // most), min(1.0, most / number), 0.0, 0.0)]
    size, k = tile(schedule["tile"]), operator(sizes.operator).extent(sizes).contraction
    of, comm_sms = gemm.of_schedule(machine, sizes, schedule), int(schedule.get("comm_sms", 0) or 0)
    at_once = np.arange(int(tiles.slots(machine, comm_sms=comm_sms)), most + 1)
    whole = gemm.kernel_seconds(machine, sizes, of, (size.m, size.n, k), number, at_once) * np.ones(len(at_once))
    if comm_sms:
        away = comm_sms * min(1.0, push_s / float(whole[-1]))
        at_once = at_once[at_once <= tiles.slots(machine, comm_sms=away)]
    counts = -(-number // at_once)
    return [Waves(int(count), min(1.0, int(slots) / number), float(each / count), float(each - whole[-1]))
            for count, slots, each in zip(counts, at_once, whole, strict=False)]  # fmt: skip


def store_byte_seconds(machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any]) -> Floats:
    """Per byte of tiles that all SMs store on peers in a kernel that computes; 0 where nobody measured puts.

    They are as much slower than puts alone as collectives beside a computation were measured to be.
    """
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes) if operator(sizes.operator).work == "gemm" else None
    return np.zeros(1) if byte_seconds is None else np.asarray(byte_seconds * machine.costs.sending_beside)
