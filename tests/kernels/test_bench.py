"""A bench stays open from list to list, and takes over how long each of them may wait."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch.distributed

from kernels.backends.cpu.backend import CpuBackend
from kernels.backends.cpu.gloo import Library
from kernels.bench import Bench, Seat
from kernels.operators import problem


def seat(rank: int = 0, world: int = 1, **more: Any) -> Seat:
    return Seat(rank=rank, world=world, session="s-1", shares_heap=True, deadline_s=20.0, **more)


@pytest.fixture
def libraries() -> Iterator[list[Library]]:
    """Of two ranks, both in this process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    make: Any = torch.distributed
    store = make.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    with ThreadPoolExecutor(2) as pool:
        yield list(pool.map(lambda rank: Library(seat(rank, 2, rendezvous=("127.0.0.1", port))), range(2)))
    del store


def test_an_open_backend_waits_as_long_as_the_list_at_hand_may(make_trial: Any) -> None:
    events: list[dict[str, Any]] = []
    bench = Bench(seat(), events.append)
    trials = [make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=1), "sequential")]
    bench.run(trials)
    (backend,) = bench._backends.values()
    assert isinstance(backend, CpuBackend)
    heap = backend._heap
    bench.wait_at_most(1.5)
    bench.run(trials)
    assert backend._heap is heap
    assert heap is not None
    assert (backend.seat.deadline_s, heap.seat.deadline_s) == (1.5, 1.5)
    assert [event["kind"] for event in events].count("result") == 2
    bench.close()


def test_a_process_group_that_is_open_waits_no_longer_than_it_may_now(libraries: list[Library]) -> None:
    for library in libraries:
        library.wait_at_most(0.3)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"[Tt]imed out"):
        libraries[0].barrier()
    assert time.monotonic() - begin < 5.0, "the peer never comes"
