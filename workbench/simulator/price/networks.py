"""What a machine says of the network between its ranks, for whoever prices more ranks than a Plan can have."""

from __future__ import annotations

from math import prod

from kernels.machine import NETWORK, Dimension, Machine


def levels(machine: Machine) -> tuple[Dimension, ...]:
    """The levels of *machine*'s network, the innermost first."""
    return machine.dimensions


def memory_rate(machine: Machine) -> float:
    """Bytes per second at which one rank of *machine* reads and writes its own memory."""
    return machine.device.memory_bytes_per_second


def library_seconds(machine: Machine) -> float:
    """Fixed cost of one collective of the library, beside what its messages take."""
    return machine.costs.library_seconds


def put_seconds(machine: Machine) -> float:
    """From the last byte of a slice to the peer's going on, the link's latency not counted: its step and its signal."""
    return machine.costs.step_seconds + machine.costs.signal_seconds


def ranks_inside(machine: Machine, world: int) -> int:
    """How many of *world* ranks one host holds: what tier B can play tile by tile."""
    inside = prod(level.count for level in machine.dimensions if level.link != NETWORK)
    return min(inside, world)
