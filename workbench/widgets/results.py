"""A button that writes the current run as one HTML page and offers it for download."""

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
from workbench.reports.tables import Table, failure_table, gain_words, is_failure, outcome_table
from workbench.results.comparison import comparison_note
from workbench.results.files import FileTarget
from workbench.results.metrics import Joins
from workbench.results.rows import Key, by_problem, problem_of
from workbench.results.store import Store
from workbench.widgets.controls import HIDDEN, SHOWN, note_html, refusal_html
from workbench.widgets.session import RunNews

# Tables of outcomes on a page: pressed headings sort them, and each scrolls in a box of its own.


@dataclass(frozen=True, slots=True)
class ProblemTable:
    """One table, what it is about, and what follows from it."""

    table: Table
    title: str = ""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the browser gets it."""
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
    """Shows `ProblemTable`s one below the other."""

    _esm = Path(__file__).parent / "outcome_view.js"
    _css = Path(__file__).parent / "outcome_view.css"
    parts: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def show(self, parts: Sequence[ProblemTable]) -> None:
        """These instead of what was shown; how a person sorted a table of the same title stays."""
        self.parts = [part.to_json() for part in parts]

    @property
    def text(self) -> str:
        """All words, for tests and for who searches."""
        lines = [[cell["text"], cell["aside"], cell["badge"]] for part in self.parts for row in part["rows"]
                 for cell in row["cells"]]  # fmt: skip
        return "\n".join(" ".join(filter(None, line)) for line in lines)


# Progress and the table of outcomes: what is done, how fast, what is left, and why something failed.

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

    def add(self, news: RunNews) -> None:
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

    def _show_progress(self, news: RunNews) -> None:
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


def parts(rows: Sequence[Row]) -> list[ProblemTable]:
    """A table for each problem that has a time; of several its title and what its fastest schedule gains."""
    timed = {key: same for key, same in by_problem(rows).items() if not all(map(is_failure, same))}
    if len(timed) < 2:
        return [ProblemTable(outcome_table(same), note=comparison_note(same)) for same in timed.values()]
    titles = problem_titles({key: same[0] for key, same in timed.items()})
    notes = {key: " ".join(filter(None, (gain_words(same), comparison_note(same)))) for key, same in timed.items()}
    return [ProblemTable(outcome_table(same), titles[key], notes[key]) for key, same in timed.items()]


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


# A button that writes the current run as one HTML page and offers it for download.


class ReportButton:
    """`button` starts, `note` holds what its author has to say, `link` shows where the report is."""

    def __init__(self, store: Store, current_run: Callable[[], str | None]) -> None:
        self._store, self._current_run = store, current_run
        self.button = ipywidgets.Button(description="Report", icon="file-text", tooltip="This run as one HTML page")
        self.note = ipywidgets.Text(
            placeholder="a note for the report", tooltip="It stands under the report's title", continuous_update=False,
            layout=ipywidgets.Layout(width="150px", flex="0 1 150px", margin="0"),
        )  # fmt: skip
        self.link = ipywidgets.HTML(layout=ipywidgets.Layout(width="100%"))
        self.button.add_class("wb-report")
        self.note.add_class("wb-report-note")
        self.link.add_class("wb-report-link")
        self.button.on_click(lambda _: self.write())
        self._wanted: str | None = None
        """The run whose report the link may show."""

    def forget(self) -> None:
        """Another question, or another run: the report of the one before is no longer offered."""
        self._wanted = None
        self.link.value = ""

    def write(self) -> None:
        """Writes the report in the background; returns at once."""
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
            said = _download(path.name, path.read_bytes(), str(path))
        except (ValueError, OSError) as error:
            said = refusal_html(str(error))
        finally:
            self.button.disabled = False
        if self._wanted == run:
            self.link.value = said


def _download(name: str, content: bytes, where: str) -> str:
    data = base64.b64encode(content).decode()
    link = Markup(
        '<div class="wb-note"><a download="{}" href="data:text/html;base64,{}">Download the report</a><br>{}</div>'
    )
    return str(link.format(name, data, where))
