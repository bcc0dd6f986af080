"""Into how many blocks kernels are cut that share the SMs of a GPU, and how long each of them takes for a tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.machine import Machine
from kernels.operators import operator
from kernels.problem import Problem
from kernels.schemes import library
from workbench.simulator.price import tiles
from workbench.simulator.price.collectives import usual_blocks

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FILLS = ("direct",)
"""Values of `collective` whose kernel has enough blocks for every SM, unless a number of SMs is stated."""
ROUNDS = 8
"""Blocks of a sum or a copy, of our puts, or of a library's GEMV, for each SM: they are short, and leave SMs often."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Of one kernel, numbers or columns: the fields of Grids."""

    blocks: Any
    tiles: Any
    resident: Any
    tile_seconds: Any
    alone_seconds: Any
    is_pooled: bool = False
    shared_seconds: Any = 0.0

    def longer_by(self, seconds: Any) -> Blocks:
        """The same where others have all units for *seconds* of it."""
        of_tile, floor = seconds / -(-self.tiles // self.blocks), np.asarray(self.shared_seconds)
        return replace(self, tile_seconds=self.tile_seconds + of_tile, alone_seconds=self.alone_seconds + of_tile,
                       shared_seconds=floor + seconds * (floor > 0))  # fmt: skip

    @property
    def waits_for_memory(self) -> Any:
        """Whether what all blocks share takes longer than their tiles."""
        return self.shared_seconds > self.tile_seconds * -(-self.tiles // self.blocks)

    @property
    def seconds(self) -> Floats:
        """Of all of them, if they have the units that they ask for."""
        each = self.tile_seconds * -(-self.tiles // self.blocks)
        return np.asarray(np.maximum(each, self.shared_seconds))


@dataclass(frozen=True, slots=True)
class Computation:
    """What is computed, and with what: numbers or columns."""

    sizes: Problem
    tile: tuple[Any, Any]
    """Rows and columns."""
    num_tiles: Any
    resident: Any
    """Blocks that an SM holds."""
    in_flight: Any
    """Bytes that one of them has asked for, 0: not known."""
    seconds: Any
    """Where nobody takes SMs away, by the rule of other schemes: for kernels of which no more is known."""
    comm_sms: Any
    """SMs that it leaves free."""


def simple(count: Any, seconds: Any) -> Blocks:
    """Blocks that have a unit and a tile each."""
    return Blocks(count, count, np.ones_like(count), seconds, seconds)


def sending(machine: Machine, name: str, collective: Any, comm_sms: Any) -> Ints:
    """Blocks of the kernel of collective *name*, which hold an SM each: as stated, or as many as it usually has.

    *collective*: the value of the schedule's axis. *comm_sms* may be a column.
    """
    usual = machine.device.slots if collective in FILLS else machine.costs.send_blocks
    by_library = collective in library.CALLS
    if by_library:
        usual = usual_blocks(machine, name)
    limit = np.asarray(comm_sms)
    most = np.where(limit > 0, limit, max(1, usual))
    if by_library and name == "all_to_all":  # its channels are a power of two
        most = np.where(limit > 0, 2 ** np.floor(np.log2(np.maximum(1, limit))), most).astype(np.int64)
    return np.asarray(most if collective in FILLS else np.minimum(most, max(1, usual)))


def of_call(machine: Machine, one: Computation) -> Blocks:
    """Of the library's GEMM: persistent blocks, each of which takes the next tile when it is done with one.

    So blocks that find no SM are not missed for long, and those that have no tile left give theirs back.
    """
    left = machine.device.slots - np.asarray(one.comm_sms)
    if operator(one.sizes.operator).work != "gemm":
        called, count = tiles.library_parts(machine, one.sizes)[1], ROUNDS * left
        return Blocks(left, count, np.ones_like(left), 0.0 * called, 0.0 * called, True, called)
    count, seconds = tiles.library_tiles(machine, one.sizes, left)
    memory = tiles.library_parts(machine, one.sizes)[1]
    blocks = np.minimum(left, count)
    return Blocks(blocks, count, np.ones_like(left), seconds, seconds, True, memory)


def of_ours(machine: Machine, one: Computation) -> Blocks:
    """Of our kernel: persistent blocks, whose tiles are shared out beforehand."""
    left = machine.device.slots - np.asarray(one.comm_sms)
    blocks = np.minimum(one.num_tiles, left * one.resident)
    # beside others as many are launched on each SM that is left, where there are more than SMs
    blocks = np.where((np.asarray(one.comm_sms) > 0) & (blocks > left), blocks - blocks % left, blocks)
    waves = -(-one.num_tiles // blocks)
    alike = one.seconds / waves
    if operator(one.sizes.operator).work != "gemm" or not machine.device.loads_in_flight:
        return Blocks(blocks, one.num_tiles, one.resident, alike, alike)
    read = _read_seconds(machine, one.sizes) / waves
    together, alone = (np.maximum(computed, loaded + read) for computed, loaded in
                       (_tile_seconds(machine, one, held) for held in (one.resident, 1)))  # fmt: skip
    known = (np.asarray(one.in_flight) > 0) & (one.num_tiles >= machine.device.slots)  # else SMs wait for no others
    return Blocks(blocks, one.num_tiles, one.resident, np.where(known, together, alike), np.where(known, alone, alike))


def _tile_seconds(machine: Machine, one: Computation, resident: Any) -> tuple[Floats, Floats]:
    """Of a tile of one of *resident* blocks that share an SM: to compute it, and to load its operands from the L2.

    What ends a tile hides behind the others' work. Operands come the faster the more has been asked for.
    """
    contraction, fixed = operator(one.sizes.operator).extent(one.sizes).contraction, machine.costs.tile_seconds
    computed = tiles.tile_seconds(machine, one.sizes, *one.tile, contraction) - fixed
    loaded = sum(one.tile) * contraction * one.sizes.itemsize / load_speed(machine, one.in_flight * resident)
    return np.asarray(fixed + resident * computed), np.asarray(fixed + resident * loaded)


def _read_seconds(machine: Machine, sizes: Problem) -> Floats:
    """Until memory has given each operand once: SMs that wait for loads wait for it as well."""
    extent = operator(sizes.operator).extent(sizes)
    num_bytes = (extent.rows + extent.columns) * extent.contraction * sizes.itemsize
    return np.asarray(machine.costs.cold_seconds + num_bytes / machine.device.memory_bytes_per_second)


def load_speed(machine: Machine, in_flight: Any) -> Floats:
    """Bytes per second that an SM loads with so many bytes asked for: lines over both logarithms, flat beyond the most.

    Below the least as much slower as there is less.
    """
    known = sorted((float(num_bytes), speed) for num_bytes, speed in machine.device.loads_in_flight.items())
    sizes, speeds = np.array(known).T
    asked_for = np.maximum(1.0, np.asarray(in_flight, dtype=float))
    inside = np.exp(np.interp(np.log(asked_for), np.log(sizes), np.log(speeds)))
    return np.asarray(inside * np.minimum(1.0, asked_for / sizes[0]))
