"""Outcomes of a run: progress, sortable tables, and a button that writes a report for download."""

from __future__ import annotations

import base64
import logging
import shlex
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
from nbformat import NotebookNode

from kernels.schemes import BASELINE
from kernels.units import percent_text
from workbench.analysis.accuracy import coverage_of_run, coverage_text
from workbench.charts.labels import problem_titles
from workbench.experiment.question import together
from workbench.reports.run_report import remember
from workbench.reports.side_by_side import stored_runs
from workbench.reports.tables import Table, failure_table, gain_text, is_failure, outcome_table
from workbench.results import comparison
from workbench.results.comparison import comparison_note, verdict_note
from workbench.results.deltas import Pinned
from workbench.results.files import FileTarget
from workbench.results.filters import Filters, left_out_text
from workbench.results.metrics import Joins
from workbench.results.rows import Row, by_problem, is_stop, question_of
from workbench.results.store import Store, store_path
from workbench.widgets.controls import HIDDEN, SHOWN, button, html, note_html, refusal_html
from workbench.widgets.download import Download, file_stem
from workbench.widgets.exploration import row_id
from workbench.widgets.session import RunNews

_LOG = logging.getLogger(__name__)

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
                     "tone": cell.tone, "order": cell.text if not column.figure else cell.order}
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
"""The most schedules in the table: each problem's fastest ones and baseline, then the newest. The store has all."""
FEW = 4
"""A stored run with more schedules is treated as a sweep: its refused combinations are counted, not listed."""
REDRAW_SECONDS = 1.0
"""Least time between redraws of the table, which the page lays out each time."""

LEADING_MOST = 20
"""So many of a problem's fastest schedules stay in the table, however many newer ones there are."""
ON_PAGE = (
    f"To compare what was not timed together, press Measure together, or tick “Measure again what is known” under "
    f"Advanced and run at most {comparison.MAX_BLOCK_SCHEDULES} schedules at once."
)
"""The advice that follows a missing speed-up, where there are buttons instead of a command's options."""
TOGETHER = "Measure the fastest schedule and those of other blocks again, in turns"

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
        self.together = button("Measure together", "wb-together", "play", TOGETHER)
        """Shown once a run has ended whose fastest schedule was not compared with others."""
        self.together.layout.display = HIDDEN
        self.apart: list[Row] = []
        """The fastest schedule of a problem and those that it was not compared with."""
        self.left_out = html("wb-outcomes-left-out")
        """How many rows the filters leave out."""
        self.estimates = html("wb-outcomes-estimates")
        """How far estimates were off, and how many there were."""
        self.table = ipywidgets.VBox(
            [self.left_out, self.outcomes, self.estimates, self.together, self.others],
            layout=ipywidgets.Layout(width="100%"),
        )
        self.progress.add_class("wb-progress")
        self.table.add_class("wb-outcomes")
        self._baseline: tuple[Row, Sequence[Row]] | None = None
        """The pinned row with the rows of its own run."""
        self._kept: frozenset[str] | None = None
        """The names of the rows that are shown; None where all are."""
        self._filters = Filters()
        self._going = False
        """Whether a run goes on, whose news draw the table."""
        self._joins = Joins()
        self._rows: dict[tuple[str, str], dict[str | None, Row]] = {}
        """Rows by key and source, then by block: each schedule is compared with the baseline of its own block."""
        self._drawn_at = 0.0
        self._sweeping = False
        self._refused: Counter[str] = Counter()

    def begin(self, sweeping: bool) -> None:
        """Starts a run, and empties the table; *sweeping*: refused combinations are counted, not listed."""
        self._sweeping, self._going = sweeping, True
        self._refused.clear()
        self._rows.clear()
        self._joins = Joins()
        self.outcomes.show([])
        self.others.value = self.estimates.value = ""
        self._offer([])
        self.bar.value, self.bar.bar_style = 0.0, ""
        self.text.value = note_html("Starting: ranks meet, compile and verify before the clock starts.")
        self.progress.layout.display = SHOWN

    def clear(self) -> None:
        """Shows no run."""
        self.begin(sweeping=False)
        self._going = False
        self.left_out.value = ""
        self.forget()

    def pin(self, baseline: Row | None, rows: Sequence[Row] = ()) -> None:
        """Shows differences to the row *baseline* among its *rows*, or none; ValueError where it has no time."""
        if baseline is not None:
            Pinned.of(baseline)
        self._baseline = None if baseline is None else (baseline, rows)
        self._draw(ended=True)

    def keep(self, names: frozenset[str] | None, filters: Filters) -> None:
        """Shows only the rows that are named (`exploration.row_id`), which *filters* keep; None shows all. Names of new
        rows wait for the next news of a run that goes on."""
        if names == self._kept:
            return
        at_once = filters != self._filters or not self._going
        self._kept, self._filters = names, filters
        if at_once:
            self._draw(ended=not self._going)

    def forget(self) -> None:
        """Hides the progress, which belongs to an earlier request. The table stays with the charts of its run."""
        self.progress.layout.display = HIDDEN
        self.text.value = ""

    def add(self, news: RunNews) -> None:
        """Adds news of the run."""
        self._take(news.rows)
        self._going = not news.ended
        self._show_progress(news)
        if news.ended or time.monotonic() - self._drawn_at > REDRAW_SECONDS:
            self._draw(ended=news.ended)
        if news.ended:
            self._offer_together()

    def show(self, run: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """Shows a *run* that has ended before."""
        self.begin(len({row["key"] for row in rows if row["part"] == "whole"}) > FEW)
        self._take(rows)
        self._going = False
        self.progress.layout.display = SHOWN
        self.bar.value = 1.0
        self.text.value = note_html(f"Run {run['id']} ({run['status']}): {run['title']}")
        self._draw(ended=True)
        self._offer_together()

    def _offer_together(self) -> None:
        """Offers to measure together what was not compared, of the first problem that has any."""
        timed = [row for row in self._all if not is_failure(row)]
        several = next(filter(None, map(comparison.apart, by_problem(timed).values())), [])
        self._offer(several if several and together(several) else [])

    def _offer(self, rows: list[Row]) -> None:
        self.apart = rows
        self.together.layout.display = SHOWN if rows else HIDDEN

    def _take(self, rows: Sequence[Row]) -> None:
        """Keeps rows of whole schedules, except those that a stop left out, which are no failures."""
        for row in rows:
            self._joins.add(row)
        whole = [row for row in rows if row.get("part") == "whole" and not is_stop(row)]
        for row in whole:
            if row.get("stage") == "refused" and self._sweeping:
                self._refused[row["message"]] += 1
            else:
                key_and_source = row["key"], row["source"]
                # a schedule that is timed again becomes the newest, and is no failure any more
                before = self._rows.pop(key_and_source, {})
                of_blocks = {block: one for block, one in before.items() if not is_failure(one)}
                self._rows[key_and_source] = {**of_blocks, row.get("block"): row}

    @property
    def _all(self) -> list[Row]:
        """All rows of whole schedules, the newest schedule last."""
        return [row for of_blocks in self._rows.values() for row in of_blocks.values()]

    @property
    def failures(self) -> list[Row]:
        """The schedules without a time, except refused combinations of a sweep."""
        return [row for row in self._all if row.get("stage")]

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
            _ended(news) if ended else so_far.left_text(),
        ]
        lines = [", ".join(filter(None, counts)) + ".", so_far.again.message() if ended else ""]
        self.text.value = note_html(" ".join(filter(None, lines)))

    def _draw(self, *, ended: bool) -> None:
        """Draws the table of the fastest and the newest schedules; once a run *ended* its notes are about all."""
        self._drawn_at = time.monotonic()
        every = self._all
        rows = [row for row in every if self._kept is None or row_id(row) in self._kept]
        left_out = left_out_text(len(every) - len(rows), len(every))
        self.left_out.value = note_html(left_out) if left_out else ""
        leading = leading_keys(rows)
        newest = list(dict.fromkeys([*leading, *(row["key"] for row in reversed(rows))]))
        kept = set(newest[: max(SHOWN_MOST, len(leading))])
        counted = [self._joins.completed(row) for row in rows if ended or row["key"] in kept]
        shown = [row for row in counted if row["key"] in kept]
        failed = [row for row in shown if row.get("stage")]
        pinned = None if self._baseline is None else Pinned.of(self._baseline[0], [*self._baseline[1], *counted])
        self.outcomes.show(parts(shown, counted, pinned))
        table = str(failure_table(failed).to_html()) if failed else ""
        self.others.value = table + refusals_html(self._refused)
        self.estimates.value = estimates_html(every)


def parts(
    shown: Sequence[Row], rows: Sequence[Row] | None = None, baseline: Pinned | None = None
) -> list[ProblemTable]:
    """A table of the *shown* rows for each problem that has a time; its note is about all *rows*.

    Several have titles and the gain of their fastest schedule. That of a pinned *baseline* has differences to it.
    """
    every = by_problem(shown if rows is None else rows)
    timed = {key: same for key, same in by_problem(shown).items() if not all(map(is_failure, same))}
    titles = problem_titles({key: same[0] for key, same in timed.items()}) if len(timed) > 1 else {}
    notes = {key: _note(every[key], with_gain=bool(titles)) for key in timed}
    pinned = {key: baseline if baseline and baseline.question == question_of(same[0]) else None
              for key, same in timed.items()}  # fmt: skip
    return [ProblemTable(outcome_table(same, pinned[key]), titles.get(key, ""), notes[key])
            for key, same in timed.items()]  # fmt: skip


def _note(rows: Sequence[Row], *, with_gain: bool) -> str:
    """What is certain about one problem's rows, and which cannot be compared; *with_gain*: the fastest first."""
    sentences = (gain_text(rows) if with_gain else "", verdict_note(rows), comparison_note(rows, ON_PAGE))
    return " ".join(filter(None, sentences))


def leading_keys(rows: Sequence[Row]) -> list[str]:
    """The keys of each problem's best schedules and best baseline, which the table of a long run must keep."""
    keys: dict[str, None] = {}
    for same in by_problem(row for row in rows if not is_failure(row)).values():
        known = comparison.leading(same)
        overlapping = [row for row in known if row["scheme"] != BASELINE]
        best = [*known[:1], *overlapping[:LEADING_MOST]]
        plain = comparison.baselines([*known[:1], *overlapping][:2][-1], known)[:1] if best else []
        keys |= dict.fromkeys(row["key"] for row in (*best, *plain))
    return [*keys]


def estimates_html(rows: Sequence[Row]) -> str:
    """Error and coverage of the estimates of what was measured among *rows*; empty where nothing was."""
    if (summary := coverage_of_run(rows)) is None:
        return ""
    error = summary["median_absolute_error"]
    off = "" if error is None else f" Their median error is {percent_text(error)}."
    return note_html(f"Estimates: {coverage_text(summary)}{off}")


def _ended(news: RunNews) -> str:
    after = f"after {news.progress.elapsed_s:.0f} s"
    if news.budget_s is not None:
        return f"stopped {after}, as its budget is {news.budget_s:g} s"
    return f"{'stopped' if news.stopped else 'done'} {after}"


def refusals_html(refused: Counter[str]) -> str:
    """The reasons of refused combinations, each once with its count."""
    if not refused:
        return ""
    lines = Markup("").join(
        Markup("<li>{} of them: {}</li>").format(count, message) for message, count in refused.most_common()
    )
    return str(Markup(REFUSED).format(refused.total(), lines))


# The buttons that offer the current run for download: as one HTML page, or with all that it was made from.


class ReportButton:
    """The report of the current run: `button` writes it, `note` is the author's text, `link` offers the file.

    `files` downloads the report with all that it was made from.

    *baseline* gives the name of the pinned row (`exploration.row_id`), or None.
    """

    def __init__(
        self, store: Store, current_run: Callable[[], str | None], baseline: Callable[[], str | None] = lambda: None
    ) -> None:
        self._store, self._current_run, self.baseline = store, current_run, baseline
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
        self.files = Download(
            "Files", "A zip of this run: report, command, question, all rows, machine and citation", self.zipped
        )
        self.files.add_class("wb-report-files")
        self.controls = self.note, self.button, self.files, self.link
        self._wanted: tuple[str, ...] = ()
        """The runs whose report the link may offer."""

    def forget(self) -> None:
        """Removes the link, once another request or run is shown."""
        self._wanted = ()
        self.link.value = ""

    def write(self, runs: Sequence[str] = ()) -> None:
        """Starts writing the report of *runs*, or else of the current one, in the background; returns at once."""
        current = self._current_run()
        self._wanted = tuple(runs) or ((current,) if current else ())
        if not self._wanted:
            self.link.value = note_html("There is no run yet: press Run first.")
            return
        self.button.disabled = True
        self.link.value = note_html("The report is being written …")
        wanted = self._wanted, self.note.value
        threading.Thread(target=self._write, args=wanted, name="workbench report", daemon=True).start()

    def _write(self, runs: tuple[str, ...], note: str) -> None:
        try:
            from workbench.reports.export import export, file_name  # nbconvert takes a while: no page begins with it

            folder = self._store.path.parent / "reports"
            folder.mkdir(parents=True, exist_ok=True)
            target = FileTarget(folder / file_name(" ".join(runs), "html"), inputs=(self._store.path,))
            report, left_out = self._report(runs, note)
            path = export(report, target, kind="html")
            for run in runs:
                remember(self._store, run)
            command = report_command(runs, path.name, note, self._store.path)
            link = _download(path.name, path.read_bytes(), str(path), command) + left_out
        except (ValueError, OSError) as error:
            link = refusal_html(str(error))
        except Exception:
            _LOG.exception("The report of %s could not be written.", ", ".join(runs))
            link = refusal_html("The report could not be written, and the log says why.")
        finally:
            self.button.disabled = False
        if self._wanted == runs:
            self.link.value = link

    def zipped(self) -> tuple[str, bytes]:
        """Name and content of a zip of the current run's report, and of all that it was made from.

        ValueError where there is no run.
        """
        from workbench.reports import archive

        run = self._current_run()
        if run is None:
            raise ValueError("There is no run yet: press Run first.")
        report, left_out = self._report((run,), self.note.value)
        content = archive.zipped(archive.parts(self._store, run, report))
        self.link.value = left_out
        return f"{file_stem(run)}.zip", content

    def _report(self, runs: tuple[str, ...], note: str) -> tuple[NotebookNode, str]:
        """The report of *runs*, and a note where it goes without the pinned baseline, which is of other problems."""
        if (baseline := self.baseline()) is None:
            return stored_runs(self._store, runs, note=note, baseline=None), ""
        try:
            return stored_runs(self._store, runs, note=note, baseline=baseline), ""
        except ValueError as error:
            report = stored_runs(self._store, runs, note=note, baseline=None)  # raises where the fault is another one
            return report, note_html(f"The report is without the pinned baseline. {error}")


def report_command(runs: Sequence[str], name: str, note: str, store: Path) -> str:
    """The whole command that writes the same report in a terminal."""
    words = ["workbench", "report", *runs, "-o", name]
    words += ["--note", note] if note.strip() else []
    words += [] if store == store_path() else ["--store", str(store)]
    return shlex.join(words)


def _download(name: str, content: bytes, where: str, command: str) -> str:
    data = base64.b64encode(content).decode()
    link = Markup(
        '<div class="wb-note"><a download="{}" href="data:text/html;base64,{}">Download the report</a> {}'
        '<br>In a terminal: <code style="white-space: pre-wrap; overflow-wrap: anywhere; user-select: all">{}</code>'
        "</div>"
    )
    return str(link.format(name, data, where, command))
