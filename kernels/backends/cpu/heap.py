"""The symmetric heap: every rank's segment of shared memory, mapped by all ranks at the same offsets.

Memory ordering: data and stamp are written before the signal, and the signal is read before both. x86-64 keeps the
order of stores and of loads by itself; `fence` (which takes and releases a lock) enforces it on other processors:
writers call it before a signal, readers after they have seen one.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kernels.backends.base import Hang, Seat
from kernels.schedule import Refusal
from kernels.units import bytes_text

# Waiting: spin briefly, then sleep, and never beyond a deadline.

clock = time.perf_counter
"""CLOCK_MONOTONIC on Linux: all processes of a host read the same time."""

SPIN_SECONDS = 200e-6
NAP_SECONDS = 50e-6


def pause(since: float, now: float) -> None:
    """Lets other processes run: yields early in a wait that began at *since*, sleeps later."""
    if now - since < SPIN_SECONDS:
        os.sched_yield()
    else:
        time.sleep(NAP_SECONDS)


def until(ready: Callable[[], bool], deadline_s: float, what: Callable[[], str]) -> None:
    """Returns once *ready*; raises Hang with the text of *what* after *deadline_s* seconds."""
    since = clock()
    while not ready():
        now = clock()
        if now - since > deadline_s:
            raise Hang(f"{what()} Waited {deadline_s:g} s.")
        pause(since, now)


def sleep_until(moment: float) -> None:
    """Returns at *moment* of `clock`: sleeps, then spins the last stretch."""
    while (remaining := moment - clock()) > 0:
        if remaining > SPIN_SECONDS:
            time.sleep(remaining - SPIN_SECONDS / 2)


# Segments, and the heap that they form.

BOARD = 512
"""Numbers that each rank can show its peers at once."""
START_DELAY_SECONDS = 150e-6
"""Time from the last rank's arrival to the common start: longer than a nap, so that no rank is late."""
_NAME = "overlap-{session}-{generation}-{rank}-{pid}"
_PATTERN = re.compile(r"\.?overlap-\w+-\d+-\d+-(\d+)")
_LOCK = threading.Lock()


def fence() -> None:
    """Makes all stores before it visible before those after it."""
    with _LOCK:
        pass


def directory() -> Path:
    """The folder of the segments: in memory, not on a disk, wherever there is /dev/shm."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else Path(tempfile.gettempdir())


def sweep() -> int:
    """Unlinks segments whose owner is dead; returns how many. A killed rank may leave one behind."""
    leaked = 0
    for path in directory().glob("*overlap-*"):
        name = _PATTERN.fullmatch(path.name)
        if name and not Path(f"/proc/{name[1]}").exists() and Path("/proc/self").exists():
            with contextlib.suppress(PermissionError):  # it belongs to another user
                path.unlink(missing_ok=True)
                leaked += 1
    return leaked


class Segment:
    """One rank's memory as seen by one process: a board, a barrier counter, signals with stamps, and data."""

    def __init__(self, memory: mmap.mmap, signals: int) -> None:
        self._memory = memory
        view = memoryview(memory)
        bounds = np.cumsum([0, 64, 8 * BOARD, 8 * signals, 8 * signals])
        self.counter = np.frombuffer(view[bounds[0] : bounds[1]], dtype=np.int64)
        """Two counters: [0] barriers reached, [1] barrier of the start stamp."""
        self.start = self.counter.view(np.float64)[2:3]
        self.board = np.frombuffer(view[bounds[1] : bounds[2]], dtype=np.float64)
        self.signal = np.frombuffer(view[bounds[2] : bounds[3]], dtype=np.int64)
        """Epoch in which each step's bytes last arrived here."""
        self.stamp = np.frombuffer(view[bounds[3] : bounds[4]], dtype=np.float64)
        """Moment from which those bytes may be read: their arrival over the emulated link."""
        self.data = torch.frombuffer(memory, dtype=torch.uint8, offset=header_bytes(signals))


def header_bytes(signals: int) -> int:
    """Bytes before the data, a multiple of a page."""
    return -(-(64 + 8 * BOARD + 16 * signals) // mmap.PAGESIZE) * mmap.PAGESIZE


class SegmentHeap:
    """All ranks' segments, mapped into this process. `segments[rank]` is that rank's memory."""

    def __init__(self, seat: Seat, generation: int, num_bytes: int, signals: int) -> None:
        self.seat, self.capacity, self.signals = seat, num_bytes, signals
        self.generation = generation
        self._barriers = 0
        total = header_bytes(signals) + max(num_bytes, mmap.PAGESIZE)
        created = self._create(total)
        try:
            paths = [created if rank == seat.rank else self._find(rank, total) for rank in range(seat.world)]
            self.segments = [Segment(_map(path, total), signals) for path in paths]
            self.barrier()
        finally:
            created.unlink()

    def _create(self, total: int) -> Path:
        sweep()
        file_system = os.statvfs(directory())
        free = file_system.f_bavail * file_system.f_frsize
        # faster peers have allocated their segments already: all ranks must come to the same answer
        allocated = len(list(directory().glob(f"*overlap-{self.seat.session}-{self.generation}-*")))
        if total * (self.seat.world - allocated) > free:
            raise Refusal(
                f"The ranks' heap needs {self.seat.world} x {bytes_text(total)} of shared memory, but "
                f"{directory()} has {bytes_text(free)} free. Accepted: a smaller shape or world, or a larger "
                f"{directory()}."
            )
        name = _NAME.format(session=self.seat.session, generation=self.generation, rank=self.seat.rank, pid=os.getpid())
        hidden, path = directory() / f".{name}", directory() / name
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, total)
        except OSError as error:
            hidden.unlink()
            raise Refusal(f"{directory()} did not give {bytes_text(total)} of shared memory: {error}.") from None
        finally:
            os.close(descriptor)
        hidden.rename(path)
        return path

    def _find(self, rank: int, total: int) -> Path:
        pattern = _NAME.format(session=self.seat.session, generation=self.generation, rank=rank, pid="*")
        until(
            lambda: any(directory().glob(pattern)),
            self.seat.deadline_s,
            lambda: (
                f"Rank {self.seat.rank} waited for rank {rank}'s segment of the symmetric heap ({bytes_text(total)})."
            ),
        )
        return next(directory().glob(pattern))

    @property
    def own_segment(self) -> Segment:
        return self.segments[self.seat.rank]

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset*, the same offset on every rank."""
        count = int(np.prod(shape)) * dtype.itemsize
        return self.segments[rank].data[offset : offset + count].view(dtype).view(*shape)

    def barrier(self) -> float:
        """Waits until all ranks are here; returns the common moment at which they leave."""
        self._barriers += 1
        number, seat = self._barriers, self.seat
        fence()
        self.own_segment.counter[0] = number
        if seat.rank == 0:
            for rank, segment in enumerate(self.segments):
                until(
                    lambda segment=segment: segment.counter[0] >= number,  # type: ignore[misc]
                    seat.deadline_s,
                    lambda rank=rank: f"Rank 0 waited for rank {rank} at barrier {number}.",  # type: ignore[misc]
                )
            self.own_segment.start[0] = clock() + START_DELAY_SECONDS
            fence()
            self.own_segment.counter[1] = number
        else:
            until(
                lambda: self.segments[0].counter[1] >= number,
                seat.deadline_s,
                lambda: f"Rank {seat.rank} waited for rank 0 at barrier {number}.",
            )
        start = float(self.segments[0].start[0])
        sleep_until(start)
        return start

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """All ranks' *values*, by rank."""
        gathered: list[list[float]] = [[] for _ in self.segments]
        for first in range(0, len(values), BOARD):
            part = values[first : first + BOARD]
            self.own_segment.board[: len(part)] = part
            self.barrier()
            for of_rank, segment in zip(gathered, self.segments, strict=True):
                of_rank.extend(float(value) for value in segment.board[: len(part)])
            self.barrier()
        return gathered


def _map(path: Path, total: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, total)
    finally:
        os.close(descriptor)
