"""The store as a file: who may read it, and what of it outlives a power cut."""

from __future__ import annotations

import secrets
import stat
import time

import psutil
import pytest

from workbench.store import Store


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
