"""The charts of a run, fed from the store's rows; each chart is independent of the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets

from kernels.problem import Problem
from kernels.schedule import Schedule, Value
from kernels.schemes import BASELINE
from kernels.trial import Trial
from workbench.charts import best, labels, layers, samples, trials
from workbench.charts.labels import problem_titles
from workbench.charts.layers import Look
from workbench.charts.relative import AUTOMATIC, SCALES, name_of, scale_of
from workbench.naming import TIMED, baseline_title, schedule_title
from workbench.reports.tables import gain_text
from workbench.results import comparison
from workbench.results.deltas import Pinned, pinned_of
from workbench.results.metrics import FLOOR, Joins
from workbench.results.rows import Key, Row, current_problem_and_schedule, is_stop, problem_of, rows_of_first_problem
from workbench.results.running import RunningMedians
from workbench.results.store import Store
from workbench.widgets.chart_panels import STAGE, AlongPanel, LandscapePanel, LossesPanel, StepPanel
from workbench.widgets.controls import HIDDEN, SHOWN, QuietControls, dropdown, html, note_html
from workbench.widgets.exploration import row_id, schedule_id
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


# The charts.

REDRAW_SECONDS = 0.5
"""Least time between redraws of charts that are replaced, not appended to; longer where there are many rows."""
REDRAW_ROW_SECONDS = 0.001
RUNNING_SECONDS = 0.2
"""Time between updates of the marks of running trials."""
RUNS_APART = 0.8
"""Width over which the runs' marks of one schedule are spread, in schedules."""
SAMPLES_MOST = 400
"""The most samples of a trial on the chart; the store keeps all of them."""
TRIALS, ALONG, LANDSCAPE, LOSSES, SAMPLES, BEST, STEP = (
    "Trials",
    "Along an axis",
    "Landscape",
    "Losses",
    "Samples",
    "Best so far",
    "Many ranks",
)
NOTHING = (
    "Nothing has run yet. The landscape is estimated, like the timeline: write down what you expect, then press Run."
)
NO_SAMPLES = "An estimate has no samples: nothing is timed. Measure or replay to see how steady a schedule is."


Guess = tuple[float | None, Callable[[Row], bool]]
"""A guess in seconds, or None, and whether it is about the schedule of a row."""
NO_GUESS: Guess = (None, lambda row: False)


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
    """The charts of a run by title: `begin` empties them, `add` appends news, `show` shows a run that has ended."""

    def __init__(self, store: Store, estimates: Callable[[str, str], tuple[Sequence[Row], str]]) -> None:
        self._store = store
        self.trials, self.best, self.samples = (
            LiveChart(ready(live), fills=STAGE) for live in (trials.live, best.live, samples.live)
        )
        self.scale = dropdown("Time axis", SCALES, "wb-scale")
        self.scale.layout, self.scale.style = ipywidgets.Layout(width="170px"), {"description_width": "64px"}
        self.along, self.losses = AlongPanel(), LossesPanel(store)
        self.landscape = LandscapePanel(estimates, self._on_landscape)
        self.samples_note, self.step = html("wb-samples-note"), StepPanel()
        timed = {TRIALS: self.trials, ALONG: self.along.view, BEST: self.best}
        self.charts = {title: ipywidgets.VBox([self.scale, chart]) for title, chart in timed.items()}
        self.charts |= {LANDSCAPE: self.landscape.view, LOSSES: self.losses.view, STEP: self.step.view,
                        SAMPLES: ipywidgets.VBox([self.samples_note, self.samples])}  # fmt: skip
        """The widget of each chart, by title."""
        for name, widget in self.charts.items():
            widget.add_class(f"wb-tab-{name.lower().replace(' ', '-')}")
        self.note = html("wb-nothing-yet")
        self.note.value = note_html(NOTHING)
        self.problem = ProblemChoice(self._problem_chosen)
        self._listeners: list[Callable[[Row], Any]] = []
        self.same_problem: Callable[[Row], bool] = lambda row: True
        """Whether a row belongs on the landscape of the form's question."""
        self._shown: tuple[str, str, Look] = "", "", layers.PLAIN
        """Context, baseline and look of the charts as drawn."""
        self._open = ""
        self._is_stale = False
        """Whether other rows are kept than are drawn: nobody looked."""
        self._selected: Row | None = None
        self._baseline: Pinned | None = None
        self._pinned: Pinned | None = None
        """The baseline, if it is of the shown problem."""
        self._kept: Container[str] | None = None
        """The names of rows that are drawn; None where all are."""
        self._scale = AUTOMATIC
        self._forget(RunStart())
        self.open = LANDSCAPE

    @property
    def open(self) -> str:
        """Title of the open chart; empty while something else is open."""
        return self._open

    @open.setter
    def open(self, title: str) -> None:
        if title != self._open:
            self._open = title
            if title and self._is_stale:
                self._draw_problem()
            self._draw_opened()

    def _draw_opened(self) -> None:
        """Draws the charts that are only drawn while they are open."""
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
        self._timed: dict[tuple[Problem, Schedule, str], Row] = {}
        self._numbers: dict[str, int] = {}
        self._by_mark: dict[str, Row] = {}
        """The whole rows by their name."""
        self._runs: dict[str, str] = {}
        """Of several runs the names, by id; empty where one is drawn."""
        self._orders: dict[str, dict[str, int]] = {}
        """Of several runs the trials' numbers in the order of each, by the run's name."""
        self._drawn: set[str] = set()
        """The names of the rows that are drawn."""
        self._marks: dict[tuple[Any, ...], str] = {}
        """The drawn mark of each trial, by run, key and source."""
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

    def clear(self) -> None:
        """Shows no run."""
        self.begin(RunStart())
        self.problem.begin(following=False)
        self.note.value = note_html(NOTHING)

    def _empty(self) -> None:
        """Empties the charts for the shown problem."""
        context, swept = self._start.context, self._start.swept
        if len(self.problem.rows) > 1:
            context = labels.context(self.problem.shown)
        if not swept:
            swept = varied(self.problem.shown)
        self._pinned = pinned_of(self._baseline, self.problem.shown)
        self._swept, self._numbers, self._shown_key = swept, {}, None
        self._with_guess, self._orders, self._marks, self._drawn = set(), {}, {}, set()
        self._draw_look(context)
        for chart, dataset in ((self.trials, trials.DATASET), (self.trials, layers.DATASET),
                               (self.best, best.DATASET), (self.samples, samples.DATASET)):  # fmt: skip
            chart.replace(dataset, [])
        self.along.begin(swept, context, self._pinned)
        self.losses.begin()

    def _draw_look(self, context: str) -> None:
        """Draws the axes again where their scale, the runs that they tell apart, the baseline or *context* changes."""
        times = (row["time_s"] for row in self.problem.shown if row["time_s"] is not None)
        look = Look(scale=scale_of(self._scale, times, self._pinned), runs=tuple(self._runs.values()))
        self.scale.disabled = self._pinned is not None
        shown = context, name_of(self._pinned), look
        if shown != self._shown:
            self._shown = shown
            for chart, live in ((self.trials, trials.live), (self.best, best.live)):
                chart.show(ready(live, context=context, baseline=shown[1], look=look))
        self.along.take(look)

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
        several = len(self._once()) < len(self.problem.shown)
        if completed or several or (varied(self.problem.shown) != self._swept and not self._start.swept):
            self._draw_problem()
        self._draw_look(self._shown[0])  # not while rows come: marks stay in their node
        self._show_samples(self._chosen_key())

    def show(self, run: str, rows: Sequence[Row], context: str, guess: Guess = NO_GUESS) -> None:
        """Shows a *run* that has ended before, with the *guess* of its question."""
        timed = any(row["source"] in TIMED for row in rows)
        whole = [row for row in rows if row["part"] == "whole"]
        # each of several problems has its own axes
        swept = varied(rows) if len(rows_of_first_problem(whole)) == len(whole) else {}
        self.begin(RunStart(swept=swept, context=context, timed=timed, guess_s=guess[0], guessed=guess[1]))
        self._run, self._runs = run, run_names(whole)
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
        self.trials.replace(layers.DATASET, layers.rows(of_problem, self._numbers, baseline=self._pinned))
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

    def pin(self, baseline: Row | None, rows: Sequence[Row] = ()) -> None:
        """Draws differences to the row *baseline* among its *rows*, or times; ValueError where it has no time."""
        self._baseline = None if baseline is None else Pinned.of(baseline, rows)
        self.landscape.pin(self._baseline)
        if self.problem.rows:
            self._draw_problem()

    def keep(self, names: Container[str] | None) -> None:
        """Draws only the rows that are named (`exploration.row_id`); None draws all."""
        self._kept = names
        if self.problem.rows and self.open:
            self._draw_problem()
        self._is_stale = not self.open

    def mark(self, row: Row | None) -> None:
        """Marks the selected *row* on the charts of trials; None: nothing is selected.

        Where several runs are drawn, samples and losses of its trial are those of its run.
        """
        self._selected = row
        if self._runs and row is not None and self._whole.get(row["key"]) is not self._by_mark.get(row_id(row)):
            self._whole[row["key"]] = self._by_mark.get(row_id(row), row)
            self._shown_key = None
        self._draw_mark()

    def _draw_mark(self) -> None:
        """Rings the mark of the selected row, or of another timing of its schedule in its run: the one that is
        drawn."""
        row = self._selected
        mark = "" if row is None else row_id(row)
        if row is not None and mark not in self._drawn:
            mark = self._marks.get(_trial_of(row), mark)
        for chart in (self.trials, self.best, self.along.chart):
            chart.set(layers.SELECTED, mark)

    def take_scale(self, chosen: str) -> None:
        """Draws times on the *chosen* one of SCALES."""
        self._scale = self.scale.value = chosen
        self._draw_look(self._shown[0])

    def timed(self, trial: Trial) -> Row | None:
        """The row of *trial*'s schedule, on its problem and machine, that tables show; None where none was timed."""
        row = self._timed.get((trial.problem, trial.schedule, trial.machine))
        return None if row is None else self._joins.completed(self._standing(row))

    def _standing(self, row: Row) -> Row:
        """The one timing that stands for the schedule of *row*, which may have been timed in several blocks."""
        alike, name = self.problem.rows.get(problem_of(row), ()), row_id(row)
        counts = comparison.counting(alike)  # by identity, and rows are replaced by completed ones
        return next((counts[id(one)] for one in alike if row_id(one) == name and id(one) in counts), row)

    def _with_parts(self, row: Row) -> Row:
        """*row*, or another timing of its schedule, of a block that timed the computation by itself, too."""
        known = self._joins.completed(row)
        if known.get("compute_s") is not None:
            return known
        same = (one for one in self.problem.rows.get(problem_of(row), ()) if one["key"] == row["key"])
        others = (self._joins.completed(one) for one in same if one["source"] in TIMED and one["time_s"] is not None)
        return next((one for one in others if one.get("compute_s") is not None), known)

    def _on_landscape(self) -> list[Row]:
        whole = comparison.once_each_run(
            [row for row in self._rows if row["part"] == "whole" and self.same_problem(row)]
        )
        return [row for row in whole if self._kept is None or row_id(row) in self._kept]

    def _append(self, rows: Sequence[Row]) -> None:
        """Adds rows, except those that a stop left out, which are no failures.

        Refused combinations of a sweep are only shown on the landscape, since they are no trials.
        """
        rows = [row for row in rows if not is_stop(row)]
        self._rows += rows
        for row in rows:
            self._joins.add(row)
        whole = [row for row in rows if row["part"] == "whole" and not (self._start.swept and _is_refused(row))]
        self._whole.update({row["key"]: row for row in whole})
        self._by_mark.update({row_id(row): row for row in whole})
        self._timed.update({_schedule_of(row): row for row in whole if row["source"] in TIMED and row["time_s"]})
        if self.problem.add(whole) and len(self.problem.rows) > 1:
            self._draw_problem()
        else:
            self._append_shown([row for row in whole if self.problem.includes(row)])

    def _draw_problem(self) -> None:
        """Redraws all charts for the shown problem."""
        self._is_stale = False
        self._empty()
        self._append_shown(self.problem.shown if self.problem.following else self._once())
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

    def _once(self) -> list[Row]:
        """The rows of the shown problem with one time for each schedule, in each run."""
        return comparison.once_each_run(self.problem.shown)

    def _append_shown(self, whole: Sequence[Row]) -> None:
        named = [self._named(row) for row in whole]
        for row in named:  # also of rows that a filter leaves out: a trial keeps its number
            for numbers in (self._numbers, self._order(row)):
                numbers.setdefault(str(row["key"]), len(numbers) + 1)
        shown = [row for row in named if self._kept is None or row["mark"] in self._kept]
        self._drawn.update(row["mark"] for row in shown)
        self._marks.update({_trial_of(self._by_mark[row["mark"]]): row["mark"] for row in shown})
        self.trials.append(trials.DATASET, trials.rows(shown, numbers=self._numbers, baseline=self._pinned))
        for run in self._runs.values() or (None,):
            of_run = [row for row in shown if row.get("run_name") == run]
            numbers = self._orders.get(run or "", self._numbers)
            self.best.append(best.DATASET, best.rows(of_run, numbers, baseline=self._pinned))
        self.along.add(shown)
        self._add_guess(named)
        self._draw_mark()

    def _named(self, row: Row) -> dict[str, Any]:
        """*row* with its name and, of several runs, its run's, for the charts."""
        more: dict[str, Any] = {"mark": row_id(row)}
        if self._start.timed and row["source"] == "estimated":
            more["floor_s"] = None  # estimates that are compared with measurements share the measured floor
        if self._runs:
            number, count = list(self._runs).index(row["run"]), len(self._runs)
            # schedules are at one place, though the link that follows from a machine may make another trial of each
            more["key"] = schedule_id(row)
            more |= {"run_name": self._runs[row["run"]], "run_share": 1 / count,
                     "run_shift": RUNS_APART * (number - (count - 1) / 2) / count}  # fmt: skip
        return {**row, **more}

    def _order(self, row: Row) -> dict[str, int]:
        """The numbers of the trials of the run of *row*; of one run those of all charts."""
        return self._orders.setdefault(row["run_name"], {}) if self._runs else self._numbers

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
        marks = [trials.guess(row, guess_s, self._numbers[key], baseline=self._pinned) for key, row in new]
        self.trials.append(trials.DATASET, marks)

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
        row = self._standing(row) if row["source"] in TIMED else row
        newest = self._samples.get(key) or [{}]
        # while the baseline is timed once more, its newest samples are shown; then those of its time in the table
        is_shown = self.problem.following or newest[-1].get("block") == row.get("block")
        of_trial = newest if newest[-1] and is_shown else self._samples_of(row)
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
            standing = self._standing(self._timed.get(_schedule_of(row), row))
            row = self._with_parts(standing)
            elsewhere = "" if row.get("block") == standing.get("block") else ", in the block that timed its parts"
            run = str(row.get("run") or self._run)
            rows = [one for one in self._rows if one.get("run", run) == run]
            self.losses.show(run, rows, row, f"{self._schedule_label(row)}{elsewhere}")

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
        return self._by_mark.get(str(click.datum.get("mark"))) or self._whole.get(str(click.datum.get("key")))


def _schedule_of(row: Row) -> tuple[Problem, Schedule, str]:
    """The schedule of *row* with its problem and machine: runs of several machines may be shown together."""
    return *current_problem_and_schedule(row), str(row["machine"])


def _trial_of(row: Row) -> tuple[Any, ...]:
    """The identity of a trial of a run, however often it was timed."""
    return row.get("run"), row["key"], row["source"]


def run_names(rows: Sequence[Row]) -> dict[str, str]:
    """The names by id of the runs of *rows*, with the sources of their times; empty for a single run."""
    sources: dict[str, list[str]] = {}
    for row in rows:
        known = sources.setdefault(str(row.get("run")), [])
        if row["source"] not in known and (row["source"] in TIMED or not known):
            known[:] = [*(source for source in known if source in TIMED), row["source"]]
    return {run: f"run {run}, {' and '.join(of)}" for run, of in sources.items()} if len(sources) > 1 else {}


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
