"""The charts of a run side by side in tabs, fed from the store's rows; each answers one question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from workbench.charts import trials
from workbench.experiment import Experiment
from workbench.store import Store
from workbench.widgets.live_chart import Click, LiveChart
from workbench.widgets.session import News

Row = Mapping[str, Any]


class Panels:
    """`begin` empties the charts, `add` feeds them, `end` draws what needs a whole run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: list[Row] = []
        self._numbers: dict[str, int] = {}
        self._guess_s: float | None = None
        self.trials = LiveChart(trials.live())
        self.view = ipywidgets.Tab([self.trials], titles=("Trials",))
        self.view.add_class("wb-panels")

    def begin(self, run: str, experiment: Experiment, guess_s: float | None) -> None:
        self._rows, self._numbers, self._guess_s = [], {}, guess_s
        self.trials.replace(trials.DATASET, [])

    def add(self, news: News) -> None:
        self._rows += news.rows
        self.trials.append(trials.DATASET, trials.rows(news.rows, numbers=self._numbers))

    def end(self, run: str) -> None:
        pass

    def show(self, run: str, rows: Sequence[Row]) -> None:
        """A run that has ended before."""
        self._rows = list(rows)
        self.trials.replace(trials.DATASET, trials.rows(rows, numbers=self._numbers))

    def on_cell(self, callback: Callable[[Click], Any]) -> None:
        self.trials.on_click(callback)

    def row_of(self, click: Click) -> Row | None:
        """The row behind a click."""
        key = click.datum.get("key")
        return next((row for row in self._rows if row["key"] == key), None)
