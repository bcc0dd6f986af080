"""Where ranks of several hosts meet, only who knows the gang's secret gets in: torch's own meeting place asks nobody.

torch's TCPStore has neither password nor TLS, so it listens on loopback. Rank 0 opens a door to it on its host's
address; the others have a passage to that door on their own loopback. Both ends prove that they know the secret, by
HMAC (that of `multiprocessing`), before a byte goes through. What goes through is not encrypted.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

LOOPBACK = "127.0.0.1"
PROOF_S = 5
"""Who has not proved it by then is not let in, however slowly it speaks; nobody says more than 256 bytes of proof."""
CONNECT_S, ENTERED_S = 10.0, 40.0
"""A door is reached within this time, and entered, although strangers stand before it."""
GUESTS = 64
"""So many are led in at a time; others wait outside, in the kernel's queue, and take no thread."""


@dataclass(frozen=True, slots=True)
class Port:
    """A listening port each of whose guests is given to a thread; `close` ends the listening, not the guests."""

    listener: socket.socket
    free: threading.BoundedSemaphore

    @classmethod
    def opened(cls, host: str, led: Callable[[socket.socket], socket.socket]) -> Port:
        """On *host*; *led* takes each guest to where it is joined with."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        port = cls(socket.create_server((host, 0), family=family), threading.BoundedSemaphore(GUESTS))
        threading.Thread(target=port._welcome, args=(led,), name="door", daemon=True).start()
        return port

    @property
    def number(self) -> int:
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        """Take nobody else."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for guests
        self.listener.close()

    def _welcome(self, led: Callable[[socket.socket], socket.socket]) -> None:
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                self.free.acquire()
                guest, _ = self.listener.accept()
                threading.Thread(target=self._lead, args=(guest, led), name="door", daemon=True).start()

    def _lead(self, guest: socket.socket, led: Callable[[socket.socket], socket.socket]) -> None:
        """A guest who proves nothing finds the door closed."""
        with guest, contextlib.suppress(OSError, EOFError, ValueError, AssertionError, AuthenticationError):
            try:
                there = led(guest)
            finally:
                self.free.release()
            with there:
                _join(guest, there)


def door(host: str, inside: int, secret: str) -> Port:
    """Opens on *host*; whoever knows *secret* comes to port *inside* of loopback."""

    def led(guest: socket.socket) -> socket.socket:
        _prove(guest, PROOF_S, secret, deliver_challenge, answer_challenge)
        return socket.create_connection((LOOPBACK, inside), timeout=CONNECT_S)

    return Port.opened(host, led)


def passage(host: str, number: int, secret: str) -> Port:
    """Opens on loopback; whoever comes is led to the door *number* of *host*."""

    def led(guest: socket.socket) -> socket.socket:
        there = socket.create_connection((host, number), timeout=CONNECT_S)
        try:
            _prove(there, ENTERED_S, secret, answer_challenge, deliver_challenge)
        except BaseException:
            there.close()
            raise
        return there

    return Port.opened(LOOPBACK, led)


def new_secret() -> str:
    """256 bits."""
    return secrets.token_hex(32)


def _prove(end: socket.socket, within_s: float, secret: str, *turns: Callable[[Connection, bytes], None]) -> None:
    """Both sides show that they know it, each in its turn, without saying it; all turns together within *within_s*."""
    end.settimeout(None)
    late = threading.Timer(within_s, _hang_up, (end,))
    late.daemon = True
    late.start()
    try:
        with Connection(end.dup().detach()) as connection:
            for turn in turns:
                turn(connection, secret.encode())
    finally:
        late.cancel()


def _hang_up(end: socket.socket) -> None:
    """Wakes who reads there, whom closing would leave waiting."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _join(one: socket.socket, other: socket.socket) -> None:
    """What comes in at one end goes out at the other, both ways, until one end closes."""
    one.settimeout(None)
    other.settimeout(None)
    back = threading.Thread(target=_carry, args=(one, other), name="door", daemon=True)
    back.start()
    _carry(other, one)
    back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
