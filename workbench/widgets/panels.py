"""The charts of a run in tabs, fed from the store's rows; each answers one question and none knows another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ipywidgets

from kernels.axes import Value
from kernels.problem import Problem
from kernels.schedule import Schedule
from workbench.charts import best, samples, trials
from workbench.charts.words import TIMED
from workbench.reports import stored
from workbench.store import Store
from workbench.widgets.along_panel import AlongPanel
from workbench.widgets.controls import html
from workbench.widgets.landscape_panel import LandscapePanel
from workbench.widgets.live_chart import Click, LiveChart
from workbench.widgets.losses_panel import LossesPanel
from workbench.widgets.session import News
from workbench.widgets.words import note_html

REDRAW_SECONDS = 0.5
"""Charts that are made anew, not appended to, are so at most this often; longer where there is much to draw."""
REDRAW_ROW_SECONDS = 0.001
SAMPLES_MOST = 400
"""Of one trial on the chart; the store keeps all of them."""
TRIALS, ALONG, LANDSCAPE, LOSSES, SAMPLES, BEST = (
    "Trials",
    "Along an axis",
    "Landscape",
    "Where time goes",
    "Samples",
    "Best so far",
)
NOTHING = (
    "Nothing has run yet. The landscape is estimated, like the timeline: write down what you expect, then press Run."
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
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
        self.trials, self.best = LiveChart(trials.live()), LiveChart(best.live())
        self.samples = LiveChart(samples.live())
        self.along, self.losses = AlongPanel(), LossesPanel(store)
        self.landscape = LandscapePanel(estimates, self._on_landscape)
        self.samples_note = html("wb-samples-note")
        tabs = {TRIALS: self.trials, ALONG: self.along.view, LANDSCAPE: self.landscape.view, LOSSES: self.losses.view}
        tabs |= {SAMPLES: ipywidgets.VBox([self.samples_note, self.samples]), BEST: self.best}
        self._names = list(tabs)
        self.tabs = ipywidgets.Tab(list(tabs.values()), titles=tuple(tabs))
        self.tabs.add_class("wb-panels")
        for name, widget in tabs.items():
            widget.add_class(f"wb-tab-{name.lower().replace(' ', '-')}")
        self.note = html("wb-nothing-yet")
        self.note.value = note_html(NOTHING)
        self.view = ipywidgets.VBox([self.note, self.tabs], layout=ipywidgets.Layout(width="100%"))
        self.same_problem: Callable[[Row], bool] = lambda row: True
        """Whether a row belongs on the landscape of what the form asks."""
        self._context = ""
        self._forget(Begun())
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
        self._show_losses()

    @property
    def rows(self) -> Sequence[Row]:
        """Everything that came back of this run."""
        return self._rows

    def _forget(self, begun: Begun) -> None:
        self._begun = begun
        self._rows: list[Row] = []
        self._whole: dict[str, Row] = {}
        self._timed: dict[tuple[Problem, Schedule], Row] = {}
        self._numbers: dict[str, int] = {}
        self._samples: dict[str, list[Mapping[str, Any]]] = {}
        self._shown_key: str | None = None
        self._chosen: str | None = None
        self._run = ""
        self._redrawn_at = 0.0

    def begin(self, begun: Begun) -> None:
        """Another run: everything that was drawn goes."""
        self._forget(begun)
        self.note.value = ""
        if begun.context != self._context:
            self._context = begun.context
            self.trials.show(trials.live(context=begun.context))
            self.best.show(best.live(context=begun.context))
        self.trials.replace(trials.DATASET, [])
        self.best.replace(best.DATASET, [])
        self.samples.replace(samples.DATASET, [])
        self.samples_note.value = ""
        self.along.begin(begun.swept, begun.context)
        self.losses.begin()
        self.landscape.begin(list(begun.swept))

    def add(self, news: News) -> None:
        """What came back since the last tick."""
        self._run = news.run
        self._append(news.rows)
        self._add_samples(news.samples)
        pause = max(REDRAW_SECONDS, REDRAW_ROW_SECONDS * len(self._rows))
        if news.ended or time.monotonic() - self._redrawn_at > pause:
            self._redraw()
        if news.ended:
            self._show_samples(self._chosen_key())

    def show(self, run: str, rows: Sequence[Row], context: str) -> None:
        """A run that has ended before."""
        timed = any(row["source"] in TIMED for row in rows)
        self.begin(Begun(swept=varied(rows), context=context, timed=timed))
        self._run = run
        self._append(rows)
        self._redraw()
        self._show_samples(self._chosen_key())

    def choose(self, key: str | None) -> None:
        """The trial whose losses and samples are shown; None: the fastest one's."""
        self._chosen = key
        self._show_losses()
        if self._chosen_key() != self._shown_key:
            self._show_samples(self._chosen_key())

    def timed(self, problem: Problem, schedule: Schedule) -> Row | None:
        """The newest time of *schedule* on *problem* in this run, taken with a clock: a recording has several."""
        return self._timed.get((problem, schedule))

    def _on_landscape(self) -> list[Row]:
        return [row for row in self._rows if row["part"] == "whole" and self.same_problem(row)]

    def _append(self, rows: Sequence[Row]) -> None:
        """Of a sweep, combinations that are refused are on the landscape alone: they are no trials."""
        self._rows += rows
        whole = [row for row in rows if row["part"] == "whole" and not (self._begun.swept and _is_refused(row))]
        self._whole.update({row["key"]: row for row in whole})
        self._timed.update({_asked(row): row for row in whole if row["source"] in TIMED and row["time_s"]})
        # estimates that stand beside measurements have no floor of their own: the measured one is drawn
        shown = [
            {**row, "floor_s": None} if self._begun.timed and row["source"] == "estimated" else row for row in whole
        ]
        known = len(self._numbers)
        self.trials.append(trials.DATASET, trials.rows(shown, numbers=self._numbers))
        self.best.append(best.DATASET, best.rows(shown, self._numbers))
        self.along.add(shown)
        self._add_guess({row["key"]: row for row in whole if self._numbers.get(row["key"], 0) > known})

    def _add_guess(self, new: Mapping[str, Row]) -> None:
        """Beside the schedule that was guessed, when it is first heard of."""
        guess_s = self._begun.guess_s
        if guess_s is not None:
            guessed = [(key, row) for key, row in new.items() if self._begun.guessed(row)]
            self.trials.append(trials.DATASET, [trials.guess(row, guess_s, self._numbers[key]) for key, row in guessed])

    # one trial at a time

    def _chosen_key(self) -> str | None:
        if self._chosen is not None:
            return self._chosen
        fastest = stored.fastest(self._rows)
        return None if fastest is None else fastest["key"]

    def _add_samples(self, found: Sequence[Mapping[str, Any]]) -> None:
        """While a run goes on, the samples of the trial that began last: one at a time is readable."""
        for sample in found:
            self._samples.setdefault(sample["key"], []).append(sample)
        whole = [sample for sample in found if sample["key"] in self._whole]
        if not whole:
            return
        key = whole[-1]["key"]
        if key == self._shown_key:
            new = [sample for sample in whole if sample["key"] == key]
            self.samples.append(samples.DATASET, samples.rows(new, self._whole[key]["scheme"]))
        else:
            self._show_samples(key)

    def _show_samples(self, key: str | None) -> None:
        row = self._whole.get(key or "")
        if key is None or row is None or (row["outcome"] != "measurement" and key not in self._samples):
            return
        self._shown_key = key
        found = self._samples.get(key) or self._samples_of(row)
        self.samples_note.value = note_html(f"Of {self._words(row)}.")
        self.samples.replace(samples.DATASET, samples.rows(found[-SAMPLES_MOST:], row["scheme"]))

    def _samples_of(self, row: Row) -> list[Mapping[str, Any]]:
        """Those of a trial that was timed before this kernel began, or in another run."""
        by_rank = self._store.measurement(row["id"]).samples
        return [
            {"rank": rank, "index": index, "seconds": seconds}
            for rank, mine in enumerate(by_rank)
            for index, seconds in enumerate(mine)
        ]

    def _redraw(self) -> None:
        self._redrawn_at = time.monotonic()
        self.landscape.draw()
        self._show_losses()

    def _show_losses(self) -> None:
        if self.open != LOSSES:
            return
        row = self._whole.get(self._chosen or "") or stored.fastest(self._rows)
        if row is not None and row["time_s"] is not None:
            self.losses.show(self._run, self._rows, self._timed.get(_asked(row), row), self._words(row))

    def _words(self, row: Row) -> str:
        """A schedule in the words that tell it from the others of this run."""
        axes = [f"{axis} {row['axes'][axis]}" for axis in self._begun.swept if axis in row["axes"]]
        return ", ".join([row["scheme"], *axes])

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


def _asked(row: Row) -> tuple[Problem, Schedule]:
    problem = Problem.from_json({key: row[key] for key in ("operator", "shape", "dtype", "world")})
    return problem, Schedule(row["scheme"], tuple(row["axes"].items()))


def varied(rows: Sequence[Row]) -> dict[str, list[Value]]:
    """The axes of which a run had several values, the one with most values first."""
    found: dict[str, dict[Value, None]] = {}
    for row in rows:
        if row["part"] == "whole" and row["scheme"] != "sequential":
            for axis, value in row["axes"].items():
                found.setdefault(axis, {})[value] = None
    several = {axis: list(values) for axis, values in found.items() if len(values) > 1}
    return dict(sorted(several.items(), key=lambda entry: -len(entry[1])))
