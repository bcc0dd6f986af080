"""What a live chart needs of an Altair chart: Vega-Lite without theme and title, its named datasets, its words."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import altair as alt

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
