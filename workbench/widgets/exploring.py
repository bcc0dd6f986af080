"""The explorer: a question on the left, what is known about it on the right, live while it is being measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from IPython.display import display

from cluster.dispatch import Cluster
from kernels.outcome import Estimate, Span
from kernels.schedule import Refusal, Schedule
from workbench.charts import theme, timeline
from workbench.charts.words import TIMED, context
from workbench.metrics import row_of
from workbench.outlook import crowded
from workbench.predictions import known_link
from workbench.provenance import usable_cores
from workbench.reports import stored
from workbench.simulator.predict import predict
from workbench.sitting import Sitting
from workbench.store import Store
from workbench.widgets.axis_rows import BASIC
from workbench.widgets.cells import cells, same_problem
from workbench.widgets.explorer_page import Page, Parts
from workbench.widgets.finding import Finder
from workbench.widgets.frozen import Frozen
from workbench.widgets.live_chart import Click
from workbench.widgets.panels import ALONG, TRIALS, Begun, Panels
from workbench.widgets.planned import Plan, plan
from workbench.widgets.question import Question
from workbench.widgets.report_button import ReportButton
from workbench.widgets.results import Results
from workbench.widgets.session import News, Session
from workbench.widgets.source_choice import MEASURE, REPLAY, SIMULATE, SourceChoice
from workbench.widgets.words import note_html, numbers_html, refusal_html, warning_html

DEFAULT_PRESET, DEFAULT_MACHINE = "laptop_overlap", "laptop_cpu"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pinned:
    """A timeline that is kept to compare others with."""

    words: str
    time_s: float
    spans: Sequence[Span]


class Explorer:
    """Everything of one explorer. `show()` puts it into a notebook; `run` and `stop` do what the buttons do."""

    def __init__(self, *, run: str = "last", store: Store | None = None, cluster: Cluster | str | None = None) -> None:
        self.store = store or Store()
        self.run_id: str | None = None
        self.question = Question(DEFAULT_PRESET, DEFAULT_MACHINE)
        self.session = Session(self.store, self._hear)
        self.panels = Panels(self.store, self._cells)
        self.results, self.frozen = Results(), Frozen(self.store)
        self.report = ReportButton(self.store, lambda: self.run_id)
        self.finder = Finder(self._found, cluster)
        self.source = SourceChoice(self.store, self.finder.cluster)
        self.page = Page(
            Parts(
                question=self.question,
                source=self.source,
                results=self.results,
                panels=self.panels,
                report=self.report,
            )
        )
        self._ranks: int | None = None
        self._estimate: Estimate | None = None
        self._plan: Plan | None = None
        self._shown: Row | None = None
        """The timed row of the schedule that the form shows."""
        self._pinned: Pinned | None = None
        self._drawing = threading.RLock()
        """The kernel's thread and the session's both draw."""
        self._running = False
        self._restore(run)
        self._listen()
        self.refresh()
        self.finder.start()

    def _listen(self) -> None:
        self.question.on_change(self.refresh)
        self.source.on_change(self._source_changed)
        self.panels.on_cell(self._load_cell)
        self.page.run.on_click(lambda _: self.run())
        self.page.stop.on_click(lambda _: self.stop())
        self.page.pin.on_click(lambda _: self.pin())
        self.page.guess.observe(lambda _: self._say_numbers(), "value")

    def show(self) -> None:
        """Into this cell's output: the explorer, and below it a place for the last run, frozen."""
        display(self.page.view)
        self.frozen.show(self.run_id)

    def close(self) -> None:
        """Ends what goes on in the background."""
        self.finder.close()
        self.session.stop()

    # the question as it stands, redrawn on every change

    def refresh(self) -> None:
        """What is known about the form as it stands: simulated, and measured if this run has it."""
        with self._drawing:
            try:
                self._estimate = self._predicted()
                self.panels.same_problem = same_problem(self.question.asked)
                self._offer_landscape()
                self._plan = self._planned()
            except Refusal as refusal:
                self._estimate = self._plan = self._shown = None
                self.page.plan.value = refusal_html(str(refusal)) if not self.question.refusal.value else ""
            else:
                self.page.plan.value = note_html(str(self._plan) if self._plan else self._replay_words())
            self._warn()
            self._allow_run()
            self._show_measured()
            self._draw()

    def _predicted(self) -> Estimate:
        asked, machine = self.question.asked, self.question.machine_value
        trial = asked.trial(machine)
        return predict(replace(trial, fabric=known_link(trial.fabric, trial.problem, machine, self.store)), machine)

    def _planned(self) -> Plan | None:
        """None: a recording decides itself what there is to play."""
        if self.source.value == REPLAY or self._estimate is None:
            return None
        asked, machine = self.question.asked, self.question.machine_value
        return plan(asked, machine, self._estimate.trial.fabric, measured=self.source.value == MEASURE)

    def _replay_words(self) -> str:
        return "All of the recording is played." if self.source.whole.value else "What the form asks is looked up."

    def _offer_landscape(self) -> None:
        axes = self.question.asked.axes(self.question.machine_value)
        self.panels.landscape.offer({axis.name: len(axis.values) for axis in axes})

    def _cells(self, x: str, y: str) -> Sequence[Row]:
        """Estimates of the question with axes *x* and *y* taking every value."""
        if self._estimate is None:
            return []
        return cells(self.question.asked, self.question.machine_value, self._estimate.trial.fabric, x, y)

    def _is_shown(self, row: Row) -> bool:
        """Whether *row* is of the schedule that the form shows."""
        of_schedule = self._estimate is not None and _is_of(self._estimate.trial.schedule)(row)
        return of_schedule and row["part"] == "whole" and self.panels.same_problem(row)

    def _show_measured(self) -> None:
        """The newest time of the schedule that the form shows, if this run has one."""
        asked = None if self._estimate is None else self._estimate.trial
        found = None if asked is None else self.panels.timed(asked.problem, asked.schedule)
        self._shown = found if found is not None and self.panels.same_problem(found) else None
        self.panels.choose(None if self._shown is None else self._shown["key"])

    def _draw(self) -> None:
        panels: dict[str, Sequence[Span]] = {}
        if self._pinned is not None:
            panels[f"A, {self._pinned.words}"] = self._pinned.spans
        if self._shown is not None and self.run_id is not None:
            panels[self._shown["source"]] = self._spans_of(self._shown)
        if self._estimate is not None:
            panels["simulated"] = self._estimate.spans
        self.page.timeline.replace(timeline.DATASET, timeline.rows(panels))
        self._say_numbers()

    def _spans_of(self, row: Row) -> Sequence[Span]:
        return self.store.spans(row["run"], row["key"], row["source"])

    def _say_numbers(self) -> None:
        if self._estimate is None:
            self.page.headline.value = note_html("No estimate: what is asked cannot be. The form says why.")
            return
        shown = self._shown or {}
        numbers = {
            "your guess": self._guess_s(),
            "estimated": self._estimate.time_s,
            str(shown.get("source")): shown.get("time_s"),
            "floor": shown.get("floor_s"),
            "A": None if self._pinned is None else self._pinned.time_s,
        }
        self.page.headline.value = numbers_html(numbers, self._estimate)

    def pin(self) -> None:
        """Keeps the timeline shown now as A above the following ones; pressing again lets it go."""
        with self._drawing:
            if self._pinned is None and self._estimate is not None:
                row, estimate = self._shown, self._estimate
                words = f"{_short(estimate.trial.schedule)}, {row['source'] if row else 'simulated'}"
                spans = self._spans_of(row) if row else estimate.spans
                self._pinned = Pinned(words, row["time_s"] if row else estimate.time_s, spans)
            else:
                self._pinned = None
            self.page.pin.description = "Pin as A" if self._pinned is None else "Unpin A"
            self._draw()

    def _warn(self) -> None:
        """What to know before measuring."""
        world, cores = self.question.asked.world, usable_cores()
        machine = self.question.machine_value
        words = ""
        if self.source.value == MEASURE and machine.backend != "cpu" and self._ranks is not None:
            words = f"{machine.name} is a description of GPUs: simulate it, unless the cluster's ranks have such ones."
        elif self.source.value == MEASURE and self._ranks is not None and world > self._ranks:
            words = f"{world} ranks are asked for, but the cluster has {self._ranks}: choose at most {self._ranks}."
        elif self.source.value == MEASURE:
            words = crowded(world, cores) or ""
        self.page.banner.value = warning_html(words) if words else ""

    def _found(self, ranks: int | None, sentence: str) -> None:
        """News of the cluster; called by the finder's thread."""
        self._ranks = ranks
        self.page.status.value = warning_html(sentence) if ranks is None else note_html(sentence)
        self._warn()

    def _source_changed(self) -> None:
        if self.source.value == REPLAY and self.source.recording.value is not None:
            self._load_recorded()
        self.refresh()

    def _load_recorded(self) -> None:
        """The form shows what the recording is about."""
        try:
            recorded = self.source.recorded()
        except ValueError as unreadable:
            self.page.message.value = refusal_html(str(unreadable))
            return
        whole = [entry.measurement for entry in recorded if entry.measurement.trial.part == "whole"]
        if whole:
            self.question.load_row(row_of(min(whole, key=lambda measured: measured.time_s)))

    # running

    def run(self) -> None:
        """Asks for what the form says. Returns at once."""
        try:
            sitting = self.source.sitting(self.question.asked, self.question.machine_value)
        except ValueError as refused:
            self.page.message.value = refusal_html(str(refused))
            return
        self.page.message.value = ""
        with self._drawing:
            self._begin(sitting)
        self.session.start(sitting)

    def _begin(self, sitting: Sitting) -> None:
        self.run_id, self._shown = sitting.run, None
        asked, machine = self.question.asked, self.question.machine_value
        swept = {} if self.source.value == REPLAY and self.source.whole.value else asked.swept_values(machine)
        guess_s, estimate = self._guess_s(), self._estimate
        self.panels.begin(
            Begun(
                swept=swept,
                context="" if estimate is None else self._context(estimate),
                timed=self.source.value != SIMULATE,
                guess_s=guess_s,
                guessed=_is_of(estimate.trial.schedule) if estimate else lambda row: False,
            )
        )
        self.panels.open = ALONG if swept else TRIALS
        self.results.begin(self._plan)
        self._running = True
        self._allow_run()
        self._draw()

    def _context(self, estimate: Estimate) -> str:
        """What a chart says of all trials of a run."""
        source = {MEASURE: "measured", REPLAY: "recorded"}.get(self.source.value, "estimated")
        return context([{**row_of(estimate, None, self.question.machine_value), "source": source}])

    def _allow_run(self) -> None:
        self.page.run.disabled = self._running or (self._estimate is None and self.source.value != REPLAY)
        self.page.stop.disabled = not self._running

    def _guess_s(self) -> float | None:
        """The student's guess in seconds; what is no number is no guess."""
        try:
            guess_ms = float(self.page.guess.value.strip().removesuffix("ms").replace(",", "."))
        except ValueError:
            return None
        return guess_ms / 1e3 if 0 < guess_ms < float("inf") else None

    def stop(self) -> None:
        """Ends the run within two seconds; what was measured stays."""
        self.page.stop.disabled = True
        self.session.stop()

    def _hear(self, news: News) -> None:
        """What came back since the last tick; called by the session's thread."""
        with self._drawing:
            self.panels.add(news)
            self.results.add(news)
            timed = [row for row in news.rows if row["source"] in TIMED and row["time_s"] is not None]
            if any(map(self._is_shown, timed)):
                # the link is known now, and the simulated timeline is of the same one
                self._estimate = self._predicted()
                self._show_measured()
                self._draw()
        if news.ended:
            self._end(news)

    def _end(self, news: News) -> None:
        self._running = False
        failed = self.results.failures
        if news.error:
            self.page.message.value = refusal_html(news.error)
        elif failed:
            more = f" ({len(failed)} failed; the table below has all)" if len(failed) > 1 else ""
            self.page.message.value = refusal_html(f"{failed[0]['message']}{more}")
        self.refresh()
        self.frozen.freeze_soon(news.run)

    def _load_cell(self, click: Click) -> None:
        """A cell of the landscape was clicked: its schedule becomes the form's."""
        row = self.panels.row_of(click)
        if row is not None:
            self.question.load(row["scheme"], row["axes"])

    # what was before

    def _restore(self, run: str) -> None:
        """Shows a run of the store; without one there is nothing to restore."""
        try:
            found = self.store.run(run)
        except ValueError as unknown:
            if run != "last":
                self.page.message.value = refusal_html(str(unknown))
            return
        rows = self.store.rows(found["id"])
        best = stored.fastest(rows)
        if best is not None:
            self.question.load_row(best)
        self.run_id = found["id"]
        self.panels.show(found["id"], rows, context([row for row in rows if row["part"] == "whole"]))
        self.panels.open = TRIALS
        self.results.show(found, rows)


def _is_of(schedule: Schedule) -> Callable[[Row], bool]:
    """Whether a row is of *schedule*."""
    axes = dict(schedule.axes)
    return lambda row: row["scheme"] == schedule.scheme and row["axes"] == axes


def _short(schedule: Schedule) -> str:
    """The scheme and the one axis of it that everybody sees."""
    return ", ".join([schedule.scheme, *(f"{axis} {schedule[axis]}" for axis in BASIC.get(schedule.scheme, ()))])


def explorer(run: str = "last", *, store: str | Path | None = None, cluster: str | None = None) -> None:
    """The explorer in this cell. *run* is the run to show first: an id, the beginning of one, or `last`.

    *store* is a file of runs other than this person's own; *cluster* is a scheduler's address other than the lab's.
    """
    theme.enable()
    Explorer(run=run, store=None if store is None else Store(Path(store)), cluster=cluster).show()
