"""An Altair chart whose named datasets grow while it is on screen: rows go in, clicks and selections come out."""

from __future__ import annotations

import datetime
import gzip
import itertools
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import altair as alt
import anywidget
import ipywidgets
import platformdirs
import traitlets
import vl_convert
from altair.utils.schemapi import debug_mode
from altair.utils.selection import IntervalSelection, PointSelection
from IPython.display import display

from kernels import files
from workbench.charts.theme import Mode, config
from workbench.results.rows import Row
from workbench.widgets import kept_chart

# Vega for the browser, without a network: bundled once per machine, sent once per notebook, shared by its charts.

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The Vega-Lite that Altair writes for."""

_SNIPPET = "export { vegaEmbed };"


class VegaRuntime(anywidget.AnyWidget):
    """An invisible widget that loads Vega into the page, where live charts wait for it."""

    _esm = Path(__file__).parent / "vega_runtime.js"
    _bundle = traitlets.Bytes().tag(sync=True)
    _vega_lite = traitlets.Unicode(VEGA_LITE).tag(sync=True)


def drawn_by_vega(module: str) -> str:
    """The browser's *module* of a widget that Vega draws, with what all of them need of their page.

    Each widget sends it: comments and indentation stay here.
    """
    folder = Path(__file__).parent
    texts = ((folder / name).read_text(encoding="utf-8") for name in ("vega_page.js", module))
    lines = (line.strip() for text in texts for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


_sent: VegaRuntime | None = None


def send_once() -> None:
    """Sends Vega to this kernel's page, unless it was sent before."""
    global _sent
    if _sent is None or _sent.comm is None:
        _sent = VegaRuntime(_bundle=bundle())


def send_again() -> None:
    """Sends Vega once more, to a page that still waits for it."""
    if _sent is not None:
        _sent.close()
    send_once()


def bundle(folder: Path | None = None) -> bytes:
    """The JavaScript module that exports vegaEmbed, gzipped. Bundling takes a second, so it is cached in *folder*."""
    folder = folder or platformdirs.user_cache_path("overlap-workbench")
    kept = folder / f"vega-lite-{VEGA_LITE}-by-{version('vl-convert-python')}.js.gz"
    try:
        return kept.read_bytes()
    except OSError:
        bundled = gzip.compress(vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE).encode(), mtime=0)
        _write_if_possible(kept, bundled)
        return bundled


def _write_if_possible(path: Path, content: bytes) -> None:
    """Writes *path* whole or not at all, as several kernels may start at once; a failure is ignored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, content)
    except OSError:
        return


# The rows behind a live chart and the messages that carry them. Rows are numbered, so that a lost one is noticed.


class MessagePart(TypedDict):
    """The description of one dataset in a message; its rows are in the buffer at the same position."""

    name: str
    generation: int
    start: int
    """Number of the first row in the buffer. The browser skips rows that it has."""
    whole: bool
    """True if no older rows are kept: then the browser misses none, even if its own end is before *start*."""


class RowBatch(NamedTuple):
    """Rows that were added together."""

    start: int
    end: int
    encoded: str
    """JSON objects with commas between them."""


@dataclass(slots=True)
class LiveRows:
    """The newest rows of one dataset, and how many of them were sent to the browser."""

    generation: int
    max_rows: int
    end: int = 0
    sent: int = -1
    """Number of the row after the last one that was sent; -1 before the browser knows this generation."""
    batches: deque[RowBatch] = field(default_factory=deque)

    @property
    def start(self) -> int:
        """Number of the oldest kept row; up to one batch more than max_rows is kept."""
        return self.batches[0].start if self.batches else self.end

    def add(self, rows: list[Row]) -> None:
        """Appends rows; the oldest make room."""
        encoded = encode(rows[-self.max_rows :])
        end = self.end + len(rows)
        if rows:
            self.batches.append(RowBatch(max(self.end, end - self.max_rows), end, encoded))
        self.end = end
        while self.batches and self.batches[0].end <= end - self.max_rows:
            self.batches.popleft()

    def since(self, row: int) -> tuple[int, bytes]:
        """The kept rows from number *row* on, or from a little before: the first one's number, and a JSON list."""
        news: list[RowBatch] = []
        for batch in reversed(self.batches):
            if batch.end <= row:
                break
            news.append(batch)
        encoded = ",".join(batch.encoded for batch in reversed(news))
        return (news[-1].start if news else self.end), f"[{encoded}]".encode()

    def newest(self) -> list[dict[str, Any]]:
        """The newest max_rows rows, as the browser sees them."""
        rows: list[dict[str, Any]] = json.loads(self.since(0)[1])
        return rows[-self.max_rows :]


def message(parts: Iterable[tuple[str, LiveRows, int]]) -> tuple[dict[str, Any], list[bytes]]:
    """Content and buffers of a message with each named dataset's rows from a number on."""
    datasets: list[MessagePart] = []
    buffers: list[bytes] = []
    for name, rows, first in parts:
        start, encoded = rows.since(first)
        datasets.append({"name": name, "generation": rows.generation, "start": start, "whole": start == rows.start})
        buffers.append(encoded)
    return {"kind": "rows", "datasets": datasets}, buffers


def records(rows: Iterable[Row] | Any) -> list[Row]:
    """*rows*, mappings or a pandas DataFrame, as a list of mappings; ValueError for anything else."""
    if hasattr(rows, "to_dict"):
        rows = rows.to_dict(orient="records")
    if isinstance(rows, Mapping):
        raise ValueError("One row came where a list of rows is needed. Accepted: a list, [row].")
    rows = list(rows)
    strange = next((row for row in rows if not isinstance(row, Mapping)), None)
    if strange is not None:
        raise ValueError(f"A row is {strange!r}, a {type(strange).__name__}. Accepted: mappings from column to value.")
    return rows


def encode(rows: list[Row]) -> str:
    """*rows* as JSON objects with commas between them; numbers that are not finite become null."""
    try:
        return _STRICT.encode(rows)[1:-1]
    except ValueError:
        # JSON has neither infinity nor nan; both mean here that there is nothing to draw
        finite = [{column: _finite(value) for column, value in row.items()} for row in rows]
        return _STRICT.encode(finite)[1:-1]


def _finite(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    """A value that JSON does not know, converted to one that Vega draws; ValueError if there is none."""
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, datetime.datetime):
        # Vega parses dates while it loads, not when rows are inserted: a temporal axis wants milliseconds
        return value.timestamp() * 1000 if value == value else None
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(
        f"a row holds {value!r}, a {type(value).__name__}; "
        "a live chart draws numbers, text, true and false, None and datetimes: convert it first."
    )


_STRICT = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain)


# The parts of an Altair chart that a live chart needs: Vega-Lite without theme and title, named datasets, texts.

FIRST_WIDTH = 420
"""Width in pixels of charts below each other, until the browser knows the width of their cell."""

_COMPOSED = ("hconcat", "vconcat", "concat", "facet", "repeat")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSpec:
    """A chart, ready for the browser."""

    spec: dict[str, Any]
    datasets: tuple[str, ...]
    """Names of the datasets whose rows come later."""
    title: tuple[str, ...]
    """Lines that the page writes above the chart, where they can wrap; in Vega a long one would narrow the plot."""
    subtitle: tuple[str, ...]
    label: str
    """Title and description, for screen readers."""
    stretch: str
    """How it fills its cell's width: `whole` as one plot, `children` below each other, `none` keeps its own size."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, for the browser."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


_MAKING = threading.RLock()
"""Altair's mode is one for all threads: two that overlap would leave it off."""


@lru_cache(maxsize=64)
def ready(make: Callable[..., alt.TopLevelMixin], *values: Hashable, **named: Hashable) -> LiveSpec:
    """The chart that *make* draws of *values*, cached, since Altair takes a tenth of a second to build and check one.

    Only for the workbench's own charts, which tests check.
    """
    with _MAKING, debug_mode(False):  # else Altair checks each part as it is made, a quarter of the time
        return live_spec(make(*values, **named), validate=False)


def live_spec(chart: alt.TopLevelMixin, *, validate: bool = True) -> LiveSpec:
    """The spec of *chart*, which fills its cell unless it has a width. *validate*: raise where Altair finds a fault."""
    spec = _without_theme(chart, validate)
    named = dict.fromkeys(_empty_datasets(spec))
    title, subtitle = _titles(spec.pop("title", None))
    label = ". ".join(filter(None, (" ".join(title), " ".join(subtitle), spec.get("description", ""))))
    stretch, resizable = _stretch(spec)
    for child in resizable:
        child["width"] = FIRST_WIDTH
    # later rows may need longer axis labels: every redraw makes room for them
    fit = {"type": "fit-x", "contains": "padding"} if stretch == "whole" else {"type": "pad"}
    spec.setdefault("autosize", {**fit, "resize": True})
    if label:
        spec.setdefault("description", label)
    return LiveSpec(
        spec=spec, datasets=tuple(named), title=title, subtitle=subtitle, label=label or "Chart", stretch=stretch
    )


def _without_theme(chart: alt.TopLevelMixin, validate: bool) -> dict[str, Any]:
    """Vega-Lite without the enabled theme's configuration; the browser adds that of its light or dark mode."""
    datasets: dict[str, Any] = {}
    # Altair adds theme, schema and datasets to the outermost chart only
    spec: dict[str, Any] = chart.to_dict(validate, context={"top_level": False, "datasets": datasets})
    return {"$schema": alt.SCHEMA_URL, **spec, "datasets": {**datasets, **spec.get("datasets", {})}}


def _empty_datasets(spec: dict[str, Any]) -> Iterator[str]:
    """Names of datasets anywhere in *spec* that have no rows."""
    brought = spec.get("datasets", {})
    for node in _nodes({key: value for key, value in spec.items() if key != "datasets"}):
        data = node.get("data")
        if isinstance(data, dict) and not data.keys() & {"values", "url", "sequence", "graticule", "sphere"}:
            name = data.get("name")
            if name is not None and name not in brought:
                yield name


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _nodes(item)


def _titles(title: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of a title and of its subtitle."""
    if isinstance(title, dict):
        return _lines(title.get("text")), _lines(title.get("subtitle"))
    return _lines(title), ()


def _lines(text: Any) -> tuple[str, ...]:
    return tuple(filter(None, [text] if isinstance(text, str) else text or ()))


def _stretch(spec: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """How *spec* fills its cell's width (`LiveSpec.stretch`), and its parts whose width is set for that."""
    facets = spec.get("encoding", {}).keys() & {"row", "column", "facet"}
    if not any(key in spec for key in _COMPOSED):
        way, children = ("whole", [spec]) if not facets else ("children", [spec] if facets == {"row"} else [])
    elif "vconcat" in spec:
        way, children = "children", spec["vconcat"]
    else:
        by_row = isinstance(spec.get("facet"), dict) and spec["facet"].keys() == {"row"}
        way, children = "children", [spec["spec"]] if by_row else []
    # a width that the author chose is kept, and plots next to each other share no single width
    free = all("width" not in child and (child is spec or not _is_composed(child)) for child in children)
    return (way, children) if children and free else ("none", [])


def _is_composed(child: dict[str, Any]) -> bool:
    return any(key in child for key in _COMPOSED)


# The widget.

MESSAGE_INTERVAL_S = 0.02
"""Least time between messages of one chart: a notebook server drops messages above 1,000 per second in all."""
MAX_ROWS = 5_000
"""The default most rows of a dataset: redrawing them takes about 60 ms, so a row is drawn within 150 ms."""

PLOT_PIXELS = 200
"""Height of a plot, so that the explorer's form and both of its charts fit on a small screen."""

Selection = PointSelection | IntervalSelection


@dataclass(frozen=True, slots=True, kw_only=True)
class Click:
    """A mark that was clicked, or chosen with the arrow keys and Enter."""

    datum: Mapping[str, Any]
    """The mark's row, with the columns that the chart computes."""
    layer: str
    """The `name` of the chart or layer, or the one that Vega-Lite gave it."""
    shift: bool
    """Whether the shift key was held."""


class LiveChart(anywidget.AnyWidget):
    """A widget that shows an Altair chart on `alt.NamedData("rows")`. Any thread may append rows.

    Up to *max_rows* rows per dataset are kept here: a page that opens late shows them all, and no page is needed.
    """

    _esm = drawn_by_vega("live_chart.js")
    _css = Path(__file__).parent / "live_chart.css"
    _chart = traitlets.Dict().tag(sync=True)
    _modes = traitlets.Dict({mode.value: config(mode, PLOT_PIXELS) for mode in Mode}).tag(sync=True)
    _vega_lite = traitlets.Unicode(VEGA_LITE).tag(sync=True)
    _listening = traitlets.Bool(False).tag(sync=True)
    max_rows = traitlets.Int(MAX_ROWS, min=1, read_only=True).tag(sync=True)
    _values = traitlets.Dict().tag(sync=True)
    fills = traitlets.Unicode("").tag(sync=True)
    """The CSS selector of the element around the chart whose visible height it takes; empty: its own height."""
    renderer = traitlets.Enum(["svg", "canvas"], "svg").tag(sync=True)

    def __init__(self, chart: alt.TopLevelMixin | LiveSpec, *, max_rows: int = MAX_ROWS, **traits: Any) -> None:
        self._lock = threading.RLock()
        self._generations = itertools.count(1)
        self._rows: dict[str, LiveRows] = {}
        self._timer: threading.Timer | None = None
        self._closed = False
        self._sent_at = -MESSAGE_INTERVAL_S
        self._on_click = ipywidgets.CallbackDispatcher()
        self._on_selection = ipywidgets.CallbackDispatcher()
        self._on_escape = ipywidgets.CallbackDispatcher()
        self.set_trait("max_rows", max_rows)
        send_once()
        super().__init__(_chart=self._adopt(chart), **traits)
        self.on_msg(self._receive)

    def append(self, name: str, rows: Iterable[Row] | Any) -> None:
        """Adds rows (mappings, or a DataFrame) to the dataset *name*; above max_rows the oldest make room."""
        self._add(name, records(rows), replacing=False)

    def replace(self, name: str, rows: Iterable[Row] | Any) -> None:
        """Replaces the rows of the dataset *name*. Of replacements in quick succession only the last is drawn."""
        self._add(name, records(rows), replacing=True)

    def show(self, chart: alt.TopLevelMixin | LiveSpec) -> None:
        """Draws another chart in the same place; datasets that it also names keep their rows."""
        with self._lock:
            self._chart = self._adopt(chart)
            self._send_soon()

    def set(self, name: str, value: Any) -> None:
        """Sets the parameter *name* of the chart, also of one that is shown later; nothing else is drawn again."""
        if self._values.get(name) != value:
            self._values = {**self._values, name: value}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The kept rows of the dataset *name*, oldest first."""
        with self._lock:
            return self._dataset(name).newest()

    def drawing(self) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
        """The chart as the browser has it, and the kept rows by dataset."""
        with self._lock:
            return dict(self._chart), {name: rows.newest() for name, rows in self._rows.items()}

    def _ipython_display_(self, **_: Any) -> None:
        """Shows the widget, and keeps its drawing in the notebook for reports."""
        data, metadata = self._repr_mimebundle_() or ({}, {})
        display({"text/plain": repr(self), **data}, metadata=metadata, raw=True)
        kept_chart.keep(self)

    def on_click(self, callback: Callable[[Click], Any], remove: bool = False) -> None:
        """Calls *callback* with each Click on a mark; *remove* ends that."""
        self._on_click.register_callback(callback, remove=remove)

    def on_selection(self, callback: Callable[[Selection], Any], remove: bool = False) -> None:
        """Calls *callback* with Altair's PointSelection or IntervalSelection whenever a selection of the chart changes.

        A point selection without fields or encodings contains the selected rows whole.
        """
        self._on_selection.register_callback(callback, remove=remove)
        self._listening = True

    def on_escape(self, callback: Callable[[], Any]) -> None:
        """Calls *callback* when Escape is pressed in the chart."""
        self._on_escape.register_callback(callback)
        self._listening = True

    def close(self) -> None:
        """Removes the chart from the page. Later rows are kept, but not sent."""
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

    def _fresh(self) -> LiveRows:
        return LiveRows(generation=next(self._generations), max_rows=self.max_rows)

    def _dataset(self, name: str) -> LiveRows:
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
        """Sends new rows now, or at the end of MESSAGE_INTERVAL_S since the last message."""
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

    def _send_parts(self, parts: list[tuple[str, LiveRows, int]]) -> None:
        for _, rows, _ in parts:
            rows.sent = rows.end
        if parts:
            self.send(*message(parts))

    def _receive(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        match content:
            case {"kind": "hello", "have": have}:
                self._catch_up(have)
            case {"kind": "vega"}:
                send_again()
            case {"kind": "click", "datum": datum, "layer": layer, "shift": shift}:
                self._on_click(Click(datum=datum, layer=layer, shift=shift))
            case {"kind": "escape"}:
                self._on_escape()
            case {"kind": "selection", "name": name, "type": kind, "value": value, "store": store}:
                chosen = PointSelection if kind == "point" else IntervalSelection
                self._on_selection(chosen(name=name, value=value, store=store))

    def _catch_up(self, have: Mapping[str, list[int]]) -> None:
        """Sends all kept rows of the datasets whose state *have* differs from the one here."""
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
