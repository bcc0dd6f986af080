"""A local cluster: what it starts, who finds it, and that nothing is left of it; and clusters of other people."""

from __future__ import annotations

import json
import mmap
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import dask
import fake_bench
import psutil
import pytest
from distributed import Nanny, Scheduler, SpecCluster
from fake_bench import FakeTrial
from fake_cluster import alive, eventually, family, measured

from cluster import hosts, launch, scheduler_file
from cluster.client import Cluster
from cluster.hosts import local_ranks
from cluster.launch import contract, detached
from cluster.process import SEMAPHORES, _mapped_inodes, process_start, remove_left_semaphores
from cluster.scheduler_file import Record
from kernels.files import Failed

GONE_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """These tests have a scheduler file of their own."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.fixture(scope="module")
def lab(folder: Path) -> Iterator[Record]:
    """A published cluster of two ranks."""
    environment = dict(os.environ)
    with launch.local(2, entry=fake_bench.ENTRY) as record:
        assert dict(os.environ) == environment, "what nannies set here, a notebook would inherit"
        yield record
    assert not scheduler_file.path().exists()


def test_a_local_cluster_is_found_and_runs_gangs(lab: Record) -> None:
    assert launch.running() == lab
    with Cluster.connect() as cluster:
        assert measured(cluster, world=2) == [0, 1]
        assert measured(cluster, world=1) == [0]


def test_its_ranks_are_what_this_host_says_that_they_would_be(lab: Record) -> None:
    """So that what is known of the local cluster is known while none runs."""
    with Cluster.connect() as cluster:
        for world in (1, 2):
            there, here = cluster.ranks(world, "cpu"), local_ranks(world, "cpu")
            assert there is not None
            assert here is not None
            assert there.hardware == here.hardware


def test_its_workers_keep_the_contract(lab: Record) -> None:
    with Cluster.connect() as cluster:
        workers = cluster.client.scheduler_info(n_workers=-1)["workers"].values()
        hosts = {(worker["nthreads"], worker["memory_limit"], str(worker["resources"])) for worker in workers}
        assert hosts == {(1, 0, "{'rank': 1}")}
        assert sorted(worker["name"].rpartition("-")[2] for worker in workers) == ["rank0", "rank1"]
        profiling = cluster.client.run(lambda: dask.config.get("distributed.worker.profile.enabled"))
        assert set(profiling.values()) == {False}
        deaf = cluster.client.run(lambda: signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
        assert set(deaf.values()) == {True}, "Ctrl-C is for the lab"


def test_only_this_host_can_reach_it(lab: Record) -> None:
    ours = [psutil.Process(), *family(os.getpid())]
    assert len(ours) >= 5, "this process, two workers and their ranks"
    listening = {one.laddr.ip for process in ours for one in process.net_connections() if one.status == "LISTEN"}
    assert {ip.partition(".")[0] for ip in listening} == {"127"}, listening


def test_only_its_user_can_read_where_it_is(lab: Record) -> None:
    file = scheduler_file.path()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert json.loads(file.read_text())["address"] == lab.address, "as in Dask's own scheduler files"


def test_a_second_published_cluster_is_refused_and_a_private_one_is_not(lab: Record) -> None:
    with pytest.raises(ValueError, match=r"runs already at .* by ending the lab"), launch.local(1):
        pass
    with launch.local(1, published=False, entry=fake_bench.ENTRY) as private:
        assert private.address != lab.address
        assert launch.running() == lab


def test_status_says_who_does_what(lab: Record) -> None:
    with Cluster.connect() as cluster:
        measured(cluster, world=2)
        stream = cluster.stream(
            [FakeTrial(key="a", num_samples=50, seconds=0.05)] * 1, world=1, shares_heap=True, deadline_s=10
        )
        next(stream)
        granted, idle = launch.status()
        stream.close()
        assert (granted["state"], granted["client"]) == ("granted", cluster.client.id)
    assert (idle["state"], idle["client"]) == ("idle", None)
    assert idle["rank_alive"]
    assert idle["source_prints"] == {"cpu": "fake", "triton": "fake"}
    assert (idle["threads"], idle["host"], idle["trouble"]) == (1, "127.0.0.1", None)
    assert idle["shared_memory_free_bytes"] > 0
    assert idle["torch"]


def test_a_labs_cluster_is_not_taken_down_from_outside(lab: Record) -> None:
    with pytest.raises(ValueError, match=f"belongs to a lab .process {os.getpid()}."):
        launch.down()


@pytest.mark.parametrize(("cores", "num_ranks"), [(1, 4), (2, 4), (6, 6), (64, 8)])
def test_every_host_has_ranks_for_worlds_of_one_two_and_four(
    cores: int, num_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("cluster.launch.local"), "usable_cores", lambda: cores)
    assert launch.KINDS["local"]().num_ranks == num_ranks


LAB = """
import sys, time
import fake_bench
from cluster import launch
if __name__ == "__main__":
    with launch.local(2, entry=fake_bench.ENTRY) as record:
        print(record.address, flush=True)
        time.sleep(600)
"""


@pytest.mark.slow
def test_nothing_is_left_of_a_lab_that_was_killed_and_its_file_is_known_to_be_stale(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "lab.py").write_text(LAB)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, tmp_path / "lab.py"], env=env, **pipes) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            with Cluster.connect() as cluster:
                assert cluster.address == address
                assert measured(cluster, world=2) == [0, 1]
            children = family(process.pid)
            assert len(children) >= 4, "two workers and their ranks"
        finally:
            process.kill()
    assert eventually(lambda: not alive(children), GONE_S), alive(children)
    began = time.monotonic()
    with pytest.raises(ValueError, match=f"process {process.pid}, which kept it at {address}, has ended"):
        Cluster.connect()
    assert time.monotonic() - began < 20.0


def semaphores_of(pid: int) -> list[Path]:
    """By inode: a process has them mapped under the names that they were made with, which are gone."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/dev/shm/sem." in line]
    mapped = {int(line[4]) for line in lines}
    with os.scandir("/dev/shm") as files:
        return [Path(file) for file in files if file.name.startswith("sem.") and file.inode() in mapped]


@pytest.mark.slow(keeps=1)
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere semaphores have no files to look at")
@pytest.mark.parametrize("end", [signal.SIGHUP, signal.SIGQUIT], ids=["closed_terminal", "ctrl_backslash"])
def test_a_terminal_that_ends_its_lab_leaves_no_semaphore(
    end: signal.Signals, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent to every process of the terminal: to those, too, that remove what others leave."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "lab.py").write_text(LAB)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen([sys.executable, tmp_path / "lab.py"], env=env, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"tcp://")
        everybody = family(process.pid)
        semaphores = semaphores_of(process.pid)
        assert semaphores, "Dask's nannies have some"
        os.killpg(process.pid, end)
    assert eventually(lambda: not alive(everybody), GONE_S), alive(everybody)
    assert eventually(lambda: not any(map(Path.exists, semaphores)), 5.0), semaphores


def test_a_scheduler_that_is_gone_is_noticed_although_its_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    facts = {"dashboard": "", "kind": "local", "num_ranks": 1, "detached": True}
    scheduler_file.write(
        Record(address="tcp://127.0.0.1:9", pid=os.getpid(), began=process_start(), **facts)  # type: ignore[arg-type]
    )
    assert launch.running() is None
    asked_at = time.monotonic()
    with pytest.raises(ValueError, match="nobody answered"):
        launch.status()
    assert time.monotonic() - asked_at < 20.0


def test_a_process_of_the_same_number_is_not_taken_for_the_keeper(tmp_path: Path) -> None:
    facts = {"address": "tcp://127.0.0.1:9", "dashboard": "", "kind": "local", "num_ranks": 1, "detached": True}
    for earlier in ("another start of this host/1", f"{process_start()}0"):
        assert not Record(pid=os.getpid(), began=earlier, **facts).alive  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the clock tells")
def test_a_clock_that_is_set_makes_no_other_process_of_the_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil reports a start in seconds of the clock, which may be set two minutes ahead."""
    facts = {"address": "tcp://127.0.0.1:9", "dashboard": "", "kind": "local", "num_ranks": 1, "detached": True}
    record = Record(pid=os.getpid(), began=process_start(), **facts)  # type: ignore[arg-type]
    later = psutil.Process().create_time() + 120
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: later)
    assert record.alive


CARELESS = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""
"""A parent that waits for no child, as the first process of many a container."""


def test_a_keeper_that_nobody_takes_away_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("it ended by itself"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", CARELESS], **pipes) as parent:
        pid = int(parent.stdout.readline())
        detached._end(pid)
        assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        parent.communicate(timeout=60)


@pytest.mark.slow
def test_a_detached_cluster_stays_until_it_is_taken_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record = launch.up("local", num_ranks=1)
    processes = [psutil.Process(record.pid), *family(record.pid)]
    try:
        assert os.getsid(record.pid) == record.pid, "it does not end with this terminal"
        assert launch.running() == record
        with pytest.raises(ValueError, match=r"runs already at .* with `workbench cluster down`"):
            launch.up("local")
        assert [row["name"].rpartition("-")[2] for row in launch.status()] == ["rank0"]
    finally:
        assert launch.down() == record
    assert eventually(lambda: not alive(processes), GONE_S), alive(processes)
    with pytest.raises(ValueError, match="There is no cluster to stop: you run 0 on this host"):
        launch.down()
    with pytest.raises(ValueError, match="there is no scheduler file"):
        launch.status()


def foreign(nthreads: int) -> SpecCluster:
    """Somebody else's cluster."""
    options = {"host": "127.0.0.1", "nthreads": nthreads, "memory_limit": 0, "dashboard_address": "127.0.0.1:0"}
    scheduler = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}
    return SpecCluster(
        {"theirs": {"cls": Nanny, "options": options}}, {"cls": Scheduler, "options": scheduler}, silence_logs=40
    )


def test_a_worker_that_does_not_answer_keeps_nobody_from_its_cluster() -> None:
    """A stopped one of two ended every command with "has another version", as if nobody could ever ask."""
    ours = {"version": hosts.package_version(contract.DISTRIBUTION), "trouble": None}
    assert contract.version_mismatch("tcp://there", {"a": ours, "b": hosts.no_answer(5.0)}) is None
    assert "b: 9.9" in str(contract.version_mismatch("tcp://there", {"a": ours, "b": {"version": "9.9"}}))
    assert "b: ImportError: no" in str(
        contract.version_mismatch("tcp://there", {"a": ours, "b": {"trouble": "ImportError: no"}})
    )


def test_anybodys_cluster_can_be_attached_if_its_workers_have_one_thread(folder: Path) -> None:
    with foreign(1) as theirs:
        assert [row["state"] for row in launch.status(theirs.scheduler_address)] == ["foreign"]
        with launch.attach(theirs.scheduler_address, entry=fake_bench.ENTRY) as cluster:
            assert measured(cluster, world=1) == [0]
        assert [row["state"] for row in launch.status(theirs.scheduler_address)] == ["idle"]


def test_a_worker_with_more_threads_is_refused_with_the_command_that_would_do() -> None:
    with foreign(2) as theirs:
        address = theirs.scheduler_address
        with pytest.raises(ValueError, match=r"theirs has 2\. Accepted: .*--nthreads 1") as refused:
            launch.attach(address)
        assert f"dask worker {address} {' '.join(contract.ARGUMENTS)}" in str(refused.value)
        assert [row["state"] for row in launch.status(address)] == ["foreign"], "nothing was left there"


def test_workers_of_another_version_are_refused() -> None:
    answers = {
        "w0": {"version": hosts.package_version("overlap-workbench")},
        "w1": {"version": "9"},
        "w2": {"trouble": "t"},
    }
    refusal = contract.version_mismatch("tcp://a:1", answers)
    assert refusal is not None
    assert "2 of its 3 workers" in refusal
    assert "w1: 9, w2: t" in refusal


def test_a_folder_for_the_address_that_cannot_be_used_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(launch.Local, "start", None)
    with (
        pytest.raises(Failed, match=rf"kept in {tmp_path}/state/.* cannot be written \(.*\)\. Accepted: a HOME"),
        launch.local(2),
    ):
        pass


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="semaphores are files on Linux only")
def test_semaphores_that_a_killed_group_left_are_removed_and_those_in_use_stay() -> None:
    make = "import multiprocessing as m, time; kept = [m.get_context('spawn').Lock() for _ in range(9)]; print('made', flush=True); time.sleep(100)"  # fmt: skip  # noqa: E501
    here = set(Path("/dev/shm").glob("sem.mp-*"))
    killed, living = (
        subprocess.Popen([sys.executable, "-c", make], stdout=subprocess.PIPE, start_new_session=True) for _ in range(2)
    )
    try:
        for process in (killed, living):
            assert process.stdout is not None
            assert process.stdout.readline() == b"made\n"
        assert len(set(Path("/dev/shm").glob("sem.mp-*")) - here) >= 18
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(10)
        assert remove_left_semaphores(older_than_s=3600) == 0, "they may be of a process that is just starting"
        assert remove_left_semaphores(older_than_s=-1) >= 9
        assert len(set(Path("/dev/shm").glob("sem.mp-*")) - here) >= 9, "the living process keeps its own"
        assert remove_left_semaphores(older_than_s=-1) == 0
    finally:
        os.killpg(living.pid, signal.SIGKILL)
        living.wait(10)
        for process in (killed, living):
            assert process.stdout is not None
            process.stdout.close()
        remove_left_semaphores(older_than_s=-1)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what a process maps")
def test_a_mapped_file_with_a_name_of_any_bytes_keeps_no_lab_from_starting(tmp_path: Path) -> None:
    """The name of a file that any process here maps ended the start with a UnicodeDecodeError."""
    mapped = tmp_path / os.fsdecode(b"\xff\xfe")
    mapped.write_bytes(b"x" * mmap.PAGESIZE)
    with mapped.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert _mapped_inodes(SEMAPHORES) is not None
