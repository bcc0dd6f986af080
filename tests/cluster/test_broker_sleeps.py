"""A scheduler that slept takes nothing from those who could not reach it: the broker's own clock, without Dask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cluster import broker
from cluster.broker import Broker, HeartbeatWatch, WakingClock
from cluster.feed import Topics
from cluster.gang import Gang
from cluster.gang_messages import Handshake, RankReady, WorkerJoined
from cluster.rank import EntryPoint

SLEPT_S = 600.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(broker.time, "monotonic", lambda: now[0])
    return now


def broker_of_one_worker(clock: list[float]) -> Broker:
    one = Broker(EntryPoint())
    one.gang, one.pulse, one.awake, one.topics = Gang("s"), HeartbeatWatch(), WakingClock(clock[0]), Topics({})
    clients = {"a": 1, "b": 1}
    scheduler = SimpleNamespace(workers={}, clients=clients, stream_comms={}, log_event=lambda topic, message: None)
    one.scheduler = cast(Any, scheduler)
    one.gang.handle(WorkerJoined(0.0, "w0", "w0", "h1"), RankReady(0.0, "w0", "w0.1", Handshake()))
    return one


def test_a_client_keeps_its_ranks_while_the_scheduler_itself_sleeps(clock: list[float]) -> None:
    one = broker_of_one_worker(clock)
    one.request("a", "0", 1, shares_heap=True, expected_s=1.0)
    one.request("b", "0", 1, shares_heap=True, expected_s=1.0)
    for _ in range(3):
        clock[0] += 1.0
        one.tick()
    clock[0] += SLEPT_S
    one.tick()
    assert list(one.gang.grants) == [("a", "0")], "its beats lie in the socket"
    for _ in range(11):
        clock[0] += 1.0
        one.heartbeat("b")
        one.tick()
    assert not one.gang.grants, "one that says nothing to a scheduler that is awake"
