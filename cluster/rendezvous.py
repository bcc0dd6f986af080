"""Lets ranks of several hosts reach torch's store only if they know the gang's secret: the store itself checks nothing.

torch's TCPStore has neither password nor TLS, so it listens on loopback. Rank 0 opens a proxy for it on its host's
address; each other host has a tunnel from its own loopback to that proxy. Both ends prove that they know the secret,
by the HMAC handshake of `multiprocessing`, before any byte is forwarded. Forwarded bytes are not encrypted.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

LOOPBACK = "127.0.0.1"
PROOF_S = 5
"""Time for the whole proof at the proxy, s; a proof message has 256 bytes at most."""
CONNECT_S, AUTHENTICATED_S = 10.0, 40.0
"""Time to connect, and time for a tunnel's proof with its tries, s: enough even if strangers fill the proxy's queue."""
MAX_CONNECTIONS = 64
"""Connections that may be proving the secret at a time; others wait in the kernel's queue and take no thread."""
LEAST_S = 0.5
"""Time that each connection has for its proof even if others wait, s. Then the oldest unproven one makes room, so that
a guest behind 1,000 silent strangers has its turn within 8 s, also if they come again: they queue behind it."""
QUEUE = 2048
"""Connections that the kernel keeps for `accept`: it would ignore a guest that comes to a full queue."""
AGAIN_S = 0.05
"""Pause after an `accept` or a proof that failed, s: file descriptors may be free again by then."""


class UnprovenConnections:
    """The connections whose peers are proving the secret, oldest first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._since: dict[socket.socket, float] = {}

    def make_room(self) -> None:
        """Wait until fewer than MAX_CONNECTIONS are left; the oldest is ended as soon as it has had LEAST_S."""
        with self._changed:
            while len(self._since) >= MAX_CONNECTIONS:
                left_s = next(iter(self._since.values())) + LEAST_S - time.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                else:
                    self._end_oldest()

    def end_oldest(self) -> None:
        """End the oldest one, if any: it has a file descriptor that another guest needs."""
        with self._changed:
            self._end_oldest()

    def add(self, connection: socket.socket) -> None:
        with self._changed:
            self._since[connection] = time.monotonic()

    def remove(self, connection: socket.socket) -> None:
        """Forget *connection*: it is proven, or over."""
        with self._changed:
            self._since.pop(connection, None)
            self._changed.notify()

    def _end_oldest(self) -> None:
        if self._since:
            oldest = next(iter(self._since))
            del self._since[oldest]
            _hang_up(oldest)  # its thread wakes and closes it


_BROKEN_PROOFS = (OSError, EOFError, ValueError, AssertionError)
"""What a proof raises whose peer leaves, or sends something else."""


@dataclass(frozen=True, slots=True)
class ForwardingPort:
    """A listening port that forwards each connection in a thread; `close` ends the listening, not the connections."""

    listener: socket.socket
    unproven: UnprovenConnections
    closing: threading.Event

    @classmethod
    def open(cls, host: str, connect_upstream: Callable[[socket.socket], socket.socket]) -> ForwardingPort:
        """Listen on *host*; *connect_upstream* returns the socket to which it forwards a connection, or raises."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, 0), family=family, backlog=QUEUE)
        port = cls(listener, UnprovenConnections(), threading.Event())
        threading.Thread(target=port._accept_loop, args=(connect_upstream,), name="proxy", daemon=True).start()
        return port

    @property
    def number(self) -> int:
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        """Accept no further connection."""
        self.closing.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts connections
        self.listener.close()

    def _accept_loop(self, connect_upstream: Callable[[socket.socket], socket.socket]) -> None:
        while not self.closing.is_set():
            self.unproven.make_room()
            try:
                connection, _ = self.listener.accept()
            except OSError:  # closed, or no file descriptor is free: then it is tried again
                if not self.closing.is_set():
                    self.unproven.end_oldest()
                    self.closing.wait(AGAIN_S)
                continue
            self.unproven.add(connection)
            forwarding = threading.Thread(
                target=self._forward, args=(connection, connect_upstream), name="proxy", daemon=True
            )
            try:
                forwarding.start()
            except RuntimeError:  # the system gives no thread now; the guest tries again
                self.unproven.remove(connection)
                connection.close()

    def _forward(self, connection: socket.socket, connect_upstream: Callable[[socket.socket], socket.socket]) -> None:
        """Forward *connection* until an end closes; close it at once if its peer does not prove the secret."""
        with connection, contextlib.suppress(*_BROKEN_PROOFS, AuthenticationError):
            try:
                upstream = connect_upstream(connection)
            finally:
                self.unproven.remove(connection)
            with upstream:
                _relay(connection, upstream)


def open_proxy(host: str, number: int, secret: str) -> ForwardingPort:
    """Port on *host* that forwards connections to port *number* of loopback, if they prove that they know *secret*."""

    def connect_upstream(connection: socket.socket) -> socket.socket:
        _authenticate(connection, PROOF_S, secret, deliver_challenge, answer_challenge)
        return socket.create_connection((LOOPBACK, number), timeout=CONNECT_S)

    return ForwardingPort.open(host, connect_upstream)


def open_tunnel(host: str, number: int, secret: str) -> ForwardingPort:
    """Port on loopback that forwards every connection to the proxy at port *number* of *host*."""

    def connect_upstream(connection: socket.socket) -> socket.socket:
        give_up_at = time.monotonic() + AUTHENTICATED_S
        while True:
            upstream = socket.create_connection((host, number), timeout=CONNECT_S)
            try:
                within_s = give_up_at - time.monotonic()
                _authenticate(upstream, within_s, secret, answer_challenge, deliver_challenge)
            except (OSError, EOFError):  # the proxy made room for others before this proof was complete
                upstream.close()
                if time.monotonic() + AGAIN_S > give_up_at:
                    raise
                time.sleep(AGAIN_S)
            except BaseException:
                upstream.close()
                raise
            else:
                return upstream

    return ForwardingPort.open(LOOPBACK, connect_upstream)


def new_secret() -> str:
    """A random secret of 256 bits, as text."""
    return secrets.token_hex(32)


def _authenticate(
    end: socket.socket, within_s: float, secret: str, *steps: Callable[[Connection, bytes], None]
) -> None:
    """Do the *steps* by which both sides prove that they know *secret* without sending it, all within *within_s*."""
    end.settimeout(None)
    timer = threading.Timer(within_s, _hang_up, (end,))
    timer.daemon = True
    timer.start()
    try:
        with Connection(end.dup().detach()) as connection:
            for step in steps:
                step(connection, secret.encode())
    finally:
        timer.cancel()


def _hang_up(end: socket.socket) -> None:
    """Shut *end* down, which wakes a thread that reads from it; closing it would not."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _relay(connection: socket.socket, upstream: socket.socket) -> None:
    """Copy bytes both ways until one end closes."""
    connection.settimeout(None)
    upstream.settimeout(None)
    upward = threading.Thread(target=_copy_bytes, args=(connection, upstream), name="proxy", daemon=True)
    upward.start()
    _copy_bytes(upstream, connection)
    upward.join()


def _copy_bytes(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
