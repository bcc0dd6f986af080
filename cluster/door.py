"""Where ranks of several hosts meet, only who knows the gang's secret gets in: torch's own meeting place asks nobody.

torch's TCPStore has neither password nor TLS, so it listens on loopback. Rank 0 opens a door to it on its host's
address; the others have a passage to that door on their own loopback. Both ends prove that they know the secret, by
HMAC (that of `multiprocessing`), before a byte goes through. What goes through is not encrypted.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

LOOPBACK = "127.0.0.1"
PROOF_S = 5
"""Who has not proved it by then is not let in."""
CONNECT_S = 10.0
"""A door is reached within this time."""
_NO_LIMIT = 0


@dataclass(frozen=True, slots=True)
class Port:
    """A listening port each of whose guests is given to a thread; `close` ends the listening, not the guests."""

    listener: socket.socket

    @classmethod
    def opened(cls, host: str, led: Callable[[socket.socket], None]) -> Port:
        """On *host*; *led* is called with each guest."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        port = cls(socket.create_server((host, 0), family=family))
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

    def _welcome(self, led: Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                guest, _ = self.listener.accept()
                threading.Thread(target=_lead, args=(guest, led), name="door", daemon=True).start()


def door(host: str, inside: int, secret: str) -> Port:
    """Opens on *host*; whoever knows *secret* comes to port *inside* of loopback."""

    def led(guest: socket.socket) -> None:
        _prove(guest, secret, deliver_challenge, answer_challenge)
        with socket.create_connection((LOOPBACK, inside), timeout=CONNECT_S) as store:
            _join(guest, store)

    return Port.opened(host, led)


def passage(host: str, number: int, secret: str) -> Port:
    """Opens on loopback; whoever comes is led to the door *number* of *host*."""

    def led(guest: socket.socket) -> None:
        with socket.create_connection((host, number), timeout=CONNECT_S) as there:
            _prove(there, secret, answer_challenge, deliver_challenge)
            _join(guest, there)

    return Port.opened(LOOPBACK, led)


def new_secret() -> str:
    """256 bits."""
    return secrets.token_hex(32)


def _lead(guest: socket.socket, led: Callable[[socket.socket], None]) -> None:
    """A guest who proves nothing finds the door closed."""
    with guest, contextlib.suppress(OSError, EOFError, ValueError, AuthenticationError):
        led(guest)


def _prove(end: socket.socket, secret: str, *turns: Callable[[Connection, bytes], None]) -> None:
    """Both sides show that they know it, each in its turn, without saying it."""
    end.settimeout(None)
    _limit(end, PROOF_S)
    with Connection(end.dup().detach()) as connection:
        for turn in turns:
            turn(connection, secret.encode())
    _limit(end, _NO_LIMIT)


def _limit(end: socket.socket, seconds: int) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", seconds, 0))


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
