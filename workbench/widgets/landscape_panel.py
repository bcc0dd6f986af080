"""The landscape: two axes to choose, every cell estimated at once, measured cells over it; a click loads a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from kernels.schedule import Refusal
from workbench.charts import landscape
from workbench.widgets.live_chart import LiveChart
from workbench.widgets.words import refusal_html

Row = Mapping[str, Any]

PREFERRED = ("slice_tiles", "pieces", "tile", "tile_order", "steps", "write", "scheme")
"""Axes that are shown first where the schedules have them."""


class LandscapePanel:
    """`view` is the tab. *predict_all* estimates the current question with the named axes swept."""

    def __init__(self, predict_all: Callable[[Sequence[str]], Sequence[Row]]) -> None:
        self._predict_all = predict_all
        self._measured: Sequence[Row] = ()
        self._estimated: Sequence[Row] = ()
        self.x = ipywidgets.Dropdown(description="Across", layout=ipywidgets.Layout(width="220px"))
        self.y = ipywidgets.Dropdown(description="Up", layout=ipywidgets.Layout(width="220px"))
        self.button = ipywidgets.Button(
            description="Estimate all cells",
            icon="th",
            tooltip="The simulator's time for every combination of the two axes",
        )
        self.message = ipywidgets.HTML()
        self.chart = LiveChart(landscape.live("slice_tiles", "tile"))
        for control, mark in (
            (self.x, "wb-landscape-x"),
            (self.y, "wb-landscape-y"),
            (self.button, "wb-landscape-fill"),
        ):
            control.add_class(mark)
        self.view = ipywidgets.VBox([ipywidgets.HBox([self.x, self.y, self.button]), self.message, self.chart])
        self.x.observe(self._axes_changed, "value")
        self.y.observe(self._axes_changed, "value")
        self.button.on_click(lambda _: self.estimate())

    def offer(self, axes: Sequence[str]) -> None:
        """The axes of the schedules that are asked for now."""
        ordered = tuple(sorted(axes, key=lambda axis: (*PREFERRED, axis).index(axis)))
        if ordered == tuple(self.x.options):
            return
        self._estimated = ()
        for control, fallback in ((self.x, 0), (self.y, min(1, len(ordered) - 1))):
            kept = control.value if control.value in ordered else ordered[fallback]
            control.options = ordered
            control.value = kept

    def begin(self, swept: Sequence[str]) -> None:
        """A run: its swept axes are the ones to look at; its measurements will lie over the estimates."""
        self._measured = ()
        for control, axis in zip((self.x, self.y), swept, strict=False):
            if axis in control.options:
                control.value = axis
        self._draw()

    def add(self, rows: Sequence[Row]) -> None:
        """All rows of the run so far."""
        self._measured = rows
        self._draw()

    def estimate(self) -> None:
        """Fills the landscape with the simulator's times."""
        try:
            self._estimated = self._predict_all([self.x.value, self.y.value])
            self.message.value = ""
        except Refusal as refusal:
            self.message.value = refusal_html(str(refusal))
        self._draw()

    def _axes_changed(self, _: Any) -> None:
        if self.x.value is not None and self.y.value is not None:
            self._estimated = ()
            self.chart.show(landscape.live(self.x.value, self.y.value))
            self._draw()

    def _draw(self) -> None:
        if self.x.value is not None and self.y.value is not None:
            rows = [*self._estimated, *self._measured]
            self.chart.replace(landscape.DATASET, landscape.rows(rows, self.x.value, self.y.value))
