"""Progress and the table of outcomes: what is done, how fast, what is left, and why something failed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets

from kernels.units import seconds_text
from workbench.reports.outcomes import failure_table, outcome_table
from workbench.sitting import Progress
from workbench.widgets.session import News
from workbench.widgets.words import note_html

SHOWN_MOST = 60
"""Newest schedules in the table; the store keeps all of them."""
REDRAW_SECONDS = 0.5

Row = Mapping[str, Any]


class Results:
    """A progress bar with words, and a table that is redrawn twice a second at the most."""

    def __init__(self) -> None:
        self.bar = ipywidgets.FloatProgress(value=0, min=0, max=1, layout=ipywidgets.Layout(width="180px"))
        self.words = ipywidgets.HTML()
        self.progress = ipywidgets.HBox([self.bar, self.words], layout=ipywidgets.Layout(display="none"))
        self.table = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.progress.add_class("wb-progress")
        self.table.add_class("wb-outcomes")
        self._rows: deque[Row] = deque(maxlen=4 * SHOWN_MOST)
        self._drawn_at = 0.0
        self._samples = 0

    def begin(self) -> None:
        """A run begins: the old table goes."""
        self._rows.clear()
        self._samples = 0
        self.table.value = ""
        self.bar.value, self.bar.bar_style = 0.0, ""
        self.words.value = note_html("Starting: ranks meet, compile and verify before the clock starts.")
        self.progress.layout.display = None

    def add(self, news: News) -> None:
        """Takes what is new."""
        self._rows.extend(news.rows)
        self._samples += len(news.samples)
        self._show_progress(news.progress, news.ended)
        if news.ended or time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._draw()

    def show(self, run: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """A run that has ended before."""
        self._rows.extend(rows)
        self.progress.layout.display = None
        self.bar.value = 1.0
        self.words.value = note_html(f"Run {run['id']} ({run['status']}): {run['title']}")
        self._draw()

    def _show_progress(self, progress: Progress, ended: bool) -> None:
        self.bar.value = progress.done / progress.total if progress.total else float(ended)
        self.bar.bar_style = "warning" if progress.failed else "success" if ended else ""
        left = f", {seconds_text(progress.left_s)} left" if progress.left_s and not ended else ""
        failed = f", {progress.failed} failed" if progress.failed else ""
        speed = f", {progress.per_second:.1f} per second" if progress.done else ""
        state = "ended" if ended else "running"
        done = f"{progress.done} of {progress.total} schedules, {self._samples} samples"
        self.words.value = note_html(f"{done}{failed}{speed}{left}, {state}")

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        whole = [row for row in self._rows if row.get("part") == "whole"]
        newest = {row["key"] for row in whole[-2 * SHOWN_MOST :]}
        rows = [row for row in whole if row["key"] in newest]
        failed = [row for row in rows if row.get("stage")]
        tables = [outcome_table(rows)] if rows else []
        tables += [failure_table(rows)] if failed else []
        self.table.value = "".join(str(table.to_html()) for table in tables)
