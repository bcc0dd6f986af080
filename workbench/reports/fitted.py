"""A chart that fits where it is read: as wide as a column of a page, its title broken into lines before its edge."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]

WIDTH = 640
"""Pixels of a chart's plot on a page, where its author gave none: with its axis as wide as A4 between its margins."""
DEFAULT_WIDTH = 300
"""What Vega-Lite gives a plot with neither a width nor a theme."""
TITLE_SIZE, SUBTITLE_SIZE = 14, 12
CHARACTER = 0.52
"""Width of a letter over the size of its font, on average and a little more."""


def paper_wide(spec: Mapping[str, Any]) -> Spec:
    """*spec* as wide as its column, unless it is one of several plots or has a width."""
    single = "layer" in spec or "mark" in spec
    return {**spec, "width": WIDTH} if single and "width" not in spec else dict(spec)


def wrapped(spec: Mapping[str, Any]) -> Spec:
    """*spec* with its titles in lines that end before the plot does: what is longer is cut off in a picture."""
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
    """Of one plot its own; of plots side by side their sum, as far as they say."""
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
