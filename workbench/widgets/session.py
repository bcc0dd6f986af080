"""A run in the background of a notebook: one thread iterates it, another reads the store ten times a second and tells.

The kernel stays free: a button returns at once, `1 + 1` in a cell is answered while thousands of trials run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench import metrics
from workbench.sitting import Progress, Sitting
from workbench.store import Store

TICK_SECONDS = 0.1
END_SECONDS = 10.0
"""A cancelled run must have given its gang back by then."""

Row = dict[str, Any]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What is new since the last tick."""

    run: str
    rows: Sequence[Row]
    samples: Sequence[Mapping[str, Any]]
    progress: Progress
    ended: bool
    error: str | None = None
    """The sentence that ended the run early."""


class Session:
    """At most one run at a time. *tell* is called from the session's own thread, never from two at once."""

    def __init__(self, store: Store, tell: Callable[[News], Any]) -> None:
        self._store, self._tell = store, tell
        self._sitting: Sitting | None = None
        self._threads: tuple[threading.Thread, ...] = ()
        self._error: str | None = None

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def start(self, sitting: Sitting) -> None:
        """Iterates *sitting* in the background; ValueError while another one runs."""
        if self.running:
            raise ValueError("A run was asked for while another is going on: 1 of at most 1. Stop it first.")
        self._sitting, self._error = sitting, None
        worker = threading.Thread(target=self._work, args=(sitting,), name="workbench run", daemon=True)
        teller = threading.Thread(target=self._listen, args=(sitting, worker), name="workbench news", daemon=True)
        self._threads = (worker, teller)
        worker.start()
        teller.start()

    def stop(self) -> None:
        """Asks the run to end; what was measured stays."""
        if self._sitting is not None:
            self._sitting.cancelled.set()

    def wait(self, seconds: float = END_SECONDS) -> bool:
        """Whether everything has ended, after at most *seconds*."""
        for thread in self._threads:
            thread.join(seconds)
        return not self.running

    def _work(self, sitting: Sitting) -> None:
        try:
            for _ in sitting:
                pass
        except Exception as error:  # a person reads it in the explorer; nobody reads a thread's traceback
            self._error = str(error) or type(error).__name__

    def _say(self, news: News) -> None:
        """One chart that cannot be drawn must not leave the buttons as they are while a run goes on."""
        try:
            self._tell(news)
        except Exception:
            _LOG.exception("The news of run %s could not be shown.", news.run)

    def _listen(self, sitting: Sitting, worker: threading.Thread) -> None:
        joins, row_cursor, sample_cursor = metrics.Joins(), 0, 0
        while True:
            worker.join(TICK_SECONDS)
            ended = not worker.is_alive()
            rows, row_cursor = self._store.rows_since(row_cursor, sitting.run)
            samples, sample_cursor = self._store.samples_since(sample_cursor, sitting.run)
            for row in rows:
                joins.add(row)
            if rows or samples or ended:
                self._say(
                    News(
                        run=sitting.run,
                        rows=[joins.fill(row) for row in rows],
                        samples=samples,
                        progress=sitting.progress,
                        ended=ended,
                        error=self._error if ended else None,
                    )
                )
            if ended:
                return
