"""The charts of a run in tabs, fed from the store's rows; each chart is independent of the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets

from kernels.problem import Problem
from kernels.schedule import Schedule, Value
from kernels.schemes import BASELINE
from workbench.charts import best, labels, layers, samples, trials
from workbench.charts.labels import problem_titles
from workbench.naming import TIMED, baseline_title, schedule_title
from workbench.reports.tables import gain_text
from workbench.results import comparison
from workbench.results.metrics import FLOOR, Joins
from workbench.results.rows import Key, Row, current_problem_and_schedule, problem_of, rows_of_first_problem
from workbench.results.running import RunningMedians
from workbench.results.store import Store
from workbench.widgets.chart_panels import AlongPanel, LandscapePanel, LossesPanel, StepPanel
from workbench.widgets.controls import HIDDEN, SHOWN, QuietControls, dropdown, html, note_html
from workbench.widgets.live_chart import Click, LiveChart, ready
from workbench.widgets.session import RunNews

# The problem of a run that the charts show: rows of different shapes or links share neither an axis nor a best.


class ProblemChoice(QuietControls):
    """The choice of a problem, visible once a run has two. The newest one is shown until a person chooses."""

    def __init__(self, chosen: Callable[[], Any]) -> None:
        self._chosen = chosen
        self.list = dropdown("Problem", [], "wb-problem")
        self.list.layout, self.list.style = ipywidgets.Layout(flex="1 1 100%"), {"description_width": "60px"}
        self.note = html("wb-problem-note")
        self.note.layout = ipywidgets.Layout(flex="1 1 100%", margin="0 0 0 8px")
        self.view = ipywidgets.HBox([self.list, self.note], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.list.observe(self._picked, "value")
        self.begin(following=False)

    def begin(self, *, following: bool) -> None:
        """Starts another run, whose problems are not known; *following*: the newest one is shown."""
        self._following = following
        self.rows: dict[Key, list[Row]] = {}
        """Rows of whole schedules, by problem."""
        self._offer()

    @property
    def value(self) -> Key | None:
        """The shown problem; None before the first row."""
        return self.list.value

    def includes(self, row: Row) -> bool:
        """Whether *row* is of the shown problem."""
        return problem_of(row) == self.value

    @property
    def shown(self) -> Sequence[Row]:
        """The rows of the shown problem."""
        return self.rows.get(self.value or (), ())

    def add(self, rows: Sequence[Row]) -> bool:
        """Adds rows of whole schedules, and returns whether another problem is shown now."""
        known, before = len(self.rows), self.value
        for row in rows:
            self.rows.setdefault(problem_of(row), []).append(row)
        if len(self.rows) > known:
            self._offer()
        if rows and self._following:
            self.show(problem_of(rows[-1]))
        return self.value != before

    def complete(self, completed: Callable[[Row], Row]) -> bool:
        """Replaces every row by its *completed* one, and returns whether the floor of a shown row has changed."""
        before = [row.get(FLOOR) for row in self.shown]
        self.rows = {problem: [completed(row) for row in rows] for problem, rows in self.rows.items()}
        return [row.get(FLOOR) for row in self.shown] != before

    def show(self, problem: Key) -> None:
        """Shows *problem*, without calling it a person's choice."""
        if problem in self.rows:
            with self._silently():
                self.list.value = problem

    def finish(self) -> None:
        """Ends the run: the newest problem is no longer followed, and the gain of the best schedule is shown."""
        self._following = False
        self.show_gain()

    @property
    def following(self) -> bool:
        """Whether the newest problem is shown."""
        return self._following

    def show_gain(self) -> None:
        """Shows the gain of the fastest schedule of the shown problem."""
        several = len(self.rows) > 1 and any(row["time_s"] is not None for row in self.shown)
        gain = f"{self._count()} {gain_text(self.shown)}" if several else ""
        self.note.value = note_html(gain) if gain else ""

    def _count(self) -> str:
        """The number of problems as text: one that was timed by two protocols is two entries of the list."""
        count = len({problem_of({**rows[0], "protocol": None}) for rows in self.rows.values()})
        text = f"One of {count} problems"
        return f"{text}." if count == len(self.rows) else f"{text}, in {len(self.rows)} entries: protocols differ."

    def _offer(self) -> None:
        before = self.list.value
        titles = problem_titles({key: rows[0] for key, rows in self.rows.items()})
        with self._silently():
            self.list.options = [(title, key) for key, title in titles.items()]
            self.list.value = before if before in titles else next(iter(titles), None)
        self.view.layout.display = SHOWN if len(titles) > 1 else HIDDEN
        if not titles:
            self.note.value = ""

    def _picked(self, _: Any) -> None:
        if not self._quiet:
            self._following = False
            self._chosen()


# The tabs.

REDRAW_SECONDS = 0.5
"""Least time between redraws of charts that are replaced, not appended to; longer where there are many rows."""
REDRAW_ROW_SECONDS = 0.001
RUNNING_SECONDS = 0.2
"""Time between updates of the marks of running trials."""
SAMPLES_MOST = 400
"""The most samples of a trial on the chart; the store keeps all of them."""
TRIALS, ALONG, LANDSCAPE, LOSSES, SAMPLES, BEST, STEP = (
    "Trials",
    "Along an axis",
    "Landscape",
    "Where time goes",
    "Samples",
    "Best so far",
    "A step on many ranks",
)
NOTHING = (
    "Nothing has run yet. The landscape is estimated, like the timeline: write down what you expect, then press Run."
)
NO_SAMPLES = "An estimate has no samples: nothing is timed. Measure or replay to see how steady a schedule is."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """The settings of a run when it starts."""

    swept: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    """Axes with several values to try; charts are drawn along the first."""
    context: str = ""
    """A subtitle of what all of its trials have in common."""
    timed: bool = True
    """Whether trials are timed, so that estimates are only shown for comparison."""
    guess_s: float | None = None
    guessed: Callable[[Row], bool] = lambda row: False
    """Whether the guess is about the schedule of a row."""


class Panels:
    """The tabs of charts: `begin` empties them, `add` appends news of a run, `show` shows a run that has ended."""

    def __init__(self, store: Store, estimates: Callable[[str, str], Sequence[Row]]) -> None:
        self._store = store
        self.trials, self.best = LiveChart(ready(trials.live)), LiveChart(ready(best.live))
        self.samples = LiveChart(ready(samples.live))
        self.along, self.losses = AlongPanel(), LossesPanel(store)
        self.landscape = LandscapePanel(estimates, self._on_landscape)
        self.samples_note, self.step = html("wb-samples-note"), StepPanel()
        tabs = {TRIALS: self.trials, ALONG: self.along.view, LANDSCAPE: self.landscape.view, LOSSES: self.losses.view}
        tabs |= {SAMPLES: ipywidgets.VBox([self.samples_note, self.samples]), BEST: self.best, STEP: self.step.view}
        self._names = list(tabs)
        self.tabs = ipywidgets.Tab(list(tabs.values()), titles=tuple(tabs))
        self.tabs.add_class("wb-panels")
        for name, widget in tabs.items():
            widget.add_class(f"wb-tab-{name.lower().replace(' ', '-')}")
        self.note = html("wb-nothing-yet")
        self.note.value = note_html(NOTHING)
        self.problem = ProblemChoice(self._problem_chosen)
        self._listeners: list[Callable[[Row], Any]] = []
        self.view = ipywidgets.VBox([self.note, self.problem.view, self.tabs], layout=ipywidgets.Layout(width="100%"))
        self.same_problem: Callable[[Row], bool] = lambda row: True
        """Whether a row belongs on the landscape of the form's question."""
        self._context = ""
        self._forget(RunStart())
        self.tabs.observe(self._opened, "selected_index")
        self.open = LANDSCAPE

    @property
    def open(self) -> str:
        """Name of the open tab."""
        return self._names[self.tabs.selected_index or 0]

    @open.setter
    def open(self, name: str) -> None:
        self.tabs.selected_index = self._names.index(name)

    def _opened(self, _: Any) -> None:
        """Draws the tabs that are only drawn while they are open."""
        self.landscape.look(self.open == LANDSCAPE)
        self.step.look(self.open == STEP)
        self._show_losses()

    @property
    def rows(self) -> Sequence[Row]:
        """All rows of this run so far."""
        return self._rows

    def _forget(self, start: RunStart) -> None:
        self._start = start
        self._rows: list[Row] = []
        self._joins = Joins()
        self._whole: dict[str, Row] = {}
        self._timed: dict[tuple[Problem, Schedule], Row] = {}
        self._numbers: dict[str, int] = {}
        self._with_guess: set[str] = set()
        """Keys of the trials at which the guess is drawn; a trial has its number from its first sample on."""
        self._guess_is_of = self.same_problem
        self._swept = start.swept
        self._samples: dict[str, list[Mapping[str, Any]]] = {}
        self._shown_key: str | None = None
        self._chosen: str | None = None
        self._run = ""
        self._redrawn_at = self._running_drawn_at = 0.0
        self._running: Sequence[Row] = ()

    def begin(self, start: RunStart) -> None:
        """Starts another run, and empties all charts."""
        self._forget(start)
        self.note.value = ""
        self.problem.begin(following=True)
        self._empty()
        self.samples_note.value = "" if start.timed else note_html(NO_SAMPLES)
        self.samples.layout.display = SHOWN if start.timed else HIDDEN
        self.landscape.begin(list(start.swept))

    def _empty(self) -> None:
        """Empties the charts for the shown problem."""
        context, swept = self._start.context, self._start.swept
        if len(self.problem.rows) > 1:
            context = labels.context(self.problem.shown)
        if not swept:
            swept = varied(self.problem.shown)
        if context != self._context:
            self._context = context
            self.trials.show(ready(trials.live, context=context))
            self.best.show(ready(best.live, context=context))
        self._swept, self._numbers, self._shown_key = swept, {}, None
        self._with_guess = set()
        for chart, dataset in ((self.trials, trials.DATASET), (self.trials, layers.DATASET),
                               (self.best, best.DATASET), (self.samples, samples.DATASET)):  # fmt: skip
            chart.replace(dataset, [])
        self.along.begin(swept, context)
        self.losses.begin()

    def add(self, news: RunNews) -> None:
        """Adds what is new since the last tick."""
        self._run = news.run
        again = self._keep_samples(news.samples)
        self._append(news.rows)
        self._show_running(news.running, news.ended)
        self._add_samples(news.samples, again)
        pause = max(REDRAW_SECONDS, REDRAW_ROW_SECONDS * len(self._rows))
        if news.ended or time.monotonic() - self._redrawn_at > pause:
            self._redraw()
        if news.ended:
            self._finish()

    def _finish(self) -> None:
        """Draws the end of a run: its varied axes are known now, and the samples of the chosen trial are shown."""
        self.problem.finish()
        completed = self.problem.complete(self._joins.completed)
        if completed or (varied(self.problem.shown) != self._swept and not self._start.swept):
            self._draw_problem()
        self._show_samples(self._chosen_key())

    def show(self, run: str, rows: Sequence[Row], context: str) -> None:
        """Shows a *run* that has ended before."""
        timed = any(row["source"] in TIMED for row in rows)
        whole = [row for row in rows if row["part"] == "whole"]
        # each of several problems has its own axes
        swept = varied(rows) if len(rows_of_first_problem(whole)) == len(whole) else {}
        self.begin(RunStart(swept=swept, context=context, timed=timed))
        self._run = run
        self.problem.begin(following=False)
        self._append(rows)
        unfinished = RunningMedians()
        unfinished.add_rows(rows)
        unfinished.add_samples(self._store.unfinished_samples(run))
        self._show_running(unfinished.rows(stopped=True), True)
        self._redraw()
        self._finish()

    def _show_running(self, rows: Sequence[Row], at_once: bool) -> None:
        """Redraws the running trials a few times a second; when a trial ends, its outcome replaces its mark."""
        now = time.monotonic()
        gone = len(rows) < len(self._running)
        if not (rows or gone) or not (at_once or gone or now - self._running_drawn_at > RUNNING_SECONDS):
            return
        self._running, self._running_drawn_at = rows, now
        self._draw_running()

    def _draw_running(self) -> None:
        of_problem = [row for row in self._running if self.problem.value is None or self.problem.includes(row)]
        self.trials.replace(layers.DATASET, layers.rows(of_problem, self._numbers))
        self.along.show_running(of_problem, self._numbers)

    def choose(self, key: str | None) -> None:
        """Chooses the trial whose losses and samples are shown; None means the fastest."""
        self._chosen = key
        row = self._whole.get(key or "")
        if row is not None and not self.problem.following and not self.problem.includes(row):
            self.problem.show(problem_of(row))
            self._draw_problem()
        self._show_losses()
        if self._chosen_key() != self._shown_key:
            self._show_samples(self._chosen_key())

    def timed(self, problem: Problem, schedule: Schedule) -> Row | None:
        """The row of the newest timing of *schedule* on *problem* in this run, or None."""
        row = self._timed.get((problem, schedule))
        return None if row is None else self._joins.completed(row)

    def _on_landscape(self) -> list[Row]:
        return [row for row in self._rows if row["part"] == "whole" and self.same_problem(row)]

    def _append(self, rows: Sequence[Row]) -> None:
        """Adds rows; refused combinations of a sweep are only shown on the landscape, since they are no trials."""
        self._rows += rows
        for row in rows:
            self._joins.add(row)
        whole = [row for row in rows if row["part"] == "whole" and not (self._start.swept and _is_refused(row))]
        self._whole.update({row["key"]: row for row in whole})
        self._timed.update(
            {current_problem_and_schedule(row): row for row in whole if row["source"] in TIMED and row["time_s"]}
        )
        if self.problem.add(whole) and len(self.problem.rows) > 1:
            self._draw_problem()
        else:
            self._append_shown([row for row in whole if self.problem.includes(row)])

    def _draw_problem(self) -> None:
        """Redraws all charts for the shown problem."""
        self._empty()
        self._append_shown(self.problem.shown)
        self._draw_running()
        if not self.problem.following:
            self.problem.show_gain()
            self._show_samples(self._chosen_key())
        self._show_losses()

    def _problem_chosen(self) -> None:
        """Shows the problem that a person chose, and reports its fastest schedule to the listeners."""
        self._chosen = None
        self._draw_problem()
        fastest = comparison.fastest(self.problem.shown)
        if fastest is not None:
            for listener in self._listeners:
                listener(fastest)

    def on_problem(self, listener: Callable[[Row], Any]) -> None:
        """Calls *listener* with the fastest row of a problem that a person chose."""
        self._listeners.append(listener)

    def _append_shown(self, whole: Sequence[Row]) -> None:
        # estimates that are compared with measurements share the measured floor
        shown = [
            {**row, "floor_s": None} if self._start.timed and row["source"] == "estimated" else row for row in whole
        ]
        self.trials.append(trials.DATASET, trials.rows(shown, numbers=self._numbers))
        self.best.append(best.DATASET, best.rows(shown, self._numbers))
        self.along.add(shown)
        self._add_guess(whole)

    def _add_guess(self, whole: Sequence[Row]) -> None:
        """Draws the guess at the schedule that it is about, when its first row comes."""
        guess_s = self._start.guess_s
        if guess_s is None:
            return
        guessed = {
            row["key"]: row
            for row in whole
            if row["key"] in self._numbers and self._start.guessed(row) and self._guess_is_of(row)
        }
        new = [(key, row) for key, row in guessed.items() if key not in self._with_guess]
        self._with_guess |= guessed.keys()
        self.trials.append(trials.DATASET, [trials.guess(row, guess_s, self._numbers[key]) for key, row in new])

    # One trial.

    def _chosen_key(self) -> str | None:
        if self._chosen is not None:
            return self._chosen
        fastest = comparison.fastest(self.problem.shown)
        return None if fastest is None else fastest["key"]

    def _keep_samples(self, new: Sequence[Mapping[str, Any]]) -> set[str]:
        """Keeps samples, and returns the keys of trials that are timed again, as the baseline is in every block."""
        again = set()
        for sample in new:
            kept = self._samples.setdefault(sample["key"], [])
            if kept and kept[-1].get("block") != sample.get("block"):
                again.add(sample["key"])
                kept.clear()
            kept.append(sample)
        return again

    def _add_samples(self, new: Sequence[Mapping[str, Any]], again: set[str]) -> None:
        """Draws new samples of the trial that began last."""
        whole = [sample for sample in new if self._is_drawn(sample["key"])]
        if not whole:
            return
        key = whole[-1]["key"]
        if key == self._shown_key and key not in again:
            of_trial = [sample for sample in whole if sample["key"] == key]
            self.samples.append(samples.DATASET, samples.rows(of_trial, self._whole[key]["scheme"]))
        else:
            self._show_samples(key)

    def _is_drawn(self, key: str) -> bool:
        """Whether the charts are about the trial *key*."""
        return key in self._whole and self.problem.includes(self._whole[key])

    def _show_samples(self, key: str | None) -> None:
        row = self._whole.get(key or "")
        if key is None or row is None or (row["outcome"] != "measurement" and key not in self._samples):
            return
        self._shown_key = key
        of_trial = self._samples.get(key) or self._samples_of(row)
        self.samples_note.value = note_html(f"Of {self._schedule_label(row)}.")
        self.samples.replace(samples.DATASET, samples.rows(of_trial[-SAMPLES_MOST:], row["scheme"]))

    def _samples_of(self, row: Row) -> list[Mapping[str, Any]]:
        """Samples of a trial from the store."""
        by_rank = self._store.measurement(row["id"]).samples
        return [
            {"rank": rank, "index": index, "seconds": seconds}
            for rank, times in enumerate(by_rank)
            for index, seconds in enumerate(times)
        ]

    def _redraw(self) -> None:
        self._redrawn_at = time.monotonic()
        self.landscape.draw()
        self._show_losses()

    def _show_losses(self) -> None:
        if self.open != LOSSES:
            return
        row = self._whole.get(self._chosen or "") or comparison.fastest(self.problem.shown)
        if row is not None and row["time_s"] is not None:
            row = self._joins.completed(self._timed.get(current_problem_and_schedule(row), row))
            self.losses.show(self._run, self._rows, row, self._schedule_label(row))

    def _schedule_label(self, row: Row) -> str:
        """Label of a schedule: its scheme and swept axes, or for a baseline its variant."""
        if row["scheme"] == BASELINE:
            return ", ".join(filter(None, (BASELINE, baseline_title(row["axes"]))))
        return schedule_title(row["scheme"], {axis: row["axes"][axis] for axis in self._swept if axis in row["axes"]})

    # Clicks.

    def on_cell(self, callback: Callable[[Click], Any]) -> None:
        """Calls *callback* when a schedule's mark is clicked on a chart."""
        for chart in (self.landscape.chart, self.trials, self.best, self.along.chart):
            chart.on_click(callback)

    def row_of(self, click: Click) -> Row | None:
        """The row of the clicked mark, or None."""
        if click.datum.get("axes"):
            return click.datum
        return self._whole.get(str(click.datum.get("key")))


def _is_refused(row: Row) -> bool:
    return bool(row["stage"] == "refused")


def varied(rows: Sequence[Row]) -> dict[str, list[Value]]:
    """The axes that had several values in *rows*, the one with most values first."""
    occurring: dict[str, dict[Value, None]] = {}
    for row in rows:
        if row["part"] == "whole" and row["scheme"] != BASELINE:
            for axis, value in row["axes"].items():
                occurring.setdefault(axis, {})[value] = None
    several = {axis: list(values) for axis, values in occurring.items() if len(values) > 1}
    return dict(sorted(several.items(), key=lambda entry: -len(entry[1])))
