"""One CPU rank that interprets the litmus kernels: the right ones, and the one that is broken everywhere, a line each.

`python -m tests.kernels.backends.triton.litmus_main RANK WORLD SESSION`.
"""

import json
import sys

import torch

from kernels.backends.base import Seat
from kernels.backends.cpu.heap import SegmentHeap
from tests.gpu.litmus import CERTAIN, VARIANTS, Places, Size, heap_bytes
from tests.kernels.backends.triton.quick_interpreter import quicken

SMALL = Size(rounds=12, channels=2, loaders=1, words=256, chain=1 << 12)
SHOWN = [each for each in VARIANTS if not each.breaks or each.name == CERTAIN]
SIGNALS = 16


def main() -> None:
    rank, world, session = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    quicken()
    seat = Seat(rank=rank, world=world, session=session, shares_heap=True, deadline_s=SMALL.limit_s)
    heap = SegmentHeap(seat, 1, heap_bytes(SMALL), SIGNALS)
    places = Places(heap, rank, world, SMALL, torch.device("cpu"))
    for variant in SHOWN:
        places.clear()
        heap.barrier()
        places.launcher(variant)()
        heap.barrier()
        print(json.dumps({"name": variant.name} | places.found()), flush=True)


if __name__ == "__main__":
    main()
