"""Progress and the table of outcomes: what is done, how fast, what is left, and why something failed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ipywidgets

from workbench.reports.outcomes import failure_table, outcome_table
from workbench.sitting import Progress
from workbench.widgets.controls import HIDDEN, SHOWN
from workbench.widgets.planned import about
from workbench.widgets.session import News
from workbench.widgets.words import note_html

SHOWN_MOST = 60
"""Newest schedules in the table; the store keeps all of them."""
REDRAW_SECONDS = 1.0
"""A table is made anew at most so often: nobody reads faster, and the page has to lay it out each time."""

Row = Mapping[str, Any]


class Results:
    """A progress bar with words, and a table that is redrawn once a second at the most."""

    def __init__(self) -> None:
        self.bar = ipywidgets.FloatProgress(value=0, min=0, max=1, layout=ipywidgets.Layout(width="100%"))
        self.words = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.progress = ipywidgets.VBox([self.bar, self.words], layout=ipywidgets.Layout(display=HIDDEN))
        self.table = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.progress.add_class("wb-progress")
        self.table.add_class("wb-outcomes")
        self._rows: deque[Row] = deque(maxlen=8 * SHOWN_MOST)
        self._count = self._known = 0
        self._drawn_at = 0.0
        self._samples, self._expected = 0, 0
        self._schemes: Collection[str] = ()

    def begin(self, schemes: Collection[str], expected_samples: int) -> None:
        """A run of *schemes* begins: the old table goes. *expected_samples*: 0 where none will come."""
        self._schemes = schemes
        self._rows.clear()
        self._count = self._known = self._samples = 0
        self._expected = expected_samples
        self.table.value = ""
        self.bar.value, self.bar.bar_style = 0.0, ""
        self.words.value = note_html("Starting: ranks meet, compile and verify before the clock starts.")
        self.progress.layout.display = SHOWN

    def add(self, news: News) -> None:
        """Takes what is new."""
        self._take(news.rows)
        self._samples += len(news.samples)
        self._show_progress(news)
        if news.ended or time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._draw()

    def show(self, run: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """A run that has ended before."""
        self._rows.clear()
        self._take(rows)
        self.progress.layout.display = SHOWN
        self.bar.value = 1.0
        self.words.value = note_html(f"Run {run['id']} ({run['status']}): {run['title']}")
        self._draw()

    def _take(self, rows: Sequence[Row]) -> None:
        """The schedules as a whole; what was never begun when somebody pressed Stop is no failure."""
        whole = [row for row in rows if row.get("part") == "whole" and row.get("stage") != "cancelled"]
        self._rows.extend(whole)
        # the baseline that is known, too, was not asked for
        self._known += sum(row.get("origin") is not None and row["scheme"] in self._schemes for row in whole)

    def _show_progress(self, news: News) -> None:
        so_far, ended = news.progress, news.ended
        self.bar.value = 1.0 if ended and not news.stopped else self._share(so_far)
        failed = so_far.failed and not news.stopped
        self.bar.bar_style = "warning" if failed else "success" if ended else ""
        self.words.value = note_html(", ".join(filter(None, self._said(news))) + ".")

    def _share(self, progress: Progress) -> float:
        """Of the schedules, or of the samples where there are few schedules."""
        done = progress.done / progress.total if progress.total else 0.0
        return min(1.0, max(done, self._samples / self._expected if self._expected else 0.0))

    def _said(self, news: News) -> list[str]:
        so_far = news.progress
        elapsed = time.monotonic() - so_far.started_at
        noun = "schedule" if so_far.total == 1 else "schedules"
        done = so_far.done if not news.stopped else sum(row["source"] != "estimated" for row in self._rows)
        words = [f"{done:,} of {so_far.total:,} {noun}"]
        words.append(f"{self._samples:,} samples" if self._samples else "")
        words.append(f"{self._known} known from before" if self._known else "")
        words.append(f"{so_far.failed} failed" if so_far.failed and not news.stopped else "")
        if news.ended:
            return [*words, f"{'stopped' if news.stopped else 'done'} after {elapsed:.0f} s"]
        return [*words, rate(done, elapsed) if so_far.total > 1 else "", self._left(so_far, elapsed)]

    def _left(self, progress: Progress, elapsed: float) -> str:
        if progress.left_s is not None and progress.done < progress.total:
            return f"{about(progress.left_s)} left"
        share = self._share(progress)
        if 0.1 < share < 1:
            return f"{about(elapsed * (1 - share) / share)} left"
        return "running"

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        rows = list(self._rows)
        newest = set(list(dict.fromkeys(row["key"] for row in reversed(rows)))[:SHOWN_MOST])
        shown = [row for row in rows if row["key"] in newest]
        failed = [row for row in shown if row.get("stage")]
        # with the other rows, so that the columns say what differs
        tables = [outcome_table(shown)] if len(shown) > len(failed) else []
        tables += [failure_table(failed)] if failed else []
        self.table.value = "".join(str(table.to_html()) for table in tables)


def rate(count: int, seconds: float) -> str:
    """How fast something goes, in numbers that one can picture."""
    if not count or seconds <= 0:
        return ""
    per_second = count / seconds
    return f"{per_second:.1f} per second" if per_second >= 1 else f"one in {1 / per_second:.1f} s"
