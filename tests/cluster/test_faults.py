"""Whatever breaks, the stream ends in time with one sentence per trial, and the next one works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_bench
import psutil
import pytest
from fake_bench import FakeTrial
from fake_cluster import (
    HOSTS,
    Events,
    await_ranks,
    eventually,
    failures,
    impatient,
    measured_keys,
    pids_of,
    ranks_alive,
    stream,
)

from cluster import broker
from cluster.client import Cluster
from cluster.gang import MOST_DEATHS


def stream_until(
    cluster: Cluster, there: Callable[[Events], bool], then: Callable[[], object], *trials: FakeTrial, **how: Any
) -> Events:
    """As `stream`; *then* is called once, as soon as *there* is true of the events so far."""
    events: Events = []
    waiting = True
    for event in cluster.stream(trials, **({"world": 2, "shares_heap": True, "deadline_s": 5.0} | how)):
        events.append(event)
        if waiting and there(events):
            waiting = False
            then()
    return events


def is_sampled(events: Events) -> bool:
    """The bad trial has begun on all ranks: they meet at every sample."""
    return any((event["trial"], event["kind"]) == ("bad", "sample") for event in events)


@pytest.fixture(autouse=True)
def the_next_stream_works(cluster: Cluster) -> Iterator[None]:
    """After every fault of this file."""
    yield
    assert measured_keys(stream(cluster, FakeTrial(key="next"))) == ["next"]
    await_ranks(cluster)


def test_a_rank_that_dies_is_the_cause_although_its_peer_complained_first(cluster: Cluster) -> None:
    trials = (FakeTrial(key="a"), FakeTrial(key="bad", does="crash", on=1, num_samples=1), FakeTrial(key="c"))
    events = stream(cluster, *trials)
    failure, beside = failures(events)
    assert (failure["trial"], failure["rank"], failure["stage"]) == ("bad", 1, "lost")
    assert "rank 1 (host-rank1 on 127.0.0.1)" in failure["message"]
    assert "ended with exit code 7" in failure["message"]
    assert measured_keys(events) == ["a"]
    assert (beside["trial"], beside["rank"], beside["stage"]) == ("c", 1, "cancelled"), "who asked asks again"


def test_an_exception_is_reported_with_its_own_words(cluster: Cluster) -> None:
    (failure,) = failures(stream(cluster, FakeTrial(key="bad", does="throw", on=0, num_samples=1)))
    assert (failure["rank"], failure["stage"]) == (0, "launch")
    assert "RuntimeError: no kernel image is available" in failure["message"]


def test_a_spoiled_cuda_context_costs_its_own_rank_process_and_no_other(cluster: Cluster) -> None:
    stream(cluster, FakeTrial(key="warm"))
    before = pids_of(cluster)
    trials = (FakeTrial(key="a"), FakeTrial(key="bad", does="spoil", on=1, num_samples=1), FakeTrial(key="c"))
    events = stream(cluster, *trials)
    failure, beside = failures(events)
    assert (failure["trial"], failure["rank"], failure["stage"]) == ("bad", 1, "launch")
    assert "CUDA error: an illegal memory access was encountered" in failure["message"]
    assert (measured_keys(events), beside["trial"], beside["stage"]) == (["a"], "c", "cancelled")
    await_ranks(cluster)
    after = pids_of(cluster)
    assert {name for name in before if before[name] != after[name]} == {"host-rank1"}


def test_a_rank_that_does_not_notice_that_its_peer_was_replaced_is_replaced_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.client._PARTING_S", 0.5)
    stream(cluster, FakeTrial(key="warm"))
    before = pids_of(cluster)
    (failure,) = failures(stream(cluster, FakeTrial(key="bad", does="spoil_unseen", on=1, num_samples=1)))
    assert (failure["rank"], failure["stage"]) == (1, "launch")
    await_ranks(cluster)
    after = pids_of(cluster)
    assert {name for name in before if before[name] != after[name]} == {"host-rank0", "host-rank1"}


def test_a_rank_that_hangs_is_found_by_its_deadline(cluster: Cluster) -> None:
    began = time.monotonic()
    events = stream(cluster, FakeTrial(key="bad", does="hang", on=1, num_samples=1), deadline_s=2.0)
    assert time.monotonic() - began < 60.0
    (failure,) = failures(events)
    assert (failure["rank"], failure["stage"]) == (1, "hang")
    assert "rank 1 (host-rank1 on 127.0.0.1) hung" in failure["message"]
    assert "the beginning of stage time" in failure["message"]


def test_a_rank_that_spins_alone_is_found_too(cluster: Cluster) -> None:
    (failure,) = failures(stream(cluster, FakeTrial(key="bad", does="spin"), world=1, deadline_s=1.5))
    assert (failure["rank"], failure["stage"]) == (0, "hang")
    assert "does not answer" in failure["message"]


def test_a_stopped_rank_process_is_named(cluster: Cluster) -> None:
    stream(cluster, FakeTrial(key="warm"))
    pid = pids_of(cluster)["host-rank1"]
    trial = FakeTrial(key="bad", num_samples=100_000, seconds=0.01)
    events = stream_until(cluster, is_sampled, lambda: os.kill(pid, signal.SIGSTOP), trial, deadline_s=2.5)
    (failure,) = failures(events)
    assert (failure["rank"], failure["stage"]) == (1, "hang")
    assert "its process is stopped" in failure["message"]
    assert eventually(lambda: not psutil.pid_exists(pid), 60.0)


def test_a_rank_process_killed_while_idle_is_replaced(cluster: Cluster) -> None:
    os.kill(pids_of(cluster)["host-rank0"], signal.SIGKILL)
    events = stream(cluster, FakeTrial(key="a"))
    assert measured_keys(events) == ["a"]
    assert not failures(events)


def test_a_killed_worker_is_lost_and_what_is_asked_next_is_measured_when_it_is_back(cluster: Cluster) -> None:
    worker = next(w for w in cluster.describe()["workers"] if w["name"] == "host-rank1")
    rank = pids_of(cluster)["host-rank1"]
    pid = cluster.client.run(os.getpid, workers=[worker["address"]])[worker["address"]]
    trials = (FakeTrial(key="bad", num_samples=100_000, seconds=0.01), FakeTrial(key="b"))
    events = stream_until(cluster, is_sampled, lambda: os.kill(pid, signal.SIGKILL), *trials)
    failure, beside = failures(events)
    assert (failure["trial"], failure["rank"], failure["stage"]) == ("bad", 1, "lost")
    assert (beside["trial"], beside["rank"], beside["stage"]) == ("b", 1, "cancelled")
    assert "Worker host-rank1 on 127.0.0.1" in failure["message"]
    assert measured_keys(stream(cluster, FakeTrial(key="b"))) == ["b"]
    assert eventually(lambda: not psutil.pid_exists(rank), 60.0)


@pytest.mark.parametrize("does", ["hang", "spin"])
def test_cancelling_ends_a_running_trial_soon(cluster: Cluster, does: str) -> None:
    """Within two seconds on a computer that does nothing else, which tests/cluster/measure.py times."""
    cancelled = threading.Event()
    began = time.monotonic()
    trials = (FakeTrial(key="a"), FakeTrial(key="bad", does=does), FakeTrial(key="c"))
    events = stream_until(
        cluster, lambda events: is_sampled(events) and measured_keys(events) == ["a"], cancelled.set, *trials,
        deadline_s=100.0, cancelled=cancelled,
    )  # fmt: skip
    assert time.monotonic() - began < 60.0
    assert [(event["trial"], event["stage"]) for event in failures(events)] == [
        ("bad", "cancelled"),
        ("c", "cancelled"),
    ]
    assert measured_keys(events) == ["a"]


def test_cancelling_ends_the_wait_for_a_gang(cluster: Cluster, address: str) -> None:
    cancelled = threading.Event()
    with Cluster.connect(address) as other:
        holder = other.stream([FakeTrial(key="a", does="hang")], world=2, shares_heap=True, deadline_s=100.0)
        next(holder)
        threading.Timer(0.2, cancelled.set).start()
        began = time.monotonic()
        events = stream(cluster, FakeTrial(key="b"), cancelled=cancelled)
        assert time.monotonic() - began < 60.0
        assert [event["stage"] for event in failures(events)] == ["cancelled"]
        assert not cluster.describe()["requests"]
        holder.close()


def holding(address: str) -> subprocess.Popen[str]:
    """Another process that holds a gang whose ranks hang."""
    script = f"""
import fake_bench
from cluster.client import Cluster
from fake_bench import FakeTrial
events = Cluster.connect({address!r}).stream(
    [FakeTrial(key="held", does="hang", num_samples=1)], world=2, shares_heap=True, deadline_s=600.0
)
for event in events:
    print(event["kind"], flush=True)
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "stage"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=60)


def test_a_client_that_is_killed_gives_its_grant_back_before_its_lease_ends(cluster: Cluster, address: str) -> None:
    process = holding(address)
    assert len(cluster.describe()["grants"]) == 1
    process.kill()
    assert eventually(lambda: not cluster.describe()["grants"], 30.0), "of a lease of 60 s"
    ended(process)


def test_a_client_that_says_nothing_loses_its_grant_after_its_lease(cluster: Cluster, address: str) -> None:
    def lease(seconds: float) -> Callable[..., None]:
        def change(dask_scheduler: Any) -> None:
            dask_scheduler.plugins[broker.NAME].gang.lease_s = seconds

        return change

    process = holding(address)
    process.send_signal(signal.SIGSTOP)
    cluster.client.run_on_scheduler(lease(0.5))
    try:
        assert eventually(lambda: not cluster.describe()["grants"], 30.0)
    finally:
        cluster.client.run_on_scheduler(lease(60.0))
        ended(process)


@pytest.mark.slow
def test_a_rank_process_that_cannot_start_is_named_with_its_reason(cluster: Cluster, folder: Path) -> None:
    (folder / "source").write_text("unknown")
    os.kill(pids_of(cluster)["host-rank1"], signal.SIGKILL)
    await_other(cluster, lambda: any(worker["last_death"] for worker in cluster.describe()["workers"]))
    with impatient(cluster):
        (failure,) = failures(stream(cluster, FakeTrial(key="a")))
    (folder / "source").unlink()
    assert failure["stage"] == "launch", "another time it may be possible"
    assert f"host-rank1: {MOST_DEATHS} starts of its rank process failed in a row" in failure["message"]
    assert "the last one: ModuleNotFoundError: No module named 'torch'" in failure["message"]
    await_ranks(cluster)


def test_a_rank_that_dies_and_whose_successor_dies_before_its_hello_is_waited_for(
    cluster: Cluster, folder: Path
) -> None:
    (folder / "source").write_text("slow")
    first = pids_of(cluster)["host-rank1"]
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: pids_of(cluster)["host-rank1"] != first, 60.0)
    successor = pids_of(cluster)["host-rank1"]
    (folder / "source").unlink()
    os.kill(successor, signal.SIGKILL)
    await_other(cluster, lambda: any(worker["last_death"] for worker in cluster.describe()["workers"]))
    events = stream(cluster, FakeTrial(key="a"), deadline_s=60.0)
    assert (failures(events), measured_keys(events)) == ([], ["a"])


def test_a_bench_that_cannot_be_opened_ends_all_trials_at_once(cluster: Cluster, folder: Path) -> None:
    stream(cluster, FakeTrial(key="elsewhere"), world=1)
    stream(cluster, FakeTrial(key="elsewhere"), world=3, shares_heap=False)
    (folder / "full").touch()
    events = stream(cluster, FakeTrial(key="a"), FakeTrial(key="b"))
    (folder / "full").unlink()
    assert [(event["trial"], event["stage"]) for event in failures(events)] == [("a", "launch"), ("b", "launch")]
    assert "MemoryError: no room for the heap" in failures(events)[0]["message"]


def await_other(cluster: Cluster, true: Callable[[], bool]) -> None:
    assert eventually(true, 60.0), cluster.describe()


@pytest.mark.slow
def test_a_scheduler_that_dies_ends_the_stream_and_leaves_no_process_behind(folder: Path) -> None:
    script = """
import dask, fake_bench, time
from cluster.broker import dask_settings
from distributed import LocalCluster
if __name__ == "__main__":
    with dask.config.set(dask_settings()):
        lab = LocalCluster(n_workers=1, threads_per_worker=1, memory_limit=0, dashboard_address=None, host="127.0.0.1")
        print(lab.scheduler_address, flush=True)
        time.sleep(600)
"""
    file = folder / "lab.py"
    file.write_text(script)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    before = set(ranks_alive())
    lab = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True, env=env)
    assert lab.stdout is not None
    with Cluster.connect(lab.stdout.readline().strip(), entry=fake_bench.ENTRY) as other:
        await_other(other, lambda: all(worker["ready"] for worker in other.describe()["workers"]))
        children = psutil.Process(lab.pid).children(recursive=True)
        assert set(ranks_alive()) - before
        began = time.monotonic()
        events = stream_until(other, bool, lab.kill, FakeTrial(key="a", does="hang"), world=1, deadline_s=120.0)
        assert time.monotonic() - began < 60.0
    assert [event["stage"] for event in failures(events)] == ["lost"]
    assert f"The scheduler {other.address} is gone" in failures(events)[0]["message"]
    lab.communicate(timeout=60)
    assert eventually(lambda: not any(child.is_running() for child in children), 60.0), children


def test_the_cluster_is_whole_after_all_that(cluster: Cluster) -> None:
    assert sorted(worker["name"] for worker in cluster.describe()["workers"]) == sorted(HOSTS)
    assert eventually(lambda: len(ranks_alive()) == len(HOSTS), 60.0), ranks_alive()
