"""The landscape: two axes to choose, every cell estimated at once, measured cells over it; a click loads a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from kernels.schedule import Refusal
from workbench.charts import landscape
from workbench.naming import axis_title
from workbench.widgets.controls import dropdown, html
from workbench.widgets.live_chart import LiveChart
from workbench.widgets.live_spec import ready
from workbench.widgets.words import refusal_html

Row = Mapping[str, Any]

PREFERRED = (
    "slice_tiles",
    "pieces",
    "micro_batches",
    "tile",
    "tile_order",
    "steps",
    "write",
    "split",
    "collective",
    "scheme",
)
"""Axes that are shown first where the schedules have them."""


class LandscapePanel:
    """`view` is the tab. *estimates* are the rows of the current question with the two named axes swept, *timed* those
    of the run that are about the same problem; both are asked for while somebody looks."""

    def __init__(self, estimates: Callable[[str, str], Sequence[Row]], timed: Callable[[], Sequence[Row]]) -> None:
        self._estimates_of, self._timed = estimates, timed
        self._estimated: Sequence[Row] = ()
        self._stale, self._watched = True, False
        self._counts: dict[str, int] = {}
        self.x, self.y = (
            dropdown(label, [], mark) for label, mark in (("Across", "wb-landscape-x"), ("Up", "wb-landscape-y"))
        )
        for control in (self.x, self.y):
            control.layout, control.style = ipywidgets.Layout(width="260px"), {"description_width": "60px"}
            control.observe(self._axes_changed, "value")
        self.message = html("wb-landscape-message")
        self.chart = LiveChart(ready(landscape.live, "slice_tiles", "tile"))
        self.view = ipywidgets.VBox([ipywidgets.HBox([self.x, self.y]), self.message, self.chart])

    def offer(self, axes: Mapping[str, int]) -> None:
        """The axes of the schedules that are asked for now, with the number of their values."""
        ordered = sorted(axes, key=lambda axis: (axes[axis] < 2, (*PREFERRED, axis).index(axis)))
        self._counts = dict(axes)
        words = tuple((axis_title(axis), axis) for axis in ordered)
        self.forget()
        if words == tuple(self.x.options):
            return
        across = self.x.value if self.x.value in axes else ordered[0]
        others = [axis for axis in ordered if axis != across] or ordered
        up = self.y.value if self.y.value in others else others[0]
        for control, axis in ((self.x, across), (self.y, up)):
            control.unobserve(self._axes_changed, "value")
            control.options = words
            control.value = axis
            control.observe(self._axes_changed, "value")
        self._axes_changed()

    def begin(self, swept: Sequence[str]) -> None:
        """A run: its swept axes are the ones to look at; its measurements will lie over the estimates."""
        offered = [axis for _, axis in self.x.options]
        for control, axis in zip((self.x, self.y), [axis for axis in swept if axis in offered], strict=False):
            control.value = axis
        self.draw()

    def forget(self) -> None:
        """Another question: its estimates are made when somebody looks."""
        self._stale = True
        if self._watched:
            self.look(True)

    def look(self, watched: bool) -> None:
        """Whether the tab is open; estimates are made while it is."""
        self._watched = watched
        if watched and self._stale and self.x.value is not None and self.y.value is not None:
            self._stale = False
            try:
                self._estimated = self._estimates_of(self.x.value, self.y.value)
                self.message.value = ""
            except Refusal as refusal:
                self._estimated = ()
                self.message.value = refusal_html(str(refusal))
            self.draw()

    def _axes_changed(self, _: Any = None) -> None:
        if self.x.value is not None and self.y.value is not None:
            self._estimated = ()
            num_rows = self._counts.get(self.y.value, 1)
            self.chart.show(ready(landscape.live, self.x.value, self.y.value, num_rows=num_rows))
            self.chart.replace(landscape.DATASET, [])
            self.forget()

    def draw(self) -> None:
        """Anew, if somebody looks: cells are replaced, not appended."""
        if self._watched and self.x.value is not None and self.y.value is not None:
            rows = [*self._estimated, *self._timed()]
            self.chart.replace(landscape.DATASET, landscape.rows(rows, self.x.value, self.y.value))
