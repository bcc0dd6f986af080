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

from cluster import broker, keeper
from cluster.ask import Ask, Trial
from cluster.deadline import PATIENCE, Limits, Verdict, Watch
from cluster.feed import Event, Feed
from cluster.greeting import stranger_at
from cluster.rank import Entry
from cluster.scheduler_file import address_in

ANSWER_S = 5.0
"""The scheduler answers a question within this time or counts as gone."""
_BEAT_S = 5.0
_TICK_S = 0.05
_PARTING_S = 5.0
"""Ranks that waited for one whose process was ended notice it within this time, or are ended, too."""
_IDLE_ATTEMPTS = 2
"""So often a gang that was lost before it began is replaced without blaming a trial."""


def open_client(address: str | Path | None = None) -> Client:
    """A plain Dask client, by scheduler address or scheduler file, by default the lab's; ValueError if none answers."""
    target = address_in(address)
    trouble = stranger_at(target, ANSWER_S)
    if trouble is None:
        try:
            return Client(target, timeout=ANSWER_S, set_as_default=False, name="workbench")
        except Exception as error:  # it was there a moment ago
            trouble = f"it did not take a client ({_first_line(error) or type(error).__name__})"
    raise ValueError(
        f"The scheduler {target} was asked for, but {trouble}. Accepted: the address of a running Dask scheduler, "
        "such as tcp://127.0.0.1:8786, or its scheduler file; `workbench lab` starts one."
    )


class Cluster:
    """A connection to one Dask cluster; several threads may stream at once."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.feed = Feed(client)
        assert client.scheduler is not None
        self.address = str(client.scheduler.address)
        self.meetings: dict[str, tuple[str, int]] = {}
        """Host and port of the rendezvous, by session."""
        self._numbers = itertools.count()

    @classmethod
    def connect(cls, address: str | Path | None = None, *, entry: Entry | None = None) -> Cluster:
        """Connect by scheduler address or scheduler file, by default the lab's; ValueError when nobody answers.

        The broker and the rank processes are installed unless another client did so before.
        """
        target = address_in(address)
        client = open_client(target)
        try:
            plugin = dumps(broker.Broker(entry or Entry()))
            assert client.scheduler is not None
            install = client.scheduler.register_scheduler_plugin
            client.sync(install, plugin=plugin, name=broker.NAME, idempotent=True, callback_timeout=30)
            return cls(client)
        except Exception as error:
            client.close(timeout=ANSWER_S)
            raise ValueError(
                f"The scheduler {target} was asked for, and answers, but cannot take the workbench's broker "
                f"({type(error).__name__}: {_first_line(error)}). Accepted: a scheduler whose environment has the same "
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
        fingerprint: str | None = None,
    ) -> Iterator[Event]:
        """Run the trials on one gang; the ranks' events as they come, and one failure for each trial that broke.

        Ranks whose kernels are not those of `fingerprint` are started anew, once; a result says whose kernels it is of.
        A rank that says nothing for `deadline_s` hangs, and so does a list that takes that long for each of its trials;
        Limits tell these two apart.
        One grant for the list. When a trial breaks the gang, the trials that had not begun get another gang.
        Benches are opened for a world and a heap: the next stream is warm when these two are the same.
        A caller that takes no event for a minute loses the gang to others.
        """
        limits = deadline_s if isinstance(deadline_s, Limits) else Limits(deadline_s, deadline_s * max(1, len(trials)))
        if world < 1 or min(limits.silence_s, limits.total_s) <= 0:
            raise ValueError(f"world = {world}, deadline_s = {deadline_s} were asked for; both must be above zero.")
        ask = Ask(
            world=world,
            shares_heap=shares_heap,
            limits=limits,
            cancelled=cancelled or threading.Event(),
            fingerprint=fingerprint,
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

    def call(self, question: str, **facts: Any) -> Any:
        """Ask the broker; TimeoutError or OSError when the scheduler is gone."""
        if self.client.scheduler is None:  # closed, while a stream that nobody reads any more is put away
            raise OSError("the connection is closed")
        operation = getattr(self.client.scheduler, f"workbench_{question}")
        return self.client.sync(operation, callback_timeout=ANSWER_S, **facts)

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
    """The rank processes have other kernels, perhaps only because their source changed since they were started."""


class Attempt:
    """One grant: waiting for it, the orders to its ranks, their events, and giving it back."""

    def __init__(self, cluster: Cluster, ask: Ask, trials: dict[str, Trial], watch: Watch) -> None:
        self.cluster, self.ask, self.trials, self.watch = cluster, ask, trials, watch
        self.again: list[str] = []
        """Trials that deserve another attempt."""
        self.stream = cluster.next_stream()
        self.batches = cluster.feed.open(self.stream)
        self.arrived: Iterator[Event] = iter(())
        self.places: list[dict[str, str]] = []
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
            self._give_back(spoiled=True, idle=self._survivors(broken.verdict))
            self.again = self.watch.again(broken.verdict)
            yield from self.watch.failures(broken.verdict)
        finally:
            self._give_back(spoiled=not clean)
            self.cluster.feed.close(self.stream)

    def _through(self) -> Iterator[Event]:
        session = self._granted()
        self._same_kernels()
        self._order(session, self._meeting(session))
        while not self.watch.done:
            event = self._next()
            if self.watch.heard(event, time.monotonic()):
                ran = {"fingerprint": self.places[event["rank"]]["fingerprint"]} if event["kind"] == "result" else {}
                yield event | ran
        self._judge()

    # the gang: asked for, checked, given back

    def _granted(self) -> str:
        self.held = True
        ask = self.ask
        how = {"world": ask.world, "shares_heap": ask.shares_heap, "backend": ask.backend}
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
        """All ranks have the kernels that the client asked with. Processes that had not are started anew, once."""
        mine = self.ask.fingerprint
        prints = {place["fingerprint"] for place in self.places}
        if len(prints) == 1 and mine in (None, *prints):
            return
        others = {place["worker"] for place in self.places if place["fingerprint"] != mine}
        if not others <= self.ask.replaced:
            self.ask.replaced.update(place["worker"] for place in self.places)
            raise _Stale
        raise _Broken(Verdict(None, "refused", None, _other_kernels(mine, self.places)))

    # orders to the ranks

    def _meeting(self, session: str) -> tuple[str, int] | None:
        """Where the ranks of the session meet for a process group: a store in rank 0's process, opened once."""
        if self.ask.world == 1:
            return None
        if session not in self.cluster.meetings:
            self._submit(0, {"order": "rendezvous", "session": session, "host": self.places[0]["host"]})
            while (event := self._next())["kind"] != "rendezvous":
                self.watch.heard(event, time.monotonic())
            self.cluster.meetings[session] = (event["host"], event["port"])
        return self.cluster.meetings[session]

    def _order(self, session: str, meeting: tuple[str, int] | None) -> None:
        trials = [trial.to_json() for trial in self.trials.values()]
        for rank in range(self.ask.world):
            seat = {
                "rank": rank,
                "world": self.ask.world,
                "session": session,
                "shares_heap": self.ask.shares_heap,
                "rendezvous": meeting,
                "addresses": [place["host"] for place in self.places],
                "deadline_s": self.ask.limits.silence_s * PATIENCE,
            }
            self._submit(rank, {"order": "run", "seat": seat, "trials": trials})

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
            message = f"its Dask task failed: {_first_line(error)}"
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
                self._scheduler_gone("it was started anew and knows nothing of this request")

    def _call(self, question: str, **facts: Any) -> Any:
        self._still_connected()
        try:
            return self.cluster.call(question, client=self.cluster.client.id, **facts)
        except (OSError, TimeoutError, RuntimeError) as error:
            self._scheduler_gone(_first_line(error) or f"no answer within {ANSWER_S:.0f} s")

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


def _other_kernels(mine: str | None, places: list[dict[str, str]]) -> str:
    others = [place for place in places if place["fingerprint"] != mine]
    what = ", ".join(f"{place['name']} on {place['host']} has {place['fingerprint']}" for place in others)
    if mine is None:
        return (
            f"The ranks of this gang have different kernels: {what}, after their processes were started anew. A time "
            "only counts when all ranks run the same source, torch and triton: install one version on these hosts and "
            "ask again."
        )
    return (
        f"Kernels {mine} were asked for, those of this process, but {what}, after its rank process was started anew. "
        "A time only counts for the kernels that ran it. Accepted: the same source, torch and triton on both sides: "
        "start this process again (a notebook: its kernel) if the source has changed since it began, or install this "
        "version on that host, and ask again."
    )


def _first_line(error: BaseException | None) -> str:
    return str(error).partition("\n")[0]
