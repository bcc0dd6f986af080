"""The hosts of the test cluster, waiting for it, and what its streams tell."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from fake_bench import FakeTrial

from cluster import broker, keeper
from cluster.client import Cluster
from kernels.events import ProgressEvent

Events = list[ProgressEvent]
HOSTS = {"host-rank0": "127.0.0.1", "host-rank1": "127.0.0.1", "other-rank0": "127.0.0.2"}


def await_ranks(cluster: Cluster, timeout_s: float = 100.0) -> None:
    """Wait until every worker is there and free."""

    def ready() -> bool:
        workers = cluster.describe()["workers"]
        return len(workers) == len(HOSTS) and all(w["ready"] and not w["busy"] for w in workers)

    assert eventually(ready, timeout_s), cluster.describe()


def eventually(true: Callable[[], bool], timeout_s: float) -> bool:
    """Ask until it is true, or the time is over."""
    give_up_at = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def impatient(cluster: Cluster) -> Iterator[None]:
    """Requests for workers that are ill are refused soon."""

    def change(seconds: float, dask_scheduler: Any) -> float:
        gang = dask_scheduler.plugins[broker.NAME].gang
        before, gang.patient_s = gang.patient_s, seconds
        return float(before)

    before = cluster.client.run_on_scheduler(change, 0.0)
    try:
        yield
    finally:
        cluster.client.run_on_scheduler(change, before)


def ranks_alive() -> list[int]:
    """Rank processes of this test session: this process passed them the folder of the fake bench."""
    alive = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "cluster.rank" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return alive


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if _lives(one)]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def measured(cluster: Cluster, world: int) -> list[int]:
    """The ranks that ran a trial."""
    events = list(cluster.stream([FakeTrial(key="a")], world=world, shares_heap=True, deadline_s=10.0))
    assert [event for event in events if event["kind"] == "failure"] == []
    return sorted(event["rank"] for event in events if event["kind"] == "result")


def stream(cluster: Cluster, *trials: FakeTrial, **how: Any) -> Events:
    how = {"world": 2, "shares_heap": True, "deadline_s": 5.0} | how
    return list(cluster.stream(trials, **how))


def measured_keys(events: Events) -> list[str]:
    """Trials with a result of both ranks."""
    keys = [event["trial"] for event in events if event["kind"] == "result"]
    return sorted({key for key in keys if keys.count(key) == 2})


def failures(events: Events) -> Events:
    return [event for event in events if event["kind"] == "failure"]


def pids_of(cluster: Cluster) -> dict[str, int]:
    """Process id of each rank process, by the name of its worker."""

    def pid(dask_worker: Any) -> int:
        return dask_worker.plugins[keeper.NAME].process.popen.pid

    pids = cluster.client.run(pid)
    return {worker["name"]: pids[worker["address"]] for worker in cluster.describe()["workers"]}
