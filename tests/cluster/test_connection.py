"""Whatever answers where a scheduler was said to be: one sentence within seconds, and nothing else on stderr."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cluster.connection import open_client, unreachable_reason
from cluster.scheduler_file import SchedulerTarget

SECONDS = 3.0
"""Asked for here instead of the real ones, where they pass."""
ANSWERED_SECONDS = 25.0
"""The same where an answer comes before."""
SILENT_SECONDS = 60.0
"""So long strangers keep a connection open."""


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """An address where each connection is given to *answer* in a thread of its own."""

    def serve() -> None:
        with suppress(OSError):  # until it is closed
            while True:
                threading.Thread(target=answer, args=listening.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def silent(taken: socket.socket) -> None:
    time.sleep(SILENT_SECONDS)
    taken.close()


def web(taken: socket.socket) -> None:
    """Eight bytes of it make a length of some EiB."""
    taken.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    time.sleep(SILENT_SECONDS)
    taken.close()


def hangs_up(taken: socket.socket) -> None:
    taken.close()


def promises_much(taken: socket.socket) -> None:
    """A length that could be, and then not a byte of it."""
    taken.sendall((1 << 20).to_bytes(8, "little"))
    time.sleep(SILENT_SECONDS)
    taken.close()


STRANGERS = {
    silent: (SECONDS, "did not answer as a Dask scheduler within 3 s"),
    web: (ANSWERED_SECONDS, "something answers there that is not a Dask scheduler"),
    hangs_up: (ANSWERED_SECONDS, "something answers there that is not a Dask scheduler"),
    promises_much: (SECONDS, "did not answer as a Dask scheduler within 3 s"),
}


@pytest.mark.slow(keeps=3)
@pytest.mark.parametrize(("answer", "seconds", "says"), [(answer, *facts) for answer, facts in STRANGERS.items()])
def test_a_stranger_is_told_apart_in_time(answer: Callable[[socket.socket], object], seconds: float, says: str) -> None:
    with server(answer) as address:
        began = time.monotonic()
        assert says in (unreachable_reason(SchedulerTarget(address), seconds) or "")
        assert time.monotonic() - began < SILENT_SECONDS / 2


def test_nobody_and_a_port_that_cannot_be_are_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for address in (f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:99999", "tcp://127.0.0.1"):
        assert "nobody answered there within 3 s" in (unreachable_reason(SchedulerTarget(address), SECONDS) or "")


def test_a_scheduler_is_one_and_its_worker_is_not(address: str) -> None:
    assert unreachable_reason(SchedulerTarget(address), ANSWERED_SECONDS) is None
    with open_client(address) as client:
        worker = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    assert "not a Dask scheduler (a Dask worker)" in (
        unreachable_reason(SchedulerTarget(worker), ANSWERED_SECONDS) or ""
    )


def test_a_client_that_ctrl_c_drops_ends_soon_and_without_a_traceback(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scheduler was stopped with it, and answers no goodbye."""
    client = open_client(address)

    async def unanswered() -> None:
        await asyncio.sleep(SILENT_SECONDS)

    with monkeypatch.context() as patched:
        patched.setattr(client, "_close", unanswered)
        began = time.monotonic()
        client.__del__()
        assert time.monotonic() - began < 5
    client.status = "running"
    client.close()
    assert client.status == "closed"


@pytest.mark.parametrize("asked", ["http://127.0.0.1:8786", "inproc://here", "ftp://x"])
def test_other_kinds_of_addresses_are_refused_before_anybody_is_asked(asked: str) -> None:
    with pytest.raises(ValueError, match="begins with tcp:// or tls://"):
        open_client(asked)


COMMANDS = {"run": ("run", "gemm_all_to_all", "--preset", "tiny", "--store", "STORE"), "status": ("cluster", "status")}


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_command_says_one_sentence_and_nothing_else(words: tuple[str, ...], tmp_path: Path) -> None:
    words = tuple(str(tmp_path / "store.sqlite") if word == "STORE" else word for word in words)
    with server(web) as address:
        ran = subprocess.run([sys.executable, "-m", "workbench.cli", *words, "--cluster", address], text=True,
                             capture_output=True, timeout=200, env=os.environ)  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1), ran.stderr
    assert f"The scheduler {address} cannot be reached: something answers there that is not a Dask sch" in ran.stderr
