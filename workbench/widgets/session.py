"""A run in the background of a notebook: one thread iterates it, another reads the store and tells what is new.

The kernel stays free: a button returns at once, `1 + 1` in a cell is answered while thousands of trials run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.experiment.run import Progress, StoredRun
from workbench.results import metrics
from workbench.results.running import RunningMedians
from workbench.results.store import Store

TICK_SECONDS = 0.05
"""News are told so far apart, or further where telling takes longer than a third of that."""
QUIET_SECONDS = 0.5
"""Without news the progress is told so often: its time left goes on."""
END_SECONDS = 10.0
"""A cancelled run must have given its gang back by then."""

Row = dict[str, Any]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNews:
    """What is new since the last tick."""

    run: str
    rows: Sequence[Row]
    samples: Sequence[Mapping[str, Any]]
    progress: Progress
    ended: bool
    running: Sequence[Row] = ()
    """Of each trial that is being timed, or was when the run was stopped: its running median."""
    stopped: bool = False
    """A person asked it to end."""
    error: str | None = None
    """The sentence that ended the run early."""


class RunSession:
    """At most one run at a time. *tell* is called from the session's own thread, never from two at once."""

    def __init__(self, store: Store, tell: Callable[[RunNews], Any]) -> None:
        self._store, self._tell = store, tell
        self._sitting: StoredRun | None = None
        self._threads: tuple[threading.Thread, ...] = ()
        self._something = threading.Event()
        """Something came back, or the run has ended."""
        self._ended = threading.Event()
        self._error: str | None = None

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def start(self, sitting: StoredRun) -> None:
        """Iterates *sitting* in the background; ValueError while another one runs."""
        if self._ended.is_set():
            self.wait()  # it has only its last news to tell
        if self.running:
            raise ValueError("A run is going on already: 1 of at most 1. Stop it first.")
        self._sitting, self._error = sitting, None
        self._something.clear()
        self._ended.clear()
        worker = threading.Thread(target=self._work, args=(sitting,), name="workbench run", daemon=True)
        teller = threading.Thread(target=self._listen, args=(sitting,), name="workbench news", daemon=True)
        self._threads = (worker, teller)
        worker.start()
        teller.start()

    def stop(self) -> None:
        """Asks the run to end; what was measured stays."""
        if self._sitting is not None:
            self._sitting.cancelled.set()

    def wait(self, seconds: float = END_SECONDS) -> bool:
        """Whether everything has ended, after at most *seconds*."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not self.running

    def _work(self, sitting: StoredRun) -> None:
        try:
            for _ in sitting:
                self._something.set()
        except Exception as error:  # a person reads it in the explorer; nobody reads a thread's traceback
            self._error = str(error) or type(error).__name__
        finally:
            self._ended.set()
            self._something.set()

    def _listen(self, sitting: StoredRun) -> None:
        try:
            self._follow(sitting)
        except Exception as error:  # the store is locked or cannot be read: a run that nobody sees must not go on
            sitting.cancelled.set()
            self._ended.wait(END_SECONDS)
            self._error = self._error or str(error) or type(error).__name__
            self._say(self._news(sitting, [], [], ended=True))

    def _follow(self, sitting: StoredRun) -> None:
        """Tells what is new in the store until the run has ended."""
        joins, cursors, running = metrics.Joins(), (0, 0), RunningMedians()
        ended = heard = False
        said_at = 0.0
        while not ended:
            # a sample is in the store a moment after it was heard of: look twice
            heard = self._something.wait(TICK_SECONDS if heard else QUIET_SECONDS)
            ended = self._ended.is_set()
            self._something.clear()
            began = time.monotonic()
            running.know(list(sitting.timing.values()))
            rows, first = self._store.rows_since(cursors[0], sitting.run)
            samples, second = self._store.samples_since(cursors[1], sitting.run)
            cursors = first, second
            for row in rows:
                joins.add(row)
            running.add_rows(rows)
            running.add_samples(samples)
            if rows or samples or ended or began - said_at >= QUIET_SECONDS:
                said_at = began
                news = self._news(sitting, [joins.fill(row) for row in rows], samples, ended)
                self._say(replace(news, running=running.rows(stopped=ended)))
            took = time.monotonic() - began
            self._ended.wait(max(TICK_SECONDS - took, 2 * took))

    def _news(
        self, sitting: StoredRun, rows: Sequence[Row], samples: Sequence[Mapping[str, Any]], ended: bool
    ) -> RunNews:
        return RunNews(
            run=sitting.run,
            rows=rows,
            samples=samples,
            progress=sitting.progress,
            ended=ended,
            stopped=sitting.cancelled.is_set(),
            error=self._error if ended else None,
        )

    def _say(self, news: RunNews) -> None:
        """One chart that cannot be drawn must not leave the buttons as they are while a run goes on."""
        try:
            self._tell(news)
        except Exception:
            _LOG.exception("The news of run %s could not be shown.", news.run)
