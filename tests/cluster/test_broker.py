"""The thin shell: its settings for Dask, what it answers, and that there is one of it."""

from __future__ import annotations

from typing import Any

import dask
import distributed
import fake_bench
import pytest
from fake_bench import FakeTrial
from fake_cluster import HOSTS, eventually, measured

from cluster import broker, feed, keeper
from cluster.broker import Broker, dask_settings
from cluster.client import Cluster


def test_every_setting_is_one_that_dask_knows() -> None:
    assert distributed.__version__
    for key in dask_settings():
        assert dask.config.get(key, default="unknown") != "unknown", key


def test_it_describes_every_worker_by_name_and_host(cluster: Cluster) -> None:
    workers = cluster.describe()["workers"]
    assert {worker["name"]: worker["host"] for worker in workers} == HOSTS
    assert {worker["source_prints"]["cpu"] for worker in workers} == {"fake"}


def test_a_second_broker_leaves_the_first_in_charge(cluster: Cluster) -> None:
    async def start_another(dask_scheduler: Any) -> tuple[bool, bool]:
        first = dask_scheduler.plugins[broker.NAME]
        await Broker(fake_bench.ENTRY).start(dask_scheduler)
        return dask_scheduler.plugins[broker.NAME] is first, keeper.NAME in dask_scheduler.worker_plugins

    assert cluster.client.run_on_scheduler(start_another) == (True, True)


def test_it_knows_what_a_client_holds_and_forgets_what_was_given_back(cluster: Cluster) -> None:
    events = cluster.stream([FakeTrial(key="a", does="hang")], world=1, shares_heap=True, deadline_s=60.0)
    next(events)
    (held,) = cluster.call("heartbeat", client=cluster.client.id)
    ((client, stream, workers),) = cluster.describe()["grants"]
    assert (client, stream, len(workers)) == (cluster.client.id, held, 1)
    events.close()
    assert not cluster.call("heartbeat", client=cluster.client.id)


def test_a_client_that_is_not_connected_gets_no_workers(cluster: Cluster) -> None:
    cluster.call("request", client="nobody", stream="0", world=1, shares_heap=True)
    described = cluster.describe()
    assert not described["requests"]
    assert not described["grants"]


def test_the_scheduler_keeps_nothing_of_clients_that_have_left(
    cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A course of thirty people says thousands of short commands."""
    monkeypatch.setattr(feed, "FORGET_S", 0.0)

    def topics(dask_scheduler: Any) -> list[str]:
        return list(dask_scheduler.get_events())

    with Cluster.connect(address) as other:
        assert measured(other, world=1) == [0]
        client = other.client.id
        assert {client, feed.topic_of(client)} <= set(cluster.client.run_on_scheduler(topics))
    assert eventually(lambda: not [topic for topic in cluster.client.run_on_scheduler(topics) if client in topic], 20.0)
