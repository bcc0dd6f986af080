"""One fused kernel that is called with new operands every time: tables, addresses, signals and epoch stay.

A trial's operands are known when its kernel is built. Here the kernel is built over *stand-ins*, tensors without
memory, and every argument that is a view of a stand-in is replaced by the same view of the call's operand. If the
kernel takes the address of its result, that is a stand-in, too, and every call writes into fresh memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as PlacedDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.backends.base import aligned
from kernels.backends.triton.device import ERROR_WORDS
from kernels.backends.triton.direct_launch import is_direct, is_watched
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context, SymmetricHeap, private_bytes, shared_bytes
from kernels.backends.triton.schemes import fused
from kernels.operators import OPERATORS
from kernels.plan import Plan
from kernels.reference import Operands
from kernels.schedule import Refusal

# Symmetric memory that is allocated piece by piece: few large heaps, the same pieces on every rank.

LEAST_BYTES = 1 << 26
"""Bytes of the smallest heap: 64 MiB, many times what the signals of a model's layers take."""


@dataclass(slots=True)
class Piece:
    """A part of a heap, from offset *start*; it is a `SymmetricHeap` itself."""

    heap: SymmetricHeap
    start: int
    capacity: int

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset* bytes of this piece."""
        return self.heap.tensor(rank, self.start + offset, shape, dtype)


@dataclass(slots=True)
class HeapArena:
    """The heaps of one group. All ranks request the same pieces in the same order."""

    make: Callable[[int], SymmetricHeap]
    """Allocates a heap of at least so many bytes, all ranks together."""
    least: int = LEAST_BYTES
    _used: list[tuple[SymmetricHeap, int]] = field(default_factory=list)
    """The heaps, and how many bytes of each are in use."""

    def piece(self, num_bytes: int) -> Piece:
        """A piece of *num_bytes* that is not in use; Refusal if there is no room."""
        size = aligned(num_bytes)
        for number, (heap, used) in enumerate(self._used):
            if used + size <= heap.capacity:
                self._used[number] = (heap, used + size)
                return Piece(heap, used, size)
        heap = self.make(max(self.least, size))
        self._used.append((heap, size))
        return Piece(heap, 0, size)

    def clear(self) -> None:
        """Frees all pieces, after all ranks have stopped using them."""
        self._used = [(heap, 0) for heap, _ in self._used]


# The kernel, and which of its arguments are views of operands.

ALIGNMENT = 16
"""Bytes: the alignment that the bulk copy engine needs and that kernels are compiled for."""
RESULT = "output"
"""Name of the result among the operands, as the operators' `local` says."""


@dataclass(frozen=True, slots=True)
class ViewArgument:
    """An argument that is a view of an operand or of the result."""

    place: int
    name: str
    offset: int
    """Elements from the operand's first element."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    block: tuple[int, ...] | None
    """Tile of a tensor descriptor; None: a plain pointer."""
    layout: Any = None
    """Of that tile in shared memory, which kernels written with Gluon choose; None: Triton does."""

    def of(self, tensor: Tensor) -> Any:
        """The same view of *tensor*."""
        view = tensor.as_strided(self.shape, self.stride, tensor.storage_offset() + self.offset)
        if self.block is None:
            return view
        if self.layout is not None:
            return PlacedDescriptor.from_tensor(view, list(self.block), self.layout)
        return TensorDescriptor.from_tensor(view, list(self.block))


class ErrorWords:
    """The error words of all calls of a group, which the host compares with zeros between calls, all at once."""

    def __init__(self, device: torch.device) -> None:
        self._pinned = device.type == "cuda"
        self._blocks: list[tuple[Tensor, memoryview]] = []
        self._used = 0

    def take(self) -> Tensor:
        """int32 [len(ERROR_WORDS)], 0: memory of the host that kernels write."""
        number, place = divmod(self._used, WORDS_OF_A_BLOCK)
        if number == len(self._blocks):
            words = torch.zeros(WORDS_OF_A_BLOCK, APART, dtype=torch.int32, pin_memory=self._pinned)
            self._blocks.append((words, words.numpy().data.cast("B")))
        self._used += 1
        return self._blocks[number][0][place, : len(ERROR_WORDS)]

    def raised(self) -> bool:
        """Whether one of them is not 0; it does not wait for any stream."""
        return any(bytes(view) != NO_ERRORS for _, view in self._blocks)


WORDS_OF_A_BLOCK = 64
"""Error words that are allocated and compared together."""
APART = 8
"""int32 values from one to the next: all are aligned alike, so that a kernel is compiled once for all of them."""
NO_ERRORS = bytes(WORDS_OF_A_BLOCK * APART * 4)


class CallContext(Context):
    """A context whose error word the host reads between calls, without waiting for the stream."""

    def __init__(
        self, heap: SymmetricHeap, plan: Plan, rank: int, device: torch.device, *, limit_s: float, errors: ErrorWords
    ) -> None:
        super().__init__(heap, plan, rank, device, start=shared_bytes(plan), limit_s=limit_s)
        self.error = errors.take()
        self._words = self.error.numpy()

    def ended_failure(self) -> str | None:
        """The error word of the calls that have ended as a message, or None; it does not wait for the stream."""
        if not self._words[0]:
            return None
        if self.device.type == "cuda":  # the values after the first may still be in flight
            torch.cuda.synchronize(self.device)
        return self.failure()


class StandInContext(CallContext):
    """A context whose result is a stand-in."""

    def __init__(
        self, heap: SymmetricHeap, plan: Plan, rank: int, device: torch.device, *, limit_s: float, errors: ErrorWords
    ) -> None:
        super().__init__(heap, plan, rank, device, limit_s=limit_s, errors=errors)
        self.stand_in = torch.empty(self.result_shape, dtype=self.dtype, device="meta")

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of this rank's output."""
        return OPERATORS[self.problem.operator].local(self.problem)[RESULT]

    @property
    def local(self) -> Tensor:
        """The result of operators that receive operands; no other result goes to a rank's own memory here."""
        return self.stand_in

    def result(self) -> Tensor:
        """What the kernel takes as the place of its result, if it takes one."""
        return self.stand_in


def heap_bytes(plan: Plan, rank: int) -> int:
    """Bytes of symmetric memory that repeated calls of *plan* need on *rank*."""
    return shared_bytes(plan) + private_bytes(plan, rank)


class Repeated:
    """One fused kernel of one rank. Creating it compiles; a barrier of all ranks must follow before any first call."""

    def __init__(self, places: StandInContext, operands: Operands, programs_most: int = 0) -> None:
        """*programs_most*: as `on_fewer` takes it."""
        self.places = places
        stand_ins = {name: torch.empty_like(tensor, device="meta") for name, tensor in operands.items()}
        kernel = on_fewer(fused.kernel(places, stand_ins), programs_most)
        self._arguments = list(kernel.arguments)
        self._views = _views(kernel.arguments, {**stand_ins, RESULT: places.stand_in})
        self.fresh = any(view.name == RESULT for view in self._views)
        """Whether each call's result has fresh memory; else it lies in symmetric memory until the next call."""
        self._shared = None if self.fresh else places.of(places.rank, "out")
        bound = replace(kernel, arguments=tuple(self._bound({**operands, RESULT: self._empty()})))
        self._launch: Callable[[Sequence[Any]], None] = bound.argument_launcher()
        self._direct = bound.direct_launch(places.device) if is_direct() else None

    def __call__(self, operands: Mapping[str, Tensor]) -> Tensor:
        """Launches on the current stream with `ready` *operands*; the result is valid when the kernel has ended."""
        result = self._empty() if self._shared is None else self._shared
        if self._direct is None or is_watched():
            self._launch(self._bound({**operands, RESULT: result}))
            return result
        flat = self._direct.flat
        values = flat.values.copy()
        for view in self._views:
            tensor, at = result if view.name == RESULT else operands[view.name], flat.place[view.place]
            if view.block is None:
                values[at] = tensor.data_ptr() + view.offset * tensor.element_size()
            else:
                described = flat.maps[view.place].of(tensor, view.offset, view.shape, view.stride)
                values[at : at + len(described)] = described
        self._direct(values)
        return result

    def failure(self) -> str | None:
        """As `CallContext.ended_failure`."""
        return self.places.ended_failure()

    def _empty(self) -> Tensor:
        return torch.empty(self.places.result_shape, dtype=self.places.dtype, device=self.places.device)

    def _bound(self, named: Mapping[str, Tensor]) -> list[Any]:
        arguments = list(self._arguments)
        for view in self._views:
            arguments[view.place] = view.of(named[view.name])
        return arguments


def on_fewer(kernel: LaunchableKernel, programs_most: int) -> LaunchableKernel:
    """*kernel* with at most *programs_most* programs, each on an SM of its own, so that the others stay free; 0: all.

    Programs of one warp, which lookups have, do not fit so few: they are launched on all SMs.
    """
    if not programs_most or kernel.num_warps == 1:
        return kernel
    if kernel.grid > programs_most and kernel.takes_fewer:
        return replace(kernel, grid=programs_most)
    if kernel.grid > programs_most:
        raise Refusal(
            f"grid = {kernel.grid} is too large: collectives of other process groups need SMs, too, and "
            f"{kernel.grid} > {programs_most}, what they leave. Accepted: up to {programs_most}, or 0."
        )
    return replace(kernel, grid=kernel.grid or programs_most)


def ready(tensor: Tensor) -> Tensor:
    """*tensor* if it is contiguous and aligned, as kernels are compiled for; else a copy, which has no gradient."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _views(arguments: Sequence[Any], stand_ins: Mapping[str, Tensor]) -> list[ViewArgument]:
    """Which of *arguments* are views of which stand-in."""
    owners = {_storage(stand_in): name for name, stand_in in stand_ins.items()}
    views = []
    for place, argument in enumerate(arguments):
        described = isinstance(argument, TensorDescriptor | PlacedDescriptor)
        tensor = argument.base if described else argument
        if isinstance(tensor, Tensor) and (name := owners.get(_storage(tensor))) is not None:
            block = tuple(argument.block_shape) if described else None
            shape, stride = tuple(tensor.shape), tensor.stride()
            layout = getattr(argument, "layout", None) if described else None
            views.append(ViewArgument(place, name, int(tensor.storage_offset()), shape, stride, block, layout))
    return views


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
