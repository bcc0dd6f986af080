"""A run in the background of a notebook: one thread iterates it, another reads the store and reports what is new.

The kernel stays free: a button returns at once, and other cells can be run meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from workbench.experiment.run import Progress, StoredRun
from workbench.results import metrics
from workbench.results.running import RunningMedians
from workbench.results.store import Store

TICK_SECONDS = 0.05
"""Least time between reports, or twice the time that a report takes if that is longer."""
QUIET_SECONDS = 0.5
"""Time between reports of progress if there is no other news, to update the remaining time."""
END_SECONDS = 10.0
"""The longest time in which a cancelled run releases its ranks."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNews:
    """What is new in a run since the last report."""

    run: str
    rows: Sequence[dict[str, Any]]
    samples: Sequence[Mapping[str, Any]]
    progress: Progress
    ended: bool
    running: Sequence[dict[str, Any]] = ()
    """The running median of each trial that is being timed, or was when the run was stopped."""
    stopped: bool = False
    """Whether a person stopped the run."""
    error: str | None = None
    """The error message that ended the run early."""
    budget_s: float | None = None
    """The seconds after which the run was stopped; None where that did not happen."""


class RunSession:
    """At most one run at a time. *report* is called from the session's own thread, never from two at once."""

    def __init__(self, store: Store, report: Callable[[RunNews], Any]) -> None:
        self._store, self._report = store, report
        self._stored_run: StoredRun | None = None
        self._threads: tuple[threading.Thread, ...] = ()
        self._changed = threading.Event()
        """Set when an outcome or sample came, or the run has ended."""
        self._ended = threading.Event()
        self._error: str | None = None
        self._budget_s: float | None = None
        self._is_spent = False

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def start(self, stored_run: StoredRun, budget_s: float | None = None) -> None:
        """Iterates *stored_run* in the background; ValueError while another run goes on.

        It is stopped after *budget_s* seconds. The wait for ranks and compilation count.
        """
        if self._ended.is_set():
            self.wait()  # only its last report is still to come
        if self.running:
            raise ValueError("A run is going on already: 1 of at most 1. Stop it first.")
        self._stored_run, self._error = stored_run, None
        self._budget_s, self._is_spent = budget_s, False
        self._changed.clear()
        self._ended.clear()
        worker = threading.Thread(target=self._work, args=(stored_run,), name="workbench run", daemon=True)
        reporter = threading.Thread(target=self._listen, args=(stored_run,), name="workbench news", daemon=True)
        self._threads = (worker, reporter)
        worker.start()
        reporter.start()

    def stop(self) -> None:
        """Cancels the run; its measurements stay."""
        if self._stored_run is not None:
            self._stored_run.cancelled.set()

    def wait(self, seconds: float = END_SECONDS) -> bool:
        """Waits at most *seconds* for the threads, and returns whether they have ended."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not self.running

    def _work(self, stored_run: StoredRun) -> None:
        try:
            for _ in stored_run:
                self._changed.set()
        except Exception as error:  # shown in the explorer, since a thread's traceback would not be seen
            self._error = str(error) or type(error).__name__
        finally:
            self._ended.set()
            self._changed.set()

    def _listen(self, stored_run: StoredRun) -> None:
        try:
            self._follow(stored_run)
        except Exception as error:  # the store is locked or cannot be read: a run that cannot be shown must not go on
            stored_run.cancelled.set()
            self._ended.wait(END_SECONDS)
            self._error = self._error or str(error) or type(error).__name__
            self._deliver(self._news(stored_run, [], [], ended=True))

    def _follow(self, stored_run: StoredRun) -> None:
        """Reports what is new in the store until the run has ended."""
        joins, cursors, running = metrics.Joins(), (0, 0), RunningMedians()
        ended = changed = False
        reported_at, until = 0.0, time.monotonic() + (inf if self._budget_s is None else self._budget_s)
        while not ended:
            # a sample may reach the store a moment after its signal: look twice
            changed = self._changed.wait(TICK_SECONDS if changed else QUIET_SECONDS)
            ended = self._ended.is_set()
            self._changed.clear()
            began = time.monotonic()
            if began >= until and not ended and not stored_run.cancelled.is_set():
                self._is_spent = True
                stored_run.cancelled.set()
            running.know(list(stored_run.timing.values()))
            rows, first = self._store.rows_since(cursors[0], stored_run.run)
            samples, second = self._store.samples_since(cursors[1], stored_run.run)
            cursors = first, second
            for row in rows:
                joins.add(row)
            running.add_rows(rows)
            running.add_samples(samples)
            if rows or samples or ended or began - reported_at >= QUIET_SECONDS:
                reported_at = began
                news = self._news(stored_run, [joins.fill(row) for row in rows], samples, ended)
                self._deliver(replace(news, running=running.rows(stopped=ended)))
            took = time.monotonic() - began
            self._ended.wait(max(TICK_SECONDS - took, 2 * took))

    def _news(
        self, stored_run: StoredRun, rows: Sequence[dict[str, Any]], samples: Sequence[Mapping[str, Any]], ended: bool
    ) -> RunNews:
        return RunNews(
            run=stored_run.run,
            rows=rows,
            samples=samples,
            progress=stored_run.progress,
            ended=ended,
            stopped=stored_run.cancelled.is_set(),
            error=self._error if ended else None,
            budget_s=self._budget_s if self._is_spent else None,
        )

    def _deliver(self, news: RunNews) -> None:
        """Calls `report`, and logs its errors: a chart that cannot be drawn must not end the reports."""
        try:
            self._report(news)
        except Exception:
            _LOG.exception("The news of run %s could not be shown.", news.run)
