"""A relay between client and scheduler whose ends break one after the other, as they do when a network goes away."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit

Pair = tuple[socket.socket, socket.socket]


class Relay:
    """Listens at `address` and passes on what is said there; use it as a context."""

    def __init__(self, to: str) -> None:
        self._to = urlsplit(to).hostname, urlsplit(to).port
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listens.getsockname()[1]}"
        self._pairs: list[Pair] = []
        self._lost: list[Pair] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self) -> None:
        """Clients see their connections end; the scheduler hears nothing of it."""
        with self._lock:
            lost, self._pairs = self._pairs, []
        for client, _ in lost:
            _end(client)
        self._lost += lost

    def end(self) -> None:
        """The scheduler hears of what was lost."""
        for _, scheduler in self._lost:
            _end(scheduler)
        self._lost = []

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *exception: object) -> None:
        self._listens.close()
        self.lose()
        self.end()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listens.accept()
                scheduler = socket.create_connection(self._to)
                with self._lock:
                    self._pairs.append((client, scheduler))
                threading.Thread(target=self._pass_on, args=(client, scheduler, (client, scheduler))).start()
                threading.Thread(target=self._pass_on, args=(scheduler, client, (client, scheduler))).start()

    def _pass_on(self, first: socket.socket, second: socket.socket, pair: Pair) -> None:
        with contextlib.suppress(OSError):
            while data := first.recv(2**16):
                second.sendall(data)
        with self._lock:
            if pair in self._pairs:  # ended by itself: so does the other half
                self._pairs.remove(pair)
                for half in pair:
                    _end(half)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
