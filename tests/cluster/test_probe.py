"""Facts about this host and about workers, also about one that does not answer."""

from __future__ import annotations

import json
import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from distributed.comm import CommClosedError
from fake_cluster import HOSTS
from loops import apart

from cluster import hosts
from cluster.client import Cluster


def test_the_facts_of_this_host_are_what_the_system_says() -> None:
    facts = hosts.host_facts()
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert 0 < facts["memory_bytes"] <= psutil.virtual_memory().total
    assert facts["cpu"]
    assert facts["torch"].startswith("2.")
    assert json.loads(json.dumps(facts)) == facts, "they travel as JSON"


def test_what_is_not_installed_is_none() -> None:
    assert hosts.package_version("no-such-distribution") is None


def test_torch_is_asked_without_being_imported_here() -> None:
    facts = hosts.host_facts_with_torch()
    assert facts["gloo"] is True
    assert facts["gpus"]
    assert facts["gpu_clock"].startswith("none" if facts["gpus"] == "none" else "ticks every ")
    assert "trouble" not in facts


def test_a_torch_that_cannot_be_used_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "TORCH_FACTS_SCRIPT", "raise ImportError('libcudart.so is missing')")
    facts = hosts.host_facts_with_torch()
    assert facts["trouble"] == "torch cannot be used: ImportError: libcudart.so is missing"
    assert facts["cores"] >= 1, "the other facts are still there"


def test_the_doctor_has_a_row_for_this_host_and_one_for_each_worker(cluster: Cluster) -> None:
    here, *workers = hosts.doctor_rows(cluster.client)
    assert here["place"] == "here"
    assert sorted(row["place"] for row in workers) == sorted(HOSTS)
    assert {row["gloo"] for row in workers} == {True}
    assert {row["distributed"] for row in workers} == {here["distributed"]}


def test_a_worker_that_does_not_answer_is_in_trouble_and_the_others_are_told_in_time(cluster: Cluster) -> None:
    pids = cluster.client.run(os.getpid)
    stopped, *others = pids
    os.kill(pids[stopped], signal.SIGSTOP)
    try:
        began = time.monotonic()
        answers = hosts.ask_workers(cluster.client, list(pids), _pid, deadline_s=5.0)
        assert time.monotonic() - began < 60.0
    finally:
        os.kill(pids[stopped], signal.SIGCONT)
    assert answers[stopped] == {"trouble": "no answer within 5 s"}
    assert {other: answers[other]["pid"] for other in others} == {other: pids[other] for other in others}


def test_what_goes_wrong_in_a_worker_is_its_trouble(cluster: Cluster) -> None:
    (worker, *_) = cluster.client.scheduler_info(n_workers=-1)["workers"]
    assert hosts.ask_workers(cluster.client, [worker], _fails) == {
        worker: {"trouble": "ZeroDivisionError: division by zero"}
    }


def _pid(worker: Any) -> dict[str, Any]:
    return {"pid": os.getpid()}


def _fails(worker: Any) -> dict[str, Any]:
    return {"never": 1 / 0}


def test_a_worker_that_dies_while_it_is_asked_is_silent_and_not_strange() -> None:
    """A chaos run: its closed connection was reported as another version of the workbench."""

    async def closed(*_: Any, **__: Any) -> Any:
        raise CommClosedError("in <TCP (closed) Scheduler Broadcast>: Stream is closed")

    client: Any = SimpleNamespace(run=closed, sync=lambda ask, callback_timeout: apart(ask()))
    answers = hosts.ask_workers(client, ["tcp://there"], lambda worker: {})
    assert hosts.is_no_answer(answers["tcp://there"])
    assert "Stream is closed" in answers["tcp://there"]["trouble"]
