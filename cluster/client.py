"""Trials go to a gang of ranks, their events come back: ask, order, listen, give the gang back whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent import futures
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NoReturn, Protocol, cast

from distributed import Client, Future, KilledWorker
from distributed.protocol.pickle import dumps

from cluster import agreement, broker, keeper
from cluster import hosts as probe
from cluster.connection import ANSWER_S, first_line, open_client
from cluster.feed import Feed
from cluster.messages import DispatchedTrial, Order, SeatWords, StreamRequest
from cluster.rank import EntryPoint
from cluster.rendezvous import LOOPBACK
from cluster.scheduler_file import SchedulerTarget, target_in
from cluster.seating import Ranks, Workers
from cluster.watchdog import PATIENCE, Blame, Deadlines, Watchdog
from kernels import events
from kernels.events import (
    EndedEvent,
    ExecutionFields,
    GrantedEvent,
    ProgressEvent,
    RankEvent,
    StreamEvent,
    TrialEvent,
    WaitingEvent,
)
from kernels.files import Failed

# One grant: waited for, its ranks ordered and listened to, given back whatever happens.

_BEAT_S, _WAITING_BEAT_S = 2.5, 1.0
"""How often the broker hears of a client that holds ranks, and that waits for some: then it says for whom."""
_TICK_S = 0.05
_GIVING_BACK_S, _STOPPED_S = 5.0, 1.0
"""So long what is given back is waited for, and by who was stopped; it goes on its way all the same."""
_LAST_WORD_S = 1.0
"""Why a stream ended may come so much later than the answer that it is unknown: they come by two connections."""
_LATE_S = 0.2
"""Results leave a rank at once: those of before its gang broke are here so much later at the latest."""
_PARTING_S = 5.0
"""Ranks that waited for one whose process was ended notice it within this time, or are ended, too."""


class Connection(Protocol):
    """What is asked of a `cluster.client.Cluster`."""

    client: Client
    feed: Feed
    address: str
    meetings: dict[str, tuple[str, int, str | None]]
    """Host, port and secret of the rendezvous, by session."""

    def next_stream(self) -> str:
        """A name for one attempt, unique for this client."""

    def call(self, question: str, *, stop: threading.Event | None = None, within_s: float = ..., **facts: Any) -> Any:
        """Ask the broker."""


class _AttemptOver(Exception):
    """The attempt is over."""

    def __init__(self, verdict: Blame) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


class _WaitExpired(_AttemptOver):
    """No ranks were granted in time."""


class _StaleKernels(Exception):
    """The rank processes have other kernels or libraries than their hosts have by now."""


class Attempt:
    """One grant: waiting for it, the orders to its ranks, their events, and giving it back."""

    def __init__(
        self, cluster: Connection, ask: StreamRequest, trials: dict[str, DispatchedTrial], watch: Watchdog
    ) -> None:
        self.cluster, self.ask, self.trials, self.watch = cluster, ask, trials, watch
        self.again: list[str] = []
        """Trials that deserve another attempt."""
        self.stream = cluster.next_stream()
        self.batches = cluster.feed.open(self.stream)
        self.arrived: Iterator[StreamEvent] = iter(())
        self.late: list[TrialEvent] = []
        """For the caller, of ranks whose gang was broken by then."""
        self.places: list[dict[str, Any]] = []
        self.futures: list[Future[None]] = []
        self.beat_at = time.monotonic()
        self.waits_for = ""
        """As the broker said it last; nothing once ranks are granted."""
        self.unknown_since: float | None = None
        """When the broker said that it does not know this stream."""
        self.held = False
        """Whether there may be something to give back."""

    def events(self) -> Iterator[ProgressEvent]:
        """The ranks' events for the caller, then the failures of what broke."""
        clean = False
        try:
            yield from self._through()
            clean = True
        except _StaleKernels:
            self._give_back(spoiled=True)
            self.again = list(self.trials)
        except _AttemptOver as broken:
            # ranks without an order are idle: what was refused before leaves them as they are
            verdict = self._excused(broken.verdict)
            self._hear_late(verdict)
            self._give_back(spoiled=bool(self.futures), idle=self._survivors(verdict))
            yield from self.late
            self.again = self.watch.again(verdict)
            yield from self.watch.failures(verdict)
            if isinstance(broken, _WaitExpired):
                raise Failed(broken.verdict.sentence) from None
        finally:
            self._give_back(spoiled=not clean)
            self.cluster.feed.close(self.stream)

    def _through(self) -> Iterator[ProgressEvent]:
        session = yield from self._granted()
        self._same_kernels()
        self._order(session, self._meeting(session))
        while not self.watch.done:
            yield from self._heard(self._next())
        self._judge()

    def _heard(self, event: RankEvent) -> list[TrialEvent]:
        """*event* of a rank, as the caller should see it; nothing where it is for the watch alone."""
        if not self.watch.heard(event, time.monotonic()):
            return []
        return [{**event, **self._ran} if event["kind"] == "result" else event]

    @cached_property
    def _ran(self) -> ExecutionFields:
        """What every result says of the ranks that were granted."""
        return agreement.ran(self.places, self.ask.backend)

    # the gang: asked for, checked, given back

    def _granted(self) -> Generator[WaitingEvent, None, str]:
        """The session's name, once the broker has granted ranks; until then, for whom one waits."""
        self.held = True
        ask = self.ask
        how = {"world": ask.world, "shares_heap": ask.shares_heap, "across": ask.across, "backend": ask.backend}
        self._call("request", stream=self.stream, expected_s=ask.limits.expected_s, **how)
        asked_at = told_at = time.monotonic()
        while (event := self._polled()) is None or event["kind"] != "granted":
            waited_s = time.monotonic() - asked_at
            if waited_s > ask.limits.wait_s:
                raise _WaitExpired(Blame(None, "lost", None, self._waited_out()))
            if self.waits_for and self.beat_at > told_at:
                told_at = self.beat_at
                yield self._waiting(waited_s, self.waits_for)
        if told_at > asked_at:
            yield self._waiting(0.0, "")
        self.waits_for = ""
        self.places = event["places"]
        labels = [f"rank {rank} ({place['name']} on {place['host']})" for rank, place in enumerate(self.places)]
        self.watch.begin(labels, time.monotonic())
        return str(event["session"])

    def _waiting(self, seconds: float, why: str) -> WaitingEvent:
        return events.WaitingEvent(kind="waiting", trial=None, world=self.ask.world, seconds=seconds, why=why)

    def _waited_out(self) -> str:
        return (
            f"{self.ask.world} ranks were not granted within {self.ask.limits.wait_s:.0f} s: {self.waits_for}. "
            "Accepted: another time, a longer wait, or another cluster."
        )

    def _give_back(self, spoiled: bool, idle: Sequence[str] = (), within_s: float | None = None) -> None:
        """What is sent goes on its way, however short its answer is waited for."""
        if self.held:
            self.held = False
            how: dict[str, Any] = {"stream": self.stream, "spoiled": spoiled, "idle": tuple(idle)}
            if within_s is None:
                within_s = _STOPPED_S if self.ask.cancelled.is_set() else _GIVING_BACK_S
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # the scheduler is gone, and the grant too
                self.cluster.call("release", within_s=within_s, client=self.cluster.client.id, **how)
        self.futures.clear()

    def _hear_late(self, verdict: Blame) -> None:
        """Nothing measured is lost: what another rank said before its gang broke may arrive after why it broke."""
        if not self.held or verdict.rank is None:
            return
        give_up_at = time.monotonic() + _LATE_S
        with contextlib.suppress(queue.Empty):
            while True:
                for event in self.arrived:
                    if not events.is_of_rank(event):  # the broker's word, for who listens next
                        self.arrived = itertools.chain([event], self.arrived)
                        return
                    self.late += self._heard(event)
                self.arrived = iter(self.batches.get(timeout=max(0.0, give_up_at - time.monotonic())))

    def _survivors(self, verdict: Blame) -> list[str]:
        """Workers whose rank need not be replaced with the guilty one; they notice soon that it is gone."""
        if not self.held or verdict.rank is None or not self.watch.ranks[verdict.rank].sticky:
            return []
        with contextlib.suppress(_AttemptOver, queue.Empty):
            self._call("doom", stream=self.stream, worker=self.places[verdict.rank]["worker"])
            give_up_at = time.monotonic() + _PARTING_S
            while self.watch.unsure(verdict):
                for event in self.arrived:
                    if event["kind"] == "ended":  # another worker left
                        raise _AttemptOver(self._ended(event))
                    if events.is_of_rank(event):
                        self.late += self._heard(event)
                self.arrived = iter(self.batches.get(timeout=max(0.0, give_up_at - time.monotonic())))
        gone = {verdict.rank, *self.watch.unsure(verdict)}
        return [place["worker"] for rank, place in enumerate(self.places) if rank not in gone]

    def _excused(self, verdict: Blame) -> Blame:
        """*verdict*; or, where a rank hung whose worker does not answer, that it was lost: no trial is to blame."""
        if verdict.stage != "hang" or not self.places:
            return verdict
        workers = [place["worker"] for place in self.places]
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            silent = self.cluster.call("silence", client=self.cluster.client.id, within_s=ANSWER_S, workers=workers)
            if silent:
                worst = max(silent, key=lambda worker: silent[worker])
                rank = workers.index(worst)
                name = f"Worker {self.places[rank]['name']} on {self.places[rank]['host']}"
                return self.watch.lost(rank, f"{name} ({worst}) has not answered for {silent[worst]:.0f} s.")
        return verdict

    def _same_kernels(self) -> None:
        """All ranks have loaded the client's source, and the same libraries as each other.

        Where files have changed since their processes began, these are started anew, once; but not where that would
        not help.
        """
        backend, source = self.ask.backend, self.ask.source_print
        loaded = {place["worker"]: place["hello"] for place in self.places}
        trouble = agreement.trouble(self.places, loaded, backend, source)
        if trouble is None:
            return
        now = probe.ask(self.cluster.client, list(loaded), keeper.would_load)
        if still := agreement.trouble(self.places, now, backend, source):
            raise _AttemptOver(Blame(None, "refused", None, still))
        if self.ask.replaced.issuperset(loaded):  # it did not help
            raise _AttemptOver(Blame(None, "refused", None, trouble))
        self.ask.replaced.update(loaded)
        raise _StaleKernels

    # orders to the ranks

    def _meeting(self, session: str) -> tuple[str, int, str | None] | None:
        """Where the ranks of the session meet for a process group: a store in rank 0's process, opened once."""
        if self.ask.world == 1:
            return None
        if session not in self.cluster.meetings:
            guarded = len(set(self._addresses())) > 1
            self._submit(
                0, {"order": "rendezvous", "session": session, "host": self._addresses()[0], "guarded": guarded}
            )
            while (event := self._next())["kind"] != "rendezvous":
                self.watch.heard(event, time.monotonic())
            self.cluster.meetings[session] = (event["host"], event["port"], event["secret"])
        return self.cluster.meetings[session]

    def _order(self, session: str, meeting: tuple[str, int, str | None] | None) -> None:
        trials = [trial.to_json() for trial in self.trials.values()]
        for rank in range(self.ask.world):
            seat: SeatWords = {
                "rank": rank,
                "world": self.ask.world,
                "session": session,
                "shares_heap": self.ask.shares_heap,
                "rendezvous": meeting,
                "addresses": self._addresses(),
                "deadline_s": self.ask.limits.silence_s * PATIENCE,
            }
            self._submit(rank, {"order": "run", "seat": seat, "trials": trials})

    def _addresses(self) -> list[str]:
        """Where ranks find each other: on loopback, if all are of one host, where no other host looks in."""
        hosts = [place["host"] for place in self.places]
        return hosts if len(set(hosts)) > 1 else [LOOPBACK] * len(hosts)

    def _submit(self, rank: int, order: Order) -> None:
        future = self.cluster.client.submit(
            keeper.perform,
            order,
            rank,
            (self.cluster.feed.topic, self.stream),
            self.places[rank]["incarnation"],
            key=f"workbench-{order['order']}-{self.cluster.client.id}-{self.stream}-{rank}",
            workers=[self.places[rank]["worker"]],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        future.add_done_callback(lambda done: self._task_ended(rank, done))
        self.futures.append(future)

    def _task_ended(self, rank: int, future: Future[None]) -> None:
        # what a task has to say, it says by events: only one that could not even begin fails by itself
        error = future.exception(timeout=ANSWER_S) if future.status == "error" else None
        if error is not None and not isinstance(error, KilledWorker):  # the broker says that better
            message = f"its Dask task failed: {first_line(error)}"
            self.batches.put([events.GoneEvent(kind="gone", message=message, rank=rank)])

    # listening

    def _next(self) -> RankEvent:
        """The next event of a rank; raises _Broken at the end of hope."""
        while (event := self._polled()) is None or event["kind"] == "granted":
            pass
        return event

    def _polled(self) -> RankEvent | GrantedEvent | None:
        """The next event of a rank, or the broker's grant, if it comes soon."""
        self._still_wanted()
        for event in self.arrived:
            if event["kind"] == "refused":
                # what could be were all workers well is no fault of who asked
                stage = "launch" if event["for_now"] else "refused"
                raise _AttemptOver(Blame(None, stage, None, event["message"]))
            if event["kind"] == "ended":
                raise _AttemptOver(self._ended(event))
            return event
        try:
            self.arrived = iter(self.batches.get_nowait())
        except queue.Empty:
            # judged only when all that arrived was heard: this process itself may have slept
            self._still_known()
            self._judge()
            with contextlib.suppress(queue.Empty):
                self.arrived = iter(self.batches.get(timeout=_TICK_S))
        return None

    def _judge(self) -> None:
        if verdict := self.watch.verdict(time.monotonic()):
            raise _AttemptOver(verdict)

    def _still_wanted(self) -> None:
        """Raises _Broken when the user, the scheduler or the broker has let go of this attempt."""
        self._uncancelled()
        self._still_connected()
        if time.monotonic() - self.beat_at > (_BEAT_S if self.places else _WAITING_BEAT_S):
            known = self._call("heartbeat")
            self.beat_at = time.monotonic()
            if self.stream in known:
                self.unknown_since = None
            elif self.unknown_since is None:
                self.unknown_since = self.beat_at
            self.waits_for = known.get(self.stream) or self.waits_for

    def _still_known(self) -> None:
        """Called when all that arrived was heard; a broker that ended the stream says why."""
        if self.unknown_since is not None and time.monotonic() - self.unknown_since > _LAST_WORD_S:
            self._scheduler_gone("it started anew and does not know this request")

    def _uncancelled(self) -> None:
        if self.ask.cancelled.is_set():
            raise _AttemptOver(Blame(None, "cancelled", None, "Cancelled before every rank had a result."))

    def _call(self, question: str, **facts: Any) -> Any:
        self._still_connected()
        try:
            return self.cluster.call(question, stop=self.ask.cancelled, client=self.cluster.client.id, **facts)
        except (OSError, TimeoutError, RuntimeError) as error:
            self._uncancelled()
            if self.held and isinstance(error, TimeoutError):  # it may yet hear what it was asked: take that back, too
                self._give_back(spoiled=True, within_s=0.0)
            self._scheduler_gone(first_line(error) or type(error).__name__)

    def _still_connected(self) -> None:
        if self.cluster.client.status != "running":
            self._scheduler_gone("the connection is closed")

    def _scheduler_gone(self, why: str) -> NoReturn:
        self.held = False
        address = self.cluster.address
        sentence = f"The scheduler {address} is gone ({why}). Start it again, or ask another one."
        raise _AttemptOver(Blame(None, "lost", None, sentence)) from None

    def _ended(self, event: EndedEvent) -> Blame:
        self.held = False
        workers = [place["worker"] for place in self.places]
        if event["worker"] in workers:
            return self.watch.lost(workers.index(event["worker"]), event["message"])
        # this client was silent for too long: the grant is gone, and nobody's trial is to blame
        return Blame(None, "cancelled", None, event["message"])


# Trials go to a gang of ranks, their events come back: ask, order, listen, give the gang back whatever happens.

LATE_S = 20.0
"""One that answered before may be late: many ranks on few cores keep it waiting. A closed connection tells sooner."""

HELLO_S = 60.0
"""Ranks of a cluster that has just begun load torch, and then say what they have."""
_LOOK_S = 0.1
_TOLD_S = 3.0
"""A person hears of a wait for them that is longer."""
_IDLE_ATTEMPTS = 2
"""So often a gang that was lost before it began is replaced without blaming a trial."""


class Cluster:
    """A connection to one Dask cluster; several threads may stream at once."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.feed = Feed(client)
        assert client.scheduler is not None
        self.address = str(client.scheduler.address)
        self.meetings: dict[str, tuple[str, int, str | None]] = {}
        """Host, port and secret of the rendezvous, by session."""
        self._numbers = itertools.count()

    @classmethod
    def connect(
        cls, address: str | Path | SchedulerTarget | None = None, *, entry: EntryPoint | None = None
    ) -> Cluster:
        """Connect by scheduler address or scheduler file, by default the lab's; ValueError when nobody answers.

        The broker and the rank processes are installed unless another client did so before.
        """
        target = target_in(address)
        client = open_client(target)
        try:
            plugin = dumps(broker.Broker(entry or EntryPoint()))
            assert client.scheduler is not None
            install = client.scheduler.register_scheduler_plugin
            client.sync(install, plugin=plugin, name=broker.NAME, idempotent=True, callback_timeout=30)
            connected = cls(client)
            protocol = connected.describe().get("protocol")
        except Exception as error:
            client.close(timeout=ANSWER_S)
            foreign = isinstance(error, ImportError | AttributeError | TypeError | UnpicklingError)
            accepted = (
                "a scheduler whose environment has the same Python, Dask and overlap-workbench as this one"
                if foreign else "the command again, once the scheduler answers"
            )  # fmt: skip
            kind = ValueError if foreign else Failed  # it was there a moment ago
            raise kind(
                f"The scheduler {target.address} answers, but cannot take the workbench's broker "
                f"({type(error).__name__}: {first_line(error)}). Accepted: {accepted}."
            ) from error
        if (sentence := agreement.other_protocol(target.address, protocol, broker.PROTOCOL)) is not None:
            client.close(timeout=ANSWER_S)
            raise ValueError(sentence)
        return connected

    def stream(
        self,
        trials: Sequence[DispatchedTrial],
        *,
        world: int,
        shares_heap: bool,
        deadline_s: float | Deadlines,
        cancelled: threading.Event | None = None,
        source_print: str | None = None,
    ) -> Iterator[ProgressEvent]:
        """Run the trials on one gang; the ranks' events as they come, and one failure for each trial that broke.

        Ranks that have not loaded the kernels of `source_print` are started anew, once, if the files on their hosts are
        of that source by now; else they are refused as they are. A result says what ran it.
        A rank that says nothing for `deadline_s` hangs, and so does a list that takes that long for each of its trials;
        Limits tell these two apart.
        One grant for the list, since what is timed in turns belongs together: when a trial breaks the gang, the others
        end as cancelled. Before that, `waiting` events say for whom one waits, and how long; the last one says nothing.
        Who is granted no ranks within the limit gets a failure for each trial, then Failed is raised.
        Benches are opened for a world and a heap: the next stream is warm when these two are the same.
        A caller that takes no event for long loses the gang to others.
        """
        limits = (
            deadline_s if isinstance(deadline_s, Deadlines) else Deadlines(deadline_s, deadline_s * max(1, len(trials)))
        )
        if world < 1 or min(limits.silence_s, limits.total_s) <= 0:
            raise ValueError(f"world = {world} and deadline_s = {deadline_s} must both be above 0.")
        ask = StreamRequest(
            world=world,
            shares_heap=shares_heap,
            across=any(trial.across for trial in trials),
            limits=limits,
            cancelled=cancelled or threading.Event(),
            source_print=source_print,
            backend=next((trial.backend for trial in trials), "cpu"),
        )
        rest = {trial.key: trial for trial in trials}
        num_idle = 0
        while rest:
            forgiving = num_idle < _IDLE_ATTEMPTS
            watch = Watchdog(list(rest), ask.world, ask.limits, forgiving=forgiving)
            attempt = Attempt(self, ask, rest, watch)
            yield from attempt.events()
            num_idle = num_idle + 1 if len(attempt.again) == len(rest) else 0
            rest = {key: rest[key] for key in attempt.again}

    def next_stream(self) -> str:
        """A name for one attempt, unique for this client."""
        return str(next(self._numbers))

    def describe(self) -> dict[str, Any]:
        """Workers, grants, requests and granted seconds as the broker sees them now."""
        return self.call("describe")

    def ranks(
        self,
        world: int,
        backend: str,
        cancelled: threading.Event | None = None,
        across: bool = False,
        tell: Callable[[str], object] = lambda sentence: None,
    ) -> Ranks | None:
        """What a gang would run on, as soon as its ranks said hello; None where none can be seated, or not in time.

        None, too, once *cancelled* is set. *tell* is called once where that takes long. Failed when the scheduler does
        not answer.
        """
        stop = cancelled or threading.Event()
        began = time.monotonic()
        is_told = False
        while (waited_s := time.monotonic() - began) < HELLO_S:
            try:
                workers = Workers.described(self.call("describe", stop=stop))
            except InterruptedError:  # stopped: nobody wants to know any more
                return None
            except (OSError, RuntimeError) as error:
                why = first_line(error) or type(error).__name__
                raise Failed(
                    f"The scheduler {self.address} does not say what its ranks are ({why}). Start it again, or ask "
                    "another one."
                ) from error
            gang = workers.gang(world, backend, across)
            silent = [worker.name for worker in gang if not worker.backend]
            if not silent or stop.wait(_LOOK_S):
                return workers.ranks(world, backend, across)
            if waited_s > _TOLD_S and not is_told:
                is_told = True
                tell(f"Waiting for ranks that are starting: {', '.join(silent)}; {HELLO_S:.0f} s at the most.")
        return None

    def wanted_by_others(self) -> bool:
        """Whether another client has ranks, or waits for some."""
        seen = self.describe()
        return any(client != self.client.id for client, *_ in (*seen["grants"], *seen["requests"]))

    def call(
        self, question: str, *, stop: threading.Event | None = None, within_s: float = LATE_S, **facts: Any
    ) -> Any:
        """Ask the broker; TimeoutError or OSError when the scheduler is gone, InterruptedError once *stop* is set.

        What was asked stays on its way, whoever waits for the answer no longer.
        """
        if self.client.scheduler is None:  # closed, while a stream that nobody reads any more is put away
            raise OSError("the connection is closed")
        operation = getattr(self.client.scheduler, f"workbench_{question}")
        loop = cast(Any, self.client.loop).asyncio_loop
        if loop.is_closed():
            raise OSError("the connection is closed")
        answer = asyncio.run_coroutine_threadsafe(operation(**facts), loop)
        give_up_at = time.monotonic() + within_s
        while not futures.wait([answer], timeout=_TICK_S).done:
            if stop is not None and stop.is_set():
                raise InterruptedError("stopped")
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"no answer within {within_s:.0f} s")
        return answer.result()

    def close(self) -> None:
        """Disconnect; what this client still holds goes back at once."""
        self.client.close(timeout=ANSWER_S)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
