"""The symmetric heap: refused where it does not fit, bounded waits that name the rank, nothing left behind."""

import os
from collections import namedtuple
from pathlib import Path

import pytest

from kernels.backends.base import Hang, Seat
from kernels.backends.cpu import heap
from kernels.backends.cpu.backend import CpuBackend
from kernels.backends.cpu.heap import SegmentHeap
from kernels.schedule import Refusal

Room = namedtuple("Room", "f_bavail f_frsize")


@pytest.fixture
def segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(heap, "directory", lambda: tmp_path)
    return tmp_path


def seat(world: int, deadline_s: float = 0.2) -> Seat:
    return Seat(rank=0, world=world, session="s", shares_heap=True, deadline_s=deadline_s)


def test_a_peer_that_never_comes_is_named_after_the_deadline_and_nothing_is_left(segments: Path) -> None:
    with pytest.raises(Hang, match=r"Rank 0 waited for rank 1's segment .* Waited 0.2 s"):
        SegmentHeap(seat(2), 1, 4096, 16)
    assert list(segments.iterdir()) == []


def test_too_little_shared_memory_is_refused_with_both_numbers(segments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Room(64, 1_000_000))
    with pytest.raises(Refusal, match=r"needs 2 x 40 MB .* has 64 MB free"):
        SegmentHeap(seat(2), 1, 40_000_000, 16)


def test_what_a_faster_peer_has_taken_is_not_counted_against_the_gang(
    segments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (segments / "overlap-s-1-1-7").touch()
    monkeypatch.setattr(os, "statvfs", lambda _: Room(50, 1_000_000))
    with pytest.raises(Hang, match="barrier 1"):
        _with_peer(segments)


def _with_peer(segments: Path) -> None:
    (segments / "overlap-s-1-1-7").write_bytes(bytes(60_000_000))
    SegmentHeap(seat(2), 1, 40_000_000, 16)


def test_a_larger_heap_replaces_the_smaller_one(segments: Path) -> None:
    alone = CpuBackend(seat(1))
    made = []
    for num_bytes in (4096, 1_000_000, 4096):
        alone._heap_for_bytes(num_bytes, 16)
        assert alone._heap is not None
        made.append((alone._heap.generation, alone._heap.capacity))
    assert made == [(1, 4096), (2, 1_000_000), (2, 1_000_000)]
    assert list(segments.iterdir()) == []
    alone.close()


def test_a_segment_of_somebody_else_is_left_to_them(segments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = segments / ".overlap-s-1-0-999999999"
    theirs.touch()

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", forbidden)
    assert heap.sweep() == 0
    monkeypatch.undo()
    monkeypatch.setattr(heap, "directory", lambda: segments)
    assert heap.sweep() == 1
