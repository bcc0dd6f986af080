"""Symmetric memory that is handed out piece by piece: few large heaps, the same pieces on every rank.

A heap is made by all ranks together and takes a while, and torch knows shared memory by its address: ranks that gave
memory back at different times would no longer agree on it. So it is kept, and used anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kernels.backends.regions import aligned
from kernels.backends.triton.context import Heap

LEAST_BYTES = 1 << 26
"""Of one heap: 64 MiB, many times what the signals of a model's layers take."""


@dataclass(slots=True)
class Piece:
    """A part of a heap, from *start*: a Heap itself."""

    heap: Heap
    start: int
    capacity: int

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset* bytes of this piece."""
        return self.heap.tensor(rank, self.start + offset, shape, dtype)


@dataclass(slots=True)
class Arena:
    """The heaps of one group. All ranks ask for the same pieces in the same order."""

    make: Callable[[int], Heap]
    """Makes a heap of at least so many bytes, all ranks together."""
    least: int = LEAST_BYTES
    _used: list[tuple[Heap, int]] = field(default_factory=list)
    """The heaps, and how many bytes of each are handed out."""

    def piece(self, num_bytes: int) -> Piece:
        """*num_bytes* that nobody else has; Refusal where there is no room."""
        size = aligned(num_bytes)
        for number, (heap, used) in enumerate(self._used):
            if used + size <= heap.capacity:
                self._used[number] = (heap, used + size)
                return Piece(heap, used, size)
        heap = self.make(max(self.least, size))
        self._used.append((heap, size))
        return Piece(heap, 0, size)

    def clear(self) -> None:
        """All pieces are handed out anew, after all ranks have stopped using them."""
        self._used = [(heap, 0) for heap, _ in self._used]
