"""Gangs without GPUs, for tests: CPU ranks in processes, and ranks in threads that do what a test tells them."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from typing import Any

import pytest

from kernels.backends.base import Seat
from kernels.bench import Bench, Emit
from tests.gpu import gang


def cpu_bench(seat: Seat, emit: Emit) -> Bench:
    """What runs the sittings of one CPU rank."""
    return Bench(seat, emit)


class Threads:
    """In place of multiprocessing's spawn context: ranks are threads of this process."""

    def __init__(self) -> None:
        self.started: list[Any] = []

    def Queue(self) -> Any:
        return queue.Queue()

    def Pipe(self, duplex: bool) -> Any:
        receiver, sender = multiprocessing.Pipe(duplex=duplex)
        return Kept(receiver), sender

    def Process(self, target: Any, args: tuple[Any, ...]) -> ThreadProcess:
        assert target is gang.rank_process
        self.started.append(made := ThreadProcess(args))
        return made


class Kept:
    """The end of a pipe that a thread shares with its parent, who must not close it."""

    def __init__(self, connection: Any) -> None:
        self.poll, self.recv = connection.poll, connection.recv

    def close(self) -> None:
        """The thread still listens."""


class ThreadProcess:
    """A rank, as far as a gang uses a process."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self._args, self.exitcode, self.killed = args, None, False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            gang.rank_main(*self._args)
        except SystemExit as dies:  # in a thread, what a process does that is killed
            self.exitcode = dies.code

    def start(self) -> None:
        self._thread.start()

    def kill(self) -> None:
        self.killed = True

    def join(self, timeout: float) -> None:
        self._thread.join(0)


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """Gangs are threads, and nobody waits for long."""
    threads = Threads()
    monkeypatch.setattr(gang.multiprocessing, "get_context", lambda _: threads)
    monkeypatch.setattr(gang.faulthandler, "dump_traceback_later", lambda _: None)
    for name, seconds in {"AFTER_END_S": 0.3, "BEGIN_S": 0.1, "IDLE_S": 20.0, "POLL_S": 0.05}.items():
        monkeypatch.setattr(gang, name, seconds)
    return threads
