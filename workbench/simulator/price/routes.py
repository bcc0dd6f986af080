"""Which egress link leads from rank to rank, and what a byte and a message cost there: by a fabric's dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.fabric import Fabric
from kernels.machine import NETWORK, Dimension, Machine

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """The way of a message, or of columns of them."""

    number: Ints
    """Which of the source's egress links is used; messages with the same number queue behind each other."""
    byte_seconds: Floats
    message_seconds: Floats
    """Gap that each message adds on the link."""
    latency_seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The ways between *world* ranks."""

    world: int
    dimensions: tuple[Dimension, ...]
    everywhere: Route | None = None
    """The way between any two ranks, where it is no link of the machine."""
    exchange_byte_seconds: float | None = None
    """Per byte of a collective, where its link is no link of the machine."""

    def between(self, source: ArrayLike, peer: ArrayLike) -> Route:
        """The ways from *source* to *peer*: numbers, or columns that broadcast.

        Neighbours differ in the first dimension only; whoever is further away is reached over the slower one. A rank
        reaches itself at no cost.
        """
        here, there = np.broadcast_arrays(np.asarray(source, np.int64), np.asarray(peer, np.int64))
        if (one := self.everywhere) is not None:
            spread = (np.broadcast_to(cost, here.shape) for cost in
                      (one.byte_seconds, one.message_seconds, one.latency_seconds))  # fmt: skip
            return Route(np.broadcast_to(one.number, here.shape), *spread)
        shape, here, there = here.shape, here.ravel(), there.ravel()
        number, costs = np.zeros(len(here), np.int64), np.zeros((3, len(here)))
        left, reach = np.flatnonzero(here != there), prod(dimension.count for dimension in self.dimensions)
        here, there = here[left], there[left]
        for level, dimension in enumerate(self.dimensions):
            above, its_above = here // dimension.count, there // dimension.count
            meet = above == its_above  # this dimension is the last in which they differ
            at, base = left[meet], above[meet] * dimension.count
            link, hops = _hops(dimension, here[meet] - base, there[meet] - base)
            number[at] = level * reach + link
            costs[0][at] = hops * num_links(dimension) / dimension.bandwidth_bytes_per_second
            costs[1][at], costs[2][at] = dimension.message_seconds, dimension.latency_seconds
            apart = ~meet
            left, here, there = left[apart], above[apart], its_above[apart]
        byte_seconds, message_seconds, latency_seconds = costs.reshape(3, *shape)
        return Route(number.reshape(shape), byte_seconds, message_seconds, latency_seconds)

    def levels(self, number: Ints) -> Ints:
        """The dimension of links with these *numbers*, as `between` numbers them."""
        return number // max(1, prod(dimension.count for dimension in self.dimensions))

    @property
    def collective_byte_seconds(self) -> float:
        """Per byte leaving a rank, when all ranks send to all in equal shares and every link is used at its best."""
        if self.exchange_byte_seconds is not None:
            return self.exchange_byte_seconds
        peers = np.arange(1, self.world)
        byte_seconds = self.between(0, peers).byte_seconds
        level, spent = np.zeros(len(peers), np.int64), 1
        for number, dimension in enumerate(self.dimensions):
            level[peers // spent % dimension.count > 0] = number
            spent *= dimension.count
        links = np.array([num_links(dimension) for dimension in self.dimensions])
        shares = byte_seconds / links[level] / max(1, len(peers))
        return float(np.bincount(level, shares).max(initial=0.0))


def routes(world: int, machine: Machine, fabric: Fabric) -> Routes:
    """The ways between *world* ranks: the emulated links, none in shared memory, else the machine's dimensions."""
    if fabric.emulated:
        return Routes(world, fabric.links(world))
    real = Routes(world, machine.dimensions)
    if fabric.kind == "shared_memory":  # nothing lies between ranks, but the library still copies
        return Routes(world, (), emulated(0.0, 0.0, 0.0), real.collective_byte_seconds)
    return real


def emulated(byte_seconds: ArrayLike, message_seconds: ArrayLike, latency_seconds: ArrayLike, level: int = 0) -> Route:
    """The link of that *level* that every rank of an emulated fabric has, in numbers or columns."""
    return Route(np.full((), level, np.int64), np.asarray(byte_seconds), np.asarray(message_seconds),
                 np.asarray(latency_seconds))  # fmt: skip


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


def num_links(dimension: Dimension) -> int:
    """Among how many links of a rank the dimension's bandwidth is divided."""
    if dimension.topology == "switch":
        return 1
    if dimension.topology == "fully_connected":
        return dimension.count - 1
    return sum(min(2, length - 1) for length in _lengths(dimension))


def _lengths(dimension: Dimension) -> tuple[int, int]:
    """Of a torus' two directions; a ring is a torus of one row."""
    most = 1 if dimension.topology == "ring" else isqrt(dimension.count)
    rows = next(rows for rows in range(most, 0, -1) if dimension.count % rows == 0)
    return dimension.count // rows, rows


def _hops(dimension: Dimension, place: Ints, its: Ints) -> tuple[Ints, Ints]:
    """The link within the dimension that leads from *place* to *its*, and over how many links the way goes.

    What others forward through our links costs as much as what they forward for us.
    """
    if dimension.topology == "switch":
        return np.zeros_like(place), np.ones_like(place)
    if dimension.topology == "fully_connected":
        return its, np.ones_like(place)
    across, down = _lengths(dimension)
    link, hops = np.zeros_like(place), np.zeros_like(place)
    legs = ((2, its // across - place // across, down), (0, its % across - place % across, across))
    for first_link, distance, length in legs:  # the last leg is the first to be gone: it says which link is used
        ahead = distance % length
        hops += np.minimum(ahead, length - ahead)
        backward = (length > 2) & (ahead > length // 2)
        link = np.where(ahead > 0, first_link + backward, link)
    return link, hops
