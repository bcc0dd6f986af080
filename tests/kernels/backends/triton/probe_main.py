"""One interpreted rank that runs every probe kernel of the link and says what it saw: `RANK WORLD SESSION`."""

import json
import sys

import torch

from kernels.backends.base import Seat
from kernels.backends.cpu.heap import SegmentHeap
from kernels.backends.triton.launch import Call
from kernels.backends.triton.probes import suite
from kernels.backends.triton.probes.suite import ProbeSite
from tests.gpu import wrapping
from tests.kernels.backends.triton.quick_interpreter import quicken

SLOT_BYTES = 1 << 17
ROUNDS, CALLS = 3, 2


def call(site: ProbeSite, heap: SegmentHeap, calls: list[Call]) -> str | None:
    """All *calls*, all ranks together; the error word."""
    for one in calls[:CALLS]:
        heap.barrier()
        one()
    heap.barrier()
    return site.failure()


def landed(site: ProbeSite, heap: SegmentHeap, way: str, pattern: str, num_bytes: int) -> bool:
    """Whether what peers sent is here, word for word, and nothing else."""
    site.of(site.rank, "landing").zero_()
    heap.barrier()
    count = suite.peers(site.world, pattern)
    each = suite.pieces_per_peer(count, num_bytes) * suite.PIECE_BYTES // 4
    calls = suite.puts(site, way, pattern, num_bytes, 2)[:CALLS]
    assert call(site, heap, calls) is None
    right = True
    for sender in range(site.world):
        sends = (site.rank - sender) % site.world in range(1, count + 1)
        expected = torch.zeros_like(site.source)
        if sends:
            generator = torch.Generator().manual_seed(sender)
            sent = torch.empty_like(site.source).random_(generator=generator)
            expected[: each * len(calls)] = sent[: each * len(calls)]
        right &= bool((site.of(site.rank, "landing")[sender] == expected).all())
    return right


def wrapped(site: ProbeSite, heap: SegmentHeap) -> list[str | None]:
    """What waits say that expired in calls before and after each wrap; all probes once, before anything else."""
    ways = [
        suite.puts(site, "registers", "all_to_all", suite.PIECE_BYTES, 2)[:1],
        suite.signals(site, ROUNDS),
        suite.packets(site, 32, ROUNDS),
        suite.meetings(site),
    ]
    said = [call(site, heap, calls) for calls in ways]
    for _ in wrapping.starts(site, heap.exchange):
        for _ in range(wrapping.CALLS):
            said += [call(site, heap, calls) for calls in ways]
    return said


def main() -> None:
    rank, world, session = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    quicken()
    seat = Seat(rank=rank, world=world, session=session, shares_heap=True, deadline_s=20.0)
    heap = SegmentHeap(seat, 1, ProbeSite.heap_bytes(world, SLOT_BYTES), 64)
    site = ProbeSite(heap, rank, world, SLOT_BYTES, torch.device("cpu"))
    around = wrapped(site, heap)
    site = ProbeSite(heap, rank, world, SLOT_BYTES, torch.device("cpu"))
    heap.barrier()
    site.source.random_(generator=torch.Generator().manual_seed(rank))
    puts = {
        f"{way} {pattern} {num_bytes}": landed(site, heap, way, pattern, num_bytes)
        for way in ("registers", "tma")
        for pattern in ("all_to_all", "ring")
        for num_bytes in (suite.PIECE_BYTES, 3 * suite.PIECE_BYTES)
    }
    failures = [
        call(site, heap, suite.signals(site, ROUNDS)),
        call(site, heap, suite.packets(site, 32, ROUNDS)),
        call(site, heap, suite.meetings(site)),
    ]
    told = {"puts": puts, "failures": failures, "rounds": site.rounds.tolist(), "met": int(site.met)}
    print(json.dumps(told | {"around wraps": around}))


if __name__ == "__main__":
    main()
