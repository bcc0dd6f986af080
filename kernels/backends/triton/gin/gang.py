"""The ranks of a gang on several hosts, one GPU each: communicator, windows, a context for each trial, and its end.

Run on one machine only, by processes that looked like hosts (`python -m tests.gpu.gin`), never on two machines.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Protocol, TypeVar, cast

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
from kernels.backends.triton.gin.library import ABORT_SECONDS, Communicator, Nccl, NcclError
from kernels.backends.triton.gin.table import QUEUE
from kernels.backends.triton.gin.transport import meet
from kernels.backends.triton.nccl import HOST_NAME
from kernels.plan import Plan
from kernels.schedule import Refusal
from kernels.units import bytes_text

Made = TypeVar("Made")
ID_BYTES = 128
"""Size of the name of a communicator."""
CLOSING_SECONDS = 5.0
"""How long a rank waits at the end for the others, which may still flush: a flush takes microseconds."""
QUEUE_SIZE = "NCCL_GIN_PROXY_QUEUE_SIZE"
"""The variable with which NCCL makes its queues shorter."""


class Members(Protocol):
    """The ranks of a gang, which exchange numbers on the host: `memory.RankProcessGroup`."""

    seat: Seat

    def barrier(self) -> None:
        """All ranks meet on the host."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """The *values* of all ranks, by rank."""


def count_hosts(members: Members, environment: Mapping[str, str]) -> int:
    """How many hosts NCCL counts: by HOST_NAME in a rank's *environment*, or else by its address. Collective."""
    seat = members.seat
    address = seat.addresses[seat.rank] if seat.addresses else f"rank {seat.rank}"
    name = hashlib.sha256((environment.get(HOST_NAME) or address).encode()).digest()
    return len({number for (number,) in members.exchange([float(int.from_bytes(name[:6], "big"))])})


def one_rank_a_host(seat: Seat, hosts: int) -> str | None:
    """Why the ranks of *seat*'s gang on *hosts* cannot put between hosts, or None: each needs a host of its own."""
    if seat.world < 2:
        return (
            f"transport = gin has nobody to put to in world = {seat.world}: {seat.world} < 2. Accepted: a world of 2 "
            "or more, with one rank on each host."
        )
    if hosts < seat.world:
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


def no_room(num_bytes: int, here: str) -> str:
    """Why a window of *num_bytes* cannot be made; *here* says what there is."""
    return (
        f"transport = gin needs a window of {bytes_text(num_bytes)} on every GPU, and {here.rstrip('.')}. Accepted: a "
        "smaller shape, or fewer schedules at once."
    )


class WithoutGin(Refusal):
    """Hosts of a gang that have no GIN: its communicator has ended, and another one would have none either."""


class NetworkGang:
    """This rank's communicator and window. Making one is collective; Refusal says what lacks, on all ranks alike."""

    def __init__(self, members: Members, device: torch.device, folder: Path = wheel.FOLDER) -> None:
        self._members, self._device, self._folder = members, device, folder
        self._heap: WindowHeap | None = None
        self._links: list[NetworkLink] = []
        self._abandoned: list[NetworkLink] = []
        self._ended = False
        nccl, unique_id = self._on_each(self._open)
        from_first = members.exchange([float(byte) for byte in unique_id])[0]
        unique_id = bytes(int(byte) for byte in from_first)
        self.communicator = Communicator(nccl, members.seat.world, unique_id, members.seat.rank)
        try:
            self._on_each(self._supported)
        except Refusal as refused:
            self.abort()
            raise WithoutGin(str(refused)) from None

    def _open(self) -> tuple[Nccl, bytes]:
        """The library, and the name of a communicator, which rank 0 draws; Refusal or NcclError if it cannot."""
        installed = wheel.Wheel(self._folder)
        if (reason := installed.lacking() or short_queue(os.environ)) is not None:
            raise Refusal(reason)
        nccl = Nccl(installed.library, self._device)
        return nccl, nccl.unique_id() if self._members.seat.rank == 0 else bytes(ID_BYTES)

    def _supported(self) -> None:
        """Refusal where these hosts have no GIN."""
        if (reason := self.communicator.lacking()) is not None:
            raise Refusal(reason)

    def _on_each(self, make: Callable[[], Made]) -> Made:
        """What *make* returns, which waits for no other rank; Refusal on all ranks if it fails on any."""
        made, reason = None, None
        try:
            made = make()
        except Refusal as refused:
            reason = str(refused)
        except Exception as error:  # the others would wait for this rank
            seat = self._members.seat
            reason = (
                f"transport = gin does not start on rank {seat.rank} of {seat.world}. "
                f"{type(error).__name__}: {str(error).rstrip('.')}. Accepted: what `workbench doctor` lists there."
            )
        self._agree(reason)
        return cast(Made, made)

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
            old, self._heap = self._heap, None
            if old is not None:
                old.close()
            self._heap = self._window(1 << (num_bytes - 1).bit_length())
        return self._heap

    def _window(self, num_bytes: int) -> WindowHeap:
        """A window of *num_bytes* on every rank, or on none: Refusal where a GPU has no room, on all ranks alike."""
        free, _ = torch.cuda.mem_get_info(self._device)
        least = int(min(value for (value,) in self._members.exchange([float(free)])))
        if num_bytes > least:
            raise Refusal(no_room(num_bytes, f"the fullest one has {bytes_text(least)} free"))
        heap = WindowHeap(self.communicator, self._device, num_bytes)

        def allocate() -> None:
            try:
                heap.allocate()
            except NcclError as error:
                here = f"that of rank {self._members.seat.rank}, with {bytes_text(free)} free, gives 0 bytes: {error}"
                raise Refusal(no_room(num_bytes, here)) from None

        try:
            self._on_each(allocate)
            heap.register()
        except Refusal:
            heap.free()
            raise
        return heap

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
        self._ended = True
        self._abandoned, self._links = self._links, []
        return self.communicator.abort()

    def close(self) -> None:
        """Ends the communicator together with all ranks, or aborts it after CLOSING_SECONDS, since peers may be dead.

        A rank that ended it at once would cut off a peer that still flushes. After a failure nobody is waited for.
        RuntimeError where the abort has not ended either: what follows in this process would wait for it.
        """
        if not self._ended:
            thread = Thread(target=self._end_together, name="the ranks' last meeting", daemon=True)
            thread.start()
            thread.join(CLOSING_SECONDS)
            if not thread.is_alive() and self._ended:
                return
        if not self.abort():
            raise RuntimeError(
                "NCCL's communicator between hosts did not end: the ranks had "
                f"{CLOSING_SECONDS:g} s to do so together, and its abort {ABORT_SECONDS:g} s. This rank's process is "
                "not used again."
            )

    def _end_together(self) -> None:
        """Frees links and window and destroys the communicator, as all ranks do; nothing where a peer has gone."""
        with suppress(Exception):
            self._members.barrier()
            self.communicator.nccl.take_device()
            self.forget()
            heap, self._heap = self._heap, None
            if heap is not None:
                heap.close()
            self.communicator.destroy()
            self._ended = True


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
