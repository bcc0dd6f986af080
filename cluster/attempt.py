"""One grant: waited for, its ranks ordered and listened to, given back whatever happens."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import Any, NoReturn, Protocol

from distributed import Client, Future, KilledWorker

from cluster import agreement, keeper, probe
from cluster.ask import Ask, Trial
from cluster.connection import ANSWER_S, first_line
from cluster.deadline import PATIENCE, Verdict, Watch
from cluster.door import LOOPBACK
from cluster.feed import Feed
from cluster.orders import Order, SeatWords
from kernels import events
from kernels.events import EndedEvent, GrantedEvent, Ran, RankEvent, StreamEvent, ToldEvent, TrialEvent, WaitingEvent
from kernels.failed import Failed

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
    """What is asked of a `cluster.dispatch.Cluster`."""

    client: Client
    feed: Feed
    address: str
    meetings: dict[str, tuple[str, int, str | None]]
    """Host, port and secret of the rendezvous, by session."""

    def next_stream(self) -> str:
        """A name for one attempt, unique for this client."""

    def call(self, question: str, *, stop: threading.Event | None = None, within_s: float = ..., **facts: Any) -> Any:
        """Ask the broker."""


class _Broken(Exception):
    """The attempt is over."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


class _WaitedOut(_Broken):
    """No ranks were granted in time."""


class _Stale(Exception):
    """The rank processes have other kernels or libraries than their hosts have by now."""


class Attempt:
    """One grant: waiting for it, the orders to its ranks, their events, and giving it back."""

    def __init__(self, cluster: Connection, ask: Ask, trials: dict[str, Trial], watch: Watch) -> None:
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

    def events(self) -> Iterator[ToldEvent]:
        """The ranks' events for the caller, then the failures of what broke."""
        clean = False
        try:
            yield from self._through()
            clean = True
        except _Stale:
            self._give_back(spoiled=True)
            self.again = list(self.trials)
        except _Broken as broken:
            # ranks without an order are idle: what was refused before leaves them as they are
            verdict = self._excused(broken.verdict)
            self._hear_late(verdict)
            self._give_back(spoiled=bool(self.futures), idle=self._survivors(verdict))
            yield from self.late
            self.again = self.watch.again(verdict)
            yield from self.watch.failures(verdict)
            if isinstance(broken, _WaitedOut):
                raise Failed(broken.verdict.sentence) from None
        finally:
            self._give_back(spoiled=not clean)
            self.cluster.feed.close(self.stream)

    def _through(self) -> Iterator[ToldEvent]:
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
    def _ran(self) -> Ran:
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
                raise _WaitedOut(Verdict(None, "lost", None, self._waited_out()))
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
        return events.waiting(self.ask.world, seconds, why)

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

    def _hear_late(self, verdict: Verdict) -> None:
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

    def _survivors(self, verdict: Verdict) -> list[str]:
        """Workers whose rank need not be replaced with the guilty one; they notice soon that it is gone."""
        if not self.held or verdict.rank is None or not self.watch.ranks[verdict.rank].sticky:
            return []
        with contextlib.suppress(_Broken, queue.Empty):
            self._call("doom", stream=self.stream, worker=self.places[verdict.rank]["worker"])
            give_up_at = time.monotonic() + _PARTING_S
            while self.watch.unsure(verdict):
                for event in self.arrived:
                    if event["kind"] == "ended":  # another worker left
                        raise _Broken(self._ended(event))
                    if events.is_of_rank(event):
                        self.late += self._heard(event)
                self.arrived = iter(self.batches.get(timeout=max(0.0, give_up_at - time.monotonic())))
        gone = {verdict.rank, *self.watch.unsure(verdict)}
        return [place["worker"] for rank, place in enumerate(self.places) if rank not in gone]

    def _excused(self, verdict: Verdict) -> Verdict:
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
            raise _Broken(Verdict(None, "refused", None, still))
        if self.ask.replaced.issuperset(loaded):  # it did not help
            raise _Broken(Verdict(None, "refused", None, trouble))
        self.ask.replaced.update(loaded)
        raise _Stale

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
            self.batches.put([events.gone(message, rank)])

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
                raise _Broken(Verdict(None, stage, None, event["message"]))
            if event["kind"] == "ended":
                raise _Broken(self._ended(event))
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
            raise _Broken(verdict)

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
            raise _Broken(Verdict(None, "cancelled", None, "Cancelled before every rank had a result."))

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
        raise _Broken(Verdict(None, "lost", None, sentence)) from None

    def _ended(self, event: EndedEvent) -> Verdict:
        self.held = False
        workers = [place["worker"] for place in self.places]
        if event["worker"] in workers:
            return self.watch.lost(workers.index(event["worker"]), event["message"])
        # this client was silent for too long: the grant is gone, and nobody's trial is to blame
        return Verdict(None, "cancelled", None, event["message"])
