"""The client of a cluster: sends trials to a gang of ranks, yields their events, and always gives the gang back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent import futures
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NoReturn, Protocol, cast

from distributed import Client, Future, KilledWorker
from distributed.protocol.pickle import dumps

from cluster import agreement, broker, hosts, keeper
from cluster.connection import ANSWER_S, first_line, open_client
from cluster.cpu_use import GangOnHost, HostUse, client_process, host_uses, looked_at
from cluster.feed import Feed
from cluster.messages import DispatchedTrial, Order, RunOrder, SeatMessage, StreamRequest
from cluster.rank import EntryPoint
from cluster.rendezvous import LOOPBACK
from cluster.scheduler_file import SchedulerTarget, target_in
from cluster.seating import Ranks, Workers
from cluster.shared import NO_SESSION, SHARED, list_print
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

# One grant: wait for it, send orders to its ranks, hear their events, always give it back.

_BEAT_S, _WAITING_BEAT_S = 2.5, 1.0
"""Seconds between heartbeats to the broker of a client whose ranks report, and of one that waits for some."""
_TICK_S = 0.05
"""Seconds between two looks for events, answers and cancellation."""
_GIVING_BACK_S, _STOPPED_S = 5.0, 1.0
"""How long to wait for the answer to a release, s: usually, and once the user has stopped. It is sent anyway."""
_LATE_REASON_S = 1.0
"""How long after the answer that a stream is unknown the reason may arrive, s: they use two connections."""
_LATE_S = 0.2
"""How long after a gang broke its earlier results may still arrive, s; ranks send them at once."""
_PARTING_S = 5.0
"""Ranks that wait for an ended rank must notice its end within this time, s; else they are ended, too."""


class Connection(Protocol):
    """What an attempt needs from a cluster; `Cluster` has it."""

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
    """The attempt has ended before all ranks were done; *verdict* says why."""

    def __init__(self, verdict: Blame) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


class _WaitExpired(_AttemptOver):
    """No ranks were granted in time."""


class _StaleKernels(Exception):
    """The rank processes have other kernels or libraries than their hosts have by now."""


class Attempt:
    """One try at a list of trials: waits for a grant, orders its ranks, yields their events, gives the grant back."""

    def __init__(
        self, cluster: Connection, request: StreamRequest, trials: dict[str, DispatchedTrial], watch: Watchdog
    ) -> None:
        self.cluster, self.request, self.trials, self.watch = cluster, request, trials, watch
        self.again: list[str] = []
        """Trials that another attempt should run."""
        self.stream = cluster.next_stream()
        self.batches = cluster.feed.open(self.stream)
        self.arrived: Iterator[StreamEvent] = iter(())
        self.late: list[TrialEvent] = []
        """Events for the caller that arrived after the gang had broken."""
        self.places: list[dict[str, Any]] = []
        self.futures: list[Future[None]] = []
        self.beat_at = time.monotonic()
        self.waits_for = ""
        """Reasons of the wait, as last reported by the broker; of a grant, its workers that do not answer."""
        self.reported_at = 0.0
        """When the caller last heard that granted ranks are silent; 0 if they are not."""
        self.unknown_since: float | None = None
        """When the broker first answered that it does not know this stream."""
        self.held = False
        """Whether there may be a grant or request to give back."""
        self.is_shared = False
        """Whether its events are those of another client's ranks, who were asked the same."""

    def events(self) -> Iterator[ProgressEvent]:
        """The ranks' events for the caller, then a failure for each trial that broke."""
        clean = False
        try:
            yield from self._run()
            clean = True
        except _StaleKernels:
            self._give_back(spoiled=True)
            self.again = list(self.trials)
        except _AttemptOver as broken:
            # ranks without an order are idle: a refusal before any order leaves them alone
            verdict = self._excused(broken.verdict)
            self._hear_late(verdict)
            self._give_back(spoiled=bool(self.futures), idle=self._survivors(verdict))
            yield from self.late
            self.again = self.watch.again(verdict)
            yield from self.watch.failures(verdict)
            if isinstance(broken, _WaitExpired):
                raise Failed(broken.verdict.message) from None
        finally:
            self._give_back(spoiled=not clean)
            self.cluster.feed.close(self.stream)

    def _run(self) -> Iterator[ProgressEvent]:
        session = yield from self._granted()
        if session is None:
            self.held = False  # others' ranks have answered, and their events follow
        else:
            self._same_kernels()
            self._order(session, (yield from self._meeting(session)))
        while not self.watch.done:
            yield from self._heard((yield from self._next()))
        self._judge()

    def _heard(self, event: RankEvent) -> list[TrialEvent]:
        """*event* of a rank as the caller should see it; empty where it is for the watchdog only."""
        if not self.watch.heard(event, time.monotonic()):
            return []
        if event["kind"] != "result":
            return [event]
        if self.is_shared:
            timed = {**event["facts"].get("timed", {}), SHARED: True}
            event = {**event, "facts": {**event["facts"], "timed": timed}}
        return [{**event, **self._execution}]

    @cached_property
    def _execution(self) -> ExecutionFields:
        """Fields of every result that describe the granted ranks."""
        return agreement.execution_fields(self.places, self.request.backend)

    # the grant: request, check, release

    def _granted(self) -> Generator[WaitingEvent, None, str | None]:
        """Request ranks and return the session's name; yields waiting events until the broker has granted them.

        None where the broker has others' answer instead.
        """
        self.held = True
        request = self.request
        self._call(
            "request",
            stream=self.stream,
            world=request.world,
            shares_heap=request.shares_heap,
            across=request.across,
            backend=request.backend,
            expected_s=request.limits.expected_s,
            shared_as=request.shared_as and list_print(self.trials, request.shared_as),
        )
        requested_at = reported_at = time.monotonic()
        while (event := self._polled()) is None or event["kind"] != "granted":
            waited_s = time.monotonic() - requested_at
            if waited_s > request.limits.wait_s:
                raise _WaitExpired(Blame(None, "lost", None, self._wait_expired()))
            if self.waits_for and self.beat_at > reported_at:
                reported_at = self.beat_at
                yield self._waiting(waited_s, self.waits_for)
        if reported_at > requested_at:
            yield self._waiting(0.0, "")
        self.waits_for = ""
        self.places = event["places"]
        labels = [f"rank {rank} ({place['name']} on {place['host']})" for rank, place in enumerate(self.places)]
        self.watch.begin(labels, time.monotonic())
        self.is_shared = event["session"] == NO_SESSION
        return None if self.is_shared else str(event["session"])

    def _waiting(self, seconds: float, why: str) -> WaitingEvent:
        return events.WaitingEvent(kind="waiting", trial=None, world=self.request.world, seconds=seconds, why=why)

    def _wait_expired(self) -> str:
        why = self.waits_for or self._call("heartbeat").get(self.stream)  # a short wait ends before the first heartbeat
        within = f"within {self.request.limits.wait_s:.0f} s{f': {why}' if why else ''}"
        return (
            f"{self.request.world} ranks were not granted {within}. Accepted: another time, a longer wait, or another "
            "cluster."
        )

    def _give_back(self, spoiled: bool, idle: Sequence[str] = (), within_s: float | None = None) -> None:
        """Release the grant or request, if any; the release is sent however short the wait for its answer."""
        if self.held:
            self.held = False
            how: dict[str, Any] = {"stream": self.stream, "spoiled": spoiled, "idle": tuple(idle)}
            if within_s is None:
                within_s = _STOPPED_S if self.request.cancelled.is_set() else _GIVING_BACK_S
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # the scheduler is gone, and the grant too
                self.cluster.call("release", within_s=within_s, client=self.cluster.client.id, **how)
        self.futures.clear()

    def _hear_late(self, verdict: Blame) -> None:
        """Collect results that ranks sent before the gang broke, and that arrive after the reason: none is lost."""
        if not self.held or verdict.rank is None:
            return
        give_up_at = time.monotonic() + _LATE_S
        with contextlib.suppress(queue.Empty):
            while True:
                for event in self.arrived:
                    if not events.is_of_rank(event):  # a message of the broker, for the next reader
                        self.arrived = itertools.chain([event], self.arrived)
                        return
                    self.late += self._heard(event)
                self.arrived = iter(self.batches.get(timeout=max(0.0, give_up_at - time.monotonic())))

    def _survivors(self, verdict: Blame) -> list[str]:
        """Workers whose rank need not be replaced along with the failed one: they notice soon that it is gone."""
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
        """*verdict*; or a loss, without a trial to blame, where a rank hung and its worker does not answer."""
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
        """Check that all ranks have loaded the client's source, and the same libraries as each other.

        Raises _StaleKernels where their files have changed since they began and a restart would help; once per stream.
        """
        backend, source = self.request.backend, self.request.source_print
        loaded = {place["worker"]: place["hello"] for place in self.places}
        trouble = agreement.disagreement(self.places, loaded, backend, source)
        if trouble is None:
            return
        now = hosts.ask_workers(self.cluster.client, list(loaded), keeper.would_load)
        if still := agreement.disagreement(self.places, now, backend, source):
            raise _AttemptOver(Blame(None, "refused", None, still))
        if self.request.replaced.issuperset(loaded):  # it did not help
            raise _AttemptOver(Blame(None, "refused", None, trouble))
        self.request.replaced.update(loaded)
        raise _StaleKernels

    # orders to the ranks

    def _meeting(self, session: str) -> Generator[WaitingEvent, None, tuple[str, int, str | None] | None]:
        """Address of the session's rendezvous, a store in rank 0's process that is opened once; None for one rank."""
        if self.request.world == 1:
            return None
        if session not in self.cluster.meetings:
            guarded = len(set(self._addresses())) > 1
            self._submit(
                0, {"order": "rendezvous", "session": session, "host": self._addresses()[0], "guarded": guarded}
            )
            while (event := (yield from self._next()))["kind"] != "rendezvous":
                self.watch.heard(event, time.monotonic())
            self.cluster.meetings[session] = (event["host"], event["port"], event["secret"])
        return self.cluster.meetings[session]

    def _order(self, session: str, meeting: tuple[str, int, str | None] | None) -> None:
        trials = [trial.to_json() for trial in self.trials.values()]
        for rank in range(self.request.world):
            seat: SeatMessage = {
                "rank": rank,
                "world": self.request.world,
                "session": session,
                "shares_heap": self.request.shares_heap,
                "rendezvous": meeting,
                "addresses": self._addresses(),
                "deadline_s": self.request.limits.silence_s * PATIENCE,
                "ranks_on_gpu": self.places[rank]["hello"]["device"].get("ranks_on_gpu", 1),
            }
            order: RunOrder = {"order": "run", "seat": seat, "trials": trials}
            if gang := self._gang_to_read(rank):
                order["reads_use"] = {"incarnations": gang, "client": client_process()}
            self._submit(rank, order)

    def _gang_to_read(self, rank: int) -> list[str]:
        """The gang's incarnations on the host of *rank*, if it is the first rank there; else none.

        None of GPU ranks: others may use many cores of a large host, which changes no time on its GPUs.
        """
        if self.request.backend != "cpu":
            return []
        host = self.places[rank]["host"]
        ranks = [number for number, place in enumerate(self.places) if place["host"] == host]
        return [self.places[number]["incarnation"] for number in ranks] if ranks[0] == rank else []

    def _addresses(self) -> list[str]:
        """Addresses of the ranks: loopback if all are on one host, so that no other host can connect."""
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
        # a task reports by events: only one that could not even begin fails by itself
        error = future.exception(timeout=ANSWER_S) if future.status == "error" else None
        if error is not None and not isinstance(error, KilledWorker):  # the broker says that better
            message = f"its Dask task failed: {first_line(error)}"
            self.batches.put([events.GoneEvent(kind="gone", message=message, rank=rank)])

    # events

    def _next(self) -> Generator[WaitingEvent, None, RankEvent]:
        """Return the next event of a rank; yields for whom it waits. Raises _AttemptOver once the attempt failed."""
        while (event := self._polled()) is None or event["kind"] == "granted":
            yield from self._silence()
        return event

    def _silence(self) -> Iterator[WaitingEvent]:
        """Say every second for which granted ranks this attempt waits, and once when it waits no more."""
        now = time.monotonic()
        why = self.waits_for or self.watch.waits_for(now)
        if why and now - self.reported_at > _WAITING_BEAT_S:
            self.reported_at = now
            yield self._waiting(self.watch.waits_s(now), why)
        elif not why and self.reported_at:
            self.reported_at = 0.0
            yield self._waiting(0.0, "")

    def _polled(self) -> RankEvent | GrantedEvent | None:
        """The next event of a rank, or the broker's grant, if it comes soon."""
        self._still_wanted()
        for event in self.arrived:
            if event["kind"] == "refused":
                # not the client's fault where the request could be met if all workers were well
                stage = "launch" if event["for_now"] else "refused"
                raise _AttemptOver(Blame(None, stage, None, event["message"]))
            if event["kind"] == "ended":
                raise _AttemptOver(self._ended(event))
            return event
        try:
            self.arrived = iter(self.batches.get_nowait())
        except queue.Empty:
            # only after everything that arrived was heard: this process itself may have slept
            self._still_known()
            self._judge()
            with contextlib.suppress(queue.Empty):
                self.arrived = iter(self.batches.get(timeout=_TICK_S))
        return None

    def _judge(self) -> None:
        if verdict := self.watch.verdict(time.monotonic()):
            raise _AttemptOver(verdict)

    def _still_wanted(self) -> None:
        """Raise _AttemptOver when the user, the scheduler or the broker has ended this attempt; send heartbeats."""
        self._uncancelled()
        self._still_connected()
        now = time.monotonic()
        is_timing = self.places and self.watch.waits_s(now) < _WAITING_BEAT_S
        if now - self.beat_at > (_BEAT_S if is_timing else _WAITING_BEAT_S):
            known = self._call("heartbeat")
            self.beat_at = time.monotonic()
            if self.stream in known:
                self.unknown_since = None
            elif self.unknown_since is None:
                self.unknown_since = self.beat_at
            self.waits_for = known.get(self.stream) or ("" if self.places else self.waits_for)

    def _still_known(self) -> None:
        """Raise _AttemptOver when the broker forgot the stream; called when all that arrived was heard."""
        if self.unknown_since is not None and time.monotonic() - self.unknown_since > _LATE_REASON_S:
            self._scheduler_gone("it was restarted and does not know this request")

    def _uncancelled(self) -> None:
        if self.request.cancelled.is_set():
            raise _AttemptOver(Blame(None, "cancelled", None, "Cancelled before every rank had a result."))

    def _call(self, question: str, **facts: Any) -> Any:
        self._still_connected()
        try:
            return self.cluster.call(question, stop=self.request.cancelled, client=self.cluster.client.id, **facts)
        except (OSError, TimeoutError, RuntimeError) as error:
            self._uncancelled()
            if self.held and isinstance(error, TimeoutError):  # it may still hear the request: take that back, too
                self._give_back(spoiled=True, within_s=0.0)
            self._scheduler_gone(first_line(error) or type(error).__name__)

    def _still_connected(self) -> None:
        if self.cluster.client.status != "running":
            self._scheduler_gone("the connection is closed")

    def _scheduler_gone(self, why: str) -> NoReturn:
        self.held = False
        address = self.cluster.address
        message = f"The scheduler {address} is gone ({why}). Start it again, or ask another one."
        raise _AttemptOver(Blame(None, "lost", None, message)) from None

    def _ended(self, event: EndedEvent) -> Blame:
        self.held = False
        workers = [place["worker"] for place in self.places]
        if event["worker"] in workers:
            return self.watch.lost(workers.index(event["worker"]), event["message"])
        # this client was silent for too long: the grant is gone, and no trial is to blame
        return Blame(None, "cancelled", None, event["message"])


# The connection to one cluster.

LATE_S = 20.0
"""How late an answer of the scheduler may be, s: many ranks on few cores delay it. A closed connection shows sooner."""

HANDSHAKE_S = 60.0
"""How long ranks of a new cluster may take to load torch and report what they have, s."""
_LOOK_S = 0.1
"""Seconds between two looks at whether all ranks have reported."""
_REPORT_AFTER_S = 3.0
"""A longer wait for these ranks is reported to the user, s."""
_IDLE_ATTEMPTS = 2
"""How often a gang that was lost before it began is replaced without blaming a trial."""


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
        self._times_sent: Counter[str] = Counter()
        """How often each list that others may answer was sent: who sends it again wants another answer."""

    @classmethod
    def connect(
        cls, address: str | Path | SchedulerTarget | None = None, *, entry: EntryPoint | None = None
    ) -> Cluster:
        """Connect by scheduler address or scheduler file, by default the lab's; ValueError when nothing answers.

        The broker and the rank processes are installed unless another client did so before.
        """
        return cls.on(open_client(target_in(address)), entry=entry)

    @classmethod
    def on(cls, client: Client, *, entry: EntryPoint | None = None) -> Cluster:
        """The cluster of a Dask client that somebody else connected, such as a gateway's; errors as of `connect`.

        The client is closed with it, or where that fails.
        """
        address = client.scheduler.address if client.scheduler is not None else "of this client"
        try:
            plugin = dumps(broker.Broker(entry or EntryPoint()))
            assert client.scheduler is not None
            install = client.scheduler.register_scheduler_plugin
            client.sync(install, plugin=plugin, name=broker.NAME, idempotent=True, callback_timeout=30)
            return cls(client)
        except Exception as error:
            client.close(timeout=ANSWER_S)
            foreign = isinstance(error, ImportError | AttributeError | TypeError | UnpicklingError)
            accepted = (
                "a scheduler whose environment has the same Python, Dask and overlap-workbench as this one"
                if foreign else "the command again, once the scheduler answers"
            )  # fmt: skip
            kind = ValueError if foreign else Failed  # it was there a moment ago
            raise kind(
                f"The scheduler {address} answers, but cannot take the workbench's broker "
                f"({type(error).__name__}: {first_line(error)}). Accepted: {accepted}."
            ) from error

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
        """Run the trials on one gang; yields the ranks' events as they come, and one failure for each trial that broke.

        Ranks that have not loaded the kernels of `source_print` are restarted, once, if the files on their hosts now
        have that source; else they are refused and left running. A result records what ran it.
        A rank that sends nothing for `deadline_s` hangs, and so does a list that takes that long for each of its
        trials; `Deadlines` separate these two limits.
        The list has one grant, since interleaved trials belong together: when a trial breaks the gang, the others end
        as cancelled. Before the grant, `waiting` events say why and how long the stream waits; the last one is empty.
        Without a grant within the limit each trial fails, then Failed is raised.
        Where `Deadlines.shared` is set the answer may be another client's; results say so in their facts.
        Ranks open a bench for a world and a heap: the next stream starts faster if it has the same two.
        A caller that takes no event for long loses the gang to others.
        """
        limits = (
            deadline_s if isinstance(deadline_s, Deadlines) else Deadlines(deadline_s, deadline_s * max(1, len(trials)))
        )
        if world < 1 or min(limits.silence_s, limits.total_s) <= 0:
            raise ValueError(f"world = {world} and deadline_s = {deadline_s} must both be above 0.")
        request = StreamRequest(
            world=world,
            shares_heap=shares_heap,
            across=any(trial.across for trial in trials),
            limits=limits,
            cancelled=cancelled or threading.Event(),
            source_print=source_print,
            backend=next((trial.backend for trial in trials), "cpu"),
            shared_as=self._shared_as(trials, world, shares_heap, source_print) if limits.shared else None,
        )
        rest = {trial.key: trial for trial in trials}
        num_idle = 0
        while rest:
            forgiving = num_idle < _IDLE_ATTEMPTS
            watch = Watchdog(list(rest), request.world, request.limits, forgiving=forgiving)
            attempt = Attempt(self, request, rest, watch)
            yield from attempt.events()
            num_idle = num_idle + 1 if len(attempt.again) == len(rest) else 0
            rest = {key: rest[key] for key in attempt.again}

    def _shared_as(self, trials: Sequence[DispatchedTrial], *needs: Any) -> str:
        """Equal for all clients that ask for the same *trials* with the same needs for as many times."""
        name = list_print([trial.key for trial in trials], *needs)
        self._times_sent[name] += 1
        return f"{name}-{self._times_sent[name]}"

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
        report: Callable[[str], object] = lambda message: None,
    ) -> Ranks | None:
        """What a gang would run on, once its ranks have reported; None where no gang is possible, or not in time.

        None, too, once *cancelled* is set. *report* is called once if the wait is long. Raises Failed if the
        scheduler does not answer.
        """
        stop = cancelled or threading.Event()
        began = time.monotonic()
        is_reported = False
        while (waited_s := time.monotonic() - began) < HANDSHAKE_S:
            try:
                workers = Workers.from_description(self.call("describe", stop=stop))
            except InterruptedError:  # cancelled
                return None
            except (OSError, RuntimeError) as error:
                why = first_line(error) or type(error).__name__
                raise Failed(
                    f"The scheduler {self.address} does not say what its ranks are ({why}). Start it again, or ask "
                    "another one."
                ) from error
            gang = workers.gang(world, backend, across)
            starting = [worker.name for worker in gang if not worker.backend]
            if not starting or stop.wait(_LOOK_S):
                return workers.ranks(world, backend, across)
            if waited_s > _REPORT_AFTER_S and not is_reported:
                is_reported = True
                report(f"Waiting for ranks that are starting: {', '.join(starting)}; {HANDSHAKE_S:.0f} s at the most.")
        return None

    def wanted_by_others(self) -> bool:
        """Whether another client has ranks, or waits for some."""
        now = self.describe()
        return any(client != self.client.id for client, *_ in (*now["grants"], *now["requests"]))

    def core_use(self) -> tuple[HostUse, ...]:
        """The use of each host's cores by others than this client and its ranks, as of its workers' last heartbeats.

        On the client's own host it is looked at who they are. Empty until workers have reported twice.
        """
        seen = self.describe()
        held = {worker for client, _, workers in seen["grants"] if client != self.client.id for worker in workers}
        uses = host_uses([(each["host"], each["address"] in held, each["core_use"]) for each in seen["workers"]])
        ours = frozenset(each["incarnation"] for each in seen["workers"]
                         if each["address"] not in held and each["incarnation"])  # fmt: skip
        host, process = client_process()
        return tuple(looked_at(use, GangOnHost(ours, (host, process))) for use in uses)

    def call(
        self, question: str, *, stop: threading.Event | None = None, within_s: float = LATE_S, **facts: Any
    ) -> Any:
        """Ask the broker; TimeoutError or OSError when the scheduler is gone, InterruptedError once *stop* is set.

        The question is sent even if nobody waits for the answer any more.
        """
        if self.client.scheduler is None:  # closed while an abandoned stream is being closed
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
        """Disconnect; what this client still holds is freed at once."""
        self.client.close(timeout=ANSWER_S)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
