"""Clusters on other hosts: what is asked of ssh, SLURM and Kubernetes, and the Secret of a cluster of pods."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dask
import fake_bench
import psutil
import pytest
from fake_bench import FakeTrial
from fake_cluster import alive, eventually, measured
from loops import apart

from cluster import launch
from cluster.client import Cluster
from cluster.connection import speaks_tls
from cluster.launch import contract, kinds
from cluster.launch.kubernetes import Kubernetes
from cluster.launch.slurm import Slurm
from cluster.launch.ssh import Ssh

# Clusters on other hosts: what ssh, SLURM and Kubernetes are given, and one that really runs SLURM's jobs here.

GONE_S = 60.0


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("cloud", {}, "kind 'cloud'. Accepted: local, ssh, slurm, kubernetes"),
        ("local", {"ranks": 3}, "with the unknown ranks. Accepted: num_ranks"),
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
    with pytest.raises(ValueError, match=rf"kind {kind} needs .* pip install 'overlap-workbench\[{extra}\]'"):
        launch.up(kind, **options)


def test_every_kind_calls_itself_by_its_name_in_the_table() -> None:
    assert {name: made.name for name, made in kinds.KINDS.items()} == {name: name for name in kinds.KINDS}  # type: ignore[attr-defined]


def test_ssh_starts_one_named_worker_per_rank_and_the_scheduler_on_the_first_host() -> None:
    scheduler, workers = Ssh(hosts=["a", "b"], ranks_per_host=2, python="there/python").spec(Path("c.pem"))
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
    with slurm.prepare(None) as cluster:
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
def slurm_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A SLURM that runs every job here, at once; its commands lie in this folder."""
    for name, script in {"sbatch": SBATCH, "scancel": SCANCEL}.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # a job imports the fake bench too
    yield tmp_path
    if launch.running() is not None:
        launch.down()


@pytest.mark.slow
def test_slurms_jobs_become_ranks_that_run_gangs_and_end_with_their_cluster(folder: Path, slurm_here: Path) -> None:
    kind = Slurm(num_jobs=1, ranks_per_job=2)
    with launch.hold(kind, published=False, entry=fake_bench.ENTRY) as record:
        assert record.for_clients is not None
        with Cluster.connect(record.for_clients) as cluster:
            assert eventually(lambda: len(cluster.describe()["workers"]) == 2, 30.0)
            assert measured(cluster, world=2) == [0, 1]
            names = {worker["name"] for worker in cluster.describe()["workers"]}
            events = cluster.stream([FakeTrial(key="a")], world=2, shares_heap=True, deadline_s=30)
            seats = [event["facts"]["seat"] for event in events if event["kind"] == "result"]
        assert {tuple(seat["addresses"]) for seat in seats} == {("127.0.0.1",) * 2}, "they are of one host"
        assert {seat["rendezvous"][0] for seat in seats} == {"127.0.0.1"}
        rank_pids = [row["rank_pid"] for row in launch.status(record.for_clients)]
        processes = [psutil.Process(pid) for rank in rank_pids for pid in (rank, psutil.Process(rank).ppid())]
        secrets = [Path(record.for_clients), Path(record.for_clients).with_suffix(".pem")]
        assert [stat.S_IMODE(secret.stat().st_mode) for secret in secrets] == [0o600, 0o600]
        listening = {
            one.laddr.port
            for process in (psutil.Process(), *processes)
            for one in process.net_connections("tcp")
            if one.status == psutil.CONN_LISTEN and not one.laddr.ip.startswith("127.")
        }
        assert len(listening) >= 3, "the scheduler and two workers are on the network"
        assert all(speaks_tls(f"tcp://127.0.0.1:{port}", 5.0) for port in listening), listening
    assert not any(secret.exists() for secret in secrets), "a certificate of a cluster that has ended"
    assert names == {"overlap-workbench-0-0", "overlap-workbench-0-1"}
    assert eventually(lambda: not alive(processes), GONE_S), alive(processes)


def test_a_detached_cluster_whose_jobs_are_refused_says_why(slurm_here: Path) -> None:
    (slurm_here / "sbatch").write_text("#!/bin/sh\necho sbatch: error: invalid partition: fast >&2\nexit 1\n")
    with pytest.raises(ValueError, match=r"did not start: .*error: invalid partition: fast") as raised:
        launch.up("slurm", num_jobs=1, queue="fast")
    assert "\n" not in str(raised.value)
    assert launch.running() is None


def test_a_host_that_submits_no_jobs_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="needs the command sbatch, which this host does not have"):
        launch.up("slurm", num_jobs=1)


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


def test_a_pod_reads_its_certificate_from_a_secret_and_its_scheduler_takes_nobody_without_it() -> None:
    kind = Kubernetes(image="i")
    # as dask-kubernetes writes it
    pods = {
        part: {"spec": {"containers": [{"name": part, "args": args}]}}
        for part, args in {
            "scheduler": ["dask-scheduler", "--host", "0.0.0.0"],
            "worker": kind.worker_command(),
        }.items()
    }
    secret, made = kind.secret("the certificate and its key"), kind.certified(kind.fitted({"spec": pods}))["spec"]
    assert (secret["kind"], secret["stringData"]) == ("Secret", {"cluster.pem": "the certificate and its key"})
    for part in ("scheduler", "worker"):
        pod = made[part]["spec"]
        (volume,) = [volume for volume in pod["volumes"] if "secret" in volume]
        assert volume["secret"]["secretName"] == secret["metadata"]["name"]
        (container,) = pod["containers"]
        (place,) = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume["name"]]
        words = " ".join(container["args"])
        for option in ("--tls-ca-file", "--tls-cert", "--tls-key"):
            assert f"{option} {place}/cluster.pem" in words
        assert "the certificate" not in words
    assert "--protocol tls://" in " ".join(made["scheduler"]["spec"]["containers"][0]["args"])


def test_pods_and_jobs_ask_for_the_gpus_that_their_ranks_are_to_have() -> None:
    made = {"spec": {"worker": {"spec": {"containers": [{"name": "worker", "args": []}]}}}}
    (worker,) = Kubernetes(image="i", ranks_per_pod=4, gpus_per_pod=4).fitted(made)["spec"]["worker"]["spec"][
        "containers"
    ]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert worker["resources"]["requests"] == worker["resources"]["limits"]
    with Slurm(num_jobs=2, ranks_per_job=4, gpus_per_job=4, directives=["--exclusive"]).prepare(None) as cluster:
        script = cluster.job_script()
    assert "#SBATCH --gres=gpu:4\n#SBATCH --exclusive" in script


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (Kubernetes(image="i", ranks_per_pod=2, gpus_per_pod=4), "gpus_per_pod = 4 does not fit ranks_per_pod = 2. A"),
        (Slurm(num_jobs=1, gpus_per_job=-1), "gpus_per_job = -1 does not fit ranks_per_job = 1. A"),
    ],
)
def test_gpus_without_a_rank_are_not_asked_for(kind: Kubernetes | Slurm, sentence: str) -> None:
    refusal = str(kind.refusal())
    assert refusal.startswith(f"{sentence} rank has 1 GPU, and others would be idle. Accepted: ")
    assert refusal.endswith("per_pod = 0 to 2." if isinstance(kind, Kubernetes) else "per_job = 0 to 1.")


def test_a_users_name_becomes_a_name_that_kubernetes_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "Ada.Lovelace_of_London")
    assert Kubernetes(image="i").cluster_name() == "overlap-workbench-ada-lovelace-o"


def test_dasks_settings_reach_other_hosts_as_variables() -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in contract.environment().items():
            patch.setenv(name, value)
        told = dask.config.collect_env()
    settings = contract.dask_settings()
    with dask.config.set(told):
        assert {name: dask.config.get(name) for name in settings} == settings


# The Secret of a cluster of pods: owned by it, never in the way of the next one, gone whatever closing comes to.
#
# dask-kubernetes and kr8s are optional: what is used of them stands here, over a namespace that is a set of names.

KUBE, DASK, KR8S = "dask_kubernetes.operator", "DaskCluster", "Secret"
FORGOTTEN = {"apiVersion": "v1", "kind": KR8S, "metadata": {"name": "ours"}}


class NotFoundError(Exception):
    """As kr8s has it."""


class Resource:
    """One of a namespace; a second one of its name is refused, as Kubernetes does."""

    version = "v1"
    there: dict[tuple[str, str], Any]

    def __init__(self, manifest: dict[str, Any], namespace: str | None = None) -> None:
        self.manifest, self.kind, self.name = manifest, type(self).__name__, manifest["metadata"]["name"]
        self.metadata = SimpleNamespace(uid=f"uid of {self.kind}")

    def __await__(self) -> Any:
        return asyncio.sleep(0, self).__await__()

    async def create(self) -> None:
        if (self.kind, self.name) in self.there:
            raise OSError(f"409: {self.kind} {self.name} exists")
        self.there[self.kind, self.name] = self.manifest

    async def delete(self) -> None:
        if self.there.pop((self.kind, self.name), None) is None:
            raise NotFoundError


class Secret(Resource):
    """As kr8s has it."""


class DaskCluster(Resource):
    """As dask-kubernetes has it."""


class KubeCluster:
    """As dask-kubernetes has it: closing deletes the cluster, or does not come to an end in time."""

    closes = True

    def __init__(self, custom_cluster_spec: dict[str, Any], namespace: str | None, **how: Any) -> None:
        self._custom_cluster_spec, self.namespace = custom_cluster_spec, namespace
        self.name, self._resource_timeout = custom_cluster_spec["metadata"]["name"], 1

    async def _wait_for_controller(self) -> None:
        raise TimeoutError("is the Dask Operator running?")

    async def _close(self, timeout: float) -> None:
        if not self.closes:
            raise TimeoutError("Timed out deleting cluster resource")
        Resource.there.pop((DASK, self.name), None)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[tuple[str, str], Any]]:
    """What is in the namespace."""
    modules = {
        "dask_kubernetes": {},
        KUBE: {"KubeCluster": KubeCluster},
        f"{KUBE}._objects": {DASK: DaskCluster},
        f"{KUBE}.kubecluster": {},
        f"{KUBE}.kubecluster.kubecluster": {"wait_for_service": None},
        f"{KUBE}.networking": {"get_scheduler_address": None, "wait_for_scheduler": None},
        "kr8s": {"NotFoundError": NotFoundError},
        "kr8s.asyncio": {},
        "kr8s.asyncio.objects": {KR8S: Secret},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "cluster.launch.pods", raising=False)
    monkeypatch.setattr(Resource, "there", {}, raising=False)
    yield Resource.there
    sys.modules.pop("cluster.launch.pods", None)


def pods() -> Any:
    return import_module("cluster.launch.pods").Pods({"metadata": {"name": "ours"}}, FORGOTTEN, Path("pem"), None)


def test_a_secret_that_was_left_behind_is_no_hindrance_and_the_new_one_goes_with_its_cluster(
    there: dict[tuple[str, str], Any],
) -> None:
    there[KR8S, "ours"] = FORGOTTEN
    made = pods()
    cluster = DaskCluster({"metadata": {"name": "ours"}})
    apart(made._hand_secret(cluster))
    (owner,) = there[KR8S, "ours"]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == (DASK, "ours", f"uid of {DASK}")


def test_a_cluster_that_does_not_come_up_leaves_nothing(there: dict[tuple[str, str], Any]) -> None:
    there[KR8S, "ours"] = FORGOTTEN
    with pytest.raises(TimeoutError, match="Operator"):
        apart(pods()._create_cluster())
    assert not there


def test_closing_that_fails_removes_the_secret(
    there: dict[tuple[str, str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KubeCluster, "closes", False)
    there[KR8S, "ours"] = FORGOTTEN
    with pytest.raises(TimeoutError, match="deleting"):
        apart(pods()._close())
    assert not there


def test_a_second_cluster_of_this_user_touches_nothing_of_the_first(there: dict[tuple[str, str], Any]) -> None:
    there.update({(KR8S, "ours"): "its Secret", (DASK, "ours"): "it"})
    with pytest.raises(OSError, match="409: DaskCluster"):
        apart(pods()._create_cluster())
    assert there == {(KR8S, "ours"): "its Secret", (DASK, "ours"): "it"}
