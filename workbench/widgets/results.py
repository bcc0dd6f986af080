"""Progress and the table of outcomes: what is done, how fast, what is left, and why something failed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets
from markupsafe import Markup

from kernels.schemes import BASELINE
from workbench.charts.problems import problem_titles
from workbench.compared import together
from workbench.metrics import Joins
from workbench.naming import TIMED
from workbench.one_problem import Key, by_problem, problem_of
from workbench.reports.outcomes import failure_table, gain_words, is_failure, outcome_table
from workbench.sitting import Progress
from workbench.widgets.controls import HIDDEN, SHOWN
from workbench.widgets.outcome_view import OutcomeView, Part
from workbench.widgets.session import News
from workbench.widgets.words import note_html

SHOWN_MOST = 60
"""Schedules in the table: each problem's fastest and baseline, then the newest. The store keeps all of them."""
KEPT_MOST = 8 * SHOWN_MOST
"""Rows that are kept for the table."""
FEW = 4
"""With more schedules a run of before was a sweep: what it passed over is counted, not listed."""
REDRAW_SECONDS = 1.0
"""A table is made anew at most so often: nobody reads faster, and the page has to lay it out each time."""

REFUSED = (
    '<details class="wb-note"><summary>{} combinations of the swept axes are refused</summary><ul>{}</ul></details>'
)

Row = Mapping[str, Any]


class Results:
    """A progress bar with words, and a table that is redrawn once a second at the most."""

    def __init__(self) -> None:
        self.bar = ipywidgets.FloatProgress(value=0, min=0, max=1, layout=ipywidgets.Layout(width="100%"))
        self.words = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.progress = ipywidgets.VBox([self.bar, self.words], layout=ipywidgets.Layout(display=HIDDEN))
        self.outcomes = OutcomeView()
        self.others = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        """What has no time, and why."""
        self.table = ipywidgets.VBox([self.outcomes, self.others], layout=ipywidgets.Layout(width="100%"))
        self.progress.add_class("wb-progress")
        self.table.add_class("wb-outcomes")
        self._joins = Joins()
        self._rows: dict[tuple[str, str], Row] = {}
        """By key and source: the baseline is timed in every block, and its newest time stands in the table."""
        self._drawn_at = 0.0
        self._sweeping = False
        self._refused: Counter[str] = Counter()

    def begin(self, sweeping: bool) -> None:
        """A run begins, perhaps of many schedules: the old table goes."""
        self._sweeping = sweeping
        self._refused.clear()
        self._rows.clear()
        self._joins = Joins()
        self.outcomes.show([])
        self.others.value = ""
        self.bar.value, self.bar.bar_style = 0.0, ""
        self.words.value = note_html("Starting: ranks meet, compile and verify before the clock starts.")
        self.progress.layout.display = SHOWN

    def forget(self) -> None:
        """Progress goes: it is about another question. The table stays with the charts of its run."""
        self.progress.layout.display = HIDDEN
        self.words.value = ""

    def add(self, news: News) -> None:
        """Takes what is new."""
        self._take(news.rows)
        self._show_progress(news)
        if news.ended or time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._draw()

    def show(self, run: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """A run that has ended before."""
        self.begin(len({row["key"] for row in rows if row["part"] == "whole"}) > FEW)
        self._take(rows)
        self.progress.layout.display = SHOWN
        self.bar.value = 1.0
        self.words.value = note_html(f"Run {run['id']} ({run['status']}): {run['title']}")
        self._draw()

    def _take(self, rows: Sequence[Row]) -> None:
        """The schedules as a whole; what was never begun when somebody pressed Stop is no failure."""
        for row in rows:
            self._joins.add(row)
        whole = [row for row in rows if row.get("part") == "whole" and row.get("stage") != "cancelled"]
        for row in whole:
            if row.get("stage") == "refused" and self._sweeping:
                self._refused[row["message"]] += 1
            else:
                mark = row["key"], row["source"]
                self._rows.pop(mark, None)  # what is timed again is new: its first place is forgotten
                self._rows[mark] = row
        if len(self._rows) > KEPT_MOST:
            leading = leading_keys(list(self._rows.values()))
            old = [mark for mark in self._rows if mark[0] not in leading]
            for mark in old[: len(self._rows) - KEPT_MOST // 2]:
                del self._rows[mark]

    @property
    def failures(self) -> list[Row]:
        """The schedules that have no time, combinations apart that a sweep passes over."""
        return [row for row in self._rows.values() if row.get("stage")]

    def _show_progress(self, news: News) -> None:
        so_far, ended = news.progress, news.ended
        failed = 0 if news.stopped else so_far.failed
        self.bar.value = 1.0 if ended and not news.stopped else max(self.bar.value, so_far.share)
        self.bar.bar_style = "warning" if failed > 0 else "success" if ended else ""
        words = [
            *so_far.counted(),
            f"{so_far.known:,} known from before" if so_far.known else "",
            f"{so_far.refused:,} combinations refused" if so_far.refused else "",
            f"{failed:,} failed" if failed > 0 else "",
            _ended(so_far, news.stopped) if ended else so_far.left_words(),
        ]
        said = [", ".join(filter(None, words)) + ".", so_far.again.sentence() if ended else ""]
        self.words.value = note_html(" ".join(filter(None, said)))

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        rows = list(self._rows.values())
        leading = leading_keys(rows)
        newest = list(dict.fromkeys([*leading, *(row["key"] for row in reversed(rows))]))
        kept = set(newest[: max(SHOWN_MOST, len(leading))])
        shown = [self._joins.completed(row) for row in rows if row["key"] in kept]
        failed = [row for row in shown if row.get("stage")]
        self.outcomes.show(parts(shown))
        table = str(failure_table(failed).to_html()) if failed else ""
        self.others.value = table + refusals_html(self._refused)


def parts(rows: Sequence[Row]) -> list[Part]:
    """A table for each problem that has a time; of several its title and what its fastest schedule gains."""
    timed = {key: same for key, same in by_problem(rows).items() if not all(map(is_failure, same))}
    if len(timed) < 2:
        return [Part(outcome_table(same), note=together(same)) for same in timed.values()]
    titles = problem_titles({key: same[0] for key, same in timed.items()})
    return [Part(outcome_table(same), titles[key], " ".join(filter(None, (gain_words(same), together(same)))))
            for key, same in timed.items()]  # fmt: skip


def leading_keys(rows: Sequence[Row]) -> list[str]:
    """The keys of each problem's fastest schedule and fastest baseline: what a table of a long run must not lose."""
    best: dict[tuple[Key, bool], Row] = {}
    for row in rows:
        if is_failure(row):
            continue
        for place in ((problem_of(row), False), (problem_of(row), row["scheme"] == BASELINE)):
            best[place] = min(best.get(place, row), row, key=_trusted_time)
    return list(dict.fromkeys(row["key"] for row in best.values()))


def _trusted_time(row: Row) -> tuple[bool, float]:
    """Least for the fastest: an estimate leads where nothing was timed."""
    return row["source"] not in TIMED, row["time_s"]


def _ended(so_far: Progress, stopped: bool) -> str:
    return f"{'stopped' if stopped else 'done'} after {so_far.elapsed_s:.0f} s"


def refusals_html(refused: Counter[str]) -> str:
    """Why combinations of a sweep cannot be, each reason once."""
    if not refused:
        return ""
    lines = Markup("").join(
        Markup("<li>{} of them: {}</li>").format(count, sentence) for sentence, count in refused.most_common()
    )
    return str(Markup(REFUSED).format(refused.total(), lines))
