"""Which egress link a transfer between two ranks takes, and what a byte and a message cost on it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import Fabric
from kernels.machine import NETWORK, Dimension, Machine

Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """[source, destination] tables of one world."""

    number: NDArray[np.int64]
    """Which of the source's egress links is used; those with the same number queue behind each other."""
    byte_seconds: Table
    message_seconds: Table
    latency_seconds: Table
    collective_byte_seconds: float
    """Per byte leaving a rank, when all ranks send to all in equal shares and every link is used at its best."""


@dataclass(frozen=True, slots=True)
class _Route:
    number: int
    """Link within its dimension."""
    num_links: int
    """Among how many links the dimension's bandwidth is divided."""
    hops: int


def links(world: int, machine: Machine, fabric: Fabric) -> Links:
    """The links of *world* ranks: the emulated one, none in shared memory, else the machine's dimensions."""
    if fabric.emulated:
        return _uniform(world, 1.0 / _bandwidth(fabric), fabric.message_seconds, fabric.latency_seconds)
    real = _real(world, machine)
    if fabric.kind == "shared_memory":
        nothing = _uniform(world, 0.0, 0.0, 0.0)
        return Links(nothing.number, nothing.byte_seconds, nothing.message_seconds, nothing.latency_seconds,
                     real.collective_byte_seconds)  # fmt: skip
    return real


def are_measured(world: int, machine: Machine, fabric: Fabric) -> bool:
    """Whether what the links between *world* ranks cost was measured; an emulated link costs what it is stated to."""
    if world == 1 or fabric.emulated:
        return True
    if fabric.kind == NETWORK and all(dimension.link != NETWORK for dimension in machine.dimensions):
        return False
    reached = 1
    for level, dimension in enumerate(machine.dimensions):
        key = f"dimension.{level}.bandwidth_bytes_per_second"
        if reached < world and not machine.provenance_of(key).startswith("calibrated"):
            return False
        reached *= dimension.count
    return True


def _bandwidth(fabric: Fabric) -> float:
    assert fabric.bandwidth_bytes_per_second is not None, f"{fabric} must be resolved before it is simulated"
    return fabric.bandwidth_bytes_per_second


def _uniform(world: int, byte_seconds: float, message_seconds: float, latency_seconds: float) -> Links:
    def full(value: float) -> Table:
        return np.full((world, world), value)

    return Links(np.zeros((world, world), dtype=np.int64), full(byte_seconds), full(message_seconds),
                 full(latency_seconds), byte_seconds)  # fmt: skip


def _real(world: int, machine: Machine) -> Links:
    """Neighbours differ in the first dimension only; whoever is further away is reached over the slower one."""
    number = np.zeros((world, world), dtype=np.int64)
    tables = np.zeros((3, world, world))
    spent = np.zeros(len(machine.dimensions))
    for source in range(world):
        for peer in range(world):
            if source == peer:
                continue
            level, mine, its = _meeting(source, peer, machine.dimensions)
            dimension = machine.dimensions[level]
            route = _route(dimension, mine, its)
            number[source, peer] = level * machine.max_world + route.number
            byte = route.hops * route.num_links / dimension.bandwidth_bytes_per_second
            tables[:, source, peer] = byte, dimension.message_seconds, dimension.latency_seconds
            if source == 0:
                spent[level] += byte / route.num_links / (world - 1)
    return Links(number, tables[0], tables[1], tables[2], float(spent.max(initial=0.0)))


def _meeting(source: int, peer: int, dimensions: tuple[Dimension, ...]) -> tuple[int, int, int]:
    """The last dimension in which two ranks differ, and where both stand in it."""
    found = (0, 0, 0)
    for level, dimension in enumerate(dimensions):
        mine, its = source % dimension.count, peer % dimension.count
        if mine != its:
            found = (level, mine, its)
        source, peer = source // dimension.count, peer // dimension.count
    return found


def _route(dimension: Dimension, mine: int, its: int) -> _Route:
    """A ring is a torus of one row. What others forward through our links costs as much as what they forward for us."""
    if dimension.topology == "switch":
        return _Route(0, 1, 1)
    if dimension.topology == "fully_connected":
        return _Route(its, dimension.count - 1, 1)
    rows = 1 if dimension.topology == "ring" else next(
        r for r in range(isqrt(dimension.count), 0, -1) if dimension.count % r == 0)  # fmt: skip
    lengths = (dimension.count // rows, rows)
    places = ((mine % lengths[0], its % lengths[0]), (mine // lengths[0], its // lengths[0]))
    num_links = sum(min(2, length - 1) for length in lengths)
    number, hops = None, 0
    for axis, ((here, there), length) in enumerate(zip(places, lengths, strict=True)):
        ahead = (there - here) % length
        hops += min(ahead, length - ahead)
        if number is None and ahead:
            number = 2 * axis + (length > 2 and ahead > length // 2)
    return _Route(number or 0, num_links, hops)
