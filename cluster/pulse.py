"""Which workers answer: those whose heartbeats stop while this scheduler is awake are silent. Pure; the time is given.

Every Dask worker sends a heartbeat from its event loop: twice a second where there are ten of them, every five seconds
where there are 800, so that whoever is called silent missed several of them. Neither a busy rank process nor a long
task delays it. Dask itself acts on a missing one after five minutes, by a clock that may be set
(`distributed.scheduler.worker-ttl`). Here only time counts in which the scheduler itself got on (`Awake`), so that
nobody, worker or client, is called silent by a scheduler that slept, or after a computer was suspended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distributed.scheduler import heartbeat_interval

from cluster.stimulus import WorkerAnswers, WorkerSilent

AWAY_S = 10.0
"""A worker that has not answered for so long is away: its grant ends, and no other begins there."""
NO_ANSWER_S = 3.0
"""A rank whose worker has not answered for so long hangs through no fault of its trial; busy workers answer sooner."""
MISSED_BEATS = 3
"""Of so many heartbeats each of these two is at the least: in large clusters they are seconds apart."""
LONGEST_TICK_S = 2.0
"""No tick counts for more: what passed beyond it is the scheduler's own sleep."""


def away_s(num_workers: int) -> float:
    """How long a worker has not answered that is away, s."""
    return max(AWAY_S, MISSED_BEATS * heartbeat_interval(num_workers))


def no_answer_s(num_workers: int) -> float:
    """How long a worker has not answered that is not merely busy, s."""
    return max(NO_ANSWER_S, MISSED_BEATS * heartbeat_interval(num_workers))


class Awake:
    """The scheduler's waking time: it stands still while the scheduler itself does, for whatever reason."""

    def __init__(self, now: float) -> None:
        self._ticked_at, self._until_tick_s = now, 0.0

    def at(self, now: float) -> float:
        """Waking seconds until *now*, s of a steady clock; never less than at the call before."""
        return self._until_tick_s + min(now - self._ticked_at, LONGEST_TICK_S)

    def tick(self, now: float) -> float:
        """The same; the next tick begins."""
        self._until_tick_s = self.at(now)
        self._ticked_at = now
        return self._until_tick_s


class Pulse:
    """Hears the last heartbeat of every worker at each tick."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._last: dict[str, float] = {}
        """The stamp of the last heartbeat, by worker: that it changes is what counts."""
        self._silent_s: dict[str, float] = {}
        self._away: set[str] = set()
        """Those that are silent: the limit moves with the number of workers."""

    def tick(self, now: float, heartbeats: Mapping[str, float]) -> list[WorkerSilent | WorkerAnswers]:
        """Who is silent at *now*, s of waking time, each time, and who answers again.

        *heartbeats* are stamps by worker, of whatever clock.
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

    def unanswered_s(self, workers: Iterable[str]) -> dict[str, float]:
        """How long those of *workers* have not answered that are not merely busy, s."""
        limit_s = no_answer_s(len(self._silent_s))
        silent = {worker: self._silent_s.get(worker, 0.0) for worker in workers}
        return {worker: seconds for worker, seconds in silent.items() if seconds >= limit_s}
