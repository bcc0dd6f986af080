"""The symmetric heap of GPU ranks: one allocation of torch's symmetric memory, at the same offsets on every rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from math import prod
from typing import Any, Protocol

import torch
import torch.distributed
from torch import Tensor

from kernels.backends.base import LONGEST_COMPILATION_SECONDS, Seat
from kernels.backends.triton import nccl
from kernels.schedule import Refusal
from kernels.units import bytes_text


def meeting_place() -> Any:
    """Where ranks of this host find each other: a store of this process, which outlives them, on a port of its own."""
    dist: Any = torch.distributed
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


class Group:
    """The process group of one gang of GPU ranks: NCCL between GPUs, gloo for numbers on the host."""

    def __init__(self, seat: Seat, device: torch.device) -> None:
        if seat.rendezvous is None:
            raise ValueError("GPU ranks meet through a rendezvous, and this gang started without one.")
        # each rank has its GPU as number 0; torch would take that for one GPU shared by all
        os.environ.setdefault("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1")
        for name, value in nccl.OF_RANKS.items():
            os.environ.setdefault(name, value)
        self.seat, self._dist = seat, torch.distributed
        host, port = seat.rendezvous
        # a peer may compile meanwhile; one that hangs is found sooner, by whoever hears its reports
        limit = timedelta(seconds=max(seat.deadline_s, LONGEST_COMPILATION_SECONDS))
        dist: Any = self._dist
        store = dist.PrefixStore(seat.session, dist.TCPStore(host, port, is_master=False, timeout=limit))
        self.close()  # the one of a gang before
        dist.init_process_group(
            "cpu:gloo,cuda:nccl", store=store, rank=seat.rank, world_size=seat.world, timeout=limit, device_id=device
        )
        self.nccl = dist.group.WORLD

    def barrier(self) -> None:
        """All ranks meet on the host."""
        self.exchange([0.0])

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""
        dist: Any = self._dist
        mine = torch.tensor(values, dtype=torch.float64)
        everyone = [torch.empty_like(mine) for _ in range(self.seat.world)]
        dist.all_gather(everyone, mine)
        return [[float(value) for value in one] for one in everyone]

    def close(self) -> None:
        """The process group of this rank ends, whichever gang it was of."""
        dist: Any = self._dist
        if dist.is_initialized():
            nccl.leave()
            dist.destroy_process_group()


class Makers(Protocol):
    """The ranks that make a heap together: a `Group`, or a process group that a caller made."""

    seat: Seat
    nccl: Any
    """Their process group."""

    def barrier(self) -> None:
        """All ranks meet on the host."""

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank (equal lengths)."""


class DeviceHeap:
    """One rank's end of the heap. Making one is collective; `Refusal` where the GPU has no room."""

    def __init__(self, group: Makers | None, device: torch.device, num_bytes: int) -> None:
        free, _ = torch.cuda.mem_get_info(device)
        least = min(value for (value,) in group.exchange([float(free)])) if group else float(free)
        if num_bytes > least:
            raise Refusal(
                f"The ranks' heap needs {bytes_text(num_bytes)} on every GPU, but the fullest one has "
                f"{bytes_text(least)} free. Accepted: a smaller shape, or fewer schedules at once."
            )
        self.capacity, self._rank = num_bytes, group.seat.rank if group else 0
        self._handle: Any = None
        if group:
            import torch.distributed._symmetric_memory as symmetric

            self._buffer = symmetric.empty(num_bytes, dtype=torch.uint8, device=device)
            self._handle = symmetric.rendezvous(self._buffer, group.nccl)
        else:
            self._buffer = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        self._buffer.zero_()
        torch.cuda.synchronize(device)
        if group:
            group.barrier()

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A view of *rank*'s memory at *offset* bytes, the same offset on every rank."""
        num_bytes = prod(shape) * dtype.itemsize
        if rank == self._rank:
            return self._buffer[offset : offset + num_bytes].view(dtype).view(*shape)
        found: Tensor = self._handle.get_buffer(rank, (num_bytes,), torch.uint8, offset)
        return found.view(dtype).view(*shape)
