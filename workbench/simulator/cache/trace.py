"""A trace is what the cache simulator replays: accesses in order, in chunks, kernel after kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.simulator.cache.interrupts import heeded

LINE_BYTES, SECTOR_BYTES = 128, 32
ALL_SECTORS = 0b1111
"""Every sector of a line; bit s is bytes 32 s .. 32 s + 31."""
WRITE, DIRECT, PEER = 1, 2, 4
"""Flags. DIRECT: the unit's L1 is not asked, as bulk copies (TMA) do. PEER: a peer's store comes in over the link."""
CHUNK = 1 << 20
"""Most accesses of a chunk: 16 MiB are in memory at a time, however long the trace is."""

ACCESS = np.dtype(
    [("line", "i8"), ("unit", "u2"), ("instruction", "u2"), ("structure", "u1"), ("sectors", "u1"), ("flags", "u1"),
     ("padding", "u1")]
)  # fmt: skip
"""One request of one unit: byte address // 128, who asks, which load or store, of which data, which sectors, flags."""

ROLES = ("weights", "activations", "indices", "output", "peer buffer")
"""What a structure is to its kernel: by it a policy gives hints, and results are told."""

Accesses = NDArray[Any]


class Chunk(NamedTuple):
    """Accesses of one kernel, in order. Another *kernel* than before means that all before has ended."""

    kernel: int
    accesses: Accesses


@dataclass(frozen=True, slots=True)
class Structure:
    """One array of a kernel."""

    name: str
    role: str
    """One of ROLES."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What is replayed. `chunks` begins anew each time it is called, and gives the same accesses each time."""

    name: str
    structures: tuple[Structure, ...]
    instructions: tuple[str, ...]
    units: int
    """SMs (CUs) that ask; units of accesses are 0 .. units - 1."""
    chunks: Callable[[], Iterator[Chunk]]

    counted: Callable[[], int] | None = None
    """How many accesses it has, where somebody knows without making them again."""

    def count(self) -> int:
        """How many accesses it has; the whole trace is made for it where nobody knows."""
        return self.counted() if self.counted else sum(len(chunk.accesses) for chunk in heeded(self.chunks()))


def accesses(lines: NDArray[np.int64], **columns: object) -> Accesses:
    """Accesses of *lines*; each other column is an array or one value for all. All sectors are read by default."""
    made = np.zeros(lines.size, ACCESS)
    made["line"] = lines.ravel()
    made["sectors"] = ALL_SECTORS
    for name, value in columns.items():
        made[name] = value
    return made


def in_memory(name: str, kernels: list[Accesses], structures: tuple[Structure, ...], units: int) -> Trace:
    """The trace of arrays that are there already, one for each kernel, cut into chunks."""
    most = max((int(each["instruction"].max()) for each in kernels if len(each)), default=0)

    def chunks() -> Iterator[Chunk]:
        for number, each in enumerate(kernels):
            for start in range(0, len(each), CHUNK):
                yield Chunk(number, each[start : start + CHUNK])

    return Trace(name, structures, tuple(f"instruction {i}" for i in range(most + 1)), units, chunks)
