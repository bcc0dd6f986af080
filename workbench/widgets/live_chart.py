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
from typing import Any, NamedTuple, TypeAlias, TypedDict

import altair as alt
import anywidget
import ipywidgets
import platformdirs
import traitlets
import vl_convert
from altair.utils.selection import IntervalSelection, PointSelection

from kernels import files
from workbench.charts.theme import Mode, config

# Vega for the browser, without a network: bundled once per machine, sent once per notebook, shared by its charts.

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The Vega-Lite that Altair writes for."""

_SNIPPET = "export { vegaEmbed };"


class VegaRuntime(anywidget.AnyWidget):
    """A widget nobody sees: its arrival puts Vega into the page, where live charts wait for it."""

    _esm = Path(__file__).parent / "vega_runtime.js"
    _bundle = traitlets.Bytes().tag(sync=True)
    _vega_lite = traitlets.Unicode(VEGA_LITE).tag(sync=True)


_sent: VegaRuntime | None = None


def send_once() -> None:
    """Have this kernel's page load Vega, unless it was told to before."""
    global _sent
    if _sent is None or _sent.comm is None:
        _sent = VegaRuntime(_bundle=bundle())


def send_again() -> None:
    """A page waits for Vega although it was sent: send it once more."""
    if _sent is not None:
        _sent.close()
    send_once()


def bundle(folder: Path | None = None) -> bytes:
    """The JavaScript module that exports vegaEmbed, gzipped. Bundling takes a second, so it is kept in *folder*."""
    folder = folder or platformdirs.user_cache_path("overlap-workbench")
    kept = folder / f"vega-lite-{VEGA_LITE}-by-{version('vl-convert-python')}.js.gz"
    try:
        return kept.read_bytes()
    except OSError:
        bundled = gzip.compress(vl_convert.javascript_bundle(_SNIPPET, vl_version=VEGA_LITE).encode(), mtime=0)
        _write_if_possible(kept, bundled)
        return bundled


def _write_if_possible(path: Path, content: bytes) -> None:
    """Write *path* whole or not at all, as several kernels may start at once. Not being able to is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, content)
    except OSError:
        return


# The rows behind a live chart and the messages that carry them: every row has a number, so a lost one is noticed.

Row: TypeAlias = Mapping[str, Any]


class MessagePart(TypedDict):
    """What one message says about one dataset; the rows themselves are in the buffer at the same position."""

    name: str
    generation: int
    start: int
    """Number of the first row in the buffer. The browser passes over rows that it has."""
    whole: bool
    """Nothing older is kept: the browser misses no row even when its own end lies before *start*."""


class RowBatch(NamedTuple):
    """Rows that were added together."""

    start: int
    end: int
    encoded: str
    """JSON objects with commas between them."""


@dataclass(slots=True)
class LiveRows:
    """The newest rows of one dataset, and how many of them the browser has been sent."""

    generation: int
    max_rows: int
    end: int = 0
    sent: int = -1
    """End of what the browser was sent; before anything was, it does not know of this generation."""
    batches: deque[RowBatch] = field(default_factory=deque)

    @property
    def start(self) -> int:
        """Number of the oldest row kept: up to a batch more than max_rows are."""
        return self.batches[0].start if self.batches else self.end

    def add(self, rows: list[Row]) -> None:
        """Append rows; the oldest make room."""
        encoded = encode(rows[-self.max_rows :])
        end = self.end + len(rows)
        if rows:
            self.batches.append(RowBatch(max(self.end, end - self.max_rows), end, encoded))
        self.end = end
        while self.batches and self.batches[0].end <= end - self.max_rows:
            self.batches.popleft()

    def since(self, row: int) -> tuple[int, bytes]:
        """The rows kept from number *row* on, or from a little before: the first one's number, and a JSON list."""
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
    """Content and buffers that bring each named dataset's rows from a number on."""
    datasets: list[MessagePart] = []
    buffers: list[bytes] = []
    for name, rows, first in parts:
        start, encoded = rows.since(first)
        datasets.append({"name": name, "generation": rows.generation, "start": start, "whole": start == rows.start})
        buffers.append(encoded)
    return {"kind": "rows", "datasets": datasets}, buffers


def records(rows: Iterable[Row] | Any) -> list[Row]:
    """*rows*, mappings or a pandas DataFrame, as a list of mappings."""
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
    """JSON objects with commas between them; what is not a finite number becomes null."""
    try:
        return _STRICT.encode(rows)[1:-1]
    except ValueError:
        # JSON has no infinity and no "not a number"; both mean here that there is nothing to draw
        finite = [{column: _finite(value) for column, value in row.items()} for row in rows]
        return _STRICT.encode(finite)[1:-1]


def _finite(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    """A value that JSON does not know, as one that it does and that Vega draws."""
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


# What a live chart needs of an Altair chart: Vega-Lite without theme and title, its named datasets, its words.

FIRST_WIDTH = 420
"""Pixels of charts one under the other until the browser knows how wide their cell is."""

_COMPOSED = ("hconcat", "vconcat", "concat", "facet", "repeat")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSpec:
    """A chart, ready for the browser."""

    spec: dict[str, Any]
    datasets: tuple[str, ...]
    """Names of the datasets that get their rows later."""
    title: tuple[str, ...]
    """Lines that the page writes above the chart, where they wrap. Vega would take a wide one from the plot's width."""
    subtitle: tuple[str, ...]
    label: str
    """Title and description, for those who hear the chart."""
    stretch: str
    """How it takes the width of its cell: `whole` by itself, `children` one under the other, `none` (its own size)."""

    def to_json(self) -> dict[str, Any]:
        """As the browser gets it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@lru_cache(maxsize=64)
def ready(make: Callable[..., alt.TopLevelMixin], *values: Hashable, **named: Hashable) -> LiveSpec:
    """What *make* draws of *values*: read once, for Altair builds and checks a chart in a tenth of a second.

    Only for charts of ours, which are checked by tests and not here.
    """
    return live_spec(make(*values, **named), validate=False)


def live_spec(chart: alt.TopLevelMixin, *, validate: bool = True) -> LiveSpec:
    """Read *chart*; one without a width of its own takes that of its cell. *validate*: raise what Altair refuses."""
    spec = _without_theme(chart, validate)
    named = dict.fromkeys(_empty_datasets(spec))
    title, subtitle = _titles(spec.pop("title", None))
    label = ". ".join(filter(None, (" ".join(title), " ".join(subtitle), spec.get("description", ""))))
    stretch, resizable = _stretch(spec)
    for child in resizable:
        child["width"] = FIRST_WIDTH
    # rows that come later have longer numbers on their axes: room is made for them at every redraw
    fit = {"type": "fit-x", "contains": "padding"} if stretch == "whole" else {"type": "pad"}
    spec.setdefault("autosize", {**fit, "resize": True})
    if label:
        spec.setdefault("description", label)
    return LiveSpec(
        spec=spec, datasets=tuple(named), title=title, subtitle=subtitle, label=label or "Chart", stretch=stretch
    )


def _without_theme(chart: alt.TopLevelMixin, validate: bool) -> dict[str, Any]:
    """Vega-Lite without the enabled theme's configuration: the browser adds the one of its light or dark mode."""
    datasets: dict[str, Any] = {}
    # Altair adds theme, schema and datasets to the outermost chart only
    spec: dict[str, Any] = chart.to_dict(validate, context={"top_level": False, "datasets": datasets})
    return {"$schema": alt.SCHEMA_URL, **spec, "datasets": {**datasets, **spec.get("datasets", {})}}


def _empty_datasets(spec: dict[str, Any]) -> Iterator[str]:
    """Names used as data anywhere in *spec* that bring no rows along."""
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
    """How *spec* takes its cell's width, and the parts of it whose width is set for that."""
    facets = spec.get("encoding", {}).keys() & {"row", "column", "facet"}
    if not any(key in spec for key in _COMPOSED):
        way, children = ("whole", [spec]) if not facets else ("children", [spec] if facets == {"row"} else [])
    elif "vconcat" in spec:
        way, children = "children", spec["vconcat"]
    else:
        by_row = isinstance(spec.get("facet"), dict) and spec["facet"].keys() == {"row"}
        way, children = "children", [spec["spec"]] if by_row else []
    # a width that the author chose is kept, and what stands side by side has no one width to set
    free = all("width" not in child and (child is spec or not _is_composed(child)) for child in children)
    return (way, children) if children and free else ("none", [])


def _is_composed(child: dict[str, Any]) -> bool:
    return any(key in child for key in _COMPOSED)


# An Altair chart whose named datasets grow while it is on screen: rows go in, clicks and selections come out.

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
    _vega_lite = traitlets.Unicode(VEGA_LITE).tag(sync=True)
    _listening = traitlets.Bool(False).tag(sync=True)
    max_rows = traitlets.Int(MAX_ROWS, min=1, read_only=True).tag(sync=True)
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
        self.set_trait("max_rows", max_rows)
        send_once()
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
