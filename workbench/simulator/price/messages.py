"""Prices messages: the route from rank to rank, and what a put costs its issuer, its link and its receiver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.fabric import Fabric, ranks_on_host
from kernels.machine import NETWORK, Dimension, Machine
from kernels.operators import operator
from kernels.operators.base import Flow
from kernels.plan import EVERYTHING, Pool
from kernels.problem import Problem
from workbench.simulator.price.rates import copy_seconds, has_curve, step_overhead, work_seconds

PUSHING_WARPS = 8
"""Warps of the blocks whose speed as pushers was measured. Those of four were seen to push half as fast."""

# Routes: which egress link leads from rank to rank, and what a byte and a message cost there.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Link that a message takes and its costs, as numbers or columns."""

    number: Ints
    """Which of the source's egress links is used; messages with the same number queue behind each other."""
    byte_seconds: Floats
    message_seconds: Floats
    """Gap that each message adds on the link."""
    latency_seconds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Routes between *world* ranks."""

    world: int
    dimensions: tuple[Dimension, ...]
    everywhere: Route | None = None
    """Route between any two ranks, if it is no link of the machine."""
    exchange_byte_seconds: float | None = None
    """Seconds per byte of a collective, if its link is no link of the machine."""

    def between(self, source: ArrayLike, peer: ArrayLike) -> Route:
        """Routes from *source* to *peer*: numbers, or columns that broadcast.

        Neighbours differ in the first dimension only; ranks further away are reached over slower ones. A rank
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
        """Dimension of each link *number*, as `between` numbers them."""
        return number // max(1, prod(dimension.count for dimension in self.dimensions))

    @property
    def collective_byte_seconds(self) -> float:
        """Seconds per byte leaving a rank when all ranks send equal shares to all and every link is fully used."""
        return self.library_byte_seconds(1.0)

    def library_byte_seconds(self, share: float, *, to_each: bool = True) -> float:
        """The same by the library, which reaches *share* of the bandwidth of a host's links, and all of a network's.

        `networks.library_levels` has the same rule. *to_each*: whether ranks have other bytes for each rank. If not,
        what many ranks of a host need or sum crosses the network once, as rings and trees send it.
        """
        if self.exchange_byte_seconds is not None:
            return self.exchange_byte_seconds / share
        peers = np.arange(1, self.world)
        byte_seconds = self.between(0, peers).byte_seconds
        level, spent = np.zeros(len(peers), np.int64), 1
        reached = np.full(len(self.dimensions), share)
        for number, dimension in enumerate(self.dimensions):
            level[peers // spent % dimension.count > 0] = number
            if dimension.link == NETWORK:
                reached[number] = 1.0 if to_each else min(spent, self.world)
            spent *= dimension.count
        links = np.array([num_links(dimension) for dimension in self.dimensions])
        shares = byte_seconds / links[level] / reached[level] / max(1, len(peers))
        return float(np.bincount(level, shares).max(initial=0.0))


def routes(world: int, machine: Machine, fabric: Fabric) -> Routes:
    """Routes between *world* ranks: emulated links, none in shared memory, else the machine's dimensions."""
    if fabric.emulated:
        return Routes(world, fabric.links(world))
    real = Routes(world, linking(world, machine, fabric))
    if fabric.kind == "shared_memory":  # nothing lies between ranks, but the library still copies
        return Routes(world, (), emulated(0.0, 0.0, 0.0), real.collective_byte_seconds)
    return real


def linking(world: int, machine: Machine, fabric: Fabric) -> tuple[Dimension, ...]:
    """The levels that link *world* ranks of *machine*; on a network that fewer ranks need than a host has, none inside.

    Each of them is then on a host of its own (`kernels.fabric.ranks_on_host`).
    """
    of_network = [level for level, dimension in enumerate(machine.dimensions) if dimension.link == NETWORK]
    if not fabric.across or not of_network or ranks_on_host(fabric, machine, world) > 1:
        return machine.dimensions
    return machine.dimensions[of_network[0] :]


def emulated(byte_seconds: ArrayLike, message_seconds: ArrayLike, latency_seconds: ArrayLike, level: int = 0) -> Route:
    """The link of that *level* that every rank of an emulated fabric has, in numbers or columns."""
    return Route(np.full((), level, np.int64), np.asarray(byte_seconds), np.asarray(message_seconds),
                 np.asarray(latency_seconds))  # fmt: skip


def are_measured(world: int, machine: Machine, fabric: Fabric) -> bool:
    """Whether the links between *world* ranks were measured; an emulated link costs exactly what its fabric says."""
    if world == 1 or fabric.emulated:
        return True
    if fabric.kind == NETWORK and all(dimension.link != NETWORK for dimension in machine.dimensions):
        return False
    reached, levels = 1, linking(world, machine, fabric)
    for level, dimension in enumerate(levels, len(machine.dimensions) - len(levels)):
        key = f"dimension.{level}.bandwidth_bytes_per_second"
        if reached < world and not machine.provenance_of(key).startswith("calibrated"):
            return False
        reached *= dimension.count
    return True


def num_links(dimension: Dimension) -> int:
    """Number of links of a rank that share the dimension's bandwidth."""
    if dimension.topology == "switch":
        return 1
    if dimension.topology == "fully_connected":
        return dimension.count - 1
    return sum(min(2, length - 1) for length in _lengths(dimension))


def _lengths(dimension: Dimension) -> tuple[int, int]:
    """Ranks along the two directions of a torus; a ring is a torus of one row."""
    most = 1 if dimension.topology == "ring" else isqrt(dimension.count)
    rows = next(rows for rows in range(most, 0, -1) if dimension.count % rows == 0)
    return dimension.count // rows, rows


def _hops(dimension: Dimension, place: Ints, peer_place: Ints) -> tuple[Ints, Ints]:
    """Link within the dimension that leads from *place* to *peer_place*, and the number of links on the route.

    What others forward through our links costs as much as what they forward for us.
    """
    if dimension.topology == "switch":
        return np.zeros_like(place), np.ones_like(place)
    if dimension.topology == "fully_connected":
        return peer_place, np.ones_like(place)
    across, down = _lengths(dimension)
    link, hops = np.zeros_like(place), np.zeros_like(place)
    legs = (
        (2, peer_place // across - place // across, down),
        (0, peer_place % across - place % across, across),
    )
    for first_link, distance, length in legs:  # a message takes the last leg first: it decides the link
        forward = distance % length
        hops += np.minimum(forward, length - forward)
        backward = (length > 2) & (forward > length // 2)
        link = np.where(forward > 0, first_link + backward, link)
    return link, hops


# Puts: what one costs its issuer, its link and its receiver.


@dataclass(frozen=True, slots=True, eq=False)
class Puts:
    """How a Plan moves puts: numbers or columns."""

    pool: ArrayLike
    share: ArrayLike
    in_place: ArrayLike
    packets: bool = False
    """Whether values carry their signals: then a put in place consists of the stores of its results only."""
    waits: bool = False
    """Whether a copy engine's stream waits in a kernel before each put, so that launches overlap no transfer."""


def computes_too(machine: Machine, pool: ArrayLike, share: ArrayLike) -> NDArray[np.bool_]:
    """Whether the thread or blocks that compute also move a put: numbers or columns.

    A CPU rank has one thread for everything. Blocks of a GPU with a numeric share only send.
    """
    together = (np.asarray(pool) == Pool.COMPUTE) & (np.asarray(share) == EVERYTHING)
    return together | (machine.device.kind == "cpu")


def issue_seconds(machine: Machine, dtype: str, num_bytes: ArrayLike, puts: Puts, *, one_kernel: bool) -> Floats:
    """Seconds for which *puts* of *num_bytes* hold their share.

    Separate blocks move a put while the link is busy and cost a launch only. So does a copy engine, in addition to
    `held_seconds`. Blocks or threads that compute copy the put, or only signal it if it is in place already.
    """
    costs, together = machine.costs, computes_too(machine, puts.pool, puts.share)
    copied: Floats | float = 0.0
    if machine.device.kind == "cpu" and np.any(together & np.logical_not(puts.in_place)):  # nothing else pays for it
        copied = np.where(puts.in_place, 0.0, copy_seconds(machine, dtype, num_bytes))
    overhead = step_overhead(machine, one_kernel=one_kernel)
    launched = costs.copy_engine_seconds
    launched += costs.stream_seconds if puts.waits else -hidden_launch_seconds(machine)
    by_others = np.where(np.asarray(puts.pool) == Pool.COPY_ENGINE, launched, overhead)
    signalled = np.where(np.logical_and(puts.packets, puts.in_place), 0.0, costs.step_seconds)
    return np.where(together, signalled + copied, by_others)


def hidden_launch_seconds(machine: Machine) -> float:
    """Seconds of the launch of a copy engine's transfer that overlap with earlier transfers."""
    gap = machine.costs.copy_engine_gap_seconds
    return machine.costs.copy_engine_seconds - gap if gap else 0.0


def at_once(machine: Machine, pool: ArrayLike, peers: int) -> int:
    """Number of puts of *pool* in flight at once, to one peer each, if they are not issued by the compute pool."""
    by_engines = min(machine.device.copy_engines, peers) if pool == Pool.COPY_ENGINE else 1
    return max(1, by_engines)


def held_seconds(machine: Machine, puts: Puts, transit: ArrayLike) -> Floats:
    """Part of *transit* during which a put holds its share: all of it for a copy engine.

    So copies of one engine, or of one stream, never begin while the previous one is in flight. Nor do blocks that
    compute on a GPU continue before bytes have left that were not computed in place.
    """
    pushed = computes_too(machine, puts.pool, puts.share) & np.logical_not(puts.in_place) & (
        machine.device.kind == "gpu")  # fmt: skip
    return np.where(pushed | (np.asarray(puts.pool) == Pool.COPY_ENGINE), transit, 0.0)


def transit_seconds(route: Route, num_bytes: ArrayLike, put_byte_seconds: Floats | None = None) -> Floats:
    """Seconds for which a message of *num_bytes* holds its link; *put_byte_seconds* where puts were measured."""
    byte_seconds = route.byte_seconds if put_byte_seconds is None else put_byte_seconds
    return np.asarray(np.asarray(num_bytes) * byte_seconds + route.message_seconds)


def delay_seconds(machine: Machine, route: Route, *, packets: bool = False, hides: Any = False) -> Floats:
    """Seconds from when the last byte leaves until the peer continues; *packets* are their own signal.

    *hides*: whether part of the launch of a copy engine's transfer overlaps with the previous one.
    """
    launched = np.where(hides, hidden_launch_seconds(machine), 0.0)
    return np.asarray(route.latency_seconds + launched + (0.0 if packets else machine.costs.signal_seconds))


def way(axes: Mapping[str, Any]) -> str:
    """Name of the machine's rate for how bytes are put to peers by a schedule's *axes*."""
    if "copy_engine" in (axes.get("engine"), axes.get("collective")):
        return "put_copy_engine"
    return "put_tma" if axes.get("store") == "tma" else "put_registers"


def put_byte_seconds(
    sizes: Problem, machine: Machine, fabric: Fabric, axes: Mapping[str, Any], num_bytes: float | None = None
) -> Floats | None:
    """Seconds per byte of a put if the wire bytes of *sizes* leave each rank; None if that was not measured.

    No put is faster than its link: who writes a slower one into a machine's file need not change what was measured.
    In *axes*, `comm_sms` may be a column. *num_bytes*: bytes that leave, if they differ from the wire bytes of *sizes*.
    """
    name = way(axes)
    apart = machine.ranks_per_host > machine.dimensions[0].count
    if fabric.kind != "nvlink" or apart or not has_curve(machine, name, "any"):
        return None
    sending = np.asarray(axes.get("comm_sms", 0))
    processors = np.where(sending > 0, sending, machine.device.slots)
    wanted = operator(sizes.operator).wire_bytes(sizes) if num_bytes is None else num_bytes
    leaving, processors = np.broadcast_arrays(np.maximum(1.0, np.asarray(wanted, dtype=np.float64)), processors)
    as_measured = work_seconds(machine, name, "any", leaving, processors) / leaving
    return np.maximum(as_measured, 1.0 / machine.dimensions[0].bandwidth_bytes_per_second)


def last_byte_seconds(sizes: Problem, machine: Machine, fabric: Fabric) -> Floats | None:
    """Seconds per byte of a put that all SMs share by bulk copies when nothing is left to compute."""
    return put_byte_seconds(sizes, machine, fabric, {"store": "tma"})


def _warps_share(axes: Mapping[str, Any]) -> Any:
    """Speed of a pushing SM over that of one with PUSHING_WARPS: all threads of a block copy, also to bulk stores."""
    return np.minimum(1.0, np.asarray(axes.get("num_warps", PUSHING_WARPS)) / PUSHING_WARPS)


def sent_byte_seconds(
    sizes: Problem, machine: Machine, fabric: Fabric, axes: Mapping[str, Any], num_bytes: float | None = None
) -> Floats | None:
    """Seconds per byte of a put by a schedule's *axes*: SMs that send while others compute are slower.

    Those that bring results load them by bulk copies, and threads store them.
    """
    alone = put_byte_seconds(sizes, machine, fabric, axes, num_bytes)
    if alone is None or axes.get("collective") is not None:
        return alone
    if (engine := axes.get("engine")) is not None:
        return alone * (machine.costs.sending_beside if engine == "sm" else 1.0)
    sending = np.asarray(axes.get("comm_sms", 0))
    if operator(sizes.operator).flow is not Flow.RECEIVE and sending.any():
        by_threads = put_byte_seconds(sizes, machine, fabric, {**axes, "store": "registers"}, num_bytes)
        if by_threads is None:
            return alone
        return np.where(sending > 0, by_threads * machine.costs.sending_beside / _warps_share(axes), alone)
    each = machine.costs.push_bytes_per_second * _warps_share(axes)
    return np.where((sending > 0) & (each > 0), np.maximum(alone, 1 / np.maximum(1.0, each * sending)), alone)
