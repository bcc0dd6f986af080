"""Kind ssh over a real SSH connection, to this host: its ranks measure, and its certificate is nobody else's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import asyncssh
import fake_bench
import psutil
import pytest
from distributed.deploy import ssh as launcher
from fake_cluster import alive, eventually, measured
from loops import apart

from cluster import launch
from cluster.client import Cluster
from cluster.launch import ssh
from cluster.launch.ssh import Ssh

GONE_S = 60.0
HOST = "127.0.0.1"


@pytest.fixture
def home_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home folder on a host that this user reaches by `ssh HOST` without typing anything."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / ".ssh").mkdir(parents=True)
    there.mkdir()
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(here / ".ssh" / "key"))
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    command = [sys.executable, Path(__file__).parent / "ssh_host.py", there, key.export_public_key().decode()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # its workers import the fake bench
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        settings = f"Host {HOST}\n  Port {server.stdout.readline().strip()}\n  IdentityFile {here}/.ssh/key\n"
        (here / ".ssh" / "config").write_text(f"{settings}  UserKnownHostsFile none\n")
        yield there
        server.communicate(timeout=GONE_S)


@pytest.mark.slow
def test_its_ranks_measure_over_tls_and_nothing_is_left_on_the_host(folder: Path, home_there: Path) -> None:
    with launch.hold(Ssh(hosts=[HOST], ranks_per_host=2), published=False, entry=fake_bench.ENTRY) as record:
        assert record.address.startswith("tls://")
        assert record.for_clients is not None
        handed, *more = files = sorted((home_there / ".cache" / "overlap-workbench").iterdir())
        assert {(file.suffix, stat.S_IMODE(file.stat().st_mode)) for file in files} == {(".pem", 0o600)}
        assert len(more) == 2, "the scheduler and each worker have one of their own"
        with Cluster.connect(record.for_clients) as cluster:
            assert eventually(lambda: len(cluster.describe()["workers"]) == 2, GONE_S)
            assert measured(cluster, world=2) == [0, 1]
        rows = launch.status(record.for_clients)
        ranks = [psutil.Process(row["rank_pid"]) for row in rows]
        processes = [*ranks, *(psutil.Process(rank.ppid()) for rank in ranks)]
        secret = handed.read_text().splitlines()[1]
        texts = [text for process in psutil.process_iter() for text in _texts(process)]
        assert not [text for text in texts if secret in text], "on a command line or in an environment"
    assert {row["name"] for row in rows} == {f"{HOST}-rank0", f"{HOST}-rank1"}
    assert eventually(lambda: not alive(processes), GONE_S), alive(processes)
    assert not list((home_there / ".cache" / "overlap-workbench").iterdir())


class RecordedHandover(ssh.CertificateHandover):
    """Records deliveries and removals instead of connecting to a host."""

    calls: ClassVar[list[str]] = []

    async def deliver(self, address: str, connect_options: dict[str, Any]) -> str:
        self.calls.append(f"deliver {self.name}")
        return f"/there/{self.name}"

    async def remove(self, address: str, connect_options: dict[str, Any]) -> None:
        self.calls.append(f"remove {self.name}")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    async def nothing(self: Any) -> None:
        RecordedHandover.calls.append("closed")

    monkeypatch.setattr(ssh, "CertificateHandover", RecordedHandover)
    monkeypatch.setattr(RecordedHandover, "calls", [])
    monkeypatch.setattr(launcher.Process, "close", nothing)
    monkeypatch.setattr(launcher.Worker, "start", nothing)
    return RecordedHandover.calls


def test_a_worker_that_is_closed_takes_only_its_own_certificate_away_and_closes_first(calls: list[str]) -> None:
    _, workers = Ssh(hosts=[HOST], ranks_per_host=2).spec(Path("cluster.pem"))

    async def closes() -> list[str]:
        one, other = [spec["cls"](scheduler="tls://s:1", **spec["options"]) for spec in workers.values()]
        await one.start()
        await other.start()
        calls.clear()
        await one.close()
        assert one.handover.name != other.handover.name
        return [one.handover.name]

    (name,) = apart(closes())
    assert calls == ["closed", f"remove {name}"]


def test_a_worker_that_does_not_start_leaves_no_certificate(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: Any) -> None:
        raise OSError("Worker failed to start")

    monkeypatch.setattr(launcher.Worker, "start", fails)
    _, workers = Ssh(hosts=[HOST], ranks_per_host=1).spec(Path("cluster.pem"))

    async def starts() -> None:
        (spec,) = workers.values()
        await spec["cls"](scheduler="tls://s:1", **spec["options"]).start()

    with pytest.raises(OSError, match="failed to start"):
        apart(starts())
    assert [call.partition(" ")[0] for call in calls] == ["deliver", "remove"]


def _texts(process: psutil.Process) -> list[str]:
    try:
        return [*process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return []
