"""A chart as a mime bundle: the specification to explore, a picture of it to look at, one line to read aloud."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import altair as alt
import vl_convert

from workbench.charts import theme
from workbench.reports.fitted import paper_wide

CHART = "application/vnd.vegalite.v6+json"
PICTURE = "image/svg+xml"
ALT_TEXT = "text/plain"
LIBRARY_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
"""The Vega-Lite that Altair writes for; every picture and every page is drawn by this one."""

Spec = dict[str, Any]

_CONTAINER = {"width": 720, "height": 320}
"""What a chart that fills its page is given in a picture, which has no page."""
_CLIP = re.compile(r'(id="|url\(#)clip(\d+)')
_one_at_a_time = threading.Lock()


def bundle(
    chart: alt.TopLevelMixin | Mapping[str, Any],
    *,
    datasets: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
    themed: bool = False,
) -> dict[str, Any]:
    """*chart* for `display(..., raw=True)` and `handle.update(..., raw=True)`; in a cell's output it needs no kernel.

    *datasets* are the rows, by name, of a chart that was live: they arrived apart from its specification. *themed*: it
    is one of the workbench's, and looks so whether or not this process has enabled the theme.
    """
    spec = paper_wide(specification(chart, themed=themed)) if themed else specification(chart)
    if datasets:
        spec["datasets"] = spec.get("datasets", {}) | {name: plain(list(rows)) for name, rows in datasets.items()}
    return {CHART: spec, PICTURE: picture(spec), ALT_TEXT: alt_text(spec)}


def specification(chart: alt.TopLevelMixin | Mapping[str, Any], *, themed: bool = False) -> Spec:
    """*chart* as plain JSON values, with all its rows, however many."""
    if isinstance(chart, Mapping):
        return plain(chart)
    look = theme.enabled() if themed else nullcontext()
    # Limit and theme are plugins of the whole process; two threads that set them must not restore each other's.
    with _one_at_a_time, look, alt.data_transformers.enable("default", max_rows=None):
        return plain(chart.to_dict())


def picture(spec: Mapping[str, Any]) -> str:
    """*spec* drawn as SVG. Text in it is text, and nothing is fetched: data at an address is a ValueError."""
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
    """*svg* with its clips numbered from 0: Vega counts those of the whole process, and a picture is to be the same."""
    numbers: dict[str, int] = {}
    return _CLIP.sub(lambda clip: f"{clip[1]}clip{numbers.setdefault(clip[2], len(numbers))}", svg)


def plain(value: Any) -> Any:
    """*value* as JSON can hold it: what is not a finite number is null, numpy's scalars are Python's."""
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
    """The title of *spec* on one line, or nothing."""
    title = spec.get("title") or ""
    text = title.get("text", "") if isinstance(title, Mapping) else title
    return " ".join(" ".join(text).split() if isinstance(text, list) else str(text).split())


def alt_text(spec: Mapping[str, Any]) -> str:
    """One line for who cannot see the chart: its description, else title, marks, what is drawn over what, how much."""
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
    sentence = " ".join(parts) + (f", {rows} rows" if rows else "")
    title = title_text(spec)
    return f"{title}: {sentence}" if title else sentence


def _views(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The views of *spec* that draw something, in its order."""
    if "mark" in spec:
        yield spec
    for several in ("layer", "concat", "hconcat", "vconcat"):
        for view in spec.get(several, ()):
            yield from _views(view)
    if isinstance(spec.get("spec"), Mapping):
        yield from _views(spec["spec"])


def _channel_titles(view: Mapping[str, Any]) -> dict[str, str]:
    """What stands on each axis and legend of *view*."""
    titles = {}
    for channel in ("x", "y", "color"):
        encoding = view.get("encoding", {}).get(channel, {})
        axis = encoding.get("axis") or {}
        title = encoding.get("title") or axis.get("title") or encoding.get("field")
        if title:
            titles[channel] = " ".join(map(str, title)) if isinstance(title, list) else str(title)
    return titles


def enable_renderer() -> None:
    """Let every Altair chart that ends a cell of this notebook show as a bundle, so that a report can use it."""
    alt.renderers.register("workbench", lambda spec, **_: bundle(spec))
    alt.renderers.enable("workbench")
