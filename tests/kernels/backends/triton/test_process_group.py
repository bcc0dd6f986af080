"""Ranks leave a process group together, and find torch's symmetric memory as their peers do."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.distributed

from kernels.backends.triton import memory
from kernels.backends.triton.memory import RankProcessGroup, exchanges_in_step, exchanges_made, leave_too

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
    numbers = [mine]
    exchanges_in_step(lambda values: [list(values), [float(theirs + 2)]], counted(numbers))
    assert numbers == [after]


def test_numbers_that_cannot_meet_are_said() -> None:
    def exchange(values: Sequence[float]) -> list[list[float]]:
        return [list(values), [5.0]]

    with pytest.raises(RuntimeError, match=r"has made 6 exchanges of symmetric memory, and a peer 5.*not used again"):
        exchanges_in_step(exchange, counted([0]))


@pytest.mark.parametrize("before", [0, 1, 30])
def test_the_number_is_read_from_the_keys_that_torch_sets(before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, make = Torch(before), torch.distributed.HashStore
    monkeypatch.setattr(torch.distributed, "HashStore", lambda: fake.new_store(make))
    monkeypatch.setattr(SYMMETRIC, "rendezvous", fake.rendezvous)
    monkeypatch.setattr(SYMMETRIC, "empty", lambda size, dtype, device: torch.empty(size, dtype=dtype, device=device))
    for made in (before + 2, before + 4):
        assert exchanges_made(torch.device("cpu")) == fake.made == made


def joined(store: Any, monkeypatch: pytest.MonkeyPatch, destroy: Callable[[], None]) -> RankProcessGroup:
    group = object.__new__(RankProcessGroup)
    group._store, group._dist = store, torch.distributed
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", destroy)
    monkeypatch.setattr(memory, "_joined", group)
    return group


def test_a_rank_leaves_when_a_peer_has_left_and_frees_what_torch_keeps_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    store, ended = torch.distributed.HashStore(), []
    monkeypatch.setitem(SYMMETRIC._group_name_to_workspace_tensor, "0", torch.empty(1))
    joined(store, monkeypatch, lambda: ended.append(True))
    assert not leave_too()
    store.set(memory.LEFT, "")  # by a peer
    assert leave_too()
    assert ended == [True]
    assert not SYMMETRIC._group_name_to_workspace_tensor
    assert not leave_too(), "it has left"


def test_a_store_whose_process_has_another_gang_is_a_gang_that_was_left(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def check(self, *keys: Any) -> bool:
            raise torch.distributed.DistNetworkError("the connection was closed")

        set = check

    group = joined(Gone(), monkeypatch, lambda: None)
    assert group.is_left()
    assert leave_too()


def test_a_group_that_does_not_end_is_said_and_the_process_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LEAVING_SECONDS", 0.1)
    group = joined(torch.distributed.HashStore(), monkeypatch, lambda: time.sleep(2))
    with pytest.raises(RuntimeError, match=r"has not ended after 0 s.*not used again"):
        group.close()
    assert group._store.check([memory.LEFT]), "peers see that it wants to leave"
