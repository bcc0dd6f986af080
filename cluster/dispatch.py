"""Trials go to a gang of ranks, their events come back: ask, order, listen, give the gang back whatever happens."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from distributed import Client, Future, KilledWorker
from distributed.protocol.pickle import dumps

from cluster import agreement, broker, keeper, probe
from cluster.ask import Ask, Trial
from cluster.connection import ANSWER_S, first_line, open_client
from cluster.deadline import PATIENCE, Limits, Verdict, Watch
from cluster.door import LOOPBACK
from cluster.feed import Event, Feed
from cluster.rank import Entry
from cluster.scheduler_file import Target, target_in
from cluster.seating import Ranks, Workers
from kernels.failed import Failed

LATE_S = 20.0
"""One that answered before may be late: many ranks on few cores keep it waiting. A closed connection tells sooner."""
_BEAT_S = 5.0
_TICK_S = 0.05
HELLO_S = 60.0
"""Ranks of a cluster that has just begun load torch, and then say what they have."""
_LOOK_S = 0.1
_PARTING_S = 5.0
"""Ranks that waited for one whose process was ended notice it within this time, or are ended, too."""
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
    def connect(cls, address: str | Path | Target | None = None, *, entry: Entry | None = None) -> Cluster:
        """Connect by scheduler address or scheduler file, by default the lab's; ValueError when nobody answers.

        The broker and the rank processes are installed unless another client did so before.
        """
        target = target_in(address)
        client = open_client(target)
        try:
            plugin = dumps(broker.Broker(entry or Entry()))
            assert client.scheduler is not None
            install = client.scheduler.register_scheduler_plugin
            client.sync(install, plugin=plugin, name=broker.NAME, idempotent=True, callback_timeout=30)
            return cls(client)
        except Exception as error:
            client.close(timeout=ANSWER_S)
            kind = Failed if isinstance(error, OSError) else ValueError  # it was there a moment ago
            raise kind(
                f"The scheduler {target.address} answers, but cannot take the workbench's broker "
                f"({type(error).__name__}: {first_line(error)}). Accepted: a scheduler whose environment has the same "
                "Python, Dask and overlap-workbench as this one."
            ) from error

    def stream(
        self,
        trials: Sequence[Trial],
        *,
        world: int,
        shares_heap: bool,
        deadline_s: float | Limits,
        cancelled: threading.Event | None = None,
        source_print: str | None = None,
    ) -> Iterator[Event]:
        """Run the trials on one gang; the ranks' events as they come, and one failure for each trial that broke.

        Ranks that have not loaded the kernels of `source_print` are started anew, once, if the files on their hosts are
        of that source by now; else they are refused as they are. A result says what ran it.
        A rank that says nothing for `deadline_s` hangs, and so does a list that takes that long for each of its trials;
        Limits tell these two apart.
        One grant for the list. When a trial breaks the gang, the trials that had not begun get another gang.
        Benches are opened for a world and a heap: the next stream is warm when these two are the same.
        A caller that takes no event for a minute loses the gang to others.
        """
        limits = deadline_s if isinstance(deadline_s, Limits) else Limits(deadline_s, deadline_s * max(1, len(trials)))
        if world < 1 or min(limits.silence_s, limits.total_s) <= 0:
            raise ValueError(f"world = {world} and deadline_s = {deadline_s} must both be above 0.")
        ask = Ask(
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
            watch = Watch(list(rest), ask.world, ask.limits, forgiving=forgiving)
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
        self, world: int, backend: str, cancelled: threading.Event | None = None, across: bool = False
    ) -> Ranks | None:
        """What a gang would run on, as soon as its ranks said hello; None where none can be seated, or not in time."""
        stop = cancelled or threading.Event()
        give_up_at = time.monotonic() + HELLO_S
        while time.monotonic() < give_up_at:
            workers = Workers.described(self.describe())
            gang = workers.gang(world, backend, across)
            is_silent = any(not worker.backend for worker in gang)
            if not is_silent or stop.wait(_LOOK_S):
                return workers.ranks(world, backend, across)
        return None

    def wanted_by_others(self) -> bool:
        """Whether another client has ranks, or waits for some."""
        seen = self.describe()
        return any(client != self.client.id for client, *_ in (*seen["grants"], *seen["requests"]))

    def call(self, question: str, **facts: Any) -> Any:
        """Ask the broker; TimeoutError or OSError when the scheduler is gone."""
        if self.client.scheduler is None:  # closed, while a stream that nobody reads any more is put away
            raise OSError("the connection is closed")
        operation = getattr(self.client.scheduler, f"workbench_{question}")
        return self.client.sync(operation, callback_timeout=LATE_S, **facts)

    def close(self) -> None:
        """Disconnect; what this client still holds goes back at once."""
        self.client.close(timeout=ANSWER_S)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Broken(Exception):
    """The attempt is over."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


class _Stale(Exception):
    """The rank processes have other kernels or libraries than their hosts have by now."""


class Attempt:
    """One grant: waiting for it, the orders to its ranks, their events, and giving it back."""

    def __init__(self, cluster: Cluster, ask: Ask, trials: dict[str, Trial], watch: Watch) -> None:
        self.cluster, self.ask, self.trials, self.watch = cluster, ask, trials, watch
        self.again: list[str] = []
        """Trials that deserve another attempt."""
        self.stream = cluster.next_stream()
        self.batches = cluster.feed.open(self.stream)
        self.arrived: Iterator[Event] = iter(())
        self.places: list[dict[str, Any]] = []
        self.futures: list[Future[None]] = []
        self.beat_at = time.monotonic()
        self.held = False
        """Whether there may be something to give back."""

    def events(self) -> Iterator[Event]:
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
            self._give_back(spoiled=bool(self.futures), idle=self._survivors(broken.verdict))
            self.again = self.watch.again(broken.verdict)
            yield from self.watch.failures(broken.verdict)
        finally:
            self._give_back(spoiled=not clean)
            self.cluster.feed.close(self.stream)

    def _through(self) -> Iterator[Event]:
        session = self._granted()
        self._same_kernels()
        ran = agreement.ran(self.places, self.ask.backend)
        self._order(session, self._meeting(session))
        while not self.watch.done:
            event = self._next()
            if self.watch.heard(event, time.monotonic()):
                yield event | (ran if event["kind"] == "result" else {})
        self._judge()

    # the gang: asked for, checked, given back

    def _granted(self) -> str:
        self.held = True
        ask = self.ask
        how = {"world": ask.world, "shares_heap": ask.shares_heap, "across": ask.across, "backend": ask.backend}
        self._call("request", stream=self.stream, **how)
        event = self._next()
        self.places = event["places"]
        labels = [f"rank {rank} ({place['name']} on {place['host']})" for rank, place in enumerate(self.places)]
        self.watch.begin(labels, time.monotonic())
        return str(event["session"])

    def _give_back(self, spoiled: bool, idle: Sequence[str] = ()) -> None:
        if self.held:
            self.held = False
            how = {"stream": self.stream, "spoiled": spoiled, "idle": tuple(idle)}
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # the scheduler is gone, and the grant too
                self.cluster.call("release", client=self.cluster.client.id, **how)
        self.futures.clear()

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
                    self.watch.heard(event, time.monotonic())
                self.arrived = iter(self.batches.get(timeout=max(0.0, give_up_at - time.monotonic())))
        gone = {verdict.rank, *self.watch.unsure(verdict)}
        return [place["worker"] for rank, place in enumerate(self.places) if rank not in gone]

    def _same_kernels(self) -> None:
        """All ranks have loaded the client's source, and the same libraries as each other.

        Where files have changed since their processes began, these are started anew, once; but not where that would
        not help.
        """
        backend, own = self.ask.backend, self.ask.source_print
        loaded = {place["worker"]: place["hello"] for place in self.places}
        trouble = agreement.trouble(self.places, loaded, backend, own)
        if trouble is None:
            return
        now = probe.ask(self.cluster.client, list(loaded), keeper.would_load)
        if still := agreement.trouble(self.places, now, backend, own):
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
            where = {"host": self._addresses()[0], "guarded": len(set(self._addresses())) > 1}
            self._submit(0, {"order": "rendezvous", "session": session, **where})
            while (event := self._next())["kind"] != "rendezvous":
                self.watch.heard(event, time.monotonic())
            self.cluster.meetings[session] = (event["host"], event["port"], event["secret"])
        return self.cluster.meetings[session]

    def _order(self, session: str, meeting: tuple[str, int, str | None] | None) -> None:
        trials = [trial.to_json() for trial in self.trials.values()]
        for rank in range(self.ask.world):
            seat = {
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

    def _submit(self, rank: int, order: dict[str, Any]) -> None:
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
            self.batches.put([{"kind": "gone", "rank": rank, "message": message}])

    # listening

    def _next(self) -> Event:
        """The next event of a rank, or the broker's grant; raises _Broken at the end of hope."""
        while True:
            self._still_wanted()
            for event in self.arrived:
                if event["kind"] == "refused":
                    raise _Broken(Verdict(None, "refused", None, event["message"]))
                if event["kind"] == "ended":
                    raise _Broken(self._ended(event))
                return event
            try:
                self.arrived = iter(self.batches.get_nowait())
            except queue.Empty:
                # judged only when all that arrived was heard: this process itself may have slept
                self._judge()
                with contextlib.suppress(queue.Empty):
                    self.arrived = iter(self.batches.get(timeout=_TICK_S))

    def _judge(self) -> None:
        if verdict := self.watch.verdict(time.monotonic()):
            raise _Broken(verdict)

    def _still_wanted(self) -> None:
        """Raises _Broken when the user, the scheduler or the broker has let go of this attempt."""
        if self.ask.cancelled.is_set():
            raise _Broken(Verdict(None, "cancelled", None, "Cancelled before every rank had a result."))
        self._still_connected()
        if time.monotonic() - self.beat_at > _BEAT_S:
            self.beat_at = time.monotonic()
            if self.stream not in self._call("heartbeat") and self.batches.empty():
                self._scheduler_gone("it started anew and does not know this request")

    def _call(self, question: str, **facts: Any) -> Any:
        self._still_connected()
        try:
            return self.cluster.call(question, client=self.cluster.client.id, **facts)
        except (OSError, TimeoutError, RuntimeError) as error:
            self._scheduler_gone(first_line(error) or f"no answer within {LATE_S:.0f} s")

    def _still_connected(self) -> None:
        if self.cluster.client.status != "running":
            self._scheduler_gone("the connection is closed")

    def _scheduler_gone(self, why: str) -> NoReturn:
        self.held = False
        address = self.cluster.address
        sentence = f"The scheduler {address} is gone ({why}). Start it again, or ask another one."
        raise _Broken(Verdict(None, "lost", None, sentence)) from None

    def _ended(self, event: Event) -> Verdict:
        self.held = False
        workers = [place["worker"] for place in self.places]
        if event["worker"] in workers:
            return self.watch.lost(workers.index(event["worker"]), event["message"])
        return Verdict(None, "lost", None, event["message"])
