"""SMs that send to peers inside a kernel that computes: how fast, and for how long they are away from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.axes import tile
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import reads
from kernels.schemes.base import num_tiles
from workbench.simulator.price import gemm, networks, tiles
from workbench.simulator.price.messages import sent_byte_seconds

Floats = NDArray[np.float64]

SLICE = "slice_tiles"
"""The axis that says how many tiles leave together."""


@dataclass(frozen=True, slots=True)
class Waves:
    """In what waves a kernel computes, some of whose SMs may push."""

    count: int
    share: float
    """Of all tiles, those of a whole wave."""
    seconds: float
    """Of one; 0 where nobody says."""
    away_s: float
    """By how much all of them are longer than if nobody pushed, or stored on peers."""
    in_turns: bool = False
    """Whether each has some for all peers; else one's own part is the last, or of rows that come the first."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What one rank's own processor stores on peers, of those that share a problem."""

    peers: int
    num_bytes: float
    """That leave it for them."""
    seconds: float
    """For how long they are on links that are as fast as they are stated."""


def away(machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any], compute_s: Any) -> Floats:
    """The share of *compute_s* for which they push; then they take tiles like all others.

    *compute_s*: the computation if nobody were away. Of *axes* and *sizes* the numbers may be columns.
    """
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes)
    if byte_seconds is None:
        byte_seconds = np.asarray(1 / machine.dimensions[0].bandwidth_bytes_per_second)
    return np.asarray(np.minimum(1.0, operator(sizes.operator).wire_bytes(sizes) * byte_seconds / compute_s))


def slower(machine: Machine, sizes: Problem, axes: Mapping[str, Any], stored: Stored) -> float:
    """How many times as long as on its links as they are stated what is *stored* takes by *axes*; 1 if nobody knows."""
    byte_seconds = sent_byte_seconds(sizes, machine, networks.inside_fabric(machine), axes, stored.num_bytes)
    return 1.0 if byte_seconds is None else float(byte_seconds * machine.dimensions[0].bandwidth_bytes_per_second)


def waves(machine: Machine, sizes: Problem, schedule: Schedule, stored: Stored) -> list[Waves]:
    """Our kernel in *schedule* on one rank of *sizes* with what is *stored*; none where tiles are done one by one.

    One for each number of SMs that compute, from the fewest on: those that have pushed are free to compute, and none
    has to. So links that are faster need not slow a kernel whose first wave then waits for more rows.
    """
    if not tiles.in_waves(machine):
        return []
    one, axes, most = replace(sizes, world=1), dict(schedule.axes), int(tiles.slots(machine))
    fabric = networks.inside_fabric(machine)
    number = num_tiles(one, schedule["tile"])
    if operator(sizes.operator).work != "gemm":
        return [Waves(-(-number // most), min(1.0, most / number), 0.0, 0.0)]
    size, k = tile(schedule["tile"]), operator(sizes.operator).extent(sizes).contraction
    of, comm_sms = gemm.of_schedule(machine, one, schedule), int(schedule.get("comm_sms", 0) or 0)
    at_once = np.arange(int(tiles.slots(machine, comm_sms=comm_sms)), most + 1)
    whole = gemm.kernel_seconds(machine, one, of, (size.m, size.n, k), number, at_once) * np.ones(len(at_once))
    if comm_sms:
        away = comm_sms * min(1.0, stored.seconds * slower(machine, sizes, axes, stored) / float(whole[-1]))
        at_once = at_once[at_once <= tiles.slots(machine, comm_sms=away)]
    in_turns = schedule.get("tile_order") == reads.IN_TURNS
    made = []
    for slots, seconds in zip(at_once.tolist(), whole.tolist(), strict=False):
        one_wave, count = min(slots, number), -(-number // slots)
        held_s = share = 0.0
        if not comm_sms:
            together = schedule.count(SLICE) if in_turns else number / sizes.world
            share = max(stored.peers / sizes.world, min(1.0, together / one_wave))
            num_bytes = share * one_wave * size.m * size.n * sizes.itemsize
            stored_s = num_bytes * store_byte_seconds(machine, sizes, fabric, axes, stored.num_bytes).max()
            held_s = max(0.0, float(stored_s) - seconds / count)
            share = stored.peers / sizes.world / share
        away_s = seconds - whole[-1] + count * share * held_s
        made.append(Waves(count, one_wave / number, seconds / count + held_s, float(away_s), in_turns))
    return made


def store_byte_seconds(
    machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any], num_bytes: float | None = None
) -> Floats:
    """Per byte of tiles that all SMs store on peers in a kernel that computes; 0 where nobody measured puts.

    *num_bytes* as of `put_byte_seconds`. They are as much slower than puts alone as collectives beside a computation
    were measured to be.
    """
    is_gemm = operator(sizes.operator).work == "gemm"
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes, num_bytes) if is_gemm else None
    return np.zeros(1) if byte_seconds is None else np.asarray(byte_seconds * machine.costs.sending_beside)
