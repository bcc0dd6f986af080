"""Kernels as access patterns: a grid of blocks, dealt to units in waves, whose steps touch lines in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from workbench.simulator.cache.hierarchy import LINE_BYTES
from workbench.simulator.cache.trace import (
    ACCESS,
    ALL_SECTORS,
    CHUNK,
    WRITE,
    Accesses,
    Chunk,
    Structure,
    Trace,
)

Lines = NDArray[np.int64]
NONE = -1
"""The line number of a touch that does not occur in a step."""
ALIGNED = 2**21
"""Alignment in bytes of the beginning of a structure, as allocators place them."""


@dataclass(frozen=True, slots=True)
class Touch:
    """A load or store of one line that every block may make in a step."""

    instruction: int
    structure: int
    flags: int = 0
    sectors: int = ALL_SECTORS


@dataclass(frozen=True, slots=True)
class KernelAccesses:
    """The accesses of a kernel with a grid of *blocks*: in each step a block makes its *touches* in order.

    A unit takes one block after another. Units advance in lockstep: all make the first touch of a step, then all make
    the second one.
    """

    blocks: int
    steps: int
    touches: tuple[Touch, ...]
    lines: Callable[[Lines, Lines], Lines]
    """Function of block numbers [B, 1] and step numbers [1, S] to line numbers [B, S, touches], NONE for no touch."""

    def chunks(self, number: int, units: int) -> Iterator[Chunk]:
        """The accesses as kernel *number*, in chunks of at most about CHUNK accesses."""
        for first in range(0, self.blocks, units):
            blocks = np.arange(first, min(first + units, self.blocks))
            steps_per_chunk = max(1, CHUNK // (len(blocks) * len(self.touches)))
            for step in range(0, self.steps, steps_per_chunk):
                steps = np.arange(step, min(step + steps_per_chunk, self.steps))
                yield Chunk(number, self._accesses(blocks, steps, units))

    def _accesses(self, blocks: Lines, steps: Lines, units: int) -> Accesses:
        lines = self.lines(blocks[:, None], steps[None, :]).transpose(1, 2, 0)
        records = np.empty(lines.shape, ACCESS)
        records["line"], records["unit"], records["padding"] = lines, blocks % units, 0
        for name in ("instruction", "structure", "flags", "sectors"):
            records[name] = np.array([getattr(touch, name) for touch in self.touches])[None, :, None]
        return records[lines != NONE]


@dataclass
class AccessProgram:
    """A builder of a Trace: structures in one memory, names of loads and stores, and consecutive kernels."""

    name: str
    structures: list[Structure] = field(default_factory=list)
    instructions: list[str] = field(default_factory=list)
    kernels: list[KernelAccesses] = field(default_factory=list)
    end: int = 0

    def array(self, name: str, role: str, num_bytes: int) -> Array:
        """Add a structure behind all others in memory."""
        self.structures.append(Structure(name, role))
        array = Array(len(self.structures) - 1, self.end // LINE_BYTES, num_bytes)
        self.end += -(-num_bytes // ALIGNED) * ALIGNED
        return array

    def touch(self, kernel: str, verb: str, array: Array, sectors: int = ALL_SECTORS, flags: int = 0) -> Touch:
        """The load or store of *array* in the code of *kernel*; equal arguments give the same instruction."""
        name = f"{kernel}: {verb} {self.structures[array.structure].name}"
        if name not in self.instructions:
            self.instructions.append(name)
        flags |= WRITE if verb == "store" else 0
        return Touch(self.instructions.index(name), array.structure, flags, sectors)

    def trace(self, units: int) -> Trace:
        """The trace of all kernels on *units* SMs."""
        kernels = tuple(self.kernels)

        def chunks() -> Iterator[Chunk]:
            for number, kernel in enumerate(kernels):
                yield from kernel.chunks(number, units)

        return Trace(self.name, tuple(self.structures), tuple(self.instructions), units, chunks)


@dataclass(frozen=True, slots=True)
class Array:
    """The place of a structure in the memory of an AccessProgram."""

    structure: int
    first_line: int
    num_bytes: int

    @property
    def num_lines(self) -> int:
        return -(-self.num_bytes // LINE_BYTES)

    def line(self, number: Lines) -> Lines:
        """Line numbers in memory of the lines *number* of this array."""
        return self.first_line + number


def stacked(*columns: Lines) -> Lines:
    """Stack columns [B, S], one for each touch, to [B, S, touches]."""
    shape = np.broadcast_shapes(*(column.shape for column in columns))
    return np.stack([np.broadcast_to(column, shape) for column in columns], axis=-1)


def where(condition: NDArray[np.bool_], lines: Lines) -> Lines:
    """*lines* where *condition* is true, NONE elsewhere."""
    return np.where(condition, lines, NONE)


def elementwise(
    program: AccessProgram, name: str, loads: Sequence[Array], stores: Sequence[Array], steps: int = 16
) -> None:
    """Add a kernel that traverses arrays of equal size line by line, *steps* lines per block."""
    arrays = (*loads, *stores)
    num_lines = arrays[0].num_lines

    def lines(block: Lines, step: Lines) -> Lines:
        at = block * steps + step
        return stacked(*(where(at < num_lines, array.line(at)) for array in arrays))

    touches = [program.touch(name, "load" if array in loads else "store", array) for array in arrays]
    program.kernels.append(KernelAccesses(-(-num_lines // steps), steps, tuple(touches), lines))


@dataclass(frozen=True, slots=True)
class ProductPattern:
    """A product C [m, n] = A [m, k] B [k, n], row-major, in blocks of tile_m x tile_n of whole lines."""

    m: int
    n: int
    k: int
    tile_m: int
    tile_n: int
    itemsize: int = 4


def product(
    program: AccessProgram, name: str, of: ProductPattern, arrays: tuple[Array, Array, Array], adds: bool = False
) -> None:
    """Add the kernel of a product of *arrays* (A, B, C); with *adds* it accumulates into C.

    A step covers one line of each row of A.
    """
    left, right, result = arrays
    per_line = LINE_BYTES // of.itemsize
    in_tile, in_row = of.tile_n // per_line, of.n // per_line
    steps, columns = of.k // per_line, of.n // of.tile_n
    rows, depth = np.arange(of.tile_m), np.arange(per_line * in_tile)

    def lines(block: Lines, step: Lines) -> Lines:
        row, column = (block // columns * of.tile_m)[..., None], (block % columns * in_tile)[..., None]
        at, ends = step[..., None], step[..., None] == steps
        of_left = where(~ends, left.line((row + rows) * steps + at))
        of_right = where(~ends, right.line((at * per_line + depth // in_tile) * in_row + column + depth % in_tile))
        parts = np.arange(of.tile_m * in_tile)
        of_result = where(ends, result.line((row + parts // in_tile) * in_row + column + parts % in_tile))
        touched = [of_left, of_right, *([of_result] if adds else []), of_result]
        shape = np.broadcast_shapes(*(part.shape[:2] for part in touched))
        return np.concatenate([np.broadcast_to(part, (*shape, part.shape[2])) for part in touched], axis=-1)

    size = of.tile_m * in_tile
    verbs = [("load", left, of.tile_m), ("load", right, per_line * in_tile),
             *([("load", result, size)] if adds else []), ("store", result, size)]  # fmt: skip
    touches = [touch for verb, array, count in verbs for touch in [program.touch(name, verb, array)] * count]
    program.kernels.append(KernelAccesses(of.m // of.tile_m * columns, steps + 1, tuple(touches), lines))
