"""An Altair chart whose named datasets grow while it is on screen: rows go in, clicks and selections come out."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import anywidget
import ipywidgets
import traitlets
from altair.utils.selection import IntervalSelection, PointSelection

from workbench.charts.theme import Mode, config
from workbench.widgets import vega_runtime
from workbench.widgets.live_rows import Row, Rows, message, records
from workbench.widgets.live_spec import LiveSpec, live_spec

MESSAGE_INTERVAL_S = 0.02
"""At most one message per chart in this time: a notebook server drops messages above 1,000 per second in all."""
MAX_ROWS = 5_000
"""A redraw of so many points takes about 60 ms, so that a row is drawn within 150 ms of its arrival."""

PLOT_PIXELS = 200
"""Height of a plot: the explorer's form and both of its charts are seen together on a small screen."""

Selection = PointSelection | IntervalSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """What was clicked, or chosen with the arrow keys and Enter."""

    datum: Mapping[str, Any]
    """The row behind the mark, with what the chart derived from it."""
    layer: str
    """The chart's or layer's `name`; Vega-Lite's own where none was given."""
    shift: bool
    """The shift key was held."""


class LiveChart(anywidget.AnyWidget):
    """An Altair chart on `alt.NamedData("rows")`, shown like any widget. Append from any thread.

    Rows are kept here, up to *max_rows* per dataset: a page that opens late shows them all, and none is needed.
    """

    _esm = Path(__file__).parent / "live_chart.js"
    _css = Path(__file__).parent / "live_chart.css"
    _chart = traitlets.Dict().tag(sync=True)
    _modes = traitlets.Dict({mode.value: config(mode, PLOT_PIXELS) for mode in Mode}).tag(sync=True)
    _vega_lite = traitlets.Unicode(vega_runtime.VEGA_LITE).tag(sync=True)
    _listening = traitlets.Bool(False).tag(sync=True)
    max_rows = traitlets.Int(MAX_ROWS, min=1, read_only=True).tag(sync=True)
    renderer = traitlets.Enum(["svg", "canvas"], "svg").tag(sync=True)

    def __init__(self, chart: alt.TopLevelMixin | LiveSpec, *, max_rows: int = MAX_ROWS, **traits: Any) -> None:
        self._lock = threading.RLock()
        self._generations = itertools.count(1)
        self._rows: dict[str, Rows] = {}
        self._timer: threading.Timer | None = None
        self._closed = False
        self._sent_at = -MESSAGE_INTERVAL_S
        self._on_click = ipywidgets.CallbackDispatcher()
        self._on_selection = ipywidgets.CallbackDispatcher()
        self.set_trait("max_rows", max_rows)
        vega_runtime.send_once()
        super().__init__(_chart=self._adopt(chart), **traits)
        self.on_msg(self._receive)

    def append(self, name: str, rows: Iterable[Row] | Any) -> None:
        """Add rows (mappings, or a DataFrame) to the dataset *name*; the oldest make room above max_rows."""
        self._add(name, records(rows), replacing=False)

    def replace(self, name: str, rows: Iterable[Row] | Any) -> None:
        """Give the dataset *name* other rows. Of replacements in quick succession the last is drawn."""
        self._add(name, records(rows), replacing=True)

    def show(self, chart: alt.TopLevelMixin | LiveSpec) -> None:
        """Draw another chart in the same place; datasets that it also names keep their rows."""
        with self._lock:
            self._chart = self._adopt(chart)
            self._send_soon()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of the dataset *name* that are kept, oldest first."""
        with self._lock:
            return self._dataset(name).newest()

    def on_click(self, callback: Callable[[Click], Any], remove: bool = False) -> None:
        """Call *callback* with each Click on a mark."""
        self._on_click.register_callback(callback, remove=remove)

    def on_selection(self, callback: Callable[[Selection], Any], remove: bool = False) -> None:
        """Call *callback* with Altair's PointSelection or IntervalSelection whenever one of the chart's changes.

        A point selection without fields or encodings brings the selected rows whole.
        """
        self._on_selection.register_callback(callback, remove=remove)
        self._listening = True

    def close(self) -> None:
        """Take the chart off the page. Rows that still come are kept, and sent nowhere."""
        with self._lock:
            self._closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        super().close()

    def _adopt(self, chart: alt.TopLevelMixin | LiveSpec) -> dict[str, Any]:
        read = chart if isinstance(chart, LiveSpec) else live_spec(chart)
        self._rows = {name: self._rows.get(name) or self._fresh() for name in read.datasets}
        return read.to_json()

    def _fresh(self) -> Rows:
        return Rows(generation=next(self._generations), max_rows=self.max_rows)

    def _dataset(self, name: str) -> Rows:
        if name not in self._rows:
            known = ", ".join(self._rows) or "none; give it alt.NamedData"
            raise ValueError(f"This chart has no dataset {name!r}. Accepted: {known}.")
        return self._rows[name]

    def _add(self, name: str, rows: list[Row], *, replacing: bool) -> None:
        with self._lock:
            dataset = self._dataset(name)
            if replacing:
                dataset = self._rows[name] = self._fresh()
            dataset.add(rows)
            self._send_soon()

    def _send_soon(self) -> None:
        """Send now, or, when a message left just before, once for all that comes until its time has passed."""
        if self._timer is not None or self._closed:
            return
        wait = self._sent_at + MESSAGE_INTERVAL_S - time.monotonic()
        if wait <= 0:
            self._send_news()
            return
        self._timer = threading.Timer(wait, self._send_news)
        self._timer.daemon = True
        self._timer.start()

    def _send_news(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._timer = None
            self._sent_at = time.monotonic()
            news = [(name, rows, rows.sent) for name, rows in self._rows.items() if rows.sent < rows.end]
            self._send_parts(news)

    def _send_parts(self, parts: list[tuple[str, Rows, int]]) -> None:
        for _, rows, _ in parts:
            rows.sent = rows.end
        if parts:
            self.send(*message(parts))

    def _receive(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        match content:
            case {"kind": "hello", "have": have}:
                self._catch_up(have)
            case {"kind": "vega"}:
                vega_runtime.send_again()
            case {"kind": "click", "datum": datum, "layer": layer, "shift": shift}:
                self._on_click(Click(datum=datum, layer=layer, shift=shift))
            case {"kind": "selection", "name": name, "type": kind, "value": value, "store": store}:
                chosen = PointSelection if kind == "point" else IntervalSelection
                self._on_selection(chosen(name=name, value=value, store=store))

    def _catch_up(self, have: Mapping[str, list[int]]) -> None:
        """Send everything that is kept of the datasets of which the page has something else."""
        with self._lock:
            behind = [
                (name, rows, 0)
                for name, rows in self._rows.items()
                if list(have.get(name, ())) != [rows.generation, rows.end]
            ]
            self._send_parts(behind)


def charts_in(view: ipywidgets.Widget) -> Iterator[LiveChart]:
    """All live charts inside *view*."""
    if isinstance(view, LiveChart):
        yield view
    for child in getattr(view, "children", ()):
        yield from charts_in(child)
