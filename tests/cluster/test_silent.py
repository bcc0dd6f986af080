"""Processes that are stopped and go on: a worker is taken back, a client loses its ranks, nobody waits unseen."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import pytest
from fake_bench import FakeTrial
from fake_cluster import Events, await_ranks, eventually, failures, impatient, measured_keys, stream
from test_faults import ended, holding, is_sampled, stream_until

from cluster import broker
from cluster.broker import AWAY_S
from cluster.client import Cluster
from cluster.launch.roster import status
from cluster.watchdog import WAIT_S, Deadlines
from kernels.files import Failed

pytestmark = pytest.mark.slow

NAME = "host-rank1"
LONG = FakeTrial(key="bad", num_samples=100_000, seconds=0.01)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler of these tests runs in this process: what takes a quarter of a minute takes six seconds.

    No less: on a busy host of two cores a worker that lives may not answer for a while, too.
    """
    assert AWAY_S <= 15.0
    monkeypatch.setattr("cluster.broker.AWAY_S", 6.0)
    monkeypatch.setattr("cluster.gang.GIVE_UP_S", 8.0)


@pytest.fixture
def worker(cluster: Cluster) -> Iterator[int]:
    """Process id of a worker; it goes on afterwards, whatever a test did."""
    (address,) = [each["address"] for each in cluster.describe()["workers"] if each["name"] == NAME]
    pid: int = cluster.client.run(os.getpid, workers=[address])[address]
    yield pid
    os.kill(pid, signal.SIGCONT)
    await_ranks(cluster)


def of_worker(cluster: Cluster) -> dict[str, Any]:
    return next(each for each in cluster.describe()["workers"] if each["name"] == NAME)


def test_a_stopped_worker_is_away_its_gang_is_told_and_it_is_taken_back(
    cluster: Cluster, address: str, quick: None, worker: int
) -> None:
    events = stream_until(cluster, is_sampled, lambda: os.kill(worker, signal.SIGSTOP), LONG, deadline_s=100.0)
    (failure,) = failures(events)
    assert (failure["stage"], failure["rank"]) == ("lost", 1)
    assert f"Worker {NAME} on 127.0.0.1" in failure["message"]
    assert "has not answered for" in failure["message"]
    (row,) = [each for each in status(address) if each["name"] == NAME]
    assert row["state"] == "away"
    assert row["trouble"].startswith("no answer since ")
    assert eventually(lambda: bool(of_worker(cluster)["trouble"]), 60.0)
    with impatient(cluster):
        (refused,) = failures(stream(cluster, FakeTrial(key="a")))
    assert refused["stage"] == "launch", "it may be possible another time"
    assert f"({NAME}: it has not answered for more than" in refused["message"]
    one = list(cluster.stream([FakeTrial(key="b")], world=1, shares_heap=True, deadline_s=30.0))
    assert [event["kind"] for event in one if event["kind"] in ("result", "failure")] == ["result"], "others work on"
    os.kill(worker, signal.SIGCONT)
    await_ranks(cluster)
    assert measured_keys(stream(cluster, FakeTrial(key="c"))) == ["c"]


def test_a_trial_is_not_to_blame_for_a_worker_that_stopped_a_moment_ago(
    cluster: Cluster, worker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.broker.AWAY_S", 100.0)
    limits = Deadlines(silence_s=8.0, total_s=200.0)
    events = stream_until(cluster, is_sampled, lambda: os.kill(worker, signal.SIGSTOP), LONG, deadline_s=limits)
    (failure,) = failures(events)
    assert (failure["stage"], failure["rank"]) == ("lost", 1), "and no hang: it is not away yet"
    assert f"Worker {NAME} on 127.0.0.1" in failure["message"]


def waits(events: Events) -> list[str]:
    return [event["why"] for event in events if event["kind"] == "waiting"]


def test_who_waits_hears_for_whom_and_gives_up_at_the_limit(cluster: Cluster, address: str) -> None:
    process = holding(address)
    events: Events = []
    limits = Deadlines(5.0, 5.0, wait_s=2.5)
    assert limits.wait_s < WAIT_S
    with pytest.raises(
        Failed, match=r"2 ranks were not granted within 2 s: 0 requests are before; 1 client holds 2 of"
    ):
        events.extend(cluster.stream([FakeTrial(key="a")], world=2, shares_heap=True, deadline_s=limits))
    assert not cluster.describe()["requests"]
    ended(process)


def test_a_wait_that_ends_with_a_grant_ends_with_a_word_that_says_nothing(cluster: Cluster, address: str) -> None:
    process = holding(address)
    events = stream_until(
        cluster, lambda events: bool(waits(events)), process.kill, FakeTrial(key="a"), deadline_s=60.0
    )
    assert measured_keys(events) == ["a"]
    *earlier, last = waits(events)
    assert "1 client holds 2 of" in earlier[0]
    assert last == ""
    assert [event["kind"] for event in takewhile(lambda event: event["kind"] == "waiting", events)]
    ended(process)


def test_a_client_that_is_stopped_loses_what_it_held_several_times_too_long(
    cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.gang.HELD_LEAST_S", 1.0)

    def shorten(seconds: float) -> Callable[..., None]:
        def change(dask_scheduler: Any) -> None:
            gang = dask_scheduler.plugins[broker.NAME].gang
            gang.quiet_s = seconds
            gang.grants = {key: replaced(grant) for key, grant in gang.grants.items()}

        return change

    def replaced(grant: Any) -> Any:
        return type(grant)(grant.since, grant.places, 0.5)

    process = holding(address)
    process.send_signal(signal.SIGSTOP)
    cluster.client.run_on_scheduler(shorten(3.0))
    try:
        assert eventually(lambda: not cluster.describe()["grants"], 30.0), "of a lease of 50 s"
    finally:
        cluster.client.run_on_scheduler(shorten(10.0))
        ended(process)


def test_stop_ends_the_wait_although_the_scheduler_does_not_answer(cluster: Cluster, address: str) -> None:
    """The scheduler of these tests is a thread of this process: a task that blocks its event loop stops it."""
    process = holding(address)
    stop = threading.Event()
    MAY_GO_ON.clear()
    timer = threading.Timer(0.5, lambda: cluster.client.run_on_scheduler(block))
    timer.start()
    threading.Timer(3.0, stop.set).start()
    began = time.monotonic()
    try:
        events = stream(cluster, FakeTrial(key="a"), cancelled=stop)
        took_s = time.monotonic() - began
    finally:
        MAY_GO_ON.set()
        timer.join()
        ended(process)
    assert [event["stage"] for event in failures(events)] == ["cancelled"]
    assert took_s < 15.0, "an answer may take 20 s"
    assert eventually(lambda: not cluster.describe()["requests"], 30.0), "what was given back arrives"


MAY_GO_ON = threading.Event()


def block(dask_scheduler: Any) -> None:
    MAY_GO_ON.wait(60.0)
