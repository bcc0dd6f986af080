"""The process that keeps a cluster: busy schedulers are not gone, lost ones are, and a start can be broken off."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import scheduler_file
from cluster.certificate import Certificate
from cluster.launch import __main__
from cluster.process import process_start
from cluster.scheduler_file import Record, SchedulerTarget
from kernels.files import Failed


@pytest.fixture
def busy() -> Iterator[SchedulerTarget]:
    """An encrypted scheduler whose event loop does not come to shake hands: the kernel alone takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield SchedulerTarget(f"tls://127.0.0.1:{listening.getsockname()[1]}", Certificate.create())


@pytest.fixture
def nobody() -> SchedulerTarget:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return SchedulerTarget(f"tls://127.0.0.1:{closed.getsockname()[1]}")


def test_a_scheduler_that_is_busy_keeps_its_cluster_and_is_found(
    busy: SchedulerTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    ended = threading.Event()
    threading.Timer(0.5, ended.set).start()
    __main__.watch(busy, ended, look_s=0.01, gone_s=0.1)
    record = Record(address=busy.address, dashboard="", kind="ssh", num_ranks=1, detached=True, pid=os.getpid(),
                    began=process_start())  # fmt: skip
    scheduler_file.write(record, busy.certificate)
    assert scheduler_file.running() == record


def test_a_network_that_drops_everything_for_a_second_makes_no_room_for_a_second_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def dropped(target: SchedulerTarget, within_s: float) -> None:
        raise TimeoutError

    monkeypatch.setattr(scheduler_file, "reach", dropped)
    record = Record(address="tls://192.0.2.1:9", dashboard="", kind="ssh", num_ranks=1, detached=True,
                    pid=os.getpid(), began=process_start())  # fmt: skip
    scheduler_file.write(record)
    assert scheduler_file.running() == record


def test_only_failures_in_a_row_end_a_cluster(nobody: SchedulerTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([ConnectionError, None] * 20)
    ended = threading.Event()
    looks = 0

    def reach(target: SchedulerTarget, within_s: float) -> None:
        nonlocal looks
        looks += 1
        time.sleep(0.02)
        if (error := next(answers, "over")) == "over":
            ended.set()
        elif error is not None:
            raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(scheduler_file, "reach", reach)
        __main__.watch(nobody, ended, look_s=0.0, gone_s=0.5)
    assert looks > 40
    began_at = time.monotonic()
    with pytest.raises(Failed, match="is gone: it accepted no connection for 1 s"):
        __main__.watch(nobody, threading.Event(), look_s=0.05, gone_s=0.6)
    assert time.monotonic() - began_at >= 0.6


NEVER_STARTS = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from cluster.launch import __main__ as keeper_process
from cluster.launch.local import Local

def start(self, pem=None):
    with ThreadPoolExecutor(1) as aside:  # as Local does: leaving it waits for the thread
        starting = aside.submit(time.sleep, 600)
        print("starts", flush=True)
        starting.result()

Local.start = start
keeper_process.GIVE_UP_S = 1.0
sys.exit(keeper_process.main())
"""


def test_a_cluster_that_never_comes_up_is_given_up_on_sigterm(tmp_path: Path) -> None:
    order = json.dumps({"kind": "local", "options": {"num_ranks": 1}, "folder": str(tmp_path)})
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", NEVER_STARTS, order]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True) as keeper:
        assert keeper.stdout is not None
        try:
            assert keeper.stdout.readline() == b"starts\n"
            keeper.send_signal(signal.SIGTERM)
            assert keeper.wait(60) != 0
        finally:
            keeper.kill()


def test_the_keeper_itself_refuses_a_million_ranks(tmp_path: Path) -> None:
    order = json.dumps({"kind": "local", "options": {"num_ranks": 1_000_000}, "folder": str(tmp_path)})
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-m", "cluster.launch", order], env=env, capture_output=True, text=True,
                         timeout=120)  # fmt: skip
    assert ran.returncode == 1
    assert "cluster ended: num_ranks = 1000000 is too large: 1,000,000 ranks >" in ran.stderr
