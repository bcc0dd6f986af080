"""The store as a file: who may read it, and what of it outlives a power cut."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kernels.outcome import Measurement
from kernels.trial import Trial
from workbench.results import metrics
from workbench.results.store import SampleBuffer, Store


def test_a_store_is_for_its_owners_eyes_and_so_is_what_lies_beside_it(store: Store) -> None:
    store.begin_run({}, {"host": "there", "user": "ada"})
    files = sorted(store.path.parent.glob(f"{store.path.name}*"))
    assert len(files) == 3, "the store, its WAL and what its readers share"
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_runs_that_begin_in_the_same_second_and_draw_the_same_letters_have_ids_of_their_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(drawn))
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-120000")
    runs = [store.begin_run({}, {}) for _ in range(2)]
    assert runs == ["20260101-120000-aaaa", "20260101-120000-bbbb"]


def test_a_run_is_not_lost_because_the_clock_was_set(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store.begin_run({}, {})
    later = psutil.Process().create_time() + 120
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: later)
    assert store.run(run)["status"] == "running"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Every file that was brought to the disk, and how many bytes it had then."""
    seen: list[tuple[str, int]] = []
    fsync = os.fsync

    def told(descriptor: int) -> None:
        fsync(descriptor)
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", told)
    return seen


def wal(store: Store) -> tuple[str, int]:
    file = store.path.with_name(f"{store.path.name}-wal")
    return file.name, file.stat().st_size


def test_a_run_that_ended_is_on_the_disk(store: Store, settled: list[tuple[str, int]]) -> None:
    store.end_run(store.begin_run({}, {}))
    assert wal(store) in settled


def test_an_outcome_is_on_the_disk_soon_whether_or_not_another_follows(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement], settled: list[tuple[str, int]]
) -> None:
    run, measured = store.begin_run({}, {}), measure(make_trial("fused"))
    buffer = SampleBuffer(store, run)
    try:
        store.add_outcome(run, measured, metrics.row_of(measured, run))
        give_up_at = time.monotonic() + 60.0
        while wal(store) not in settled:
            assert time.monotonic() < give_up_at, settled
            time.sleep(0.01)
    finally:
        buffer.close()
