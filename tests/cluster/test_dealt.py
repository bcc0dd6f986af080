"""Workers that all see every GPU of their host, as over SSH: each rank process has one for itself, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import fake_bench
import pytest
from distributed import Scheduler, SpecCluster, Worker
from fake_bench import FakeTrial
from fake_cluster import eventually

from cluster import hosts, keeper
from cluster.broker import Broker, dask_settings
from cluster.client import Cluster
from cluster.launch.roster import status

HostWithGpus = Callable[..., None]
GPUS = [hosts.Gpu(number=number, name="NVIDIA H200", uuid=f"GPU-{number}") for number in range(2)]


@contextmanager
def on_workers(count: int, *, hosts_of: int = 1, **resources: float) -> Iterator[Cluster]:
    """Workers in this process, so that they find the same GPUs as it does, on as many addresses as *hosts_of*."""
    options = {"nthreads": 1, "memory_limit": 0, "dashboard_address": None, "dashboard": False,
               "resources": resources}  # fmt: skip
    workers = {f"host-rank{rank}": {"cls": Worker, "options": options | {"host": f"127.0.0.{1 + rank % hosts_of}"}}
               for rank in range(count)}  # fmt: skip
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
    with (
        dask.config.set(dask_settings()),
        SpecCluster(workers=workers, scheduler=scheduler, silence_logs=False) as started,
        Cluster.connect(started.scheduler_address, entry=fake_bench.ENTRY) as cluster,
    ):
        yield cluster


def ready(cluster: Cluster, count: int) -> bool:
    return eventually(lambda: sum(worker["ready"] for worker in cluster.describe()["workers"]) == count, 100.0)


def visible(cluster: Cluster, world: int, **trial: Any) -> list[str]:
    """CUDA_VISIBLE_DEVICES of the rank processes of a gang, by rank."""
    events = list(
        cluster.stream([FakeTrial(key="a", num_samples=1, **trial)], world=world, shares_heap=True, deadline_s=60.0)
    )
    results = {event["rank"]: event["facts"]["visible"] for event in events if event["kind"] == "result"}
    return [results[rank] for rank in sorted(results)]


@pytest.fixture
def on_two_gpus(folder: Path, host_with_gpus: HostWithGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a host with two GPUs and Triton says, which this one may not have."""
    host_with_gpus(2)
    monkeypatch.setattr(hosts, "fastest_backend", lambda gpu: "cpu" if gpu is None else "triton")


def test_each_rank_process_sees_the_gpus_that_its_own_is_linked_to_behind_it(
    on_two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = {"GPU-0": ("GPU-1",), "GPU-1": ("GPU-0",)}
    monkeypatch.setattr(hosts, "nvlink_peers", lambda gpu: links[gpu.uuid])
    with on_workers(2) as cluster:
        assert ready(cluster, 2)
        assert sorted(visible(cluster, 2, backend="triton")) == ["GPU-0,GPU-1", "GPU-1,GPU-0"]


def test_each_rank_process_sees_one_gpu_by_uuid_and_keeps_it(on_two_gpus: None) -> None:
    with on_workers(3) as cluster:
        assert ready(cluster, 3)
        has = {worker["name"]: worker["gpu"] and worker["gpu"]["uuid"] for worker in cluster.describe()["workers"]}
        owned = [uuid for uuid in has.values() if uuid]
        assert sorted(owned) == ["GPU-0", "GPU-1"], "one each, and none for the third"
        in_order = [has[name] or "" for name in sorted(has)]
        assert visible(cluster, 3) == in_order
        # only those with a GPU sit in a gang of GPU ranks
        assert visible(cluster, 2, backend="triton") == [uuid for uuid in in_order if uuid]
        visible(cluster, 3, does="crash", on=0)
        assert ready(cluster, 3)
        assert visible(cluster, 3) == in_order, "a new rank process has the GPU of the one before"
        told = {row["name"]: row["gpu"] for row in status(cluster.address)}
        assert told == {name: f"NVIDIA H200 {uuid}" if uuid else None for name, uuid in has.items()}


def test_workers_with_a_part_of_a_gpu_are_dealt_the_same_one_and_their_ranks_are_told(
    on_two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "nvlink_peers", lambda gpu: ("GPU-1",))
    monkeypatch.setattr(hosts, "visible_gpus", lambda: hosts.select_visible(GPUS, "GPU-0"))
    with on_workers(4, GPU=1 / 4) as cluster:
        assert ready(cluster, 4)
        described = cluster.describe()["workers"]
        assert [worker["gpu"]["uuid"] for worker in described] == ["GPU-0"] * 4
        assert [worker["device"]["ranks_on_gpu"] for worker in described] == [4] * 4
        assert visible(cluster, 4, backend="triton") == ["GPU-0"] * 4, "and no peer of that GPU"
        trial = FakeTrial(key="b", backend="triton")
        results = [event for event in cluster.stream([trial], world=2, shares_heap=True, deadline_s=60.0)
                   if event["kind"] == "result"]  # fmt: skip
        assert [event["facts"]["seat"]["ranks_on_gpu"] for event in results] == [4, 4]
        assert {event["hardware"]["link"] for event in results} == {"one GPU shared by 2 ranks"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux answers on all of 127.0.0.0/8")
def test_two_hosts_that_are_addresses_share_a_gpu_and_their_results_say_so(
    on_two_gpus: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "visible_gpus", lambda: hosts.select_visible(GPUS, "GPU-0"))
    trial = FakeTrial(key="a", backend="triton", across=True)
    with on_workers(2, hosts_of=2, GPU=1 / 2) as cluster:
        assert ready(cluster, 2)
        events = list(cluster.stream([trial], world=2, shares_heap=False, deadline_s=60.0))
        results = [event for event in events if event["kind"] == "result"]
        seats = [event["facts"]["seat"] for event in results]
        assert [seat["ranks_on_gpu"] for seat in seats] == [2, 2]
        assert [sorted(seat["addresses"]) for seat in seats] == [["127.0.0.1", "127.0.0.2"]] * 2
        assert {event["hardware"]["link"] for event in results} == {"one GPU shared by 2 hosts"}
        known = cluster.ranks(2, "triton", across=True)
        assert known is not None
        assert known.hardware.link == "one GPU shared by 2 hosts", "also before they run"
        (refused,) = cluster.stream([trial], world=2, shares_heap=True, deadline_s=60.0)
        assert "no host has more than 1" in refused["message"]


@pytest.mark.slow
def test_a_keeper_that_hears_nothing_says_so_and_asks_again(on_two_gpus: None, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    answer = Broker.worker_sees

    def deaf_at_first(self: Broker, worker: str, gpus: Any, ranks_on_gpu: int) -> None:
        requests.append(worker)
        if len(requests) > 1:
            answer(self, worker, gpus, ranks_on_gpu)

    monkeypatch.setattr(Broker, "worker_sees", deaf_at_first)
    monkeypatch.setattr(keeper, "DEALT_S", 3.0)
    troubles: list[str] = []
    report = keeper.Keeper._send

    def overheard(self: keeper.Keeper, change: str, incarnation: str, text: str = "", **more: Any) -> None:
        troubles.append(text)
        report(self, change, incarnation, text, **more)

    monkeypatch.setattr(keeper.Keeper, "_send", overheard)
    with on_workers(1) as cluster:
        assert ready(cluster, 1)
        assert troubles[0] == ("it requested a GPU, and the broker did not answer within 3 s; it requests one again")
        assert cluster.describe()["workers"][0]["trouble"] == ""
