"""A chart as a mime bundle: its specification, a picture, and one line for screen readers."""

from __future__ import annotations

import math
import re
import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import altair as alt
import vl_convert

from workbench.charts import labels, theme, timeline

# Charts are made as wide as a page's column, and their titles are broken into lines.

Spec = dict[str, Any]

WIDTH = 640
"""Width in pixels of a plot on a page, unless its author set one; with its axis it fills A4 between the margins."""
DEFAULT_WIDTH = 300
"""Vega-Lite's width of a plot without a width or theme."""
TITLE_SIZE, SUBTITLE_SIZE = 14, 12
CHARACTER = 0.52
"""Average width of a letter, rounded up, over the size of its font."""


def paper_wide(spec: Mapping[str, Any]) -> Spec:
    """*spec* with the width of a column, unless it has several plots or a width."""
    single = "layer" in spec or "mark" in spec
    return {**spec, "width": WIDTH} if single and "width" not in spec else dict(spec)


def wrapped(spec: Mapping[str, Any]) -> Spec:
    """*spec* with its titles broken into lines within the plot's width, since pictures cut off longer ones."""
    return _wrapped(spec, _configured(spec))


def _wrapped(spec: Mapping[str, Any], least: float) -> Spec:
    width = _width(spec, least)
    whole: Spec = dict(spec)
    if title := spec.get("title"):
        given = dict(title) if isinstance(title, Mapping) else {"text": title}
        for key, font, size in (("text", "fontSize", TITLE_SIZE), ("subtitle", "subtitleFontSize", SUBTITLE_SIZE)):
            if given.get(key):
                room = width / (CHARACTER * _number(given.get(font), size))
                given[key] = _lines(given[key], max(20, int(room)))
        whole["title"] = given
    for several in ("concat", "hconcat", "vconcat"):
        if isinstance(spec.get(several), Sequence):
            whole[several] = [_wrapped(view, least) for view in spec[several]]
    if isinstance(spec.get("spec"), Mapping):
        whole["spec"] = _wrapped(spec["spec"], least)
    return whole


def _configured(spec: Mapping[str, Any]) -> float:
    view = (spec.get("config") or {}).get("view") or {}
    return _number(view.get("continuousWidth"), DEFAULT_WIDTH)


def _width(spec: Mapping[str, Any], least: float) -> float:
    """Width of *spec*: of one plot its own, of plots next to each other their sum; *least* where none is set."""
    if "hconcat" in spec:
        return sum(_width(view, least) for view in spec["hconcat"])
    if "vconcat" in spec:
        return max((_width(view, least) for view in spec["vconcat"]), default=least)
    if "facet" in spec or "concat" in spec or "repeat" in spec:
        return WIDTH
    width = spec.get("width")
    return WIDTH if width == "container" else _number(width, least)


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) else float(otherwise)


def _lines(text: Any, room: int) -> list[str]:
    given = [str(line) for line in text] if isinstance(text, list) else str(text).split("\n")
    return [line for long in given for line in (textwrap.wrap(long, room) or [""])]


# The colours of a chart that are not data: a page has its own in light and dark, paper has dark ones.

Ink = Mapping[str, str]

PAGE: Ink = {role: f"var(--{role})" for role in ("ink", "ink-soft", "line", "line-strong", "panel", "font-chart")}
"""Names of the page's colours, which its script replaces by those of the light or dark mode."""

PAPER: Ink = {
    **{"ink": "#1b1f24", "ink-soft": "#5b636e", "line": "#e4e4df", "line-strong": "#b9bcc2", "panel": "#ffffff"},
    "font-chart": "system-ui, Segoe UI, Roboto, Helvetica Neue, Liberation Sans, DejaVu Sans, Arial, sans-serif",
}

_ROLES = {
    "labelColor": "ink-soft",
    "titleColor": "ink",
    "subtitleColor": "ink-soft",
    "tickColor": "line-strong",
    "domainColor": "line-strong",
    "gridColor": "line",
}
"""Roles of the properties that are never data, anywhere in a specification."""

_ROWS = ("datasets", "values")


def inked(spec: Mapping[str, Any], ink: Ink) -> Spec:
    """*spec* with the colours of *ink*, to be legible whatever its theme was; colours of data do not change."""
    whole = {**_repainted(spec, ink), "background": ink["panel"]}
    return whole | {"config": joined(joined(_defaults(ink), whole.get("config", {})), _always(ink))}


def joined(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """*under* updated with *over*, also in nested mappings."""
    whole = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(whole.get(key), Mapping)
        whole[key] = joined(whole[key], value) if both else value
    return whole


def _repainted(value: Any, ink: Ink) -> Any:
    if isinstance(value, list):
        return [_repainted(entry, ink) for entry in value]
    if not isinstance(value, Mapping):
        return value
    painted = {}
    for key, entry in value.items():
        if key in _ROWS:
            painted[key] = entry
        elif key in _ROLES and isinstance(entry, str):
            painted[key] = ink[_ROLES[key]]
        elif key == "title" and isinstance(entry, Mapping) and isinstance(entry.get("color"), str):
            painted[key] = {**_repainted(entry, ink), "color": ink["ink"]}
        else:
            painted[key] = _repainted(entry, ink)
    return painted


def _defaults(ink: Ink) -> dict[str, Any]:
    """Configuration of what a chart's author did not set."""
    text = {"labelColor": ink["ink-soft"], "titleColor": ink["ink"], "labelFontSize": 11, "titleFontSize": 12}
    lines = {"gridColor": ink["line"], "tickColor": ink["line-strong"], "domainColor": ink["line-strong"]}
    return {
        "font": ink["font-chart"],
        "view": {"stroke": ink["line"]},
        "axis": {**text, **lines},
        "legend": text,
        "header": text,
        "title": {"fontSize": 14, "subtitleFontSize": 12},
    }


def _always(ink: Ink) -> dict[str, Any]:
    """Configuration that replaces an author's theme, which may be for another brightness; a mark's own colour stays."""
    marks = {mark: {"color": ink["ink"]} for mark in ("text", "rule", "tick")}
    title = {"color": ink["ink"], "subtitleColor": ink["ink-soft"]}
    return {"background": ink["panel"], "title": title, "style": theme.styles(ink["ink"], ink["panel"]), **marks}


# The mime bundle: specification, picture and text.

CHART = "application/vnd.vegalite.v6+json"
KEPT = "application/vnd.workbench.chart+json"
"""The type of an output that keeps the specification and rows of a live chart, which no page shows."""
PICTURE = "image/svg+xml"
ALT_TEXT = "text/plain"
LIBRARY_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The version of Vega-Lite that Altair writes for, which draws every picture and page."""


HINTS = frozenset(labels.title("", timeline.HINT).to_dict()["subtitle"])
"""Lines of charts that say what a pointer does."""
_CONTAINER = {"width": 720, "height": 320}
"""Size of a chart in a picture, if it fills its container on a page."""
_CLIP = re.compile(r'(id="|url\(#)clip(\d+)')
_one_at_a_time = threading.Lock()


def bundle(
    chart: alt.TopLevelMixin | Mapping[str, Any],
    *,
    datasets: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
    themed: bool = False,
    height: int | None = None,
) -> dict[str, Any]:
    """*chart* for `display(..., raw=True)` and `handle.update(..., raw=True)`; in a cell's output it needs no kernel.

    *datasets* are the rows, by name, of a chart that was live, whose specification has none. *themed*: draw it with the
    workbench's theme, whether or not this process has enabled it. *height*: of a single plot, instead of its own.
    """
    spec = paper_wide(specification(chart, themed=themed)) if themed else specification(chart)
    if height is not None and ("layer" in spec or "mark" in spec):
        spec["height"] = height
    if datasets:
        spec["datasets"] = spec.get("datasets", {}) | {name: plain(list(rows)) for name, rows in datasets.items()}
    drawn = picture(for_paper(spec))
    return {CHART: spec, PICTURE: _on_dark_pages(drawn) if _is_clear(spec) else drawn, ALT_TEXT: alt_text(spec)}


def _is_clear(spec: Mapping[str, Any]) -> bool:
    """Whether the page is seen behind the chart, as with the workbench's theme."""
    return spec.get("background", (spec.get("config") or {}).get("background")) == "transparent"


def _on_dark_pages(svg: str) -> str:
    """*svg* with the rules that make it legible on a dark page."""
    end_of_head = svg.index(">") + 1
    return f"{svg[:end_of_head]}<style>{theme.dark_page_rules()}</style>{svg[end_of_head:]}"


def for_paper(spec: Mapping[str, Any]) -> Spec:
    """*spec* without the lines below its title that say what a pointer does: on paper nothing does."""
    title = spec.get("title")
    if not isinstance(title, Mapping) or not isinstance(title.get("subtitle"), list):
        return dict(spec)
    return {**spec, "title": {**title, "subtitle": [line for line in title["subtitle"] if line not in HINTS]}}


def specification(chart: alt.TopLevelMixin | Mapping[str, Any], *, themed: bool = False) -> Spec:
    """*chart* as plain JSON values, with all its rows, however many."""
    if isinstance(chart, Mapping):
        return plain(chart)
    look = theme.enabled() if themed else nullcontext()
    # Limit and theme are global; two threads that set them must not restore each other's values.
    with _one_at_a_time, look, alt.data_transformers.enable("default", max_rows=None):
        return plain(chart.to_dict())


def picture(spec: Mapping[str, Any]) -> str:
    """*spec* drawn as SVG, whose texts are text. Nothing is fetched: ValueError if data are at an address."""
    sized = {**spec, **{side: size for side, size in _CONTAINER.items() if spec.get(side) == "container"}}
    try:
        return _renumbered(vl_convert.vegalite_to_svg(sized, vl_version=LIBRARY_VERSION, allowed_base_urls=[]))
    except ValueError as error:
        reason = next((line.strip() for line in str(error).splitlines() if "Error" in line), str(error))
        raise ValueError(
            f"The chart {title_text(spec) or '(no title)'!r} cannot be drawn: {reason}. "
            "Accepted: a Vega-Lite 6 specification that carries its own rows."
        ) from error


def _renumbered(svg: str) -> str:
    """*svg* with its clips numbered from 0, to be reproducible: Vega numbers those of the whole process."""
    numbers: dict[str, int] = {}
    return _CLIP.sub(lambda clip: f"{clip[1]}clip{numbers.setdefault(clip[2], len(numbers))}", svg)


def plain(value: Any) -> Any:
    """*value* as JSON values: numbers that are not finite become null, numpy's scalars become Python's."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def title_text(spec: Mapping[str, Any]) -> str:
    """The title of *spec* on one line, or an empty text."""
    title = spec.get("title") or ""
    text = title.get("text", "") if isinstance(title, Mapping) else title
    return " ".join(" ".join(text).split() if isinstance(text, list) else str(text).split())


def alt_text(spec: Mapping[str, Any]) -> str:
    """One line for screen readers: the description of *spec*, or its title, marks, axes and number of rows."""
    described = spec.get("description")
    if described:
        return " ".join(str(described).split())
    views = list(_views(spec))
    marks = dict.fromkeys(mark["type"] if isinstance(mark := view["mark"], Mapping) else mark for view in views)
    channels = {name: title for view in reversed(views) for name, title in _channel_titles(view).items()}
    parts = [f"{' and '.join(marks)} chart" if marks else "chart"]
    if "y" in channels and "x" in channels:
        parts.append(f"of {channels['y']} over {channels['x']}")
    if "color" in channels:
        parts.append(f"by {channels['color']}")
    rows = sum(len(values) for values in spec.get("datasets", {}).values() if isinstance(values, list))
    text = " ".join(parts) + (f", {rows} rows" if rows else "")
    title = title_text(spec)
    return f"{title}: {text}" if title else text


def _views(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The views of *spec* that have marks, in its order."""
    if "mark" in spec:
        yield spec
    for several in ("layer", "concat", "hconcat", "vconcat"):
        for view in spec.get(several, ()):
            yield from _views(view)
    if isinstance(spec.get("spec"), Mapping):
        yield from _views(spec["spec"])


def _channel_titles(view: Mapping[str, Any]) -> dict[str, str]:
    """The titles of the axes and colour legend of *view*, by channel."""
    titles = {}
    for channel in ("x", "y", "color"):
        encoding = view.get("encoding", {}).get(channel, {})
        axis = encoding.get("axis") or {}
        title = encoding.get("title") or axis.get("title") or encoding.get("field")
        if title:
            titles[channel] = " ".join(map(str, title)) if isinstance(title, list) else str(title)
    return titles


def enable_renderer() -> None:
    """Makes every Altair chart in this notebook's outputs a bundle, so that a report can use it."""
    alt.renderers.register("workbench", lambda spec, **_: bundle(spec))
    alt.renderers.enable("workbench")
