"""Prices for models of more ranks than a Plan can have: a machine's network, and kernels that store on peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import Fabric
from kernels.machine import NETWORK, Dimension, Machine
from kernels.operators import operator
from kernels.operators.base import Flow
from kernels.problem import Problem
from kernels.schedule import Schedule, tile
from kernels.schemes import axis_rules
from kernels.schemes.base import num_tiles
from workbench.simulator.price import gemm, tiles
from workbench.simulator.price.collectives import call_seconds
from workbench.simulator.price.messages import routes, sent_byte_seconds
from workbench.simulator.price.rates import copy_seconds, start_seconds, work_seconds

# The network between the ranks of a machine.


def levels(machine: Machine) -> tuple[Dimension, ...]:
    """The levels of *machine*'s network, the innermost first."""
    return machine.dimensions


def memory_rate(machine: Machine) -> float:
    """Bytes per second at which one rank of *machine* reads and writes its own memory."""
    return machine.device.memory_bytes_per_second


def library_seconds(machine: Machine) -> float:
    """Fixed seconds of one library collective, in addition to its messages."""
    return machine.costs.library_seconds


def put_seconds(machine: Machine) -> float:
    """Seconds from the last byte of a slice until the peer continues, without the link's latency."""
    return machine.costs.step_seconds + machine.costs.signal_seconds


def slice_seconds(machine: Machine) -> float:
    """Seconds in which a rank's own processor signals one slice to a peer, or begins one sum."""
    return machine.costs.step_seconds


def meeting_seconds(machine: Machine) -> float:
    """Seconds by which a kernel that communicates begins later than one that only computes: its ranks meet."""
    meets, alone = (start_seconds(machine, one_kernel=True, collective=None, communicates=each)
                    for each in (True, False))  # fmt: skip
    return meets - alone


def stores_over(machine: Machine, level: Dimension) -> bool:
    """Whether a rank's own processor stores over *level*: SMs inside a host, and CPU ranks everywhere; else NICs send.

    Links of a fabric file count as NICs.
    """
    return puts_anywhere(machine) or _is_own(level)


def library_levels(machine: Machine, of: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """The levels *of* as the library drives them: a share of a host's own links, and all of others."""
    share = machine.costs.library_share
    return tuple(level if not _is_own(level) else
                 replace(level, bandwidth_bytes_per_second=share * level.bandwidth_bytes_per_second)
                 for level in of)  # fmt: skip


def _is_own(level: Dimension) -> bool:
    """Whether it is a host's own link."""
    return level.link not in ("", NETWORK)


def one_host_seconds(machine: Machine, world: int, name: str, num_bytes: float) -> float:
    """One call of the library among *world* ranks of a host, in which *num_bytes* leave each: as tier B prices it."""
    return float(call_seconds(machine, routes(world, machine, inside_fabric(machine)), name, num_bytes))


def inside_fabric(machine: Machine) -> Fabric:
    """Fabric between the ranks of one host: its own links, or shared memory."""
    return Fabric(kind="nvlink" if machine.backend == "triton" else "shared_memory")


def kernel_seconds(machine: Machine, dtype: str, num_bytes: float) -> float:
    """A kernel that only moves memory: *num_bytes* read and written, and its launch."""
    return float(work_seconds(machine, "copy", dtype, num_bytes)) + machine.costs.launch_seconds


def puts_anywhere(machine: Machine) -> bool:
    """Whether ranks put into the memory of peers on other hosts by themselves: CPU ranks do, over emulated links."""
    return machine.device.kind == "cpu"


def issue_seconds(machine: Machine, num_bytes: float) -> float:
    """What a rank spends on its own processor to send *num_bytes*: CPU ranks copy them, and GPUs have others do it."""
    if not puts_anywhere(machine):
        return 0.0
    return float(copy_seconds(machine, "float32", num_bytes))


# SMs that send to peers inside a kernel that computes.

Floats = NDArray[np.float64]

SLICE = "slice_tiles"
"""The axis that says how many tiles leave together."""


@dataclass(frozen=True, slots=True)
class PushWaves:
    """Waves of a kernel some of whose SMs may push."""

    count: int
    share: float
    """Share of all tiles that a whole wave has."""
    seconds: float
    """Seconds of one wave; 0 if unknown."""
    away_s: float
    """Seconds by which all waves are longer because SMs push or store on peers."""
    interleaved: bool = False
    """Whether each wave has tiles for all peers; else own tiles are last, or first if rows are received."""


@dataclass(frozen=True, slots=True)
class PeerStores:
    """Bytes that one rank's own processor stores on the peers that share its problem."""

    peers: int
    num_bytes: float
    """Bytes that leave the rank for these peers."""
    seconds: float
    """Seconds for which they hold links of the nominal bandwidth."""


def away(machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any], compute_s: Any) -> Floats:
    """Share of *compute_s* for which the pushing SMs push; then they take tiles like all others.

    It is 1 where results leave: SMs that bring them compute nothing.
    *compute_s*: the computation if no SM pushed. Of *axes* and *sizes* the numbers may be columns.
    """
    if operator(sizes.operator).flow is not Flow.RECEIVE:
        return np.ones(1)
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes)
    if byte_seconds is None:
        byte_seconds = np.asarray(1 / machine.dimensions[0].bandwidth_bytes_per_second)
    return np.asarray(np.minimum(1.0, operator(sizes.operator).wire_bytes(sizes) * byte_seconds / compute_s))


def slower(machine: Machine, sizes: Problem, axes: Mapping[str, Any], stored: PeerStores) -> float:
    """How many times as long *stored* takes by *axes* as on links of the nominal bandwidth; 1 if unknown."""
    byte_seconds = sent_byte_seconds(sizes, machine, inside_fabric(machine), axes, stored.num_bytes)
    return 1.0 if byte_seconds is None else float(byte_seconds * machine.dimensions[0].bandwidth_bytes_per_second)


def waves(machine: Machine, sizes: Problem, schedule: Schedule, stored: PeerStores) -> list[PushWaves]:
    """Waves of our kernel in *schedule* on one rank that stores *stored*; empty if tiles are done one by one.

    One element for each number of SMs that compute, from the fewest on: SMs that have pushed may compute, but need not.
    So faster links need not slow a kernel whose first wave then waits for more rows.
    """
    if not tiles.in_waves(machine):
        return []
    one, axes, most = replace(sizes, world=1), dict(schedule.axes), int(tiles.slots(machine))
    fabric = inside_fabric(machine)
    number = num_tiles(one, schedule["tile"])
    if operator(sizes.operator).work != "gemm":
        return [PushWaves(-(-number // most), min(1.0, most / number), 0.0, 0.0)]
    size, k = tile(schedule["tile"]), operator(sizes.operator).extent(sizes).contraction
    comm_sms = int(schedule.get("comm_sms", 0) or 0)
    of = gemm.of_schedule(machine, one, schedule, pushes=operator(sizes.operator).flow is Flow.RECEIVE)
    at_once = np.arange(int(tiles.slots(machine, comm_sms=comm_sms)), most + 1)
    whole = gemm.kernel_seconds(machine, one, of, (size.m, size.n, k), number, at_once) * np.ones(len(at_once))
    if comm_sms:
        away = comm_sms * min(1.0, stored.seconds * slower(machine, sizes, axes, stored) / float(whole[-1]))
        at_once = at_once[at_once <= tiles.slots(machine, comm_sms=away)]
    interleaved = axis_rules.alternates(schedule.get("tile_order"))
    push_waves = []
    for slots, seconds in zip(at_once.tolist(), whole.tolist(), strict=False):
        one_wave, count = min(slots, number), -(-number // slots)
        held_s = share = 0.0
        if not comm_sms:
            together = schedule.count(SLICE) if interleaved else number / sizes.world
            share = max(stored.peers / sizes.world, min(1.0, together / one_wave))
            num_bytes = share * one_wave * size.m * size.n * sizes.itemsize
            stored_s = num_bytes * store_byte_seconds(machine, sizes, fabric, axes, stored.num_bytes).max()
            held_s = max(0.0, float(stored_s) - seconds / count)
            share = stored.peers / sizes.world / share
        away_s = seconds - whole[-1] + count * share * held_s
        push_waves.append(PushWaves(count, one_wave / number, seconds / count + held_s, float(away_s), interleaved))
    return push_waves


def store_byte_seconds(
    machine: Machine, sizes: Problem, fabric: Fabric, axes: Mapping[str, Any], num_bytes: float | None = None
) -> Floats:
    """Seconds per byte of tiles that all SMs store on peers in a kernel that computes; 0 if puts were not measured.

    *num_bytes* as in `put_byte_seconds`. Stores are slower than puts alone by the measured slowdown of collectives
    during a computation.
    """
    is_gemm = operator(sizes.operator).work == "gemm"
    byte_seconds = sent_byte_seconds(sizes, machine, fabric, axes, num_bytes) if is_gemm else None
    return np.zeros(1) if byte_seconds is None else np.asarray(byte_seconds * machine.costs.sending_beside)
