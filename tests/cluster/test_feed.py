"""Batches leave in order, soon after their first event, and at once when they bring a result."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cluster import feed
from cluster.client import Cluster
from cluster.feed import FORGET_S, NUM_IN_BATCH, Outbox, Topics, topic_of


class Sent:
    def __init__(self) -> None:
        self.batches: list[list[dict[str, Any]]] = []

    def __call__(self, topic: str, message: dict[str, Any]) -> None:
        assert (topic, message["stream"]) == ("topic", "7")
        self.batches.append(message["events"])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(feed.time, "monotonic", lambda: now[0])
    return now


def sample(index: int) -> dict[str, Any]:
    return {"kind": "sample", "index": index}


def test_the_first_sample_after_a_pause_leaves_at_once_and_the_next_ones_wait(clock: list[float]) -> None:
    sent = Sent()
    outbox = Outbox(sent, "topic", "7", 1)
    for index in range(3):
        outbox.add(sample(index))
    assert sent.batches == [[{"kind": "sample", "index": 0, "rank": 1}]]
    assert outbox.patience(1.0) == pytest.approx(feed.FLUSH_S)
    clock[0] += feed.FLUSH_S
    outbox.flush_if_due()
    assert [event["index"] for event in sent.batches[1]] == [1, 2]
    assert outbox.patience(1.0) == 1.0


def test_a_result_takes_waiting_samples_along_within_milliseconds(clock: list[float]) -> None:
    sent = Sent()
    outbox = Outbox(sent, "topic", "7", 0)
    for index in range(2):
        outbox.add(sample(index))
    outbox.add({"kind": "result"})
    assert outbox.patience(1.0) == pytest.approx(feed.SOON_S)
    clock[0] += feed.SOON_S
    outbox.flush_if_due()
    assert [event["kind"] for event in sent.batches[1]] == ["sample", "result"]


def test_a_full_batch_does_not_wait(clock: list[float]) -> None:
    sent = Sent()
    outbox = Outbox(sent, "topic", "7", 0)
    for index in range(1 + NUM_IN_BATCH):
        outbox.add(sample(index))
    assert [len(batch) for batch in sent.batches] == [1, NUM_IN_BATCH]


def test_what_comes_for_a_closed_stream_is_dropped(cluster: Cluster) -> None:
    opened = cluster.feed.open("open")
    cluster.feed.open("closed")
    cluster.feed.close("closed")
    for stream in ("closed", "open"):
        cluster.client.log_event(cluster.feed.topic, {"stream": stream, "events": [{"kind": stream}]})
    assert opened.get(timeout=60)[0]["kind"] == "open"
    cluster.feed.close("open")


def test_ten_thousand_events_of_a_worker_arrive_in_order(cluster: Cluster) -> None:
    batches = cluster.feed.open("order")

    def send(topic: str) -> None:
        from distributed import get_worker

        outbox = Outbox(get_worker().log_event, topic, "order", 0)
        for index in range(10_000):
            outbox.add(sample(index))
        outbox.flush()

    task = cluster.client.submit(send, cluster.feed.topic, pure=False)
    seen: list[int] = []
    give_up_at = time.monotonic() + 100
    while len(seen) < 10_000 and time.monotonic() < give_up_at:
        seen += [event["index"] for event in batches.get(timeout=100)]
    task.result(timeout=60)
    cluster.feed.close("order")
    assert seen == list(range(10_000))


def test_what_is_kept_of_a_client_that_left_is_forgotten_after_its_ranks_have_spoken() -> None:
    kept: dict[str, str] = {}
    topics = Topics(kept)
    for number in range(200):
        client, now = f"client-{number}", float(number)
        kept |= {client: "", topic_of(client): ""}
        topics.client_left(client, now)
        kept[topic_of(client)] = "a rank spoke late"
        topics.forget(now, ())
    assert len(kept) == 2 * FORGET_S, "those of the last seconds"
    topics.forget(200.0 + FORGET_S, ())
    assert kept == {}


def test_a_client_that_came_back_under_its_name_is_still_told() -> None:
    kept = {"client": "", topic_of("client"): "its subscription"}
    topics = Topics(kept)
    topics.client_left("client", 0.0)
    topics.forget(1.0, {"client"})
    topics.forget(2.0 * FORGET_S, {"client"})
    assert kept[topic_of("client")] == "its subscription"
    topics.forget(3.0 * FORGET_S, ())
    assert kept, "it has not left again"
    topics.client_left("client", 3.0 * FORGET_S)
    topics.forget(4.0 * FORGET_S, ())
    assert kept == {}
