"""The proxy and the tunnel to a rendezvous on another host: open to those who know the secret, and to nobody else."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
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
    monkeypatch.setattr(rendezvous, "LEAST_S", 60)
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


def test_strangers_who_come_again_and_again_keep_no_guest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 1,000 strangers at a door for 64: each had its 5 s, and the guest behind them gave up after 40 s."""
    for name, value in (("MAX_CONNECTIONS", 4), ("LEAST_S", 0.1), ("AUTHENTICATED_S", 15.0)):
        monkeypatch.setattr(rendezvous, name, value, raising=False)
    meeting, over = RendezvousPlace.open("s-1", HOST, open_store), threading.Event()

    def come(strangers: selectors.BaseSelector) -> None:
        stranger = socket.create_connection((HOST, meeting.number), timeout=20)
        strangers.register(stranger, selectors.EVENT_READ)

    def come_again() -> None:
        with selectors.DefaultSelector() as strangers:
            for _ in range(64):
                come(strangers)
            while not over.is_set():
                for key, _ in strangers.select(0.1):
                    stranger = key.fileobj
                    assert isinstance(stranger, socket.socket)
                    with contextlib.suppress(ConnectionError):
                        if stranger.recv(1 << 10):
                            continue
                    strangers.unregister(stranger)
                    stranger.close()
                    come(strangers)
            for key in list(strangers.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]

    crowd = threading.Thread(target=come_again)
    crowd.start()
    time.sleep(0.5)
    try:
        assert greets(meeting)
    finally:
        over.set()
        crowd.join()
        assert meeting.proxy is not None
        meeting.proxy.close()


def greets(meeting: RendezvousPlace) -> bool:
    """Whether a guest who knows the secret reaches the store."""
    from torch.distributed import TCPStore

    assert meeting.secret is not None
    meeting.store.set("key", "value")
    with contextlib.closing(rendezvous.open_tunnel(HOST, meeting.number, meeting.secret)) as tunnel:
        try:
            guest = TCPStore(rendezvous.LOOPBACK, tunnel.number, is_master=False, timeout=timedelta(seconds=20))
        except RuntimeError:  # torch's own error of a store that nobody reaches
            return False
        return bool(guest.get("key") == b"value")


def test_a_door_without_file_descriptors_is_tried_again(
    meeting: RendezvousPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One failed `accept` closed it for good."""
    failed, accept = threading.Event(), socket.socket.accept

    def accept_once_not(listener: socket.socket) -> tuple[socket.socket, object]:
        if failed.is_set():
            return accept(listener)
        failed.set()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket.socket, "accept", accept_once_not)
    for _ in range(2):  # the door waits in the real `accept` until the first stranger comes
        socket.create_connection((HOST, meeting.number), timeout=5).close()
    assert failed.wait(5.0)
    assert greets(meeting)


def test_a_door_that_closes_ends_no_proof_that_has_begun() -> None:
    begun, over = threading.Event(), threading.Event()

    def prove(connection: socket.socket) -> socket.socket:
        begun.set()
        over.wait(10.0)
        raise ConnectionError

    port = rendezvous.ForwardingPort.open(HOST, prove)
    with socket.create_connection((HOST, port.number), timeout=5) as guest:
        assert begun.wait(5.0)
        port.close()
        guest.settimeout(0.5)
        try:
            with pytest.raises(TimeoutError):
                guest.recv(1)
        finally:
            over.set()


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
