"""The process that keeps a cluster: busy schedulers are not gone, lost ones are, older ones are told apart."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import SchedulerPlugin

from cluster import agreement, broker, launch, scheduler_file
from cluster.certificate import Certificate
from cluster.client import Cluster
from cluster.launch import __main__
from cluster.launch.lifetime import refuse_second
from cluster.process import process_start
from cluster.scheduler_file import Record, SchedulerTarget
from kernels.files import Failed

# The process that keeps a cluster: busy schedulers are not gone, lost ones are, and a start can be broken off.


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


# What an older workbench left running is reported in one message, and never mistaken for nothing.

AGO_S = 7200.0
RESTART = "restart the cluster with `workbench cluster down`, then `workbench cluster up`"


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """A record as older ones wrote it, kept by a process that began at *then_s* by the clock."""
    file = tmp_path / "scheduler.json"
    monkeypatch.setattr(scheduler_file, "path", lambda: file)

    def leave(then_s: float, name: str) -> Path:
        facts = {"address": "tcp://127.0.0.1:9", "dashboard": "", "kind": "local", "num_ranks": 1, "detached": True}
        content = {"type": "Scheduler", "address": facts["address"], "workbench": facts | {"pid": os.getpid()}}
        content["workbench"] |= {name: then_s}
        file.write_text(json.dumps(content))
        return file

    return leave


@pytest.mark.parametrize("name", ["began", "started_at"])
@pytest.mark.parametrize("asks", [launch.down, launch.running, refuse_second], ids=["down", "running", "up"])
def test_a_keeper_of_an_older_workbench_is_named_with_what_ends_it(
    asks: Callable[[], Any], name: str, left: Callable[..., Path]
) -> None:
    left(psutil.Process().create_time(), name)
    with pytest.raises(Failed, match=f"process {os.getpid()} of an older workbench keeps. Accepted: end it with `kill"):
        asks()


@pytest.mark.parametrize("name", ["began", "started_at"])
def test_one_that_has_ended_is_no_cluster(name: str, left: Callable[..., Path]) -> None:
    left(psutil.Process().create_time() - AGO_S, name)
    assert scheduler_file.read() is None
    assert launch.running() is None


def test_a_broker_of_another_protocol_is_told() -> None:
    assert agreement.protocol_mismatch("tcp://a:1", broker.PROTOCOL, broker.PROTOCOL) is None
    for theirs, spoken in ((None, "speaks an older protocol"), (broker.PROTOCOL - 1, "speaks protocol 4")):
        message = agreement.protocol_mismatch("tcp://a:1", theirs, broker.PROTOCOL)
        assert message is not None
        assert f"{spoken}, and this process needs protocol 5. Accepted: " in message
        assert RESTART in message


@pytest.fixture
def of_protocol(cluster: Cluster) -> Iterator[Callable[[int | None], None]]:
    """of_protocol(number): the cluster's broker reports that protocol, None: no number, as the oldest ones."""

    def report(dask_scheduler: Any, protocol: int | None) -> None:
        plugin = dask_scheduler.plugins[broker.NAME]
        vars(plugin).pop("describe", None)
        facts = {key: value for key, value in plugin.describe().items() if key != "protocol"}
        if protocol != broker.PROTOCOL:
            plugin.describe = lambda: facts if protocol is None else facts | {"protocol": protocol}

    yield lambda protocol: cluster.client.run_on_scheduler(report, protocol=protocol)
    cluster.client.run_on_scheduler(report, protocol=broker.PROTOCOL)


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("protocol", [None, broker.PROTOCOL - 1])
@pytest.mark.parametrize("asks", [Cluster.connect, launch.attach, launch.status], ids=["connect", "attach", "status"])
def test_a_client_that_meets_an_older_broker_is_refused_in_a_sentence(
    asks: Callable[[str], Any],
    protocol: int | None,
    of_protocol: Callable[[int | None], None],
    address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And before the scheduler or a worker would load code that an older workbench does not have."""
    of_protocol(protocol)
    with monkeypatch.context() as patch:
        patch.setattr("cluster.client.dumps", lambda plugin: pytest.fail("code was sent"))
        patch.setattr("cluster.hosts.ask_workers", lambda *_: pytest.fail("code was sent"))
        with pytest.raises(ValueError, match="by another version of the workbench") as refused:
            asks(address)
    assert RESTART in str(refused.value)
    assert "\n" not in str(refused.value)
    of_protocol(broker.PROTOCOL)
    Cluster.connect(address).close()


class BrokerOfAnother(SchedulerPlugin):
    """A broker as another workbench sends it: its pickle names a class that the scheduler does not have."""

    def __reduce__(self) -> Any:
        return getattr, (broker, "BrokerOfAnotherWorkbench")


def test_a_client_whose_code_the_scheduler_does_not_have_is_refused_in_a_sentence(
    cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older client meets where a newer workbench runs: it knows no `of_protocol`, and sends its own classes."""
    monkeypatch.setattr(broker, "Broker", lambda entry: BrokerOfAnother())
    with pytest.raises(ValueError, match="cannot take the workbench's broker") as refused:
        Cluster.connect(address)
    assert str(refused.value).endswith("has the same Python, Dask and overlap-workbench as this one.")
    assert "\n" not in str(refused.value)
