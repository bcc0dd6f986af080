"""CUDA streams of one call, copies on them, and cuBLAS restricted to fewer SMs."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

# The streams of one call: it forks from the current stream into others by events, and joins them again.

MAIN = 0
"""Number of the stream that a call starts on."""


class StreamSet(Protocol):
    """The streams on which the work of one call runs."""

    def fork(self) -> None:
        """Makes all other streams wait for the work that is enqueued on the main stream."""

    def on(self, number: int) -> AbstractContextManager[Any]:
        """A context in which work is enqueued on stream *number*."""

    def mark(self, number: int, *, timed: bool = False) -> Any:
        """An event after all work on stream *number*; a *timed* one records a time and does not order streams."""

    def after(self, number: int, event: Any) -> None:
        """Makes later work on stream *number* wait for *event*."""

    def join(self) -> None:
        """Makes the main stream wait for all others."""

    def lanes(self, numbers: Sequence[int]) -> Iterable[torch.cuda.Stream]:
        """The streams with these *numbers*, for copies of the current call."""


class CudaStreams:
    """CUDA streams; in a capture they become branches of the graph."""

    def __init__(self, numbers: Iterable[tuple[int, int]], device: torch.device) -> None:
        """*numbers*: number and priority of each stream except the main one; priority > 0 is high."""
        self._device, self._numbers = device, list(numbers)
        priorities = [priority for _, priority in self._numbers]
        # one more per priority: torch reuses the streams of its pool in turn, so one of these may be the caller's own
        self._pool = [
            (priority, torch.cuda.Stream(device, priority=-int(priority > 0)))
            for priority in (*priorities, *sorted(set(priorities)))
        ]
        self._current = torch.cuda.current_stream(device)
        self._streams: dict[int, torch.cuda.Stream] = {}

    def fork(self) -> None:
        self._current = torch.cuda.current_stream(self._device)
        free = [(priority, stream) for priority, stream in self._pool if stream != self._current]
        self._streams.clear()
        self._streams[MAIN] = self._current
        for number, priority in self._numbers:
            chosen = next(each for each in free if each[0] == priority)
            free.remove(chosen)
            self._streams[number] = chosen[1]
            chosen[1].wait_stream(self._current)

    def on(self, number: int) -> AbstractContextManager[Any]:
        on: AbstractContextManager[Any] = torch.cuda.stream(self._streams[number])
        return on

    def mark(self, number: int, *, timed: bool = False) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=timed, external=timed)
        event.record(self._streams[number])
        return event

    def after(self, number: int, event: torch.cuda.Event) -> None:
        self._streams[number].wait_event(event)

    def join(self) -> None:
        for number, _ in self._numbers:
            self._current.wait_stream(self._streams[number])

    def lanes(self, numbers: Sequence[int]) -> StreamLanes:
        """The streams with these *numbers*, as the latest `fork` assigns them."""
        return StreamLanes(self._streams, numbers)


class StreamLanes:
    """Streams of one call, in order; every `fork` assigns them anew."""

    def __init__(self, streams: dict[int, torch.cuda.Stream], numbers: Sequence[int]) -> None:
        self._streams, self._numbers = streams, numbers

    def __iter__(self) -> Iterator[torch.cuda.Stream]:
        return iter([self._streams[number] for number in self._numbers])


class InOrderStreams:
    """Stand-in on CPU ranks, which interpret kernels: all work runs at once, in the order in which it is enqueued."""

    def fork(self) -> None:
        pass

    @contextmanager
    def on(self, number: int) -> Iterator[None]:
        with nullcontext():
            yield

    def mark(self, number: int, *, timed: bool = False) -> None:
        pass

    def after(self, number: int, event: Any) -> None:
        pass

    def join(self) -> None:
        pass

    def lanes(self, numbers: Sequence[int]) -> Iterable[torch.cuda.Stream]:
        return ()


def streams(numbers: Iterable[tuple[int, int]], device: torch.device) -> StreamSet:
    """The stream set for *device*."""
    return CudaStreams(numbers, device) if device.type == "cuda" else InOrderStreams()


def copy(target: Tensor, source: Tensor) -> None:
    """Copies *source* [rows, width] to *target*, with a copy engine if one of them is a peer's; rows may have gaps.

    torch copies rows with gaps by a kernel; the driver's pitched copy is a single operation of a copy engine.
    """
    if target.device.type == "cpu" or (target.is_contiguous() and source.is_contiguous()):
        target.copy_(source)
        return
    from cuda.bindings import driver

    rows, width = source.shape
    pitched = driver.CUDA_MEMCPY2D()
    pitched.srcMemoryType = pitched.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    pitched.srcDevice, pitched.dstDevice = source.data_ptr(), target.data_ptr()
    pitched.srcPitch, pitched.dstPitch = (side.stride(0) * side.itemsize for side in (source, target))
    pitched.WidthInBytes, pitched.Height = width * source.itemsize, rows
    (status,) = driver.cuMemcpy2DAsync(pitched, torch.cuda.current_stream(target.device).cuda_stream)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"The pitched copy of {rows} rows of {pitched.WidthInBytes} bytes failed: {status.name}.")


# cuBLAS on fewer SMs: its SM count target, which it reads at every call, also during a capture.


@contextmanager
def leaving(sms: int, device: torch.device) -> Iterator[None]:
    """A context in which cuBLAS plans for *sms* fewer SMs than *device* has; 0 changes nothing.

    In torch 2.11, torch's carveout only reaches cuBLASLt. `mm` uses cuBLAS, so the target of torch's cuBLAS handle is
    set, too. NVIDIA calls both a hint: `timing.kernels` shows how many thread blocks were launched.
    """
    if not sms or device.type != "cuda":
        yield
        return
    total = int(torch.cuda.get_device_properties(device).multi_processor_count)
    _carve(sms)
    _target(total - sms)
    try:
        yield
    finally:
        _target(0)
        _carve(None)


def on_fewer(call: Callable[[], None], sms: int, device: torch.device) -> Callable[[], None]:
    """*call*, run so that cuBLAS leaves *sms* SMs free."""

    def called() -> None:
        with leaving(sms, device):
            call()

    return called if sms else call


def _carve(sms: int | None) -> None:
    with warnings.catch_warnings():  # torch warns that it may ignore the value; `timing.kernels` shows the effect
        warnings.simplefilter("ignore")
        torch._C._set_sm_carveout_experimental(sms)


def _target(sms: int) -> None:
    """Sets the SM count target of this thread's cuBLAS handle of torch; 0: all SMs."""
    status = _library().cublasSetSmCountTarget(ctypes.c_void_p(torch.cuda.current_blas_handle()), sms)
    if status:
        raise RuntimeError(f"cuBLAS does not take {sms} as its number of SMs: status {status}.")


@cache
def _library() -> Any:
    """The cuBLAS library that torch has loaded."""
    major = str(torch.version.cuda).partition(".")[0]
    return ctypes.CDLL(f"libcublas.so.{major}")
