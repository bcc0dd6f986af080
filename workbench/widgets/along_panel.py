"""The time along one axis of a sweep, and which axis that is when several were swept."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import ipywidgets

from kernels.axes import Value
from workbench.charts import running, sweep
from workbench.naming import axis_title
from workbench.widgets.controls import HIDDEN, SHOWN, dropdown, html
from workbench.widgets.live_chart import LiveChart
from workbench.widgets.live_spec import ready
from workbench.widgets.words import note_html

NONE = "This run tries one value of each axis. Tick “sweep” beside an axis, then Run, to see the time along it."

Row = Mapping[str, Any]


class AlongPanel:
    """`view` is the tab."""

    def __init__(self) -> None:
        self._swept: Mapping[str, Sequence[Value]] = {}
        self._context = ""
        self._drawn: tuple[Any, ...] = ()
        self._rows: list[Row] = []
        self._running: tuple[Sequence[Row], MutableMapping[str, int]] = [], {}
        self.chart = LiveChart(ready(sweep.live, "slice_tiles", ()))
        self.axis = dropdown("Along", [], "wb-along")
        self.axis.layout, self.axis.style = ipywidgets.Layout(width="260px"), {"description_width": "60px"}
        self.note = html("wb-along-note")
        self.view = ipywidgets.VBox([self.axis, self.note, self.chart])
        self.axis.observe(lambda change: self._draw(), "value")
        self.begin({}, "")

    def begin(self, swept: Mapping[str, Sequence[Value]], context: str) -> None:
        """A run that tries *swept*: axes with their values, the first one to be drawn along."""
        self._swept, self._context, self._rows, self._running = {}, context, [], ([], {})
        self.axis.options = [(axis_title(axis), axis) for axis in swept]
        self.axis.layout.display = SHOWN if len(swept) > 1 else HIDDEN
        self.note.value = "" if swept else note_html(NONE)
        self.chart.layout.display = SHOWN if swept else HIDDEN
        self._swept = swept
        self.axis.value = next(iter(swept), None)
        self._draw()

    def add(self, rows: Sequence[Row]) -> None:
        """What came back since the last time."""
        self._rows += rows
        if self.axis.value is not None:
            self.chart.append(sweep.DATASET, sweep.rows(rows, self.axis.value))

    def show_running(self, rows: Sequence[Row], numbers: MutableMapping[str, int]) -> None:
        """What is being timed, instead of what was a moment ago."""
        self._running = rows, numbers
        if self.axis.value in self._swept:
            self.chart.replace(running.DATASET, running.rows(rows, numbers, self.axis.value))

    def _draw(self) -> None:
        axis = self.axis.value
        if axis in self._swept:
            drawn = axis, tuple(self._swept[axis]), self._context
            if drawn != self._drawn:
                self._drawn = drawn
                self.chart.show(ready(sweep.live, *drawn))
            self.chart.replace(sweep.DATASET, sweep.rows(self._rows, axis))
            self.show_running(*self._running)
