"""Events travel from a rank to its client in batches and in order, over one Dask event topic per client session.

A batch is `{"stream": id, "events": [...]}`. The broker's answers use the same topic, so a stream waits in one place.
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
"""Batches of samples are so far apart."""
SOON_S = 0.004
"""Batches that bring a result are so far apart: alone it leaves at once, a flood of them travels together."""
FORGET_S = 30.0
"""What ranks have to say to a client that has left, they have said by then."""
NUM_IN_BATCH = 50
_HANDSHAKE = "handshake"


def topic_of(client: str) -> str:
    """The topic of a client session; Dask never frees a topic, so there is one per client and none per run."""
    return f"workbench-{client}"


class Topics:
    """The scheduler's end: what it keeps of clients that have left, it keeps for a while, and Dask would for ever."""

    def __init__(self, kept: MutableMapping[str, Any]) -> None:
        self.kept = kept
        """Dask's own table, by topic."""
        self._left: dict[str, float] = {}
        """When each client left."""

    def left(self, client: str, now: float) -> None:
        """A rank may still be telling it something, and that would begin its topic anew."""
        self._left[client] = now

    def forget(self, now: float, connected: Container[str]) -> None:
        """Those who have left long enough ago; one that is *connected* came back, and listens to the same topic."""
        self._left = {client: at for client, at in self._left.items() if client not in connected}
        for client in [client for client, at in self._left.items() if now - at >= FORGET_S]:
            del self._left[client]
            for topic in (topic_of(client), client):
                self.kept.pop(topic, None)


class Outbox:
    """The worker's end for one rank and one stream; used by one thread."""

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
        """Take an event, which nobody else has, and write the rank into it; it leaves now, or after a short pause."""
        event["rank"] = self.rank
        self._batch.append(event)
        if event["kind"] not in LEISURELY:
            self._pause_s = SOON_S
        if len(self._batch) >= NUM_IN_BATCH:
            self.flush()
        else:
            self.flush_if_due()

    def patience(self, otherwise: float) -> float:
        """How long the thread may wait for the next event before it must call `flush_if_due`."""
        return max(0.0, self._sent_at + self._pause_s - time.monotonic()) if self._batch else otherwise

    def flush_if_due(self) -> None:
        """Send the batch if the last one left long enough ago."""
        if time.monotonic() - self._sent_at >= self._pause_s:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        if self._batch:
            self.send(self.topic, {"stream": self.stream, "events": self._batch})
            self._batch = []
            self._pause_s = FLUSH_S
            self._sent_at = time.monotonic()


class Feed:
    """The client's end: one subscription, one queue of batches per stream."""

    def __init__(self, client: Client, *, timeout_s: float = 5.0) -> None:
        self.topic = topic_of(client.id)
        self._queues: dict[str, Batches] = {}
        client.subscribe_topic(self.topic, self._received)
        self._shake_hands(client, timeout_s)

    def open(self, stream: str) -> Batches:
        """From now on the stream's batches are kept."""
        batches: Batches = queue.SimpleQueue()
        self._queues[stream] = batches
        return batches

    def close(self, stream: str) -> None:
        """Whatever still comes for this stream is dropped."""
        self._queues.pop(stream, None)

    def _received(self, stamped: tuple[float, EventBatch]) -> None:
        # runs in the client's event loop: append and return
        message = stamped[1]
        batches = self._queues.get(message["stream"])
        if batches is not None:
            batches.put(message["events"])

    def _shake_hands(self, client: Client, timeout_s: float) -> None:
        """Subscribing is asynchronous and what is sent before it counts is lost: ping until one arrives."""
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
