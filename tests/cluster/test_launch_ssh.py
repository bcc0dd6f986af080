"""Kind ssh over a real SSH connection, to this host: its ranks measure, and its certificate is nobody else's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import fake_bench
import psutil
import pytest
from fake_cluster import alive, eventually, measured

from cluster import launch
from cluster.dispatch import Cluster
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


def test_its_ranks_measure_over_tls_and_nothing_is_left_on_the_host(folder: Path, home_there: Path) -> None:
    with launch.hold(Ssh(hosts=[HOST], ranks_per_host=2), published=False, entry=fake_bench.ENTRY) as record:
        assert record.address.startswith("tls://")
        assert record.for_clients is not None
        (handed,) = (home_there / ".cache" / "overlap-workbench").iterdir()
        assert (handed.suffix, stat.S_IMODE(handed.stat().st_mode)) == (".pem", 0o600)
        with Cluster.connect(record.for_clients) as cluster:
            assert eventually(lambda: len(cluster.describe()["workers"]) == 2, GONE_S)
            assert measured(cluster, world=2) == [0, 1]
        rows = launch.status(record.for_clients)
        ranks = [psutil.Process(row["rank_pid"]) for row in rows]
        processes = [*ranks, *(psutil.Process(rank.ppid()) for rank in ranks)]
        secret = handed.read_text().splitlines()[1]
        said = [words for process in psutil.process_iter() for words in _words(process)]
        assert not [words for words in said if secret in words], "on a command line or in an environment"
    assert {row["name"] for row in rows} == {f"{HOST}-rank0", f"{HOST}-rank1"}
    assert eventually(lambda: not alive(processes), GONE_S), alive(processes)
    assert not list((home_there / ".cache" / "overlap-workbench").iterdir())


def _words(process: psutil.Process) -> list[str]:
    try:
        return [*process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return []
