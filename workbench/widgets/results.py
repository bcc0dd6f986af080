"""Progress and the table of outcomes: what is done, how fast, what is left, and why something failed."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets
from markupsafe import Markup

from kernels.units import about
from workbench.reports.outcomes import failure_table, outcome_table
from workbench.widgets.controls import HIDDEN, SHOWN
from workbench.widgets.planned import Plan
from workbench.widgets.session import News
from workbench.widgets.words import note_html

SHOWN_MOST = 60
"""Newest schedules in the table; the store keeps all of them."""
FEW = 4
"""With more schedules a run of before was a sweep: what it passed over is counted, not listed."""
REDRAW_SECONDS = 1.0
"""A table is made anew at most so often: nobody reads faster, and the page has to lay it out each time."""

REFUSED = (
    '<details class="wb-note"><summary>{} combinations of the swept axes are refused</summary><ul>{}</ul></details>'
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Count:
    """How far a run is with what can be done at all."""

    done: int
    total: int
    elapsed_s: float


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
        self._sweeping = False
        self._refused: Counter[str] = Counter()

    def begin(self, plan: Plan | None) -> None:
        """A run begins of which this much is expected: the old table goes. None: a recording is played."""
        self._schemes = plan.schedules if plan else ()
        self._sweeping = plan is not None and plan.count > len(plan.schedules)
        self._refused.clear()
        self._rows.clear()
        self._count = self._known = self._samples = 0
        self._expected = plan.samples if plan and plan.seconds is not None else 0
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
        self.begin(None)
        self._sweeping = len({row["key"] for row in rows if row["part"] == "whole"}) > FEW
        self._take(rows)
        self.progress.layout.display = SHOWN
        self.bar.value = 1.0
        self.words.value = note_html(f"Run {run['id']} ({run['status']}): {run['title']}")
        self._draw()

    def _take(self, rows: Sequence[Row]) -> None:
        """The schedules as a whole; what was never begun when somebody pressed Stop is no failure."""
        whole = [row for row in rows if row.get("part") == "whole" and row.get("stage") != "cancelled"]
        for row in whole:
            if row.get("stage") == "refused" and self._sweeping:
                self._refused[row["message"]] += 1
            else:
                self._rows.append(row)
        # the baseline that is known, too, was not asked for
        self._known += sum(row.get("origin") is not None and row["scheme"] in self._schemes for row in whole)

    @property
    def failures(self) -> list[Row]:
        """The schedules that have no time, combinations apart that a sweep passes over."""
        return [row for row in self._rows if row.get("stage")]

    def _show_progress(self, news: News) -> None:
        so_far, ended = news.progress, news.ended
        refused = self._refused.total()
        failed = 0 if news.stopped else so_far.failed - refused
        asked = Count(so_far.done - refused, so_far.total - refused, time.monotonic() - so_far.started_at)
        self.bar.value = 1.0 if ended and not news.stopped else self._share(asked)
        self.bar.bar_style = "warning" if failed > 0 else "success" if ended else ""
        if news.stopped:
            asked = replace(asked, done=sum(row["source"] != "estimated" for row in self._rows))
        words = [
            f"{asked.done:,} of {asked.total:,} {'schedule' if asked.total == 1 else 'schedules'}",
            f"{self._samples:,} samples" if self._samples else "",
            f"{self._known} known from before" if self._known else "",
            f"{refused} combinations refused" if refused else "",
            f"{failed} failed" if failed > 0 else "",
            *([self._ended(asked, news.stopped)] if ended else [rate(asked), self._left(asked)]),
        ]
        self.words.value = note_html(", ".join(filter(None, words)) + ".")

    def _share(self, asked: Count) -> float:
        """Of the schedules, or of the samples where there are few schedules."""
        done = asked.done / asked.total if asked.total else 0.0
        return min(1.0, max(done, self._samples / self._expected if self._expected else 0.0))

    def _ended(self, asked: Count, stopped: bool) -> str:
        return f"{'stopped' if stopped else 'done'} after {asked.elapsed_s:.0f} s"

    def _left(self, asked: Count) -> str:
        if 0 < asked.done < asked.total:
            return f"{about(asked.elapsed_s * (asked.total - asked.done) / asked.done)} left"
        share = self._share(asked)
        return f"{about(asked.elapsed_s * (1 - share) / share)} left" if 0.1 < share < 1 else "running"

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        rows = list(self._rows)
        newest = set(list(dict.fromkeys(row["key"] for row in reversed(rows)))[:SHOWN_MOST])
        shown = [row for row in rows if row["key"] in newest]
        failed = [row for row in shown if row.get("stage")]
        # with the other rows, so that the columns say what differs
        tables = [outcome_table(shown)] if len(shown) > len(failed) else []
        tables += [failure_table(failed)] if failed else []
        self.table.value = "".join(str(table.to_html()) for table in tables) + refusals_html(self._refused)


def rate(asked: Count) -> str:
    """How fast something goes, in numbers that one can picture."""
    if asked.total <= 1 or not asked.done:
        return ""
    per_second = asked.done / max(1e-9, asked.elapsed_s)
    return f"{per_second:.1f} per second" if per_second >= 1 else f"one in {1 / per_second:.1f} s"


def refusals_html(refused: Counter[str]) -> str:
    """Why combinations of a sweep cannot be, each reason once."""
    if not refused:
        return ""
    lines = Markup("").join(
        Markup("<li>{} of them: {}</li>").format(count, sentence) for sentence, count in refused.most_common()
    )
    return str(Markup(REFUSED).format(refused.total(), lines))
