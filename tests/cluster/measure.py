"""Measures the cluster's own overhead with the fake bench: `python tests/cluster/measure.py` prints a JSON document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import dask
import fake_bench
from distributed import LocalCluster
from fake_bench import FakeTrial
from fake_cluster import eventually

from cluster.broker import dask_settings
from cluster.client import Attempt, Cluster


def stream(cluster: Cluster, *trials: FakeTrial, shares_heap: bool = True) -> list[dict[str, Any]]:
    events = list(cluster.stream(trials, world=2, shares_heap=shares_heap, deadline_s=30.0))
    assert not [event for event in events if event["kind"] == "failure"], events
    return events


def took_s(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def ready(cluster: Cluster) -> None:
    assert eventually(lambda: all(w["ready"] and not w["busy"] for w in cluster.describe()["workers"]), 30)


def grants_s(cluster: Cluster) -> list[float]:
    """How long requests waited for their grant, by wrapping the one method that waits."""
    waits: list[float] = []
    original = Attempt._granted

    def timed(attempt: Attempt) -> str:
        began = time.perf_counter()
        session = original(attempt)
        waits.append(time.perf_counter() - began)
        return session

    Attempt._granted = timed  # type: ignore[method-assign]
    for _ in range(20):
        stream(cluster, FakeTrial(key="a", num_samples=0))
    Attempt._granted = original  # type: ignore[method-assign]
    return waits


def dead_client_s(cluster: Cluster) -> float:
    """From killing a client that holds both workers to another client's first event."""
    script = (
        "import sys; from cluster.client import Cluster; from fake_bench import FakeTrial\n"
        "for e in Cluster.connect(sys.argv[1]).stream([FakeTrial(key='h', does='hang')], world=2, shares_heap=True,"
        " deadline_s=600.0): print(e, flush=True)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, cluster.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        waiting = cluster.stream([FakeTrial(key="a")], world=2, shares_heap=True, deadline_s=30.0)
        threading.Timer(0.5, process.kill).start()
        killed_at = time.perf_counter() + 0.5
        next(waiting)
        seconds = time.perf_counter() - killed_at
        list(waiting)
    return seconds


def cancel_s(cluster: Cluster) -> tuple[float, float]:
    """From the cancel to the end of the stream, and to the first event of the next one."""
    cancelled = threading.Event()
    pressed: list[float] = []

    def press() -> None:
        pressed.append(time.perf_counter())
        cancelled.set()

    threading.Timer(0.5, press).start()
    trial = FakeTrial(key="a", does="hang")
    list(cluster.stream([trial], world=2, shares_heap=True, deadline_s=60.0, cancelled=cancelled))
    ended = time.perf_counter() - pressed[0]
    next(events := cluster.stream([FakeTrial(key="b")], world=2, shares_heap=True, deadline_s=30.0))
    usable = time.perf_counter() - pressed[0]
    list(events)
    return ended, usable


def four_clients(address: str, seconds: float = 6.0) -> float:
    """Most over fewest granted seconds of four clients that sweep at once."""
    clients = [Cluster.connect(address) for _ in range(4)]
    end_at = time.monotonic() + seconds

    def sweep(client: Cluster, length: float) -> None:
        while time.monotonic() < end_at:
            stream(client, FakeTrial(key="a", num_samples=10, seconds=length / 10))

    threads = [threading.Thread(target=sweep, args=(c, 0.05 * (n + 1))) for n, c in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    granted = clients[0].describe()["granted_seconds"]
    shares = [granted[client.client.id] for client in clients]
    for client in clients:
        client.close()
    return max(shares) / min(shares)


def measure(cluster: Cluster) -> dict[str, Any]:
    ready(cluster)
    one = FakeTrial(key="a", num_samples=0)
    cold = took_s(lambda: stream(cluster, one))
    new_session = [took_s(lambda i=i: stream(cluster, one, shares_heap=i % 2 == 1)) for i in range(5)]  # type: ignore[misc]
    stream(cluster, one)
    warm = [took_s(lambda: stream(cluster, one)) for _ in range(20)]
    many = [FakeTrial(key=str(number), num_samples=0) for number in range(500)]
    in_list = took_s(lambda: stream(cluster, *many)) / len(many)
    paced = [FakeTrial(key="p", num_samples=300, seconds=0.01)]
    ages = [
        time.time() - event["at"]
        for event in cluster.stream(paced, world=2, shares_heap=True, deadline_s=30.0)
        if event["kind"] == "sample"
    ]
    ended, usable = cancel_s(cluster)
    ready(cluster)
    return {
        "cold_gang_ms": 1e3 * cold,
        "new_session_ms": 1e3 * median(new_session),
        "warm_gang_median_ms": 1e3 * median(warm),
        "warm_gang_worst_ms": 1e3 * max(warm),
        "grant_median_ms": 1e3 * median(grants_s(cluster)),
        "per_trial_in_a_list_ms": 1e3 * in_list,
        "sample_age_median_ms": 1e3 * median(ages),
        "sample_age_p95_ms": 1e3 * quantiles(ages, n=20)[-1],
        "cancel_ends_ms": 1e3 * ended,
        "cancel_to_next_event_ms": 1e3 * usable,
        "four_clients_most_over_fewest_granted_seconds": four_clients(cluster.address),
        "dead_client_to_next_event_ms": 1e3 * dead_client_s(cluster),
    }


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(dask_settings()),
    ):
        os.environ[fake_bench.FOLDER] = folder
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None, host="127.0.0.1"
            ) as local,
            Cluster.connect(local.scheduler_address, entry=fake_bench.ENTRY) as cluster,
        ):
            numbers = measure(cluster)
    print(json.dumps({key: round(value, 1) for key, value in numbers.items()}, indent=1))


if __name__ == "__main__":
    main()
