"""Ranks run the client's source and the libraries of their hosts; what would not agree is refused, and left running."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fake_bench import FakeTrial
from fake_cluster import Events, await_ranks, eventually, failures, measured_keys, pids_of, stream

from cluster import agreement, launch
from cluster.client import Cluster
from kernels.hardware import Hardware


def await_other(cluster: Cluster, true: Callable[[], bool]) -> None:
    assert eventually(true, 20.0), cluster.describe()


@pytest.fixture(autouse=True)
def the_next_stream_works(cluster: Cluster) -> Iterator[None]:
    """After everything of this file."""
    yield
    assert measured_keys(stream(cluster, FakeTrial(key="next"))) == ["next"]
    await_ranks(cluster)


def test_a_rank_with_older_kernels_is_started_anew_so_that_all_have_the_same(
    cluster: Cluster, written: Callable[[str, str], None]
) -> None:
    written("source", "other")
    os.kill(pids_of(cluster)["host-rank1"], signal.SIGKILL)
    await_other(cluster, lambda: "other" in sources_of(cluster))
    written("source", "fake")
    events = stream(cluster, FakeTrial(key="a"))
    assert measured_keys(events) == ["a"]
    assert values_of(events, "source_print") == {"fake"}


def test_hosts_with_different_kernels_are_refused_as_they_are(
    cluster: Cluster, written: Callable[[str, str], None]
) -> None:
    written("source", "own")
    os.kill(pids_of(cluster)["host-rank1"], signal.SIGKILL)
    await_other(cluster, lambda: any(each.isdigit() for each in sources_of(cluster)))
    before = pids_of(cluster)
    (failure,) = failures(stream(cluster, FakeTrial(key="a")))
    assert failure["stage"] == "refused"
    assert re.search(r"host-rank0 on 127.0.0.1 has \d+, host-rank1 on 127.0.0.1 has \d+", failure["message"])
    assert pids_of(cluster) == before


def test_a_warm_gang_of_older_kernels_is_started_anew_once_for_a_client_with_changed_ones(
    cluster: Cluster, written: Callable[[str, str], None]
) -> None:
    before = pids_of(cluster)
    written("source", "changed")
    events = stream(cluster, FakeTrial(key="a"), FakeTrial(key="b"), source_print="changed")
    assert measured_keys(events) == ["a", "b"]
    assert values_of(events, "source_print") == {"changed"}, "a result says which kernels it is of"
    after = pids_of(cluster)
    assert {name for name in before if before[name] != after[name]} == {"host-rank0", "host-rank1"}
    stream(cluster, FakeTrial(key="c"), source_print="changed")
    assert pids_of(cluster) == after, "they are the right ones now"


def test_a_client_of_another_checkout_is_told_both_prints_and_nothing_is_started_anew(cluster: Cluster) -> None:
    before = pids_of(cluster)
    events = stream(cluster, FakeTrial(key="a"), FakeTrial(key="b"), source_print="mine")
    assert [(event["kind"], event["trial"], event["stage"]) for event in events] == [
        ("failure", "a", "refused"),
        ("failure", "b", "refused"),
    ]
    assert events[0]["message"].startswith("This process has the kernels' source mine for backend = cpu, but")
    assert "host-rank1 on 127.0.0.1 has fake" in events[0]["message"]
    assert "start this process again" in events[0]["message"]
    assert pids_of(cluster) == before
    assert not cluster.describe()["grants"], "and the gang was given back"


def test_ranks_whose_hosts_have_other_versions_are_refused_with_both(
    cluster: Cluster, written: Callable[[str, str], None]
) -> None:
    workers = cluster.client.run(os.getpid)
    second = next(each["address"] for each in cluster.describe()["workers"] if each["name"] == "host-rank1")
    written(f"torch-{workers[second]}", "2.12.1")
    os.kill(pids_of(cluster)["host-rank1"], signal.SIGKILL)
    await_other(cluster, lambda: any(each["versions"]["torch"] == "2.12.1" for each in cluster.describe()["workers"]))
    await_ranks(cluster)
    before = pids_of(cluster)
    (failure,) = failures(stream(cluster, FakeTrial(key="a")))
    assert failure["stage"] == "refused"
    assert "torch is 2.13.0 on 127.0.0.1 (host-rank0), 2.12.1 on 127.0.0.1 (host-rank1)" in failure["message"]
    assert pids_of(cluster) == before
    written(f"torch-{workers[second]}", "2.13.0")
    assert measured_keys(stream(cluster, FakeTrial(key="a"))) == ["a"], "installed meanwhile: started anew, once"


def test_ranks_may_have_other_versions_than_the_client(cluster: Cluster, written: Callable[[str, str], None]) -> None:
    before = stream(cluster, FakeTrial(key="a"))
    written("torch", "9.9.9+cu999")
    for name, pid in pids_of(cluster).items():
        if name.startswith("host"):
            os.kill(pid, signal.SIGKILL)
    await_other(cluster, lambda: any(each["versions"]["torch"] == "9.9.9+cu999" for each in known(cluster)))
    after = stream(cluster, FakeTrial(key="a"))
    assert measured_keys(after) == ["a"]
    assert values_of(after, "versions_print").isdisjoint(values_of(before, "versions_print")), "and results say so"


def test_a_result_says_what_the_gang_is(cluster: Cluster) -> None:
    hardware = {
        world: values_of(stream(cluster, FakeTrial(key="a"), world=world, shares_heap=world < 3), "hardware")
        for world in (1, 2, 3)
    }
    links = {world: [Hardware.from_json(json.loads(each)).link for each in texts] for world, texts in hardware.items()}
    assert links == {1: ["one rank"], 2: ["shared memory"], 3: ["network"]}


@pytest.fixture
def written(folder: Path) -> Iterator[Callable[[str, str], None]]:
    """written(name, text): what ranks and workers find in a file; taken away at the end."""
    files = []

    def write(name: str, text: str) -> None:
        files.append(folder / name)
        files[-1].write_text(text)

    yield write
    for file in files:
        file.unlink(missing_ok=True)


def values_of(events: Events, key: str) -> set[str]:
    """What results say of the ranks."""
    values = [event[key] for event in events if event["kind"] == "result"]
    return {value if isinstance(value, str) else json.dumps(value) for value in values}


def known(cluster: Cluster) -> Events:
    return [worker for worker in cluster.describe()["workers"] if worker["versions"]]


def sources_of(cluster: Cluster) -> set[str]:
    return {worker["source_prints"]["cpu"] for worker in cluster.describe()["workers"]}


def versions_of(python: str = "3.11.7.final.0", dask: str = "2026.8.0") -> dict[str, Any]:
    """As `distributed.versions.get_versions` reports it."""
    return {"packages": {"python": python, "dask": dask, "distributed": dask, "numpy": "2.4.6"}}


@pytest.mark.parametrize(
    ("scheduler", "workers", "says"),
    [
        ({}, {"a": {}}, None),
        ({"python": "3.11.2.final.0"}, {"a": {"python": "3.11.9.final.0"}}, None),
        ({"python": "3.12.1.final.0"}, {}, "the scheduler has Python 3.12. Accepted: Python 3.11, dask 2026.8.0 and"),
        ({}, {"a": {}, "b": {"python": "3.10.1.final.0"}}, "distributed 2026.8.0: b has Python 3.10. Accepted"),
        ({}, {"a": {"dask": "2026.7.1"}}, "a has dask 2026.7.1 and distributed 2026.7.1. Accepted"),
    ],
)
def test_python_and_dask_must_be_the_clients(
    scheduler: dict[str, str], workers: dict[str, dict[str, str]], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "get_versions", versions_of)
    there = {name: versions_of(**packages) for name, packages in workers.items()}
    refusal = agreement.incompatible_versions("tcp://there", versions_of(**scheduler), there)
    assert refusal is None if says is None else says in str(refusal)


def test_a_client_of_another_python_is_refused_before_any_code_is_sent(
    address: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "get_versions", lambda: versions_of(python="3.99.0.final.0"))
    monkeypatch.setattr("cluster.client.dumps", lambda plugin: pytest.fail("code was sent"))
    monkeypatch.setattr("cluster.hosts.ask_workers", lambda *_: pytest.fail("code was sent"))
    for connect in (Cluster.connect, launch.attach, launch.status):
        with pytest.raises(ValueError, match=r"which has Python 3\.99, dask .*: the scheduler has Python 3\.\d+"):
            connect(address)


def test_what_a_gang_would_run_on_is_known_before_it_is_asked_for(cluster: Cluster) -> None:
    gangs = ((1, False, "one rank"), (2, False, "shared memory"), (2, True, "network"), (3, False, "network"))
    for world, across, link in gangs:
        ranks = cluster.ranks(world, "cpu", across=across)
        assert ranks is not None
        assert (ranks.hardware.link, ranks.versions) == (link, {"torch": "2.13.0", "triton": "absent"})
        trial = FakeTrial(key="a", across=across)
        events = stream(cluster, trial, world=world, shares_heap=world < 3 and not across)
        assert values_of(events, "hardware") == {json.dumps(ranks.hardware.to_json())}
    assert cluster.ranks(4, "cpu") is None, "that many are not there"
    assert cluster.ranks(1, "triton") is None, "none has a GPU"


def test_a_stopped_worker_delays_no_client_and_hides_no_other_workers_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped took 5 s of every connection, and then no worker's versions were compared."""

    class Scheduler:
        async def versions(self, packages: list[str]) -> dict[str, str]:
            return {"python": "3"}

        async def broadcast(self, *, msg: object, workers: list[str], on_error: str) -> dict[str, dict[str, str]]:
            if workers == ["stopped"]:
                await asyncio.sleep(60)
            return {place: {"python": "2"} for place in workers}

    client = SimpleNamespace(
        scheduler=Scheduler(),
        sync=lambda function, callback_timeout: asyncio.run(function()),
        scheduler_info=lambda n_workers: {"workers": {"stopped": {"name": "w0"}, "other": {"name": "w1"}}},
    )
    assert agreement.SILENT_S <= 2
    monkeypatch.setattr(agreement, "SILENT_S", 0.05)
    assert agreement.cluster_versions(cast(Any, client), 5.0) == ({"python": "3"}, {"w1": {"python": "2"}})
