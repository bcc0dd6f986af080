"""A client whose connection broke comes back under its name before the scheduler hears that the old one ended."""

from __future__ import annotations

import time
from typing import Any

import fake_bench
from fake_cluster import eventually, measured
from relay import Relay

from cluster.client import Cluster


def connections(cluster: Cluster, client: str) -> list[int]:
    """The scheduler's connection to *client*, as a number of its own; none where it has none."""

    def look(dask_scheduler: Any) -> list[int]:
        known = dask_scheduler.client_comms.get(client)
        return [] if client not in dask_scheduler.clients or known is None else [id(known)]

    return list(cluster.client.run_on_scheduler(look))


def test_it_keeps_its_place_when_the_old_connection_ends_at_last(cluster: Cluster, address: str) -> None:
    with Relay(address) as relay, Cluster.connect(relay.address, entry=fake_bench.ENTRY) as other:
        assert measured(other, world=2) == [0, 1]
        client = other.client.id
        before = connections(cluster, client)
        relay.lose()
        assert eventually(lambda: connections(cluster, client) not in ([], before), 30.0)
        after = connections(cluster, client)
        relay.end()
        for _ in range(20):  # what ends is cleared away within turns of the scheduler's loop
            assert connections(cluster, client) == after
            time.sleep(0.02)
        assert eventually(lambda: other.client.status == "running", 30.0)
        assert measured(other, world=2) == [0, 1]
