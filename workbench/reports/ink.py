"""The colours of a chart that are not data: by day and night they are the page's, on paper they are dark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Spec = dict[str, Any]
Ink = Mapping[str, str]

PAGE: Ink = {role: f"var(--{role})" for role in ("ink", "ink-soft", "line", "line-strong", "panel", "font-chart")}
"""Names of the page's own colours. The page's script puts in what each is at that hour."""

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
"""Properties that are never data, wherever in a specification they stand."""

_ROWS = ("datasets", "values")


def inked(spec: Mapping[str, Any], ink: Ink) -> Spec:
    """*spec* in *ink*: legible on its page whichever theme its author saw it in; no colour of data is touched."""
    whole = {**_repainted(spec, ink), "background": ink["panel"]}
    return whole | {"config": joined(joined(_defaults(ink), whole.get("config", {})), _always(ink))}


def joined(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """*over* laid on *under*, mapping by mapping."""
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
    """How a chart looks when its author said nothing."""
    words = {"labelColor": ink["ink-soft"], "titleColor": ink["ink"], "labelFontSize": 11, "titleFontSize": 12}
    lines = {"gridColor": ink["line"], "tickColor": ink["line-strong"], "domainColor": ink["line-strong"]}
    return {
        "font": ink["font-chart"],
        "view": {"stroke": ink["line"]},
        "axis": {**words, **lines},
        "legend": words,
        "header": words,
        "title": {"fontSize": 14, "subtitleFontSize": 12},
    }


def _always(ink: Ink) -> dict[str, Any]:
    """What an author's theme may have set for a page of another brightness. A mark's own colour still wins."""
    marks = {mark: {"color": ink["ink"]} for mark in ("text", "rule", "tick")}
    title = {"color": ink["ink"], "subtitleColor": ink["ink-soft"]}
    return {"background": ink["panel"], "title": title, **marks}
