"""Outcomes of a run: progress, sortable tables, and a button that writes a report for download."""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets
from markupsafe import Markup

from kernels.schemes import BASELINE
from workbench.charts.labels import problem_titles
from workbench.experiment.run import Progress
from workbench.naming import TIMED
from workbench.reports.export import export, file_name
from workbench.reports.run_report import stored_report
from workbench.reports.tables import Table, failure_table, gain_text, is_failure, outcome_table
from workbench.results.comparison import comparison_note, verdict_note
from workbench.results.files import FileTarget
from workbench.results.metrics import Joins
from workbench.results.rows import Key, Row, by_problem, problem_of
from workbench.results.store import Store
from workbench.widgets.controls import HIDDEN, SHOWN, note_html, refusal_html
from workbench.widgets.session import RunNews

# Tables of outcomes: their headings sort them, and each scrolls in its own box.


@dataclass(frozen=True, slots=True)
class ProblemTable:
    """One problem's table with a title and a note."""

    table: Table
    title: str = ""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The table as JSON values, for the browser."""
        table = self.table
        columns = [
            {"heading": column.heading, "figure": column.figure, "descends": column.descends}
            for column in table.columns
        ]
        rows = [
            {
                "best": number == table.best,
                "cells": [
                    {"text": cell.text, "aside": cell.aside, "share": cell.share, "badge": cell.badge,
                     "order": cell.text if not column.figure else cell.order}
                    for column, cell in zip(table.columns, row, strict=True)
                ],
            }
            for number, row in enumerate(table.rows)
        ]  # fmt: skip
        return {"title": self.title, "note": self.note, "columns": columns, "rows": rows, "sorted": table.sorted_by}


class OutcomeView(anywidget.AnyWidget):
    """A widget that shows `ProblemTable`s below each other."""

    _esm = Path(__file__).parent / "outcome_view.js"
    _css = Path(__file__).parent / "outcome_view.css"
    parts: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def show(self, parts: Sequence[ProblemTable]) -> None:
        """Replaces the tables; a person's sorting of a table with the same title is kept."""
        self.parts = [part.to_json() for part in parts]

    @property
    def text(self) -> str:
        """The text of all cells, for tests and searches."""
        lines = [[cell["text"], cell["aside"], cell["badge"]] for part in self.parts for row in part["rows"]
                 for cell in row["cells"]]  # fmt: skip
        return "\n".join(" ".join(filter(None, line)) for line in lines)


# Progress and the tables of outcomes, with failures and their reasons.

SHOWN_MOST = 60
"""The most schedules in the table: each problem's fastest and baseline, then the newest. The store has all."""
KEPT_MOST = 8 * SHOWN_MOST
"""The most rows that are kept for the table."""
FEW = 4
"""A stored run with more schedules is treated as a sweep: its refused combinations are counted, not listed."""
REDRAW_SECONDS = 1.0
"""Least time between redraws of the table, which the page lays out each time."""

REFUSED = (
    '<details class="wb-note"><summary>{} combinations of the swept axes are refused</summary><ul>{}</ul></details>'
)


class Results:
    """A progress bar with text, and a table that is redrawn at most once a second."""

    def __init__(self) -> None:
        self.bar = ipywidgets.FloatProgress(value=0, min=0, max=1, layout=ipywidgets.Layout(width="100%"))
        self.text = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.progress = ipywidgets.VBox([self.bar, self.text], layout=ipywidgets.Layout(display=HIDDEN))
        self.outcomes = OutcomeView()
        self.others = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        """Schedules without a time, and why."""
        self.table = ipywidgets.VBox([self.outcomes, self.others], layout=ipywidgets.Layout(width="100%"))
        self.progress.add_class("wb-progress")
        self.table.add_class("wb-outcomes")
        self._joins = Joins()
        self._rows: dict[tuple[str, str], Row] = {}
        """Rows by key and source. The baseline is timed in every block; its newest row counts."""
        self._drawn_at = 0.0
        self._sweeping = False
        self._refused: Counter[str] = Counter()

    def begin(self, sweeping: bool) -> None:
        """Starts a run, and empties the table; *sweeping*: refused combinations are counted, not listed."""
        self._sweeping = sweeping
        self._refused.clear()
        self._rows.clear()
        self._joins = Joins()
        self.outcomes.show([])
        self.others.value = ""
        self.bar.value, self.bar.bar_style = 0.0, ""
        self.text.value = note_html("Starting: ranks meet, compile and verify before the clock starts.")
        self.progress.layout.display = SHOWN

    def forget(self) -> None:
        """Hides the progress, which belongs to an earlier request. The table stays with the charts of its run."""
        self.progress.layout.display = HIDDEN
        self.text.value = ""

    def add(self, news: RunNews) -> None:
        """Adds news of the run."""
        self._take(news.rows)
        self._show_progress(news)
        if news.ended or time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._draw()

    def show(self, run: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """Shows a *run* that has ended before."""
        self.begin(len({row["key"] for row in rows if row["part"] == "whole"}) > FEW)
        self._take(rows)
        self.progress.layout.display = SHOWN
        self.bar.value = 1.0
        self.text.value = note_html(f"Run {run['id']} ({run['status']}): {run['title']}")
        self._draw()

    def _take(self, rows: Sequence[Row]) -> None:
        """Keeps rows of whole schedules, except those that a stop left out, which are no failures."""
        for row in rows:
            self._joins.add(row)
        whole = [row for row in rows if row.get("part") == "whole" and row.get("stage") != "cancelled"]
        for row in whole:
            if row.get("stage") == "refused" and self._sweeping:
                self._refused[row["message"]] += 1
            else:
                key_and_source = row["key"], row["source"]
                self._rows.pop(key_and_source, None)  # a schedule that is timed again becomes the newest
                self._rows[key_and_source] = row
        if len(self._rows) > KEPT_MOST:
            leading = leading_keys(list(self._rows.values()))
            old = [key_and_source for key_and_source in self._rows if key_and_source[0] not in leading]
            for key_and_source in old[: len(self._rows) - KEPT_MOST // 2]:
                del self._rows[key_and_source]

    @property
    def failures(self) -> list[Row]:
        """The schedules without a time, except refused combinations of a sweep."""
        return [row for row in self._rows.values() if row.get("stage")]

    def _show_progress(self, news: RunNews) -> None:
        so_far, ended = news.progress, news.ended
        failed = 0 if news.stopped else so_far.failed
        self.bar.value = 1.0 if ended and not news.stopped else max(self.bar.value, so_far.share)
        self.bar.bar_style = "warning" if failed > 0 else "success" if ended else ""
        counts = [
            *so_far.counted(),
            f"{so_far.known:,} known from before" if so_far.known else "",
            f"{so_far.refused:,} combinations refused" if so_far.refused else "",
            f"{failed:,} failed" if failed > 0 else "",
            _ended(so_far, news.stopped) if ended else so_far.left_text(),
        ]
        lines = [", ".join(filter(None, counts)) + ".", so_far.again.message() if ended else ""]
        self.text.value = note_html(" ".join(filter(None, lines)))

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


def parts(rows: Sequence[Row]) -> list[ProblemTable]:
    """A table for each problem that has a time; several have titles and the gain of their fastest schedule."""
    timed = {
        key: problem_rows for key, problem_rows in by_problem(rows).items() if not all(map(is_failure, problem_rows))
    }
    if len(timed) < 2:
        return [ProblemTable(outcome_table(problem_rows), note=_note(problem_rows)) for problem_rows in timed.values()]
    titles = problem_titles({key: problem_rows[0] for key, problem_rows in timed.items()})
    notes = {
        key: " ".join(filter(None, (gain_text(problem_rows), _note(problem_rows))))
        for key, problem_rows in timed.items()
    }
    return [ProblemTable(outcome_table(problem_rows), titles[key], notes[key]) for key, problem_rows in timed.items()]


def _note(rows: Sequence[Row]) -> str:
    """What is certain about one problem's rows, and which of them cannot be compared."""
    return " ".join(filter(None, (verdict_note(rows), comparison_note(rows))))


def leading_keys(rows: Sequence[Row]) -> list[str]:
    """The keys of each problem's fastest schedule and fastest baseline, which the table of a long run must keep."""
    best: dict[tuple[Key, bool], Row] = {}
    for row in rows:
        if is_failure(row):
            continue
        for place in ((problem_of(row), False), (problem_of(row), row["scheme"] == BASELINE)):
            best[place] = min(best.get(place, row), row, key=_timed_first)
    return list(dict.fromkeys(row["key"] for row in best.values()))


def _timed_first(row: Row) -> tuple[bool, float]:
    """The sort key of the fastest row: estimates come after timed rows."""
    return row["source"] not in TIMED, row["time_s"]


def _ended(so_far: Progress, stopped: bool) -> str:
    return f"{'stopped' if stopped else 'done'} after {so_far.elapsed_s:.0f} s"


def refusals_html(refused: Counter[str]) -> str:
    """The reasons of refused combinations, each once with its count."""
    if not refused:
        return ""
    lines = Markup("").join(
        Markup("<li>{} of them: {}</li>").format(count, message) for message, count in refused.most_common()
    )
    return str(Markup(REFUSED).format(refused.total(), lines))


# The button that writes the current run as one HTML page and offers it for download.


class ReportButton:
    """The report of the current run: `button` writes it, `note` is the author's text, `link` offers the file."""

    def __init__(self, store: Store, current_run: Callable[[], str | None]) -> None:
        self._store, self._current_run = store, current_run
        self.button = ipywidgets.Button(description="Report", icon="file-text", tooltip="This run as one HTML page")
        self.note = ipywidgets.Text(
            placeholder="a note for the report", tooltip="Shown below the report's title", continuous_update=False,
            layout=ipywidgets.Layout(width="150px", flex="0 1 150px", margin="0"),
        )  # fmt: skip
        self.link = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.button.add_class("wb-report")
        self.note.add_class("wb-report-note")
        self.link.add_class("wb-report-link")
        self.button.on_click(lambda _: self.write())
        self._wanted: str | None = None
        """The run whose report the link may offer."""

    def forget(self) -> None:
        """Removes the link, once another request or run is shown."""
        self._wanted = None
        self.link.value = ""

    def write(self) -> None:
        """Starts writing the report in the background, and returns at once."""
        run = self._current_run()
        if run is None:
            self.link.value = note_html("There is no run yet: press Run first.")
            return
        self._wanted = run
        self.button.disabled = True
        self.link.value = note_html("The report is being written …")
        threading.Thread(target=self._write, args=(run, self.note.value), name="workbench report", daemon=True).start()

    def _write(self, run: str, note: str) -> None:
        try:
            folder = self._store.path.parent / "reports"
            folder.mkdir(parents=True, exist_ok=True)
            target = FileTarget(folder / file_name(run, "html"), inputs=(self._store.path,))
            path = export(stored_report(self._store, run, note=note), target, kind="html")
            link = _download(path.name, path.read_bytes(), str(path))
        except (ValueError, OSError) as error:
            link = refusal_html(str(error))
        finally:
            self.button.disabled = False
        if self._wanted == run:
            self.link.value = link


def _download(name: str, content: bytes, where: str) -> str:
    data = base64.b64encode(content).decode()
    link = Markup(
        '<div class="wb-note"><a download="{}" href="data:text/html;base64,{}">Download the report</a><br>{}</div>'
    )
    return str(link.format(name, data, where))
