"""Events travel from a rank to its client in batches and in order, over one Dask event topic per client session.

A batch is `{"stream": id, "events": [...]}`. The broker answers on the same topic, so a stream waits on one queue.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Container, MutableMapping
from typing import Any, TypedDict

from distributed import Client

from kernels.events import LEISURELY, RankEvent, StreamEvent

Batches = queue.SimpleQueue[list[StreamEvent]]


class EventBatch(TypedDict):
    """Events of one stream, in the order in which they came."""

    stream: str
    events: list[StreamEvent]


FLUSH_S = 0.04
"""Pause between batches that hold samples only, s."""
SOON_S = 0.004
"""Pause between batches that bring a result, s: a single one leaves at once, many in a row travel together."""
FORGET_S = 30.0
"""How long a topic is kept after its client left, s: ranks may still be sending to it."""
NUM_IN_BATCH = 50
_HANDSHAKE = "handshake"


def topic_of(client: str) -> str:
    """Name of a client session's topic. Dask never frees a topic, so there is one per client, not one per run."""
    return f"workbench-{client}"


def client_of(topic: str) -> str:
    """The client session whose topic this is; something else of another topic."""
    return topic.removeprefix(topic_of(""))


class Topics:
    """Forgets the topics of clients that left, in the scheduler: Dask itself would keep them for ever."""

    def __init__(self, kept: MutableMapping[str, Any]) -> None:
        self.kept = kept
        """Dask's own table of topics, by name."""
        self._left_at: dict[str, float] = {}
        """When each client left, s."""

    def client_left(self, client: str, now: float) -> None:
        """Note when *client* left. Its topic stays for a while: a rank that still sends to it would create it again."""
        self._left_at[client] = now

    def forget(self, now: float, connected: Container[str]) -> None:
        """Drop the topics of clients that left long enough ago; a *connected* one came back and uses its topic."""
        self._left_at = {client: at for client, at in self._left_at.items() if client not in connected}
        for client in [client for client, at in self._left_at.items() if now - at >= FORGET_S]:
            del self._left_at[client]
            for topic in (topic_of(client), client):
                self.kept.pop(topic, None)


class Outbox:
    """Sends one rank's events of one stream, in the worker; used by one thread."""

    def __init__(self, send: Callable[[str, EventBatch], None], topic: str, stream: str, rank: int) -> None:
        self.send = send
        """`Worker.log_event`."""
        self.topic = topic
        self.stream = stream
        self.rank = rank
        self._batch: list[StreamEvent] = []
        self._pause_s = FLUSH_S
        self._sent_at = 0.0

    def add(self, event: RankEvent) -> None:
        """Take over an event and write the rank into it; it leaves now or after a short pause."""
        event["rank"] = self.rank
        self._batch.append(event)
        if event["kind"] not in LEISURELY:
            self._pause_s = SOON_S
        if len(self._batch) >= NUM_IN_BATCH:
            self.flush()
        else:
            self.flush_if_due()

    def patience(self, otherwise: float) -> float:
        """Seconds that the thread may wait for the next event before it must call `flush_if_due`."""
        return max(0.0, self._sent_at + self._pause_s - time.monotonic()) if self._batch else otherwise

    def flush_if_due(self) -> None:
        """Send the batch if the last one left long enough ago."""
        if time.monotonic() - self._sent_at >= self._pause_s:
            self.flush()

    def flush(self) -> None:
        """Send all waiting events."""
        if self._batch:
            self.send(self.topic, {"stream": self.stream, "events": self._batch})
            self._batch = []
            self._pause_s = FLUSH_S
            self._sent_at = time.monotonic()


class Feed:
    """Receives events in the client: one subscription, and one queue of batches per stream."""

    def __init__(self, client: Client, *, timeout_s: float = 5.0) -> None:
        self.topic = topic_of(client.id)
        self._queues: dict[str, Batches] = {}
        client.subscribe_topic(self.topic, self._received)
        self._shake_hands(client, timeout_s)

    def open(self, stream: str) -> Batches:
        """Queue that receives the stream's batches from now on."""
        batches: Batches = queue.SimpleQueue()
        self._queues[stream] = batches
        return batches

    def close(self, stream: str) -> None:
        """Drop whatever still comes for this stream."""
        self._queues.pop(stream, None)

    def _received(self, stamped: tuple[float, EventBatch]) -> None:
        # runs in the client's event loop: append and return
        message = stamped[1]
        batches = self._queues.get(message["stream"])
        if batches is not None:
            batches.put(message["events"])

    def _shake_hands(self, client: Client, timeout_s: float) -> None:
        """Ping until a ping arrives: subscribing is asynchronous, and what is sent before it takes effect is lost."""
        batches = self.open(_HANDSHAKE)
        give_up_at = time.monotonic() + timeout_s
        try:
            while time.monotonic() < give_up_at:
                client.log_event(self.topic, {"stream": _HANDSHAKE, "events": []})
                with contextlib.suppress(queue.Empty):
                    batches.get(timeout=0.05)
                    return
        finally:
            self.close(_HANDSHAKE)
        raise TimeoutError(f"no event of topic {self.topic} came back from the scheduler within {timeout_s:.1f} s")
