"""Ranks leave a process group together, and find torch's symmetric memory as their peers do."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed

from kernels.backends.base import Seat
from kernels.backends.triton import memory
from kernels.backends.triton.memory import RankProcessGroup, exchanges_in_step, exchanges_made
from kernels.bench import Bench

SYMMETRIC = importlib.import_module("torch.distributed._symmetric_memory")


class Torch:
    """torch's symmetric memory as far as its numbers go: one counter a process, two exchanges a rendezvous."""

    def __init__(self, made: int) -> None:
        self.made = made
        self.store: Any = None

    def new_store(self, make: Callable[[], Any]) -> Any:
        self.store = make()
        return self.store

    def rendezvous(self, tensor: torch.Tensor, name: str) -> None:
        library: Any = importlib.import_module("torch._C._distributed_c10d")
        group = library._resolve_process_group(name)
        assert (group.rank(), group.size()) == (0, 1)
        for _ in range(2):
            self.store.set(f"CUDASymmetricMemory/{self.made}/0", "")
            self.made += 1


def counted(by_two: list[int]) -> Callable[[], int]:
    def made() -> int:
        by_two[0] += 2
        return by_two[0]

    return made


@pytest.mark.parametrize(("mine", "theirs", "after"), [(0, 0, 2), (0, 6, 8), (6, 0, 8)])
def test_a_rank_that_is_behind_makes_exchanges_alone(mine: int, theirs: int, after: int) -> None:
    """Each rank looks once, which is an exchange itself, and then the one behind catches up."""
    numbers, rounds = [mine], iter([theirs + 2, after])
    exchanges_in_step(lambda values: [list(values), [float(next(rounds))]], counted(numbers))
    assert numbers == [after]


@pytest.mark.parametrize(("mine", "theirs"), [(0, [5, 5]), (3, [4, 6])])
def test_numbers_that_cannot_meet_are_said_by_all_ranks_so_that_all_begin_anew(mine: int, theirs: list[int]) -> None:
    """The one ahead, too: it would be ahead of every process that replaces the other one."""
    rounds = iter(theirs)

    def exchange(values: Sequence[float]) -> list[list[float]]:
        return [list(values), [float(next(rounds))]]

    with pytest.raises(RuntimeError, match=r"have made 5 and 6 exchanges of symmetric memory.*not used again"):
        exchanges_in_step(exchange, counted([mine]))


@pytest.mark.parametrize("before", [0, 1, 30])
def test_the_number_is_read_from_the_keys_that_torch_sets(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, make = Torch(before), torch.distributed.HashStore
    monkeypatch.setattr(torch.distributed, "HashStore", lambda: fake.new_store(make))
    monkeypatch.setattr(SYMMETRIC, "rendezvous", fake.rendezvous)
    monkeypatch.setattr(memory, "_last_made", 0)
    monkeypatch.setattr(SYMMETRIC, "empty", lambda size, dtype, device: torch.empty(size, dtype=dtype, device=device))
    for made in (before + 2, before + 4):
        assert exchanges_made(torch.device("cpu")) == fake.made == made


def joined(
    store: Any, monkeypatch: pytest.MonkeyPatch, destroy: Callable[[], None], rank: int = 0, world: int = 2
) -> RankProcessGroup:
    """The group of *rank*, with a *store* that its peers have, too; this process is in it."""
    group = object.__new__(RankProcessGroup)
    group._store, group._dist = store, torch.distributed
    group.seat = Seat(
        rank=rank, world=world, session="s", shares_heap=True, rendezvous=("127.0.0.1", 1), deadline_s=1.0
    )
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", destroy)
    monkeypatch.setattr(memory, "_joined", group)
    return group


def test_nobody_ends_a_group_before_all_ranks_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle rank says that it leaves, and goes on; a busy peer holds up who joins the next gang, and nobody else."""
    store, ended = torch.distributed.HashStore(), []
    monkeypatch.setitem(SYMMETRIC._group_name_to_workspace_tensor, "0", torch.empty(1))
    joined(store, monkeypatch, lambda: ended.append(True), rank=2, world=3)
    assert not Bench.is_left()
    store.set(f"{memory.LEFT}/0", "")
    assert Bench.is_left(), "whatever backend is open"
    Bench.leave()
    assert not ended, "rank 1 is busy"
    assert store.check([f"{memory.LEFT}/2"])
    store.set(f"{memory.LEFT}/1", "")
    Bench.leave()
    assert ended == [True]
    assert not SYMMETRIC._group_name_to_workspace_tensor, "torch keeps them by a name that comes again"
    assert not Bench.is_left()


def test_who_joins_the_next_gang_waits_for_its_peers_and_then_ends_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead peer never leaves, and the library ends without it; a busy one is seen by the library's own deadline."""
    monkeypatch.setattr(memory, "LEAVING_SECONDS", 0.3)
    ended: list[float] = []
    group = joined(torch.distributed.HashStore(), monkeypatch, lambda: ended.append(time.monotonic()))
    began_at = time.monotonic()
    group.close()
    assert ended[0] - began_at >= 0.3
    assert group._store.check([f"{memory.LEFT}/0"]), "peers see that it wants to leave"


def test_a_store_whose_process_has_another_gang_is_a_gang_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def check(self, *keys: Any) -> bool:
            raise torch.distributed.DistNetworkError("the connection was closed")

        set = check

    ended: list[bool] = []
    group = joined(Gone(), monkeypatch, lambda: ended.append(True))
    assert group.is_left()
    Bench.leave()
    assert ended == [True]


def test_a_group_that_does_not_end_is_said_and_the_process_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "ENDING_SECONDS", 0.2)
    store = torch.distributed.HashStore()
    group = joined(store, monkeypatch, lambda: time.sleep(2))
    store.set(f"{memory.LEFT}/1", "")
    with pytest.raises(RuntimeError, match=r"has not ended after 0 s.*not used again"):
        group.close()


def test_an_error_of_the_library_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def destroy() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    store = torch.distributed.HashStore()
    group = joined(store, monkeypatch, destroy)
    store.set(f"{memory.LEFT}/1", "")
    with pytest.raises(RuntimeError, match="CUDA error"):
        group.close()
