"""The broker in the Dask scheduler: it passes events there to the gang, and carries out the gang's commands."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from distributed import Scheduler, SchedulerPlugin
from distributed.comm.core import Comm
from distributed.protocol.pickle import dumps
from distributed.scheduler import heartbeat_interval
from tornado.ioloop import PeriodicCallback

from cluster import keeper
from cluster.feed import FORGET_S, EventBatch, Topics, client_of, topic_of
from cluster.gang import Gang, Member, waiting_reasons
from cluster.gang_messages import (
    ClientGone,
    Command,
    DoomMessage,
    EndMessage,
    Event,
    GpuMessage,
    GrantMessage,
    Handshake,
    Heartbeat,
    Kill,
    RankFailed,
    RankGone,
    RankReady,
    RefusalMessage,
    ReleaseMessage,
    RequestMessage,
    Tick,
    WorkerAnswers,
    WorkerJoined,
    WorkerLeft,
    WorkerSees,
    WorkerSilent,
)
from cluster.hosts import Gpu
from cluster.keeper import Keeper
from cluster.rank import EntryPoint
from cluster.shared import NO_SESSION, SharedAnswers
from kernels import events

# Silent workers: those whose heartbeats stop while the scheduler is awake. Pure: callers pass the time.

AWAY_S = 10.0
"""A worker that has not answered for this time is away: its grant ends, and no other begins there."""
NO_ANSWER_S = 3.0
"""If a rank hangs and its worker has not answered for this time, its trial is not to blame. Busy workers are faster."""
REPORTED_S = 2.0
"""If a granted worker has not answered for this time, its client hears so: with a tick and a beat, within 5 s."""
MISSED_BEATS = 3
"""Heartbeats that both limits above span at least: in large clusters these are seconds apart."""
LONGEST_TICK_S = 2.0
"""A tick counts for this much at most: the rest is time in which the scheduler itself slept."""


def away_s(num_workers: int) -> float:
    """Silence after which a worker is away, s."""
    return max(AWAY_S, MISSED_BEATS * heartbeat_interval(num_workers))


def no_answer_s(num_workers: int, least_s: float = NO_ANSWER_S) -> float:
    """Silence after which a worker is more than busy, s."""
    return max(least_s, MISSED_BEATS * heartbeat_interval(num_workers))


class WakingClock:
    """The scheduler's waking time: it stops while the scheduler itself is stopped, for whatever reason."""

    def __init__(self, now: float) -> None:
        self._ticked_at, self._until_tick_s = now, 0.0

    def at(self, now: float) -> float:
        """Waking seconds until *now*, which is s of a steady clock; never less than at the call before."""
        return self._until_tick_s + min(now - self._ticked_at, LONGEST_TICK_S)

    def tick(self, now: float) -> float:
        """As `at`; then begin the next tick."""
        self._until_tick_s = self.at(now)
        self._ticked_at = now
        return self._until_tick_s


class HeartbeatWatch:
    """Detects silent workers from the last heartbeat of every worker at each tick."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._last: dict[str, float] = {}
        """Time stamp of the last heartbeat, by worker; only changes count."""
        self._silent_s: dict[str, float] = {}
        self._away: set[str] = set()
        """Workers that were reported as silent; kept because the limit depends on the number of workers."""

    def tick(self, now: float, heartbeats: Mapping[str, float]) -> list[WorkerSilent | WorkerAnswers]:
        """Events at *now* (s of waking time): each silent worker, every time, and each that answers again.

        *heartbeats*: time stamps by worker, of any clock.
        """
        passed_s = 0.0 if self._at is None else now - self._at
        self._at = now
        limit_s = away_s(len(heartbeats))
        events: list[WorkerSilent | WorkerAnswers] = []
        for worker, stamp in heartbeats.items():
            before_s = self._silent_s.get(worker, 0.0)
            silent_s = before_s + passed_s if self._last.get(worker) == stamp else 0.0
            self._silent_s[worker] = silent_s
            if silent_s >= limit_s:
                self._away.add(worker)
                events.append(WorkerSilent(now, worker, silent_s))
            elif worker in self._away and silent_s < before_s:
                self._away.remove(worker)
                events.append(WorkerAnswers(now, worker))
        self._last = dict(heartbeats)
        self._silent_s = {worker: self._silent_s[worker] for worker in heartbeats}
        self._away &= heartbeats.keys()
        return events

    def unanswered_s(self, workers: Iterable[str], least_s: float | None = None) -> dict[str, float]:
        """Seconds since the last answer, for those of *workers* that are more than busy: *least_s*, or NO_ANSWER_S."""
        limit_s = no_answer_s(len(self._silent_s), NO_ANSWER_S if least_s is None else least_s)
        silent = {worker: self._silent_s.get(worker, 0.0) for worker in workers}
        return {worker: seconds for worker, seconds in silent.items() if seconds >= limit_s}


# The plugin of the Dask scheduler: its hooks, its handlers for keepers and clients, and the gang's commands.

NAME = "workbench-broker"
TICK_S = 1.0
OLDER_ENDS_S = 2.0
"""Longest wait for the end of a client's older connection; it takes a few turns of the event loop."""
_LOOK_S = 0.005
PROTOCOL = 5
"""Version of the messages between clients and broker; it changes where an older side would not understand them."""


def dask_settings() -> dict[str, Any]:
    """Dask's configuration, set before a cluster of ours starts; workers also need one thread and no memory limit."""
    return {
        # a rank's task that loses its worker must fail, not wait for an address that never comes back
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.no-workers-timeout": "20s",
        "distributed.scheduler.work-stealing": False,
        # sampling stacks a hundred times a second would be timed along with the kernels
        "distributed.worker.profile.enabled": False,
        # and so would asking the driver about a GPU twice a second
        "distributed.diagnostics.nvml": False,
        # topics are never freed, and a batch may hold the spans of a whole trial
        "distributed.admin.low-level-log-length": 100,
        # how long it keeps its notes about a client that has left
        "distributed.scheduler.events-cleanup-delay": f"{FORGET_S:.0f}s",
    }


class Broker(SchedulerPlugin):
    """Scheduler plugin, one per scheduler. It installs a keeper on every worker, which reports its rank processes."""

    name = NAME
    idempotent = True

    def __init__(self, entry: EntryPoint) -> None:
        self.entry = entry
        self.shared: SharedAnswers | None = None
        """Answers that a workshop keeps for all; None: each client measures for itself."""

    async def start(self, scheduler: Scheduler) -> None:
        """Register handlers, note the present workers, and install a keeper on every worker."""
        if NAME in scheduler.plugins:  # another client was quicker
            return
        scheduler.add_plugin(self, name=NAME, idempotent=True)
        self.scheduler = scheduler
        self.gang = Gang(uuid.uuid4().hex[:8])
        self.pulse = HeartbeatWatch()
        self.awake = WakingClock(time.monotonic())
        scheduler.stream_handlers[keeper.NAME] = self.rank_changed
        scheduler.stream_handlers[keeper.SEES] = self.worker_sees
        self.register_client = scheduler.handlers["register-client"]
        scheduler.handlers |= {
            "register-client": self.client_came,
            "workbench_request": self.request,
            "workbench_release": self.release,
            "workbench_doom": self.doom,
            "workbench_heartbeat": self.heartbeat,
            "workbench_silence": self.silence,
            "workbench_describe": self.describe,
        }
        for worker in scheduler.workers:
            self.add_worker(scheduler, worker)
        self.topics = Topics(scheduler._broker._topics)
        self.clock = PeriodicCallback(self.tick, TICK_S * 1000)
        self.clock.start()
        plugin = dumps(Keeper(self.entry))
        await scheduler.register_worker_plugin(comm=None, plugin=plugin, name=keeper.NAME, idempotent=True)

    async def close(self) -> None:
        """Stop the clock when the scheduler closes."""
        self.clock.stop()

    def tick(self) -> None:
        """Let time pass: check heartbeats and limits, and forget clients that left long ago."""
        now = self.awake.tick(time.monotonic())
        self.topics.forget(now, self.scheduler.clients)
        heartbeats = {address: state.last_seen for address, state in self.scheduler.workers.items()}
        for event in (*self.pulse.tick(now, heartbeats), Tick(now)):
            self._handle(event)

    # hooks of the scheduler

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Note that a worker joined."""
        state = scheduler.workers[worker]
        self._handle(WorkerJoined(self._now(), worker, str(state.name), state.host))

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """Note that a worker left or died."""
        self._handle(WorkerLeft(self._now(), worker))

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Note that a client disconnected or died."""
        self.topics.client_left(client, self._now())
        if self.shared is not None:
            self.shared.forget(client)
        self._handle(ClientGone(self._now(), client))

    async def client_came(self, comm: Comm, client: str, **facts: Any) -> None:
        """Register a client, after an older connection of the same name has ended.

        When Dask notices the end of the older one later, it drops what the client has by the new one, and closes that.
        """
        older = self.scheduler.client_comms.get(client)
        if older is not None:
            older.abort()
            give_up_at = time.monotonic() + OLDER_ENDS_S
            while self.scheduler.client_comms.get(client) is older and time.monotonic() < give_up_at:
                await asyncio.sleep(_LOOK_S)
        await self.register_client(comm, client=client, **facts)

    def log_event(self, topic: str, msg: Any) -> None:
        """Hear what ranks say on the way to their client, where it may be for others, too."""
        if self.shared is not None and isinstance(msg, dict) and "stream" in msg:
            self.shared.take(client_of(topic), msg["stream"], msg["events"])

    # reports of keepers

    def worker_sees(self, worker: str, gpus: Sequence[Mapping[str, Any]], ranks_on_gpu: int) -> None:
        """Note that a worker waits for one of these GPUs, which as many workers may have."""
        self._handle(WorkerSees(self._now(), worker, tuple(Gpu(**gpu) for gpu in gpus), ranks_on_gpu))

    def rank_changed(
        self, worker: str, change: str, incarnation: str, text: str, backend: str, hello: dict[str, Any]
    ) -> None:
        """Note that a rank process is ready (*hello* is its handshake), is gone, or could not start."""
        now = self._now()
        match change:
            case "ready":
                self._handle(RankReady(now, worker, incarnation, Handshake(**hello), backend=backend))
            case "gone":
                self._handle(RankGone(now, worker, incarnation))
            case "failed":
                self._handle(RankFailed(now, worker, message=text))

    # questions of clients; the answers to a request go to the client's topic

    def request(self, client: str, stream: str, world: int, **how: Any) -> None:
        """Queue a request of a connected client, whose end we notice. *how*: further fields of `RequestMessage`.

        What others have measured in the same workshop is answered at once.
        """
        if client in self.scheduler.clients and not self._is_shared(client, stream, how.get("shared_as")):
            self._handle(RequestMessage(self._now(), client, stream, world, **how))

    def release(self, client: str, stream: str, spoiled: bool, idle: Sequence[str] = ()) -> None:
        """Take a grant or a request back; whoever waits for the same answer gets it."""
        if self.shared is not None and (name := self.shared.end(client, stream)) is not None and not spoiled:
            for each in [each for each in self.gang.requests.values() if each.shared_as == name]:
                self._handle(ReleaseMessage(self._now(), each.client, each.stream, spoiled=False))
                self._is_shared(each.client, each.stream, name)
        self._handle(ReleaseMessage(self._now(), client, stream, spoiled, tuple(idle)))

    def _is_shared(self, client: str, stream: str, name: str | None) -> bool:
        """Whether the list *name* was answered for others, and is now for this stream, too."""
        answer = self.shared.answer(name) if self.shared is not None else None
        if self.shared is None or answer is None:
            return False
        self.shared.num_shared += 1
        head = events.GrantedEvent(kind="granted", session=NO_SESSION, places=answer.places)
        self.scheduler.log_event(topic_of(client), EventBatch(stream=stream, events=[head, *answer.events]))
        return True

    def doom(self, client: str, stream: str, worker: str) -> None:
        """End one rank process of a grant that its client still holds."""
        self._handle(DoomMessage(self._now(), client, stream, worker))

    def heartbeat(self, client: str) -> dict[str, str]:
        """Note that the client lives. Returns the streams that it holds or waits for, with why each waits.

        A granted stream waits for those of its workers that do not answer.
        """
        now = self._now()
        self._handle(Heartbeat(now, client))
        known = [stream for holder, stream in (*self.gang.grants, *self.gang.requests) if holder == client]
        return {stream: waiting_reasons(self.gang, client, stream, now) or self._silent(client, stream)
                for stream in known}  # fmt: skip

    def _silent(self, client: str, stream: str) -> str:
        """Which workers of a grant do not answer; empty if all do, or there is no such grant."""
        grant = self.gang.grants.get((client, stream))
        names = {place.worker: place.name for place in grant.places} if grant else {}
        silent = self.pulse.unanswered_s(names, REPORTED_S)
        return "; ".join(f"{names[worker]} has not answered for {seconds:.0f} s" for worker, seconds in silent.items())

    def silence(self, client: str, workers: Sequence[str]) -> dict[str, float]:
        """Seconds since the last answer, for those of *workers* that are more than busy."""
        return self.pulse.unanswered_s(workers)

    def describe(self) -> dict[str, Any]:
        """Workers, grants, requests and granted seconds now, for clients, people and tests."""
        now, gang = self._now(), self.gang
        return {
            "protocol": PROTOCOL,
            "workers": [
                _described(worker, worker.silent_s) | {"core_use": self._core_use(worker.address)}
                for worker in gang.workers.values()
            ],
            "away": [_described(worker, now - worker.left_at) for worker in gang.away.values()],
            "grants": [[*key, [place.worker for place in grant.places]] for key, grant in gang.grants.items()],
            "requests": [list(key) for key in gang.requests],
            "granted_seconds": {client: gang.granted_seconds(client, now) for client in gang.clients},
        }

    def _core_use(self, worker: str) -> Mapping[str, Any]:
        """The newest report of a worker on its host's cores; empty before its second heartbeat."""
        state = self.scheduler.workers.get(worker)
        return (state.metrics.get(keeper.CORE_USE) or {}) if state is not None else {}

    # the gang

    def _now(self) -> float:
        """Waking time, so that nobody counts as late, silent or gone because this scheduler slept."""
        return self.awake.at(time.monotonic())

    def _handle(self, event: Event) -> None:
        for command in self.gang.handle(event):
            self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case Kill():
                self._order(command.worker, {"op": keeper.KILL, "incarnation": command.incarnation})
            case GpuMessage():
                self._order(command.worker, {"op": keeper.DEALT, "gpu": command.gpu and asdict(command.gpu)})
            case GrantMessage():
                places = [asdict(place) for place in command.places]
                name = self.gang.grants[command.client, command.stream].shared_as
                if self.shared is not None and name is not None:
                    self.shared.begin(command.client, command.stream, name, places)
                self._answer(command, events.GrantedEvent(kind="granted", session=command.session, places=places))
            case RefusalMessage():
                self._answer(
                    command, events.RefusedEvent(kind="refused", message=command.message, for_now=command.for_now)
                )
            case EndMessage():
                self._answer(command, events.EndedEvent(kind="ended", worker=command.worker, message=command.message))

    def _order(self, worker: str, message: dict[str, Any]) -> None:
        if worker in self.scheduler.stream_comms:
            self.scheduler.worker_send(worker, message)

    def _answer(self, to: GrantMessage | RefusalMessage | EndMessage, event: events.BrokerEvent) -> None:
        self.scheduler.log_event(topic_of(to.client), EventBatch(stream=to.stream, events=[event]))


def _described(worker: Member, away_s: float) -> dict[str, Any]:
    """Description of *worker*. *away_s*: seconds since it answered or left, 0 for one that answers."""
    return {
        "address": worker.address,
        "name": worker.name,
        "host": worker.host,
        "ready": worker.ready,
        "incarnation": worker.incarnation,
        "busy": worker.busy,
        "gpu": worker.gpu and asdict(worker.gpu),
        "trouble": worker.trouble,
        "deaths": worker.deaths,
        "last_death": worker.last_death,
        "away_s": away_s,
        "backend": worker.backend,
        **asdict(worker.handshake),
    }
