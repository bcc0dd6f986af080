"""The charts of a run in tabs, fed from the store's rows; each answers one question and none knows another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from kernels.axes import Value
from workbench.charts import best, samples, sweep, trials, waterfall
from workbench.reports import stored
from workbench.store import Store
from workbench.widgets.landscape_panel import LandscapePanel
from workbench.widgets.live_chart import Click, LiveChart
from workbench.widgets.session import News

REDRAW_SECONDS = 0.5
"""Charts that are made anew, not appended to, are so at most this often; longer where there is much to draw."""
REDRAW_ROW_SECONDS = 0.001
SAMPLES_MOST = 400
"""Of one trial on the chart; the store keeps all of them."""

Row = Mapping[str, Any]


class Panels:
    """`begin` empties the charts, `add` feeds them, `show` fills them with a run that has ended."""

    def __init__(self, store: Store, predict_all: Callable[[Sequence[str]], Sequence[Row]]) -> None:
        self._store = store
        self.trials, self.best = LiveChart(trials.live()), LiveChart(best.live())
        self.samples, self.waterfall = LiveChart(samples.live()), LiveChart(waterfall.live())
        self.sweep = LiveChart(sweep.live("slice_tiles", ()))
        self.landscape = LandscapePanel(predict_all)
        tabs = {"Trials": self.trials, "Along an axis": self.sweep, "Best so far": self.best}
        tabs |= {"Landscape": self.landscape.view, "Where time goes": self.waterfall, "Samples": self.samples}
        self.view = ipywidgets.Tab(list(tabs.values()), titles=tuple(tabs))
        self.view.add_class("wb-panels")
        for name, widget in tabs.items():
            widget.add_class(f"wb-tab-{name.lower().replace(' ', '-')}")
        self._forget()

    def _forget(self) -> None:
        self._rows: list[Row] = []
        self._numbers: dict[str, int] = {}
        self._samples: dict[str, list[Mapping[str, Any]]] = {}
        self._shown_key: str | None = None
        self._best_key: str | None = None
        self._guess_s: float | None = None
        self._axis: str | None = None
        self._redrawn_at = 0.0

    def begin(self, swept: Mapping[str, Sequence[Value]], guess_s: float | None) -> None:
        """Another run, which sweeps these axes: everything that was drawn goes."""
        self._forget()
        self._guess_s = guess_s
        for chart, module in (
            (self.trials, trials),
            (self.best, best),
            (self.samples, samples),
            (self.waterfall, waterfall),
            (self.sweep, sweep),
        ):
            chart.replace(module.DATASET, [])
        self._along(swept)
        self.landscape.begin(list(swept))

    def _along(self, swept: Mapping[str, Sequence[Value]]) -> None:
        """The first axis that is swept is the one to draw along."""
        for axis, values in swept.items():
            self._axis = axis
            self.sweep.show(sweep.live(axis, values))
            return

    def add(self, news: News) -> None:
        """What came back since the last tick."""
        self._rows += news.rows
        self._append(news.rows)
        self._add_samples(news.samples)
        pause = max(REDRAW_SECONDS, REDRAW_ROW_SECONDS * len(self._rows))
        if news.ended or time.monotonic() - self._redrawn_at > pause:
            self._redraw(news.run)

    def show(self, run: str, rows: Sequence[Row]) -> None:
        """A run that has ended before."""
        swept = _varied(rows)
        self.begin(swept, None)
        self._rows = list(rows)
        self._append(rows)
        fastest = stored.fastest(rows)
        if fastest is not None:
            found = self._store.samples_since(0, run)[0]
            self._add_samples([sample for sample in found if sample["key"] == fastest["key"]])
        self._redraw(run)

    def _append(self, rows: Sequence[Row]) -> None:
        """Estimates that stand beside measurements have no floor of their own: the measured one is drawn."""
        timed = any(row["source"] != "estimated" for row in self._rows)
        shown = [{**row, "floor_s": None} if timed and row["source"] == "estimated" else row for row in rows]
        known = len(self._numbers)
        self.trials.append(trials.DATASET, trials.rows(shown, numbers=self._numbers))
        self.best.append(best.DATASET, best.rows(shown, self._numbers))
        if self._axis is not None:
            self.sweep.append(sweep.DATASET, sweep.rows(shown, self._axis))
        if self._guess_s is not None:
            new = {row["key"]: row for row in rows if self._numbers.get(row["key"], 0) > known}
            guesses = [trials.guess(row, self._guess_s, self._numbers[key]) for key, row in new.items()]
            self.trials.append(trials.DATASET, guesses)

    def _add_samples(self, found: Sequence[Mapping[str, Any]]) -> None:
        """The samples of the trial that began last: one at a time is readable."""
        schemes = {row["key"]: row["scheme"] for row in self._rows if row["part"] == "whole"}
        whole = [sample for sample in found if sample["key"] in schemes]
        for sample in whole:
            self._samples.setdefault(sample["key"], []).append(sample)
        if not whole:
            return
        key = next(reversed(self._samples))
        if key == self._shown_key:
            new = [sample for sample in whole if sample["key"] == key]
            self.samples.append(samples.DATASET, samples.rows(new, schemes[key]))
        else:
            self._shown_key = key
            self.samples.replace(samples.DATASET, samples.rows(self._samples[key][-SAMPLES_MOST:], schemes[key]))

    def _redraw(self, run: str) -> None:
        self._redrawn_at = time.monotonic()
        self.landscape.add(self._rows)
        row = stored.fastest(self._rows)
        if row is None or (row["key"] == self._best_key and row["source"] != "estimated" and len(self._rows) > 40):
            return
        self._best_key = row["key"]
        found = stored.losses(self._store, run, self._rows, row)
        if found is not None:
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


def _varied(rows: Sequence[Row]) -> dict[str, list[Value]]:
    """The axes of which a run had several values, the one with most values first."""
    found: dict[str, dict[Value, None]] = {}
    for row in rows:
        if row["part"] == "whole" and row["scheme"] != "sequential":
            for axis, value in row["axes"].items():
                found.setdefault(axis, {})[value] = None
    varied = {axis: list(values) for axis, values in found.items() if len(values) > 1}
    return dict(sorted(varied.items(), key=lambda entry: -len(entry[1])))
