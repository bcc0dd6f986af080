"""One rank of a playground: symmetric tensors, what every call takes, launching, checking and timing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.backends.base import Hang, Seat
from kernels.backends.cpu import heap as shared_memory
from kernels.backends.regions import Region, aligned
from kernels.backends.triton.context import Heap, Station
from kernels.backends.triton.device import INTERPRETED
from kernels.backends.triton.graph import Replay
from kernels.backends.triton.heap import DeviceHeap, Group
from kernels.backends.triton.launch import Kernel
from kernels.schedule import Refusal
from kernels.units import bytes_text

Call = Callable[[], None]

INTERPRETED_PROGRAMS = 2
"""One after the other: enough to see that programs share the work and count themselves in."""


class Meets(Protocol):
    """Who lets all ranks meet on the host: the heap of CPU ranks, the process group of GPUs."""

    def barrier(self) -> Any:
        """All ranks meet."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""


@dataclass(frozen=True, slots=True)
class Symmetric:
    """A tensor that every rank has, of the same shape."""

    on: tuple[Tensor, ...]
    """By rank, as this process maps it."""
    mine: Tensor
    addresses: Tensor
    """int64 [W]: what a kernel gives to `device.peer`."""


class Rank(Station):
    """One rank of one `Gang.run`. All ranks make the same tensors and meet in the same order; all begins at 0."""

    def __init__(self, seat: Seat, heap: Heap, device: torch.device, meets: Meets, limit_s: float) -> None:
        super().__init__(heap, seat.rank, seat.world, device, limit_s=limit_s)
        self._meets, self._end = meets, 0
        self.stream = None if INTERPRETED.value else torch.cuda.Stream(device)
        heap.tensor(seat.rank, 0, (heap.capacity,), torch.uint8).zero_()
        for name in ("credits", "done", "meet"):
            self._place(name, (seat.world,), torch.int32)
        self.barrier()

    @property
    def interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter, on CPU tensors."""
        return bool(INTERPRETED.value)

    def tensor(self, *shape: int, dtype: torch.dtype = torch.float32) -> Symmetric:
        """Zeros on every rank; Refusal where the heap is full."""
        name = f"tensor {len(self.places)}"
        self._place(name, shape, dtype)
        on = tuple(self.of(rank, name) for rank in range(self.world))
        return Symmetric(on, on[self.rank], self.addresses(name))

    def signals(self, count: int) -> Symmetric:
        """*count* counters that only rise."""
        return self.tensor(count, dtype=torch.int32)

    def _place(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        end = aligned(self._end + prod(shape) * dtype.itemsize)
        if end > self.heap.capacity:
            raise Refusal(
                f"Symmetric tensors of {bytes_text(end)} do not fit: each rank's heap has "
                f"{bytes_text(self.heap.capacity)}. Accepted: smaller ones, or ranks(..., heap_bytes={end})."
            )
        self.places[name] = (Region(self._end, shape), dtype)
        self._end = end

    @property
    def call(self) -> tuple[Any, ...]:
        """What every call takes: credits_at, done_at, epoch_at, arrived, error, limit_ns, rank."""
        counters = (self.addresses("credits"), self.addresses("done"))
        return *counters, self.epoch, self.arrived, self.error, self.limit_ns, self.rank

    def launcher(
        self, function: Any, *arguments: Any, items: int = 1, num_warps: int = 4, num_stages: int = 3, **constants: Any
    ) -> Call:
        """Compiles *function*; what launches it, as many programs as are resident, but no more than *items*.

        All ranks have compiled when it returns, so that none waits in its first call for another's compiler.
        """
        kernel = Kernel(function=function, arguments=arguments, constants=constants, items=items,
                        num_warps=num_warps, num_stages=num_stages)  # fmt: skip
        launch = kernel.launcher(min(items, INTERPRETED_PROGRAMS))
        self.barrier()
        return launch

    def barrier(self) -> None:
        """All ranks meet on the host, their GPUs idle."""
        if not self.interpreted:
            torch.cuda.synchronize(self.device)
        self._meets.barrier()

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""
        return self._meets.exchange(values)

    def check(self) -> None:
        """Raises Hang, with a sentence, when a wait has expired; waits for the stream."""
        if sentence := self.failure():
            raise Hang(sentence)

    def seconds(self, call: Call, calls: int = 20, repeats: int = 9) -> float:
        """One *call* of *calls* in a CUDA graph that all ranks begin together: the slowest rank's median.

        The clock is the GPU's own. Refusal where kernels are interpreted.
        """
        if self.stream is None:
            raise Refusal(
                "An interpreted kernel cannot be timed: its time says nothing about a GPU. Accepted: ranks with a "
                "GPU each."
            )
        call()  # compiles, and lets libraries make their connections, before it is captured
        self.check()
        replay, mine = Replay(self, [call] * calls, self.stream, captured=True), []
        for _ in range(repeats):
            self.barrier()
            mine.append(replay.seconds())
        self.check()
        return max(slowest for (slowest,) in self.exchange([median(mine)]))


class Alone:
    """World 1 on a GPU: there is nobody to meet."""

    def barrier(self) -> None:
        """Nobody is waited for."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        return [list(values)]


class Place:
    """What a rank keeps from run to run: its device, its heap, its way to the others. Making one is collective."""

    def __init__(self, seat: Seat, heap_bytes: int) -> None:
        self._seat = seat
        self._heap: Heap
        self._meets: Meets
        if INTERPRETED.value:
            torch.set_num_threads(1)
            self._device = torch.device("cpu")
            self._heap = self._meets = shared_memory.Heap(seat, 1, heap_bytes, 1)
            return
        self._device = torch.device("cuda", 0)  # the only one that this process sees
        torch.cuda.set_device(self._device)
        group = Group(seat, self._device) if seat.world > 1 else None
        self._heap, self._meets = DeviceHeap(group, self._device, heap_bytes), group or Alone()

    def run(self, function: Callable[..., Any], arguments: Sequence[Any], limit_s: float) -> Any:
        """The answer of *function*, called with a new Rank and *arguments*; all that it launched has ended."""
        rank = Rank(self._seat, self._heap, self._device, self._meets, limit_s)
        if rank.stream is None:
            return function(rank, *arguments)
        with torch.cuda.stream(rank.stream):
            answer = function(rank, *arguments)
        torch.cuda.synchronize(self._device)
        return answer
