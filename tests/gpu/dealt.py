"""Gangs through Dask on a host with several GPUs, and which GPU torch finds in each of their rank processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
import torch
from distributed import Nanny, Scheduler, SpecCluster

from cluster import launch
from cluster.broker import dask_settings
from cluster.client import Cluster
from cluster.launch.contract import LOOPBACK_ANY_PORT, OPTIONS
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import gpu_trial

LIMIT_S = 120.0
"""Importing torch, CUDA's beginning and the first compilation included."""
SIZES = {"m": 1024, "n": 512, "k": 256}
SEES: dict[str, list[dict[str, str]]] = {
    "as on ssh": [{}, {}],
    "numbers": [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "0,1"}],
    "as dask-cuda turns them": [{"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "1,0"}],
    "one may have the first only": [{}, {"CUDA_VISIBLE_DEVICES": "0"}],
}
"""What each worker's environment says of GPUs."""


@contextmanager
def somebody_elses(environments: list[dict[str, str]]) -> Iterator[str]:
    """A cluster that we did not start, of one worker for each of *environments*: its scheduler's address."""
    workers = {
        f"host-rank{rank}": {
            "cls": Nanny,
            "options": OPTIONS | {"host": "127.0.0.1", "env": own, "silence_logs": logging.ERROR},
        }
        for rank, own in enumerate(environments)
    }
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard_address": LOOPBACK_ANY_PORT}}
    with (
        dask.config.set(dask_settings()),
        SpecCluster(workers, scheduler, silence_logs=logging.ERROR) as started,
    ):
        yield started.scheduler_address


@contextmanager
def our_own() -> Iterator[str]:
    """The local cluster, whose workers have one GPU each."""
    with launch.local(published=False) as record:
        yield record.address


def trial(world: int, scheme: str = "sequential", operator: str = "gemm_all_to_all") -> Trial:
    return gpu_trial(operator, SIZES, world=world, dtype="bfloat16", scheme=scheme)


def begun(cluster: Cluster, asked: Trial) -> Iterator[Mapping[str, Any]]:
    """The events of *asked* after the first one that a rank said: by then its gang is granted."""
    events = cluster.stream([asked], world=asked.world, shares_heap=True, deadline_s=LIMIT_S)
    first = next(event for event in events if event["kind"] != "waiting")
    assert first["kind"] != "failure", first["message"]
    return events


def gpus_of(events: Iterator[Mapping[str, Any]]) -> list[str]:
    """Of each rank, the GPU that torch found in its process; the result was verified."""
    told = list(events)
    assert [event["message"] for event in told if event["kind"] == "failure"] == []
    results = {event["rank"]: event for event in told if event["kind"] == "result"}
    assert all(event["correct"] for event in results.values())
    return [results[rank]["facts"]["conditions"][0]["gpu"] for rank in sorted(results)]


def check(address: str) -> None:
    """Two gangs of one rank at once, then one of two ranks: nobody shares a GPU, and each is the one that was dealt."""
    here = {f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(torch.cuda.device_count())}
    with ExitStack() as stack:
        first, second = (stack.enter_context(Cluster.connect(address)) for _ in range(2))
        one = begun(first, trial(1))
        other = begun(second, trial(1))
        holders = {client for client, *_ in first.describe()["grants"]}
        assert holders == {first.client.id, second.client.id}, "both gangs are held at the same time"
        alone, beside = gpus_of(one), gpus_of(other)
        assert len({*alone, *beside}) == 2
        assert {*alone, *beside} <= here
        for asked in (trial(2, "fused"), trial(2, "sequential")):
            together = gpus_of(first.stream([asked], world=2, shares_heap=True, deadline_s=LIMIT_S))
            dealt = [worker["gpu"]["uuid"] for worker in first.describe()["workers"]]
            assert len(together) == len({*together}) == 2
            assert {*together} <= {*dealt} <= here
        shown = [row["gpu"].rpartition(" ")[2] for row in launch.status(address)]
        assert sorted(shown) == sorted(dealt)


def check_surplus() -> None:
    """One worker more than GPUs: it has none, and a gang of GPU ranks knows it."""
    count = torch.cuda.device_count()
    with somebody_elses([{}] * (count + 1)) as address, Cluster.connect(address) as cluster:
        gpus_of(cluster.stream([trial(1)], world=1, shares_heap=True, deadline_s=LIMIT_S))
        asked = trial(2 * count)
        (failure,) = cluster.stream([asked], world=asked.world, shares_heap=True, deadline_s=LIMIT_S)
        assert [worker["gpu"] for worker in cluster.describe()["workers"]].count(None) == 1
        assert failure["stage"] == "refused"
        assert f"{count} of the cluster's {count + 1} workers have one" in failure["message"]
