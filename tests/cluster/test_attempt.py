"""An attempt whose stream the broker does not know any more first hears why; tested with a connection without Dask."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fake_bench import FakeTrial

from cluster import client
from cluster.client import Attempt, _AttemptOver
from cluster.feed import Batches
from cluster.messages import StreamRequest
from cluster.watchdog import Blame, Deadlines, Watchdog
from kernels import events
from kernels.events import BrokerEvent, FailureEvent, ProgressEvent
from kernels.files import Failed

ENDED = events.EndedEvent(kind="ended", worker=None, message="The client said nothing for 11 s.")
REFUSED = events.RefusedEvent(kind="refused", message="2 ranks are too many now.", for_now=True)


class Broker:
    """Answers at once; *after_beat* arrives when it has said, once, that it knows no stream."""

    address = "tcp://127.0.0.1:1"

    def __init__(self, *after_beat: BrokerEvent) -> None:
        self.client = SimpleNamespace(id="client", status="running")
        self.feed = SimpleNamespace(topic="topic", open=self._open, close=lambda stream: None)
        self.meetings: dict[str, Any] = {}
        self.batches: Batches = queue.SimpleQueue()
        self.after_beat = after_beat
        self.questions: list[str] = []
        self.late: set[str] = set()
        """Questions that are not answered in time."""

    def _open(self, stream: str) -> Batches:
        return self.batches

    def next_stream(self) -> str:
        return "0"

    def call(self, question: str, **facts: Any) -> Any:
        self.questions.append(question)
        if question in self.late:
            raise TimeoutError("no answer within 20 s")
        if question == "heartbeat" and self.after_beat:
            after_beat, self.after_beat = self.after_beat, ()
            threading.Timer(0.1, lambda: self.batches.put(list(after_beat))).start()
        return {}


def attempt_at(broker: Broker, wait_s: float = 60.0) -> Attempt:
    limits = Deadlines(60.0, 60.0, wait_s=wait_s)
    ask = StreamRequest(world=2, shares_heap=True, limits=limits, cancelled=threading.Event())
    trial = FakeTrial(key="a")
    return Attempt(cast(Any, broker), ask, {"a": trial}, Watchdog(["a"], 2, ask.limits, forgiving=True))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_WAITING_BEAT_S", 0.0)


def failure_of(broker: Broker) -> FailureEvent:
    (failure,) = [event for event in attempt_at(broker).events() if event["kind"] == "failure"]
    return failure


def test_what_arrived_before_the_beat_is_heard_before_one_concludes() -> None:
    broker = Broker()
    attempt = attempt_at(broker)
    attempt.arrived = iter([ENDED])
    (failure,) = [event for event in attempt.events() if event["kind"] == "failure"]
    assert (failure["stage"], failure["message"]) == ("cancelled", ENDED["message"])


@pytest.mark.parametrize(("word", "stage"), [(ENDED, "cancelled"), (REFUSED, "launch")])
def test_why_a_stream_ended_may_come_after_the_beat(word: BrokerEvent, stage: str) -> None:
    failure = failure_of(Broker(word))
    assert (failure["stage"], failure["message"]) == (stage, word["message"])


def test_a_broker_that_knows_nothing_and_says_nothing_has_started_anew() -> None:
    failure = failure_of(Broker())
    assert (failure["stage"], failure["rank"]) == ("lost", None)
    assert "is gone (it was restarted and does not know this request)" in failure["message"]


def test_a_request_that_was_not_answered_in_time_is_taken_back_for_it_may_be_heard_yet() -> None:
    broker = Broker()
    broker.late = {"request", "release"}
    assert "is gone (no answer within 20 s)" in failure_of(broker)["message"]
    assert broker.questions == ["request", "release"]


def test_a_client_of_a_granted_worker_that_is_silent_hears_for_whom_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of two workers stopped, the first word came after 16 s, or 74."""
    broker, silent = Broker(), ["w1 has not answered for 2 s", ""]
    places = [{"name": f"w{rank}", "host": "h", "worker": f"w{rank}", "incarnation": "1"} for rank in range(2)]
    monkeypatch.setattr(Attempt, "_same_kernels", lambda attempt: None)
    monkeypatch.setattr(Attempt, "_submit", lambda attempt, rank, order: None)

    def call(question: str, **facts: Any) -> Any:
        if question == "request":
            broker.batches.put([events.GrantedEvent(kind="granted", session="s", places=places)])
        if question == "heartbeat":
            if not silent:
                broker.batches.put([ENDED])
            return {"0": silent.pop(0) if silent else ""}
        return {}

    monkeypatch.setattr(broker, "call", call)
    waiting = [event["why"] for event in attempt_at(broker).events() if event["kind"] == "waiting"]
    assert waiting == ["w1 has not answered for 2 s", ""]


@pytest.mark.parametrize(("backend", "readers"), [("cpu", {0: ["i0", "i1"], 2: ["i2"]}), ("triton", {})])
def test_one_rank_of_each_host_reads_the_use_of_the_cores_that_cpu_ranks_share(
    backend: str, readers: dict[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders: dict[int, Any] = {}
    monkeypatch.setattr(Attempt, "_submit", lambda attempt, rank, order: orders.update({rank: order}))
    attempt = attempt_at(Broker())
    attempt.request = replace(attempt.request, world=3, backend=backend)
    attempt.places = cast(Any, [
        {"name": f"w{rank}", "host": f"h{rank // 2}", "worker": f"tcp://h{rank // 2}:{rank}", "incarnation": f"i{rank}",
         "hello": {"device": {}}}
        for rank in range(3)
    ])  # fmt: skip
    attempt._order("s", None)
    reading = {rank: order["reads_use"]["incarnations"] for rank, order in orders.items() if "reads_use" in order}
    assert reading == readers


def test_a_wait_that_ends_before_the_first_heartbeat_says_for_whom_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason was empty: `not granted within 1 s: . Accepted: ...`."""
    monkeypatch.setattr(client, "_WAITING_BEAT_S", 60.0)
    for known, why in (({"0": "w0 is starting"}, ": w0 is starting."), ({}, r"\.")):
        broker = Broker()
        monkeypatch.setattr(broker, "call", lambda question, known=known, **facts: known)
        with pytest.raises(Failed, match=f"^2 ranks were not granted within 0 s{why} Accepted: "):
            list(attempt_at(broker, wait_s=0.0).events())


def test_a_result_that_arrives_after_why_the_gang_broke_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    attempt = attempt_at(broker)
    monkeypatch.setattr(client.agreement, "execution_fields", lambda places, backend: {})
    verdict = Blame(1, "launch", None, "CUDA error")

    def breaks() -> Iterator[ProgressEvent]:
        attempt.held = True
        first, second = (
            events.ResultEvent(
                kind="result", trial="a", rank=rank, correct=None, max_relative_error=None, spans=[], facts={}
            )
            for rank in (1, 0)
        )
        attempt.watch.heard(first, 0.0)
        threading.Timer(0.05, lambda: broker.batches.put([second])).start()
        raise _AttemptOver(verdict)
        yield

    monkeypatch.setattr(attempt, "_run", breaks)
    assert [(event["kind"], event["trial"], event["rank"]) for event in attempt.events()] == [("result", "a", 0)]
