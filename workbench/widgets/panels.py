"""The charts of a run in tabs, fed from the store's rows; each answers one question and none knows another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from workbench.charts import best, samples, trials, waterfall
from workbench.experiment import Experiment
from workbench.reports import stored
from workbench.store import Store
from workbench.widgets.landscape_panel import LandscapePanel
from workbench.widgets.live_chart import Click, LiveChart
from workbench.widgets.session import News

REDRAW_SECONDS = 0.5
"""Charts that are made anew, not appended to, are so at most this often."""

Row = Mapping[str, Any]


class Panels:
    """`begin` empties the charts, `add` feeds them, `show` fills them with a run that has ended."""

    def __init__(self, store: Store, predict_all: Callable[[Sequence[str]], Sequence[Row]]) -> None:
        self._store = store
        self._rows: list[Row] = []
        self._numbers: dict[str, int] = {}
        self._guess_s: float | None = None
        self._shown_key: str | None = None
        self._redrawn_at = 0.0
        self.trials, self.best = LiveChart(trials.live()), LiveChart(best.live())
        self.samples, self.waterfall = LiveChart(samples.live()), LiveChart(waterfall.live())
        self.landscape = LandscapePanel(predict_all)
        tabs = {
            "Trials": self.trials,
            "Best so far": self.best,
            "Landscape": self.landscape.view,
            "Where time goes": self.waterfall,
            "Samples": self.samples,
        }
        self.view = ipywidgets.Tab(list(tabs.values()), titles=tuple(tabs))
        for name, widget in tabs.items():
            widget.add_class(f"wb-tab-{name.lower().replace(' ', '-')}")
        self.view.add_class("wb-panels")

    def begin(self, experiment: Experiment, guess_s: float | None) -> None:
        """Another run: everything that was drawn goes."""
        self._rows, self._numbers, self._guess_s, self._shown_key = [], {}, guess_s, None
        for chart, dataset in (
            (self.trials, trials.DATASET),
            (self.best, best.DATASET),
            (self.samples, samples.DATASET),
            (self.waterfall, waterfall.DATASET),
        ):
            chart.replace(dataset, [])
        self.landscape.begin(experiment)

    def add(self, news: News) -> None:
        """What came back since the last tick."""
        self._rows += news.rows
        self._append(news.rows)
        self._add_samples(news.samples)
        if news.ended or time.monotonic() - self._redrawn_at > REDRAW_SECONDS:
            self._redraw(news.run)

    def show(self, run: str, rows: Sequence[Row]) -> None:
        """A run that has ended before."""
        self._rows = list(rows)
        self._append(rows)
        best_row = stored.fastest(rows)
        if best_row is not None:
            mine = [s for s in self._store.samples_since(0, run)[0] if s["key"] == best_row["key"]]
            self._add_samples(mine)
        self._redraw(run)

    def _append(self, rows: Sequence[Row]) -> None:
        known = len(self._numbers)
        self.trials.append(trials.DATASET, trials.rows(rows, numbers=self._numbers))
        self.best.append(best.DATASET, best.rows(rows, self._numbers))
        whole = {row["key"]: row for row in rows if row["part"] == "whole"}
        new = {key: number for key, number in self._numbers.items() if number > known}
        if self._guess_s is not None and new:
            guesses = [trials.guess(whole[key], self._guess_s, number) for key, number in new.items()]
            self.trials.append(trials.DATASET, guesses)

    def _add_samples(self, found: Sequence[Mapping[str, Any]]) -> None:
        """The samples of the schedule that came last: one trial at a time is readable."""
        schemes = {row["key"]: row["scheme"] for row in self._rows if row["part"] == "whole"}
        whole = [sample for sample in found if sample["key"] in schemes]
        if not whole:
            return
        key = whole[-1]["key"]
        mine = samples.rows([sample for sample in whole if sample["key"] == key], schemes[key])
        if key == self._shown_key:
            self.samples.append(samples.DATASET, mine)
        else:
            self._shown_key = key
            self.samples.replace(samples.DATASET, mine)

    def _redraw(self, run: str) -> None:
        self._redrawn_at = time.monotonic()
        self.landscape.add(self._rows)
        row = stored.fastest(self._rows)
        found = None if row is None else stored.losses(self._store, run, self._rows, row)
        if row is not None and found is not None:
            self.waterfall.replace(waterfall.DATASET, waterfall.rows(found, row["time_s"], row["source"]))

    def on_cell(self, callback: Callable[[Click], Any]) -> None:
        """Calls back when a schedule's mark is clicked, on the landscape or among the trials."""
        self.landscape.chart.on_click(callback)
        self.trials.on_click(callback)

    def row_of(self, click: Click) -> Row | None:
        """The schedule behind a click: its scheme and axes."""
        if click.datum.get("axes"):
            return click.datum
        key = click.datum.get("key")
        return next((row for row in self._rows if row["key"] == key), None)
