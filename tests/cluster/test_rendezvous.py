"""The proxy and the tunnel to a rendezvous on another host: open to those who know the secret, and to nobody else."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cluster import rendezvous
from cluster.rank import RendezvousPlace, open_store

HOST = "127.0.0.2"
"""Stands for a network: a host's own address."""


@pytest.fixture
def meeting() -> Iterator[RendezvousPlace]:
    place = RendezvousPlace.open("s-1", HOST, open_store)
    yield place
    assert place.proxy is not None
    place.proxy.close()


def test_a_rank_that_knows_the_secret_meets_the_others(meeting: RendezvousPlace) -> None:
    from torch.distributed import TCPStore

    assert meeting.secret is not None
    with contextlib.closing(rendezvous.open_tunnel(HOST, meeting.number, meeting.secret)) as tunnel:
        away = TCPStore(rendezvous.LOOPBACK, tunnel.number, is_master=False, timeout=timedelta(seconds=20))
        waits = threading.Timer(0.2, lambda: meeting.store.set("late", "came"))
        waits.start()
        assert away.get("late") == b"came"
        away.set("key", "value" * 100_000)
        assert meeting.store.get("key") == b"value" * 100_000


def test_the_store_itself_is_on_loopback_and_only_its_door_on_the_network(meeting: RendezvousPlace) -> None:
    assert meeting.proxy is not None
    assert meeting.proxy.listener.getsockname()[0] == HOST
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((HOST, meeting.port), timeout=5)


def test_a_rank_with_another_secret_finds_the_door_closed(meeting: RendezvousPlace) -> None:
    with (
        contextlib.closing(rendezvous.open_tunnel(HOST, meeting.number, rendezvous.new_secret())) as tunnel,
        socket.create_connection((rendezvous.LOOPBACK, tunnel.number), timeout=5) as guest,
    ):
        assert guest.recv(1) == b""


def closed_within(stranger: socket.socket, seconds: float) -> float:
    """Seconds until its connection is closed; it receives a challenge at most."""
    began = time.monotonic()
    stranger.settimeout(seconds)
    with contextlib.suppress(ConnectionError), contextlib.closing(stranger):
        while said := stranger.recv(1 << 16):
            assert b"CHALLENGE" in said
    return time.monotonic() - began


def test_who_speaks_without_a_proof_hears_nothing_of_the_store_and_keeps_nobody_out(
    meeting: RendezvousPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed import TCPStore

    monkeypatch.setattr(rendezvous, "PROOF_S", 1)
    assert meeting.secret is not None
    strangers = [
        socket.create_connection((HOST, meeting.number), timeout=20) for _ in range(rendezvous.MAX_CONNECTIONS + 8)
    ]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    meeting.store.set("key", "value")
    with contextlib.closing(rendezvous.open_tunnel(HOST, meeting.number, meeting.secret)) as tunnel:
        friend = TCPStore(rendezvous.LOOPBACK, tunnel.number, is_master=False, timeout=timedelta(seconds=60))
        assert friend.get("key") == b"value"
    for stranger in strangers:
        closed_within(stranger, 30.0)


def test_strangers_hold_a_bounded_number_of_threads(meeting: RendezvousPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PROOF_S", 60)
    before = threading.active_count()
    strangers = [
        socket.create_connection((HOST, meeting.number), timeout=20) for _ in range(rendezvous.MAX_CONNECTIONS + 16)
    ]
    for stranger in strangers[: rendezvous.MAX_CONNECTIONS]:
        assert b"CHALLENGE" in stranger.recv(1 << 10)
    # each is led by a thread and has a timer that hangs up
    assert threading.active_count() - before <= 2 * rendezvous.MAX_CONNECTIONS
    for stranger in strangers[rendezvous.MAX_CONNECTIONS :]:
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.recv(1)
    for stranger in strangers:
        stranger.close()


def test_a_proof_that_drips_in_is_too_late(meeting: RendezvousPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PROOF_S", 1)
    over = threading.Event()
    stranger = socket.create_connection((HOST, meeting.number), timeout=20)

    def drip() -> None:
        """A length of 200 bytes, then one of them at a time."""
        with contextlib.suppress(OSError):
            stranger.sendall((200).to_bytes(4, "big"))
            while not over.wait(0.2):
                stranger.sendall(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert closed_within(stranger, 30.0) < 20.0, "200 bytes would take 40 s"
    finally:
        over.set()
        dripping.join()


def test_a_proof_that_is_long_is_not_waited_for(meeting: RendezvousPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PROOF_S", 100)
    stranger = socket.create_connection((HOST, meeting.number), timeout=20)
    stranger.sendall((1 << 30).to_bytes(4, "big"))
    assert closed_within(stranger, 50.0) < 50.0
