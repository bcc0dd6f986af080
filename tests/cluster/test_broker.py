"""The broker: what it tells Dask and answers, who is alive by its own clock, and what a scheduler that slept takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import dask
import distributed
import fake_bench
import pytest
from distributed.scheduler import heartbeat_interval
from fake_bench import FakeTrial
from fake_cluster import HOSTS, eventually, measured

from cluster import broker, feed, keeper
from cluster.broker import (
    AWAY_S,
    LONGEST_TICK_S,
    MISSED_BEATS,
    NO_ANSWER_S,
    Broker,
    HeartbeatWatch,
    WakingClock,
    away_s,
    dask_settings,
    no_answer_s,
)
from cluster.client import Cluster
from cluster.feed import Topics
from cluster.gang import Gang
from cluster.gang_messages import Handshake, RankReady, WorkerAnswers, WorkerJoined, WorkerSilent
from cluster.rank import EntryPoint

# The thin shell: its settings for Dask, what it answers, and that there is one of it.


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


# Which workers answer: their heartbeats change while the scheduler itself is awake.


def silent_after(pulse: HeartbeatWatch, seconds: float) -> list[WorkerSilent]:
    """Ticks of a cluster in which w0 answers and w1 does not."""
    silences, now = [], 0.0
    while now < seconds:
        now += 1.0
        silences += pulse.tick(now, {"w0": now, "w1": 0.0})
    return [event for event in silences if isinstance(event, WorkerSilent)]


def test_a_worker_whose_heartbeat_stops_is_silent_within_fifteen_seconds_and_is_told_again() -> None:
    silences = silent_after(HeartbeatWatch(), 16.0)
    assert {event.worker for event in silences} == {"w1"}
    assert AWAY_S <= silences[0].silent_s <= silences[0].at <= 15.0
    assert [event.silent_s for event in silences] == sorted({event.silent_s for event in silences})


def test_one_that_answers_again_is_told_once() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 12.0)
    assert pulse.tick(13.0, {"w0": 13.0, "w1": 12.9}) == [WorkerAnswers(13.0, "w1")]
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 13.9}) == []


def test_waking_time_stands_still_while_the_scheduler_sleeps() -> None:
    awake = WakingClock(100.0)
    assert awake.tick(101.0) == 1.0
    assert awake.at(101.5) == 1.5
    assert awake.at(600.0) == 1.0 + LONGEST_TICK_S, "a suspended computer, or Ctrl-Z; events come before the tick"
    assert awake.at(600.5) == 1.0 + LONGEST_TICK_S
    assert awake.tick(601.0) == 1.0 + LONGEST_TICK_S
    assert awake.at(601.5) == 1.5 + LONGEST_TICK_S


def test_a_scheduler_that_slept_calls_nobody_silent() -> None:
    pulse, awake = HeartbeatWatch(), WakingClock(0.0)
    for second in (1.0, 2.0, 3.0):
        pulse.tick(awake.tick(second), {"w0": second, "w1": 0.0})
    assert pulse.tick(awake.tick(600.0), {"w0": 3.0, "w1": 0.0}) == [], "a suspended computer"
    assert pulse.tick(awake.tick(601.0), {"w0": 600.9, "w1": 600.9}) == []


def test_a_clock_that_is_set_back_makes_nobody_silent() -> None:
    pulse = HeartbeatWatch()
    for second in range(30):
        stamp = 1000.0 + second - (120.0 if second > 10 else 0.0)
        assert pulse.tick(float(second), {"w0": stamp}) == []


def test_one_that_left_is_forgotten() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 12.0)
    assert pulse.tick(13.0, {"w0": 13.0}) == []
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 0.0}) == [], "a new worker of the same address"


@pytest.mark.parametrize("num_workers", [1, 8, 30, 100, 199, 200, 800, 2000])
def test_whoever_is_silent_missed_several_heartbeats_however_many_workers_there_are(num_workers: int) -> None:
    interval_s = heartbeat_interval(num_workers)
    assert no_answer_s(num_workers) >= MISSED_BEATS * interval_s
    assert away_s(num_workers) >= max(AWAY_S, no_answer_s(num_workers))
    if num_workers <= 50:
        assert (away_s(num_workers), no_answer_s(num_workers)) == (AWAY_S, NO_ANSWER_S)


def test_workers_of_a_large_cluster_that_answer_as_often_as_they_are_told_are_neither_silent_nor_unanswering() -> None:
    pulse, names = HeartbeatWatch(), [f"w{number}" for number in range(1000)]
    every_s = int(heartbeat_interval(len(names)))
    for second in range(60):
        late = second - second % (2 * every_s)  # each other heartbeat is lost on its way
        assert pulse.tick(float(second), dict.fromkeys(names, float(late))) == []
        assert pulse.unanswered_s(names) == {}


def test_one_that_is_away_stays_so_until_it_answers_also_when_workers_come() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 12.0)
    many = {f"x{number}": 0.0 for number in range(2000)}
    assert pulse.tick(13.0, {"w0": 13.0, "w1": 0.0} | many) == []
    assert pulse.tick(14.0, {"w0": 14.0, "w1": 13.9} | many) == [WorkerAnswers(14.0, "w1")]


def test_who_has_not_answered_is_told_before_it_is_away() -> None:
    pulse = HeartbeatWatch()
    silent_after(pulse, 5.0)
    assert pulse.unanswered_s(["w0", "w1", "unknown"]) == {"w1": 4.0}


def test_a_client_hears_within_five_seconds_which_of_its_granted_workers_is_silent(clock: list[float]) -> None:
    one = broker_of_one_worker(clock)
    one.scheduler.workers = cast(Any, {"w0": SimpleNamespace(last_seen=0.0)})
    one.request("a", "0", 1, shares_heap=True, expected_s=1.0)
    heard = []
    for _ in range(6):
        clock[0] += 1.0
        one.tick()
        heard.append(one.heartbeat("a")["0"])
    assert heard == ["", "", *(f"w0 has not answered for {seconds} s" for seconds in (2, 3, 4, 5))]


# A scheduler that slept takes nothing from those who could not reach it: the broker's own clock, without Dask.

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
