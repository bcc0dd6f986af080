"""Where probes run: signals and a landing place in symmetric memory, random words to send; on GPUs and interpreted."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch

from kernels.backends.regions import Region, aligned, place
from kernels.backends.triton.context import Heap, Station

Call = Callable[[], None]

PACKETS = 1024
"""Most packets of one ping-pong."""
LIMIT_S = 5.0
"""After which a wait inside a probe's kernel gives up."""


def _regions(world: int, slot_bytes: int) -> dict[str, tuple[Region, torch.dtype]]:
    """What peers send, and behind it, where no trial's data come, counters and packets."""
    landing = Region(0, (world, slot_bytes // 4))
    counted = place({"meet": (world,), "done": (world,), "ping": (1,)}, 4, aligned(world * slot_bytes))
    packets = Region(max(aligned(each.offset + 4 * prod(each.shape)) for each in counted.values()), (PACKETS,))
    found = {name: (region, torch.int32) for name, region in ({"landing": landing} | counted).items()}
    return found | {"packets": (packets, torch.int64)}


class Site(Station):
    """One rank's end. *slot_bytes*: what each peer may send here; the heap has room for `heap_bytes` of them."""

    def __init__(self, heap: Heap, rank: int, world: int, slot_bytes: int, device: torch.device) -> None:
        super().__init__(heap, rank, world, device, limit_s=LIMIT_S)
        self.data_bytes = world * slot_bytes
        """What trials may use while nothing is sent."""
        self.places |= _regions(world, slot_bytes)
        for name in ("meet", "done", "ping", "packets"):
            self.of(rank, name).zero_()
        self.rounds = torch.zeros(2, dtype=torch.int32, device=device)
        """How many signals and how many packets were sent back and forth, in all."""
        self.source = torch.empty(slot_bytes // 4, dtype=torch.int32, device=device).random_()

    @staticmethod
    def heap_bytes(world: int, slot_bytes: int) -> int:
        """What the heap must have room for."""
        region, dtype = _regions(world, slot_bytes)["packets"]
        return region.offset + dtype.itemsize * prod(region.shape)

    @property
    def partner(self) -> int | None:
        """With whom this rank plays ping-pong; None for the last of an odd world."""
        found = self.rank ^ 1
        return found if found < self.world else None

    def slot(self, peer: int) -> torch.Tensor:
        """int32: where this rank's words land on *peer*."""
        return self.of(peer, "landing")[self.rank]

    def slots(self) -> torch.Tensor:
        """int64 [W]: addresses of `slot` by rank."""
        found = [self.slot(peer).data_ptr() for peer in range(self.world)]
        return torch.tensor(found, dtype=torch.int64, device=self.device)

    def title(self) -> str:
        return "a probe"
