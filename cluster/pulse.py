"""Which workers answer: those whose heartbeats stop while this scheduler is awake are silent. Pure; the time is given.

Every Dask worker sends a heartbeat from its event loop: twice a second where there are ten of them, every five seconds
where there are 800. Neither a busy rank process nor a long task delays it. Dask itself acts on a missing one after five
minutes, by a clock that may be set (`distributed.scheduler.worker-ttl`). Here only time counts in which the scheduler
itself got on (`Awake`), so that nobody, worker or client, is called silent by a scheduler that slept, or after a
computer was suspended.
"""

from __future__ import annotations

from collections.abc import Mapping

from cluster.stimulus import WorkerAnswers, WorkerSilent

AWAY_S = 10.0
"""A worker that has not answered for so long is away: its grant ends, and no other begins there."""
LONGEST_TICK_S = 2.0
"""No tick counts for more: what passed beyond it is the scheduler's own sleep."""


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

    def tick(self, now: float, heartbeats: Mapping[str, float]) -> list[WorkerSilent | WorkerAnswers]:
        """Who is silent at *now*, s of waking time, each time, and who answers again.

        *heartbeats* are stamps by worker, of whatever clock.
        """
        passed_s = 0.0 if self._at is None else now - self._at
        self._at = now
        events: list[WorkerSilent | WorkerAnswers] = []
        for worker, stamp in heartbeats.items():
            before_s = self._silent_s.get(worker, 0.0)
            silent_s = before_s + passed_s if self._last.get(worker) == stamp else 0.0
            self._silent_s[worker] = silent_s
            if silent_s >= AWAY_S:
                events.append(WorkerSilent(now, worker, silent_s))
            elif before_s >= AWAY_S:
                events.append(WorkerAnswers(now, worker))
        self._last = dict(heartbeats)
        self._silent_s = {worker: self._silent_s[worker] for worker in heartbeats}
        return events

    def silent_s(self, worker: str) -> float:
        """How long *worker* has not answered, however short that is."""
        return self._silent_s.get(worker, 0.0)
