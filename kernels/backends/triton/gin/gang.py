"""The ranks of a gang on several hosts, one GPU each: communicator, windows, a context for each trial, and its end.

Not yet run on a GPU as a whole. A probe of 2026-11-23 ran its parts on one H200, with processes that looked like hosts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from kernels.backends.base import Seat
from kernels.backends.triton.gin import wheel
from kernels.backends.triton.gin.context import (
    MEETING_BYTES,
    NetworkContext,
    NetworkLink,
    WindowHeap,
    extern_libraries,
)
from kernels.backends.triton.gin.library import Communicator, Nccl
from kernels.backends.triton.gin.table import QUEUE
from kernels.backends.triton.gin.transport import meet
from kernels.plan import Plan
from kernels.schedule import Refusal

QUEUE_SIZE = "NCCL_GIN_PROXY_QUEUE_SIZE"
"""The variable with which NCCL makes its queues shorter."""


class Members(Protocol):
    """The ranks of a gang, which exchange numbers on the host: `memory.RankProcessGroup`."""

    seat: Seat

    def barrier(self) -> None:
        """All ranks meet on the host."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank."""


def one_rank_a_host(seat: Seat) -> str | None:
    """Why the ranks of *seat*'s gang cannot put between hosts, or None: each needs a host of its own."""
    hosts = len(set(seat.addresses))
    if seat.world < 2:
        return (
            f"transport = gin has nobody to put to in world = {seat.world}: {seat.world} < 2. Accepted: a world of 2 "
            "or more, with one rank on each host."
        )
    if seat.addresses and hosts < seat.world:
        return (
            f"transport = gin runs one rank on each host, and {seat.world} ranks are on {hosts} here: {seat.world} > "
            f"{hosts}. Accepted: a world of at most {hosts}, or more hosts; several GPUs of a host are simulated only."
        )
    return None


def short_queue(environment: Mapping[str, str]) -> str | None:
    """Why NCCL's queues hold fewer puts than the tables count on, or None: a put into a full one has no deadline."""
    size = environment.get(QUEUE_SIZE, str(QUEUE))
    if size.isdecimal() and not 0 < int(size) < QUEUE:
        return None
    return (
        f"transport = gin counts on queues of {QUEUE} puts, and {QUEUE_SIZE} makes them other ones: {size} instead of "
        f"{QUEUE}. Accepted: {QUEUE_SIZE} unset, or {QUEUE} or more."
    )


class NetworkGang:
    """This rank's communicator and window. Making one is collective; Refusal says what lacks, on all ranks alike."""

    def __init__(self, members: Members, device: torch.device, folder: Path = wheel.FOLDER) -> None:
        self._members, self._device, self._folder = members, device, folder
        installed = wheel.Wheel(folder)
        self._agree(installed.lacking() or short_queue(os.environ))
        nccl = Nccl(installed.library)
        unique_id = nccl.unique_id() if members.seat.rank == 0 else bytes(128)
        from_first = members.exchange([float(byte) for byte in unique_id])[0]
        unique_id = bytes(int(byte) for byte in from_first)
        self.communicator = Communicator(nccl, members.seat.world, unique_id, members.seat.rank)
        self._agree(self.communicator.lacking())
        self._heap: WindowHeap | None = None
        self._links: list[NetworkLink] = []
        self._abandoned: list[NetworkLink] = []

    def _agree(self, reason: str | None) -> None:
        """Refusal on all ranks if any of them has a *reason*."""
        ranks = [rank for rank, (value,) in enumerate(self._members.exchange([float(reason is not None)])) if value]
        if reason is not None:
            raise Refusal(reason)
        if ranks:
            raise Refusal(
                f"transport = gin lacks something on {len(ranks)} of {self._members.seat.world} hosts, first on that "
                f"of rank {ranks[0]}. Accepted: what `workbench doctor` lists there."
            )

    def heap(self, num_bytes: int) -> WindowHeap:
        """The window of this rank, with at least *num_bytes*; collective where it has to grow."""
        if self._heap is None or self._heap.capacity < num_bytes:
            if self._heap is not None:
                self._heap.close()
            self._heap = WindowHeap(self.communicator, self._device, 1 << (num_bytes - 1).bit_length())
        return self._heap

    def context(
        self, heap: WindowHeap, plan: Plan, start: int, limit_s: float, *, linked: bool = True
    ) -> NetworkContext:
        """Memory and signals of one trial. All ranks call it, and meet before any rank's first call.

        Without *linked* it has no signals: kernels are compiled for it, and none is launched.
        """
        context = NetworkContext(heap, plan, self._members.seat.rank, self._device, start=start, limit_s=limit_s)
        context.libraries = extern_libraries(self._folder)
        if not linked:
            return context
        link = NetworkLink(self.communicator, heap.window, context.table, self._device)
        self._links.append(link)
        context.link = link
        return context

    def forget(self) -> None:
        """Frees the links of trials that have ended on all ranks."""
        for link in self._links:
            link.close()
        self._links.clear()

    def abort(self) -> bool:
        """Ends the communicator after a failure; the process that has done so is replaced before the next gang.

        Links stay in memory, since kernels may still read them.
        """
        self._abandoned, self._links = self._links, []
        return self.communicator.abort()

    def close(self) -> None:
        """Ends the communicator without a word to the peers, which may be dead."""
        self.abort()


class NetworkBarrier:
    """A barrier of all hosts' ranks on the current stream, at every call, as `timing.StreamBarrier` is of one host."""

    def __init__(self, context: NetworkContext, stamp: Tensor | None = None) -> None:
        self._context = context
        ignored = torch.zeros(1, dtype=torch.int64, device=context.device)
        self._stamp = ignored if stamp is None else stamp

    def __call__(self) -> None:
        context = self._context
        comm, window = context.sending()
        linked = {} if context.libraries is None else {"extern_libs": dict(context.libraries)}
        meet[(1,)](
            comm, window, context.table.meeting, 0, context.at("meeting"), context.meetings, context.error,
            context.limit_ns, self._stamp, context.rank, WORLD=context.world, BYTES=MEETING_BYTES, num_warps=1,
            **linked,
        )  # fmt: skip
