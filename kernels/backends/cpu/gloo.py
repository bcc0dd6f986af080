"""The library's collectives between CPU ranks: gloo over TCP, on one host or across hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from kernels.backends.base import Seat
from kernels.backends.cpu.layout import Memory, Rectangle
from kernels.plan import Plan

Start = Callable[[], Any]
"""A call that begins a collective and returns its work object."""


class Library:
    """The process group of one gang, which all ranks make together at the first trial that needs it."""

    def __init__(self, seat: Seat) -> None:
        if seat.rendezvous is None:
            raise ValueError("collective = library needs a rendezvous, and this gang started without one.")
        self.seat, self._rounds = seat, 0
        host, port = seat.rendezvous
        dist: Any = torch.distributed  # its gloo bindings are not typed
        limit = timedelta(seconds=seat.deadline_s)
        self._store = dist.TCPStore(host, port, is_master=False, timeout=limit)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=_address(seat, host))]
        options._timeout = limit
        self.group = dist.ProcessGroupGloo(dist.PrefixStore(seat.session, self._store), seat.rank, seat.world, options)

    def wait_at_most(self, deadline_s: float) -> None:
        """Limits every wait from now on to *deadline_s* seconds."""
        limit = timedelta(seconds=deadline_s)
        self._store.set_timeout(limit)
        self.group._set_default_timeout(limit)

    def barrier(self) -> None:
        self.group.barrier().wait()

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """All ranks' *values*, by rank."""
        sent = torch.tensor(values, dtype=torch.float64)
        received = [torch.empty_like(sent) for _ in range(self.seat.world)]
        self.group.allgather([received], [sent]).wait()
        return [[float(value) for value in of_rank] for of_rank in received]


def _address(seat: Seat, fallback: str) -> str:
    return seat.addresses[seat.rank] if seat.addresses else fallback


class Call:
    """One collective step of a plan, its buffers, and the copy that unpacks them."""

    def __init__(self, memory: Memory, library: Library, plan: Plan, step: int) -> None:
        self.memory, self.group, self.world = memory, library.group, memory.problem.world
        self.k = (int(plan.k_start[step]), int(plan.k_stop[step]))
        self.rows = (int(plan.row_start[step]), int(plan.row_stop[step]))
        span = slice(int(plan.tile_start[step]), int(plan.tile_stop[step]))
        tiles = plan.tiles[memory.rank]
        self._whole = (
            None
            if memory.receives
            else _extent(tiles.row_start[span], tiles.row_stop[span], tiles.col_start[span], tiles.col_stop[span])
        )
        self._sent, self._received = self._buffers()

    def _buffers(self) -> tuple[Tensor, Tensor]:
        dtype = self.memory.local_MN.dtype
        if self._whole is None:
            size = (self.rows[1] - self.rows[0], self.k[1] - self.k[0])
            gathers = self.memory.operator.collective == "all_gather"
            sent = torch.empty((1 if gathers else self.world, *size), dtype=dtype)
        else:
            _, r0, r1, c0, c1 = self._whole
            sent = torch.empty((self.world, r1 - r0, c1 - c0), dtype=dtype)
        return sent, torch.empty((self.world, *sent.shape[1:]), dtype=dtype)

    def start(self) -> Any:
        """Packs the bytes that leave and begins the collective.

        gloo's own reduce-scatter cannot be polled while computation goes on (its work has neither a future nor a
        state), so the partial sums travel by its all-to-all, the same bytes, and are added on arrival.
        """
        self._pack()
        match self.memory.operator.collective:
            case "all_to_all" | "reduce_scatter":
                return self.group.alltoall_base(self._received, self._sent, [], [])
            case "all_gather":
                return self.group._allgather_base(self._received, self._sent)
        return self.group.allreduce([self._sent])

    def _pack(self) -> None:
        memory = self.memory
        for peer in range(len(self._sent)):
            if self._whole is None:
                self._sent[peer] = memory.shard(peer)[slice(*self.rows), slice(*self.k)]
            else:
                start = peer * memory.chunk
                self._sent[peer] = memory.cut(memory.local_MN[start : start + memory.chunk], self._whole)

    def unpack(self) -> None:
        """Copies the bytes that arrived to where the operator reads them."""
        memory = self.memory
        for source in range(self.world):
            if self._whole is None:
                memory.operand_rows(source, self.rows, self.k, memory.rank, "operand").copy_(self._received[source])
            elif memory.operator.collective == "all_reduce":
                start = source * memory.chunk
                memory.cut(memory.of(memory.rank, "out")[start : start + memory.chunk], self._whole).copy_(
                    self._sent[source]
                )
            elif memory.operator.collective == "reduce_scatter":
                torch.sum(self._received, dim=0, out=memory.cut(memory.of(memory.rank, "out"), self._whole))
                return
            else:
                memory.cut(memory.slot(memory.rank, source), self._whole).copy_(self._received[source])


def _extent(r0: Any, r1: Any, c0: Any, c1: Any) -> Rectangle:
    """The rows and columns that a piece's tiles cover in each chunk; a library piece covers the same in all of them."""
    return (0, int(r0.min()), int(r1.max()), int(c0.min()), int(c1.max()))
