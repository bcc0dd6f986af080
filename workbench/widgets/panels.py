"""The charts of a run in tabs, fed from the store's rows; each answers one question and none knows another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets

from kernels.problem import Problem
from kernels.schedule import Schedule, Value
from kernels.schemes import BASELINE
from workbench.charts import best, layers, samples, trials
from workbench.charts import labels as words
from workbench.charts.labels import problem_titles
from workbench.naming import TIMED, baseline_title, schedule_title
from workbench.reports.tables import gain_words
from workbench.results import comparison
from workbench.results.metrics import FLOOR, Joins
from workbench.results.rows import Key, current_problem_and_schedule, problem_of, rows_of_first_problem
from workbench.results.running import RunningMedians
from workbench.results.store import Store
from workbench.widgets.chart_panels import AlongPanel, LandscapePanel, LossesPanel, StepPanel
from workbench.widgets.controls import HIDDEN, SHOWN, QuietControls, dropdown, html, note_html
from workbench.widgets.live_chart import Click, LiveChart, ready
from workbench.widgets.session import RunNews

# Which problem of a run the charts are about: rows of different shapes or links share no axis and no best.

Row = Mapping[str, Any]


class ProblemChoice(QuietControls):
    """`view` is seen once a run has two problems. Until a person chooses, the newest one is shown while they come."""

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
        """Another run, whose problems are not known; *following*: the newest is the one to look at."""
        self._following = following
        self.rows: dict[Key, list[Row]] = {}
        """Of whole schedules, by problem."""
        self._offer()

    @property
    def value(self) -> Key | None:
        """The problem that is shown; None before the first row."""
        return self.list.value

    def of(self, row: Row) -> bool:
        """Whether *row* is of the problem that is shown."""
        return problem_of(row) == self.value

    @property
    def shown(self) -> Sequence[Row]:
        """Its rows."""
        return self.rows.get(self.value or (), ())

    def add(self, rows: Sequence[Row]) -> bool:
        """Takes rows of whole schedules. Whether another problem is shown now."""
        known, before = len(self.rows), self.value
        for row in rows:
            self.rows.setdefault(problem_of(row), []).append(row)
        if len(self.rows) > known:
            self._offer()
        if rows and self._following:
            self.show(problem_of(rows[-1]))
        return self.value != before

    def complete(self, completed: Callable[[Row], Row]) -> bool:
        """Takes every row as it is *completed* by what came later. Whether what is shown has another floor now."""
        before = [row.get(FLOOR) for row in self.shown]
        self.rows = {problem: [completed(row) for row in rows] for problem, rows in self.rows.items()}
        return [row.get(FLOOR) for row in self.shown] != before

    def show(self, problem: Key) -> None:
        """Shows *problem*, as if nobody had chosen."""
        if problem in self.rows:
            with self._silently():
                self.list.value = problem

    def rest(self) -> None:
        """The run has ended: nothing new comes that one would look at, and each problem has a best."""
        self._following = False
        self.say()

    @property
    def following(self) -> bool:
        """Whether the newest problem is shown."""
        return self._following

    def say(self) -> None:
        """What the fastest schedule of the shown problem gains."""
        several = len(self.rows) > 1 and any(row["time_s"] is not None for row in self.shown)
        words = f"{self._count()} {gain_words(self.shown)}" if several else ""
        self.note.value = note_html(words) if words else ""

    def _count(self) -> str:
        """How many problems there are: timed by two protocols, one is two entries of the list."""
        count = len({problem_of({**rows[0], "protocol": None}) for rows in self.rows.values()})
        words = f"One of {count} problems"
        return f"{words}." if count == len(self.rows) else f"{words}, in {len(self.rows)} entries: protocols differ."

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


# The charts of a run in tabs, fed from the store's rows; each answers one question and none knows another.

REDRAW_SECONDS = 0.5
"""Charts that are made anew, not appended to, are so at most this often; longer where there is much to draw."""
REDRAW_ROW_SECONDS = 0.001
RUNNING_SECONDS = 0.2
"""Marks of what is being timed move so often."""
SAMPLES_MOST = 400
"""Of one trial on the chart; the store keeps all of them."""
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
    """What a run was begun with."""

    swept: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    """Axes of which it tries several values; the first is the one to draw along."""
    context: str = ""
    """What all of its trials have in common, as a subtitle."""
    timed: bool = True
    """Something is timed, so that estimates only stand beside it."""
    guess_s: float | None = None
    guessed: Callable[[Row], bool] = lambda row: False
    """Whether the guess is about the schedule of a row."""


class Panels:
    """`begin` empties the charts, `add` feeds them, `show` fills them with a run that has ended."""

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
        """Whether a row belongs on the landscape of what the form asks."""
        self._context = ""
        self._forget(RunStart())
        self.tabs.observe(self._opened, "selected_index")
        self.open = LANDSCAPE

    @property
    def open(self) -> str:
        """The tab that is looked at."""
        return self._names[self.tabs.selected_index or 0]

    @open.setter
    def open(self, name: str) -> None:
        self.tabs.selected_index = self._names.index(name)

    def _opened(self, _: Any) -> None:
        """What is about the form or about one trial is made when somebody looks."""
        self.landscape.look(self.open == LANDSCAPE)
        self.step.look(self.open == STEP)
        self._show_losses()

    @property
    def rows(self) -> Sequence[Row]:
        """Everything that came back of this run."""
        return self._rows

    def _forget(self, begun: RunStart) -> None:
        self._begun = begun
        self._rows: list[Row] = []
        self._joins = Joins()
        self._whole: dict[str, Row] = {}
        self._timed: dict[tuple[Problem, Schedule], Row] = {}
        self._numbers: dict[str, int] = {}
        self._with_guess: set[str] = set()
        """Trials beside which the guess is drawn: a trial has its number before its first row, from a sample."""
        self._guess_is_of = self.same_problem
        self._swept = begun.swept
        self._samples: dict[str, list[Mapping[str, Any]]] = {}
        self._shown_key: str | None = None
        self._chosen: str | None = None
        self._run = ""
        self._redrawn_at = self._ran_at = 0.0
        self._running: Sequence[Row] = ()

    def begin(self, begun: RunStart) -> None:
        """Another run: everything that was drawn goes."""
        self._forget(begun)
        self.note.value = ""
        self.problem.begin(following=True)
        self._empty()
        self.samples_note.value = "" if begun.timed else note_html(NO_SAMPLES)
        self.samples.layout.display = SHOWN if begun.timed else HIDDEN
        self.landscape.begin(list(begun.swept))

    def _empty(self) -> None:
        """The charts of one problem, before its first row."""
        context, swept = self._begun.context, self._begun.swept
        if len(self.problem.rows) > 1:
            context = words.context(self.problem.shown)
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
        """What came back since the last tick."""
        self._run = news.run
        again = self._keep_samples(news.samples)
        self._append(news.rows)
        self._show_running(news.running, news.ended)
        self._add_samples(news.samples, again)
        pause = max(REDRAW_SECONDS, REDRAW_ROW_SECONDS * len(self._rows))
        if news.ended or time.monotonic() - self._redrawn_at > pause:
            self._redraw()
        if news.ended:
            self._rest()

    def _rest(self) -> None:
        """The run has ended: what was varied is known now, and whose samples are worth a look."""
        self.problem.rest()
        completed = self.problem.complete(self._joins.completed)
        if completed or (varied(self.problem.shown) != self._swept and not self._begun.swept):
            self._draw_problem()
        self._show_samples(self._chosen_key())

    def show(self, run: str, rows: Sequence[Row], context: str) -> None:
        """A run that has ended before."""
        timed = any(row["source"] in TIMED for row in rows)
        whole = [row for row in rows if row["part"] == "whole"]
        # of several problems each has its own
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
        self._rest()

    def _show_running(self, rows: Sequence[Row], at_once: bool) -> None:
        """What is being timed is drawn anew, a few times a second; when it has ended, its outcome is there instead."""
        now = time.monotonic()
        gone = len(rows) < len(self._running)
        if not (rows or gone) or not (at_once or gone or now - self._ran_at > RUNNING_SECONDS):
            return
        self._running, self._ran_at = rows, now
        self._draw_running()

    def _draw_running(self) -> None:
        of_problem = [row for row in self._running if self.problem.value is None or self.problem.of(row)]
        self.trials.replace(layers.DATASET, layers.rows(of_problem, self._numbers))
        self.along.show_running(of_problem, self._numbers)

    def choose(self, key: str | None) -> None:
        """The trial whose losses and samples are shown; None: the fastest one's."""
        self._chosen = key
        row = self._whole.get(key or "")
        if row is not None and not self.problem.following and not self.problem.of(row):
            self.problem.show(problem_of(row))
            self._draw_problem()
        self._show_losses()
        if self._chosen_key() != self._shown_key:
            self._show_samples(self._chosen_key())

    def timed(self, problem: Problem, schedule: Schedule) -> Row | None:
        """The newest time of *schedule* on *problem* in this run, taken with a clock: a recording has several."""
        row = self._timed.get((problem, schedule))
        return None if row is None else self._joins.completed(row)

    def _on_landscape(self) -> list[Row]:
        return [row for row in self._rows if row["part"] == "whole" and self.same_problem(row)]

    def _append(self, rows: Sequence[Row]) -> None:
        """Of a sweep, combinations that are refused are on the landscape alone: they are no trials."""
        self._rows += rows
        for row in rows:
            self._joins.add(row)
        whole = [row for row in rows if row["part"] == "whole" and not (self._begun.swept and _is_refused(row))]
        self._whole.update({row["key"]: row for row in whole})
        self._timed.update(
            {current_problem_and_schedule(row): row for row in whole if row["source"] in TIMED and row["time_s"]}
        )
        if self.problem.add(whole) and len(self.problem.rows) > 1:
            self._draw_problem()
        else:
            self._append_shown([row for row in whole if self.problem.of(row)])

    def _draw_problem(self) -> None:
        """Everything that is drawn of the problem that is shown now, anew."""
        self._empty()
        self._append_shown(self.problem.shown)
        self._draw_running()
        if not self.problem.following:
            self.problem.say()
            self._show_samples(self._chosen_key())
        self._show_losses()

    def _problem_chosen(self) -> None:
        """A person wants to see another one: the form follows, with its fastest schedule."""
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
        # estimates that stand beside measurements have no floor of their own: the measured one is drawn
        shown = [
            {**row, "floor_s": None} if self._begun.timed and row["source"] == "estimated" else row for row in whole
        ]
        self.trials.append(trials.DATASET, trials.rows(shown, numbers=self._numbers))
        self.best.append(best.DATASET, best.rows(shown, self._numbers))
        self.along.add(shown)
        self._add_guess(whole)

    def _add_guess(self, whole: Sequence[Row]) -> None:
        """Beside the schedule that was guessed, when its first row comes."""
        guess_s = self._begun.guess_s
        if guess_s is None:
            return
        guessed = {
            row["key"]: row
            for row in whole
            if row["key"] in self._numbers and self._begun.guessed(row) and self._guess_is_of(row)
        }
        new = [(key, row) for key, row in guessed.items() if key not in self._with_guess]
        self._with_guess |= guessed.keys()
        self.trials.append(trials.DATASET, [trials.guess(row, guess_s, self._numbers[key]) for key, row in new])

    # one trial at a time

    def _chosen_key(self) -> str | None:
        if self._chosen is not None:
            return self._chosen
        fastest = comparison.fastest(self.problem.shown)
        return None if fastest is None else fastest["key"]

    def _keep_samples(self, new: Sequence[Mapping[str, Any]]) -> set[str]:
        """Takes samples; the keys of trials that are timed again: the baseline is, in every block."""
        again = set()
        for sample in new:
            kept = self._samples.setdefault(sample["key"], [])
            if kept and kept[-1].get("block") != sample.get("block"):
                again.add(sample["key"])
                kept.clear()
            kept.append(sample)
        return again

    def _add_samples(self, new: Sequence[Mapping[str, Any]], again: set[str]) -> None:
        """While a run goes on, the samples of the trial that began last: one at a time is readable."""
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
        return key in self._whole and self.problem.of(self._whole[key])

    def _show_samples(self, key: str | None) -> None:
        row = self._whole.get(key or "")
        if key is None or row is None or (row["outcome"] != "measurement" and key not in self._samples):
            return
        self._shown_key = key
        of_trial = self._samples.get(key) or self._samples_of(row)
        self.samples_note.value = note_html(f"Of {self._words(row)}.")
        self.samples.replace(samples.DATASET, samples.rows(of_trial[-SAMPLES_MOST:], row["scheme"]))

    def _samples_of(self, row: Row) -> list[Mapping[str, Any]]:
        """Those of a trial that was timed before this kernel began, or in another run."""
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
            self.losses.show(self._run, self._rows, row, self._words(row))

    def _words(self, row: Row) -> str:
        """A schedule in the words that tell it from the others of this run; several baselines stand in each."""
        if row["scheme"] == BASELINE:
            return ", ".join(filter(None, (BASELINE, baseline_title(row["axes"]))))
        return schedule_title(row["scheme"], {axis: row["axes"][axis] for axis in self._swept if axis in row["axes"]})

    # clicks

    def on_cell(self, callback: Callable[[Click], Any]) -> None:
        """Calls back when a schedule's mark is clicked, on the landscape or among the trials."""
        for chart in (self.landscape.chart, self.trials, self.best, self.along.chart):
            chart.on_click(callback)

    def row_of(self, click: Click) -> Row | None:
        """The schedule behind a click: its scheme and axes."""
        if click.datum.get("axes"):
            return click.datum
        return self._whole.get(str(click.datum.get("key")))


def _is_refused(row: Row) -> bool:
    return bool(row["stage"] == "refused")


def varied(rows: Sequence[Row]) -> dict[str, list[Value]]:
    """The axes of which a run had several values, the one with most values first."""
    occurring: dict[str, dict[Value, None]] = {}
    for row in rows:
        if row["part"] == "whole" and row["scheme"] != BASELINE:
            for axis, value in row["axes"].items():
                occurring.setdefault(axis, {})[value] = None
    several = {axis: list(values) for axis, values in occurring.items() if len(values) > 1}
    return dict(sorted(several.items(), key=lambda entry: -len(entry[1])))
