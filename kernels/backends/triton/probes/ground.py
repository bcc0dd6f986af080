"""A gang of GPU ranks that times probes: all ranks at once, captured calls, five blocks of replays."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import torch

from kernels.backends.base import Hang, Seat
from kernels.backends.triton.graph import Replay
from kernels.backends.triton.heap import DeviceHeap, Group
from kernels.backends.triton.probes.site import Call, Site
from kernels.problem import Problem
from kernels.reference import Operands

SLOT_BYTES = 1 << 28
"""The largest message of a pair of ranks."""
POOL_BYTES = 1 << 31
"""Of a GPU's own memory, read and copied in turns: forty times its L2."""
GRAPH_SECONDS, EAGER_SECONDS = 2e-3, 4e-3
"""A replay is about this long by the time that is expected of a call."""
CALLS_MOST = 200
BLOCKS, REPLAYS, WARM = 5, 3, 2
"""Blocks of a probe, replays in each, replays before the first."""


class Ground:
    """One rank's process group, heap, stream and memory, on the one GPU that its process sees."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.device = torch.device("cuda", 0)
        torch.cuda.set_device(self.device)
        self.group = Group(seat, self.device) if seat.world > 1 else None
        heap = DeviceHeap(self.group, self.device, Site.heap_bytes(seat.world, SLOT_BYTES))
        self.site = Site(heap, seat.rank, seat.world, SLOT_BYTES, self.device)
        self.processors = torch.cuda.get_device_properties(self.device).multi_processor_count
        self.pool = torch.empty(POOL_BYTES // 8, dtype=torch.int64, device=self.device).random_()
        self.stream = torch.cuda.Stream(self.device)
        self.held: tuple[Problem, list[Operands]] | None = None
        """Operands of the last problem, which several probes in a row use."""
        self.barrier()

    def blocks(self, calls: Sequence[Call], expected_s: float, *, captured: bool = True) -> list[float]:
        """Seconds of one call in each of BLOCKS blocks, on this rank's clock from the common start.

        *calls* run in turns, as many as take about GRAPH_SECONDS by *expected_s*; `Hang` says what was waited for.
        """
        self.barrier()  # what was prepared on another stream is there
        with torch.cuda.stream(self.stream):  # compiles; libraries set up what they may not while a graph is captured
            for call in calls[:2]:
                call()
        self.barrier()
        self._check()
        count = min(CALLS_MOST, max(3, round((GRAPH_SECONDS if captured else EAGER_SECONDS) / expected_s)))
        replay = Replay(self.site, [calls[n % len(calls)] for n in range(count)], self.stream, captured=captured)
        for _ in range(WARM):
            self._replayed(replay)
        found = [median(self._replayed(replay) for _ in range(REPLAYS)) for _ in range(BLOCKS)]
        self._check()
        return found

    def _replayed(self, replay: Replay) -> float:
        self.barrier()
        return replay.seconds()

    def _check(self) -> None:
        if sentence := self.site.failure():
            raise Hang(sentence)

    def barrier(self) -> None:
        """All ranks meet on the host, their GPUs idle."""
        torch.cuda.synchronize(self.device)
        if self.group is not None:
            self.group.barrier()

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank."""
        return [list(values)] if self.group is None else self.group.exchange(values)

    def close(self) -> None:
        """Leaves the process group."""
        if self.group is not None:
            self.group.close()
