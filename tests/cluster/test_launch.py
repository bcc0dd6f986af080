"""A cluster of each kind: what it starts, who finds it, and that nothing is left when it ends."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import fake_bench
import psutil
import pytest
from distributed import Nanny, Scheduler, SpecCluster
from fake_bench import FakeTrial
from fake_cluster import eventually

from cluster import launch, scheduler_file
from cluster.dispatch import Cluster
from cluster.launch import contract, kinds
from cluster.launch.kubernetes import Kubernetes
from cluster.launch.slurm import Slurm
from cluster.launch.ssh import Ssh
from cluster.scheduler_file import Record

GONE_S = 10.0


@pytest.fixture(scope="module", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """These tests have a scheduler file of their own."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def measured(cluster: Cluster, world: int) -> list[int]:
    """The ranks that ran a trial."""
    events = list(cluster.stream([FakeTrial(key="a")], world=world, shares_heap=True, deadline_s=10.0))
    assert [event for event in events if event["kind"] == "failure"] == []
    return sorted(event["rank"] for event in events if event["kind"] == "result")


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
    assert listening == {"127.0.0.1"}


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
    assert idle["fingerprint"] == "fake"
    assert (idle["threads"], idle["host"], idle["trouble"]) == (1, "127.0.0.1", None)
    assert idle["shared_memory_free_bytes"] > 0
    assert idle["torch"]


def test_a_labs_cluster_is_not_taken_down_from_outside(lab: Record) -> None:
    with pytest.raises(ValueError, match=f"belongs to a lab .process {os.getpid()}."):
        launch.down()


LAB = """
import sys, time
import fake_bench
from cluster import launch
if __name__ == "__main__":
    with launch.local(2, entry=fake_bench.ENTRY) as record:
        print(record.address, flush=True)
        time.sleep(60)
"""


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
    with pytest.raises(ValueError, match=f"process {process.pid}, which kept it at {address}, is gone"):
        Cluster.connect()
    assert time.monotonic() - began < 2.0


def test_a_scheduler_that_is_gone_is_noticed_although_its_process_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = psutil.Process()
    facts = {"dashboard": "", "kind": "local", "num_ranks": 1, "detached": True}
    scheduler_file.write(
        Record(address="tcp://127.0.0.1:9", pid=own.pid, started_at=own.create_time(), **facts)  # type: ignore[arg-type]
    )
    assert launch.running() is None
    began = time.monotonic()
    with pytest.raises(ValueError, match="nobody answered"):
        launch.status()
    assert time.monotonic() - began < 2.0


def test_a_process_of_the_same_number_is_not_taken_for_the_keeper(tmp_path: Path) -> None:
    facts = {"address": "tcp://127.0.0.1:9", "dashboard": "", "kind": "local", "num_ranks": 1, "detached": True}
    started_at = psutil.Process().create_time() - 3600
    assert not Record(pid=os.getpid(), started_at=started_at, **facts).alive  # type: ignore[arg-type]


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
    with pytest.raises(ValueError, match="none of this user runs on this host"):
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
    told = {
        "w0": {"version": contract.probe.version("overlap-workbench")},
        "w1": {"version": "9"},
        "w2": {"trouble": "t"},
    }
    sentence = contract.stranger("tcp://a:1", told)
    assert sentence is not None
    assert "2 of its 3 workers" in sentence
    assert "w1: 9, w2: t" in sentence


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("cloud", {}, "kind 'cloud' was asked for, which is unknown. Accepted: local, ssh, slurm, kubernetes"),
        ("local", {"ranks": 3}, "with ranks, which is unknown. Accepted: num_ranks"),
        ("local", {"num_ranks": 0}, "num_ranks = 0"),
        ("slurm", {}, "with no num_jobs. Accepted: num_jobs, ranks_per_job"),
        ("slurm", {"num_jobs": 0}, "num_jobs = 0"),
        ("ssh", {"hosts": "a,b"}, "hosts = 'a,b'"),
        ("ssh", {"hosts": []}, r"hosts = \[\]"),
        ("kubernetes", {"image": "i", "num_pods": 0}, "num_pods = 0"),
    ],
)
def test_a_kind_that_cannot_be_is_one_sentence(kind: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        launch.up(kind, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "options", "extra"),
    [
        ("ssh", {"hosts": ["a"]}, "ssh"),
        ("slurm", {"num_jobs": 1}, "jobqueue"),
        ("kubernetes", {"image": "i"}, "kubernetes"),
    ],
)
def test_a_missing_library_names_the_command_that_installs_it(
    kind: str, options: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"kind {kind} was .* pip install 'overlap-workbench\[{extra}\]'"):
        launch.up(kind, **options)


def test_every_kind_calls_itself_by_its_name_in_the_table() -> None:
    assert {name: made.name for name, made in kinds.KINDS.items()} == {name: name for name in kinds.KINDS}  # type: ignore[attr-defined]


def test_ssh_starts_one_named_worker_per_rank_and_the_scheduler_on_the_first_host() -> None:
    scheduler, workers = Ssh(hosts=["a", "b"], ranks_per_host=2, python="there/python").spec()
    assert scheduler["options"]["address"] == "a"
    assert scheduler["options"]["remote_python"] == "there/python"
    assert {name: worker["options"]["address"] for name, worker in workers.items()} == {
        "a-rank0": "a", "a-rank1": "a", "b-rank0": "b", "b-rank1": "b",
    }  # fmt: skip
    kwargs = workers["b-rank1"]["options"]["kwargs"]
    assert json.loads(json.dumps(kwargs)) == contract.OPTIONS | {"name": "b-rank1"}, "it travels as JSON"


def test_slurms_job_script_starts_workers_of_one_thread_with_name_and_resource() -> None:
    slurm = Slurm(
        num_jobs=1, ranks_per_job=2, queue="gpus", account="me", memory_per_rank="3 GiB", directives=["--gres=gpu:2"]
    )
    with slurm.prepare() as cluster:
        lines = cluster.job_script().splitlines()
    assert {"#SBATCH -p gpus", "#SBATCH -A me", "#SBATCH --mem=6G", "#SBATCH --gres=gpu:2"} <= set(lines)
    assert {"#SBATCH --cpus-per-task=2", "#SBATCH -J overlap-workbench"} <= set(lines)
    assert "export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False" in lines
    command = lines[-1]
    for words in (
        "--name dummy-name",
        "--nthreads 1",
        "--nworkers 2",
        "--nanny",
        "--resources rank=1",
        "--no-dashboard",
    ):
        assert words in command


SBATCH = """#!/bin/sh
script=$(cat "$1")
setsid sh -c "$script" > /dev/null 2>&1 &
echo Submitted batch job $!
"""
SCANCEL = """#!/bin/sh
kill -- "-$1"
"""


@pytest.fixture
def slurm_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SLURM that runs every job here, at once."""
    for name, script in {"sbatch": SBATCH, "scancel": SCANCEL}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # a job imports the fake bench too


def test_slurms_jobs_become_ranks_that_run_gangs_and_end_with_their_cluster(folder: Path, slurm_here: None) -> None:
    kind = Slurm(num_jobs=1, ranks_per_job=2)
    with launch.hold(kind, published=False, entry=fake_bench.ENTRY) as record:
        with Cluster.connect(record.address) as cluster:
            assert eventually(lambda: len(cluster.describe()["workers"]) == 2, 30.0)
            assert measured(cluster, world=2) == [0, 1]
            names = {worker["name"] for worker in cluster.describe()["workers"]}
        rank_pids = [row["rank_pid"] for row in launch.status(record.address)]
        processes = [psutil.Process(pid) for rank in rank_pids for pid in (rank, psutil.Process(rank).ppid())]
    assert names == {"overlap-workbench-0-0", "overlap-workbench-0-1"}
    assert eventually(lambda: not alive(processes), GONE_S), alive(processes)


def test_kubernetes_workers_have_the_contract_and_room_for_a_heap() -> None:
    kind = Kubernetes(image="i", ranks_per_pod=2, memory_per_rank="1 GiB")
    # as dask-kubernetes writes it
    args = [*kind.worker_command(), "--name", "$(DASK_WORKER_NAME)", "--dashboard", "--dashboard-address", "8788"]
    made = {"spec": {"worker": {"replicas": 1, "spec": {"containers": [{"name": "worker", "args": args}]}}}}
    pod = kind.fitted(made)["spec"]["worker"]["spec"]
    (worker,) = pod["containers"]
    assert worker["args"][:4] == ["dask", "worker", "--nworkers", "2"]
    assert " ".join(contract.ARGUMENTS) in " ".join(worker["args"])
    assert "--dashboard" not in worker["args"]
    assert worker["resources"]["limits"] == {"cpu": "2", "memory": str(2 * 2**30)}
    assert [mount["mountPath"] for mount in worker["volumeMounts"]] == ["/dev/shm"]
    assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory"}


def test_dasks_settings_reach_other_hosts_as_variables() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in contract.environment().items():
            patch.setenv(name, value)
        told = dask.config.collect_env()
    settings = contract.dask_settings()
    with dask.config.set(told):
        assert {name: dask.config.get(name) for name in settings} == settings
