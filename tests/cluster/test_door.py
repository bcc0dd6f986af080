"""The way to a meeting place on another host: open to who knows the secret, and to nobody else."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cluster import door
from cluster.rank import Meeting, open_store

HOST = "127.0.0.2"
"""Stands for a network: a host's own address."""


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    made = Meeting.opened("s-1", HOST, open_store)
    yield made
    assert made.entrance is not None
    made.entrance.close()


def test_a_rank_that_knows_the_secret_meets_the_others(meeting: Meeting) -> None:
    from torch.distributed import TCPStore

    assert meeting.secret is not None
    with contextlib.closing(door.passage(HOST, meeting.number, meeting.secret)) as passage:
        away = TCPStore(door.LOOPBACK, passage.number, is_master=False, timeout=timedelta(seconds=20))
        waits = threading.Timer(0.2, lambda: meeting.store.set("late", "came"))
        waits.start()
        assert away.get("late") == b"came"
        away.set("key", "value" * 100_000)
        assert meeting.store.get("key") == b"value" * 100_000


def test_the_store_itself_is_on_loopback_and_only_its_door_on_the_network(meeting: Meeting) -> None:
    assert meeting.entrance is not None
    assert meeting.entrance.listener.getsockname()[0] == HOST
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((HOST, meeting.port), timeout=5)


def test_a_rank_with_another_secret_finds_the_door_closed(meeting: Meeting) -> None:
    with (
        contextlib.closing(door.passage(HOST, meeting.number, door.new_secret())) as passage,
        socket.create_connection((door.LOOPBACK, passage.number), timeout=5) as guest,
    ):
        assert guest.recv(1) == b""


def test_who_speaks_without_a_proof_hears_nothing_of_the_store_and_keeps_nobody_out(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "PROOF_S", 1)
    assert meeting.secret is not None
    silent = socket.create_connection((HOST, meeting.number), timeout=20)
    loud = socket.create_connection((HOST, meeting.number), timeout=20)
    loud.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    with contextlib.closing(door.passage(HOST, meeting.number, meeting.secret)) as passage:
        friend = socket.create_connection((door.LOOPBACK, passage.number), timeout=5)
        friend.close()
    began = time.monotonic()
    for stranger in (silent, loud):
        with contextlib.suppress(ConnectionError), contextlib.closing(stranger):
            while said := stranger.recv(1 << 16):
                assert b"CHALLENGE" in said
    assert time.monotonic() - began < 15.0
