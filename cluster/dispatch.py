"""Trials go to a gang of ranks, their events come back: ask, order, listen, give the gang back whatever happens."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, cast

from distributed import Client
from distributed.protocol.pickle import dumps

from cluster import agreement, broker
from cluster.ask import Ask, Trial
from cluster.attempt import Attempt
from cluster.connection import ANSWER_S, first_line, open_client
from cluster.deadline import Limits, Watch
from cluster.feed import Feed
from cluster.rank import Entry
from cluster.scheduler_file import Target, target_in
from cluster.seating import Ranks, Workers
from kernels.events import ToldEvent
from kernels.failed import Failed

LATE_S = 20.0
"""One that answered before may be late: many ranks on few cores keep it waiting. A closed connection tells sooner."""
_TICK_S = 0.05
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
        trials: Sequence[Trial],
        *,
        world: int,
        shares_heap: bool,
        deadline_s: float | Limits,
        cancelled: threading.Event | None = None,
        source_print: str | None = None,
    ) -> Iterator[ToldEvent]:
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
