"""Gangs of several hosts are refused in words before anything is allocated, on all ranks alike."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kernels.backends.base import Seat
from kernels.backends.triton.gin.gang import QUEUE_SIZE, NetworkGang, one_rank_a_host, short_queue
from kernels.schedule import Refusal


def seat(*addresses: str, rank: int = 0) -> Seat:
    return Seat(rank=rank, world=len(addresses), session="s", shares_heap=False, addresses=addresses)


class Members:
    """Rank *rank* of ranks of which some report that something lacks."""

    def __init__(self, place: Seat, lacking: Sequence[int]) -> None:
        self.seat, self._lacking = place, lacking

    def barrier(self) -> None:
        raise AssertionError("nobody gets here")

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        return [list(values) if rank == self.seat.rank else [float(rank in self._lacking)] * len(values)
                for rank in range(self.seat.world)]  # fmt: skip


def test_a_host_with_two_ranks_and_a_world_of_one_are_refused_with_both_numbers() -> None:
    assert one_rank_a_host(seat("10.0.0.1", "10.0.0.2")) is None
    assert "4 ranks are on 2 here: 4 > 2" in (one_rank_a_host(seat("a", "a", "b", "b")) or "")
    assert "world = 1: 1 < 2" in (one_rank_a_host(seat("a")) or "")


@pytest.mark.parametrize(
    ("size", "is_refused"), [("32", False), ("64", False), ("0", False), ("16", True), ("x", True)]
)
def test_queues_that_somebody_made_shorter_are_refused(size: str, is_refused: bool) -> None:
    """NCCL takes its default for 0; what is no number is not known to mean the default."""
    assert (short_queue({QUEUE_SIZE: size}) is not None) is is_refused
    assert short_queue({}) is None


def test_what_lacks_here_is_said_here(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"lacks 2 of 2 files"):
        NetworkGang(Members(seat("a", "b"), lacking=[0]), torch.device("cpu"), tmp_path)


def test_what_lacks_elsewhere_is_refused_here_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.backends.triton.gin.wheel.Wheel.lacking", lambda wheel: None)
    with pytest.raises(Refusal, match=r"lacks something on 1 of 2 hosts, first on that of rank 1"):
        NetworkGang(Members(seat("a", "b"), lacking=[1]), torch.device("cpu"), tmp_path)
