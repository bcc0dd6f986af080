"""Which values do fast schedules share? One line a row over an upright axis for each column; the time is last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.charts.labels import in_one_unit
from workbench.charts.theme import INKS, SCHEME_COLOURS, Mode
from workbench.naming import TIMED, value_title
from workbench.results.columns import Frame, Mask, Numbers, Places, Texts

LINES_MOST = 2_000
"""Lines that are drawn; the fastest are always among them."""
FASTEST_SHARE = 0.25
"""Share of the lines that are the fastest rows; the others are spread over all rows by time."""
AXES_MOST = 12
"""Axes that are drawn, those that most rows have; beyond that their titles would overlap."""
TEXTS_MOST = 40
"""Texts of an axis; more could not be read."""
TICKS_MOST = 9
"""Most values of an axis that each have a label."""
SPREAD_OF_LOG = 8.0
"""From this ratio of the largest to the smallest value on an axis is logarithmic."""
FAST, SLOW = SCHEME_COLOURS["fused"], "#8d97a3"
"""The colours of the fastest and of the slowest line."""
HEIGHT = 170
GRIP = 26
"""Width in pixels around an axis in which a press begins a brush."""
TOP = 36
"""Pixels above the axes, for titles of two lines."""
NONE_BELOW = 14
"""Pixels below the axis of lines without a value."""

# An axis, and the lines that cross all of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelAxis:
    """An upright axis of one column."""

    column: str
    title: str
    scale: str
    """`point`, of texts, `log` or `linear`."""
    domain: tuple[Any, ...]
    """All texts, or the least and the largest number."""
    ticks: tuple[Any, ...] = ()
    """Values with a label; empty leaves them to the scale."""
    factor: float = 1.0
    """By which a number is multiplied in its label."""


def axes_of(frame: Frame, names: Sequence[str], titles: Sequence[str]) -> tuple[ParallelAxis, ...]:
    """The axes of columns *names* of *frame*, which have the same *titles*."""
    made = (_axis(frame.columns[name], name, title) for name, title in zip(names, titles, strict=True))
    axes = [axis for axis in made if axis is not None]
    often = sorted(axes[:-1], key=lambda axis: -_present(frame.columns[axis.column]))[: AXES_MOST - 1]
    return tuple(axis for axis in axes if axis in often or axis is axes[-1])


def _present(column: Numbers | Texts) -> int:
    """How many rows have a value."""
    return int(np.count_nonzero(column.codes >= 0 if isinstance(column, Texts) else ~np.isnan(column)))


def _axis(column: Numbers | Texts, name: str, title: str) -> ParallelAxis | None:
    if isinstance(column, Texts):
        if not 2 <= len(column.texts) <= TEXTS_MOST:
            return None
        return ParallelAxis(column=name, title=title, scale="point", domain=column.texts)
    present = column[np.isfinite(column)]
    if not len(present) or (present.min() == present.max() and name != "time_s"):
        return None
    low, high = float(present.min()), float(present.max())
    distinct = np.unique(present[:: max(1, len(present) // 4096)])
    is_log = low > 0 and high / low >= SPREAD_OF_LOG
    factor, unit = in_one_unit([1e3 * float(np.median(present))]) if name.endswith("_s") else (1e-3, "")
    ticks = tuple(distinct.tolist()) if len(distinct) <= TICKS_MOST else _between(low, high, is_log)
    title = ", ".join(filter(None, (title, unit)))
    return ParallelAxis(column=name, title=title, scale="log" if is_log else "linear", domain=(low, high), ticks=ticks,
                        factor=factor * 1e3)  # fmt: skip


def _between(low: float, high: float, is_log: bool) -> tuple[float, ...]:
    """Five values from *low* to *high*, with two significant digits where they are inside."""
    spread = np.geomspace(low, high, 5) if is_log else np.linspace(low, high, 5)
    return tuple(float(f"{value:.3g}") for value in spread.tolist())


def sample(frame: Frame, mask: Mask, most: int = LINES_MOST) -> Places:
    """Places of at most *most* kept rows, slowest first: the fastest ones, and others evenly over the rest by time."""
    order = frame.order("time_s")
    kept = order[mask[order]]
    if len(kept) > most:
        fastest = int(most * FASTEST_SHARE)
        others = np.linspace(fastest, len(kept) - 1, most - fastest).astype(np.int64)
        kept = np.concatenate([kept[:fastest], kept[others]])
    return kept[::-1]


def rows(frame: Frame, places: Places, axes: Sequence[ParallelAxis]) -> NDArray[np.float32]:
    """The lines of the rows at *places*, one row each: its place, whether it was timed, and its value on each axis.

    A text is its number among the texts of its axis, and nan is no value; a place of more than 2^24 is rounded.
    """
    sources = frame.as_texts("source")
    is_timed = np.array([*(text in TIMED for text in sources.texts), False])[sources.codes[places]]
    values = [_values(frame.columns[axis.column], places) for axis in axes]
    return np.stack([places.astype(np.float64), is_timed.astype(np.float64), *values], axis=1).astype(np.float32)


def _values(column: Numbers | Texts, places: Places) -> Numbers:
    if isinstance(column, Texts):
        return np.where(column.codes[places] < 0, np.nan, column.codes[places].astype(np.float64))
    return column[places]


# The drawing, in Vega's own language: a layered Vega-Lite chart has no brush for each of its axes.


def drawing(axes: Sequence[ParallelAxis]) -> dict[str, Any]:
    """The Vega drawing of *axes*, without lines; signal `b0` is the brush of the first axis, in pixels."""
    numbers = range(len(axes))
    return {
        "$schema": "https://vega.github.io/schema/vega/v6.json",
        "height": HEIGHT,
        "padding": {"left": 74, "right": 46, "top": TOP, "bottom": NONE_BELOW + 6},
        "autosize": {"type": "none"},
        "signals": [
            {"name": "width", "value": 800},
            {"name": "chosen", "value": None},
            {"name": "gap", "update": f"width / {max(1, len(axes) - 1)}"},
            *(_brush(number) for number in numbers),
        ],
        "data": _data(len(axes)),
        "scales": [_scale(axis, number) for number, axis in enumerate(axes)]
        + [{"name": "speed", "type": "linear", "domain": [0, 1], "range": [SLOW, FAST], "interpolate": "rgb"}],
        "axes": [_ruler(axis, number) for number, axis in enumerate(axes)],
        "marks": [
            _line("missed", 0.05, 1.0),
            {**_line("hit", None, None), "interactive": True},
            _line("picked", 1.0, 3.0),
            *(mark for number in numbers for mark in _grips(number)),
        ],
    }


def _brush(number: int) -> dict[str, Any]:
    here = "clamp(y(), 0, height)"
    return {
        "name": f"b{number}", "value": None, "on": [
            {"events": f"@grip{number}:pointerdown", "update": f"[{here}, {here}]"},
            {"events": f"[@grip{number}:pointerdown, window:pointerup] > window:pointermove!",
             "update": f"b{number} ? [b{number}[0], {here}] : null"},
            {"events": "window:pointerup", "update": f"b{number} && abs(b{number}[1] - b{number}[0]) < 3 ? null : "
                                                     f"b{number}"},
        ],
    }  # fmt: skip


def _data(count: int) -> list[dict[str, Any]]:
    height = [f"(isValid(datum.v{number}) ? scale('y{number}', datum.v{number}) : height + {NONE_BELOW})"
              for number in range(count)]  # fmt: skip
    path = " + 'L' + ".join(f"format({number} * gap, '.1f') + ',' + format(datum.y{number}, '.1f')"
                            for number in range(count))  # fmt: skip
    inside = " && ".join(
        f"(!b{number} || (isValid(datum.v{number}) && inrange(datum.y{number}, b{number})))" for number in range(count)
    )
    steps = [{"type": "formula", "as": f"y{number}", "expr": expr} for number, expr in enumerate(height)]
    steps.append({"type": "formula", "as": "path", "expr": f"'M' + {path or repr('0,0')}"})
    steps.append({"type": "formula", "as": "hit", "expr": inside or "true"})
    picks = {"missed": "!datum.hit", "hit": "datum.hit", "picked": "datum.place === chosen"}
    return [{"name": "lines", "values": [], "transform": steps}] + [
        {"name": name, "source": "lines", "transform": [{"type": "filter", "expr": expr}]}
        for name, expr in picks.items()
    ]


def _scale(axis: ParallelAxis, number: int) -> dict[str, Any]:
    common = {"name": f"y{number}", "domain": list(axis.domain)}
    if axis.scale == "point":
        return {**common, "type": "point", "range": [{"signal": "height"}, 0], "padding": 0.3}
    low, high = axis.domain
    if low == high:  # the run has one value, which is drawn in the middle
        return {**common, "type": "linear", "domain": [low - 1, high + 1], "range": [{"signal": "height"}, 0]}
    return {**common, "type": axis.scale, "range": [{"signal": "height - 6"}, 6]}


def _ruler(axis: ParallelAxis, number: int) -> dict[str, Any]:
    title = {
        "title": _two_lines(axis.title), "titleAngle": 0, "titleAnchor": "end", "titleAlign": "center", "titleX": 0,
        "titleY": -22, "titleBaseline": "bottom", "titleLineHeight": 12, "titleLimit": {"signal": "gap - 6"},
    }  # fmt: skip
    made = {
        "scale": f"y{number}", "orient": "left", "offset": {"signal": f"-{number} * gap"}, "grid": False,
        "labelLimit": {"signal": "gap * 0.6"}, "zindex": 1, **title,
    }  # fmt: skip
    if axis.scale == "point":
        texts = {text: value_title(text) for text in axis.domain}
        return {**made, "encode": {"labels": {"update": {"text": {"signal": f"{_object(texts)}[datum.value]"}}}}}
    scaled = f"datum.value * {axis.factor:g}"
    text = f"format({scaled}, {scaled} % 1 || {scaled} > 99999 ? '.3~r' : 'd')"
    labels = {"update": {"text": {"signal": text}}}
    return {**made, "values": list(axis.ticks), "labelOverlap": "greedy", "encode": {"labels": labels}}


def _two_lines(title: str) -> list[str]:
    """*title* in two lines, if it has more than one word."""
    words = title.split()
    half = next((number for number in range(1, len(words)) if len(" ".join(words[:number])) >= len(title) / 3), 0)
    return [" ".join(words[:half]), " ".join(words[half:])] if half else [title]


def _object(texts: dict[str, str]) -> str:
    quoted = (f"{_quoted(key)}: {_quoted(text)}" for key, text in texts.items())
    return f"{{{', '.join(quoted)}}}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _line(data: str, opacity: float | None, width: float | None) -> dict[str, Any]:
    shown = {"signal": "datum.timed ? 0.9 : 0.18 + 0.5 * datum.fast * datum.fast * datum.fast"}
    thick = {"signal": "datum.timed ? 1.6 : 0.8"}
    return {
        "type": "path", "name": f"{data}_lines", "from": {"data": data}, "interactive": False, "encode": {"update": {
            "path": {"field": "path"}, "stroke": {"scale": "speed", "field": "fast"},
            "strokeOpacity": shown if opacity is None else {"value": opacity},
            "strokeWidth": thick if width is None else {"value": width}, "cursor": {"value": "pointer"},
        }},
    }  # fmt: skip


def _grips(number: int) -> list[dict[str, Any]]:
    """Where a press begins the brush of an axis, and the brush itself."""
    middle = f"{number} * gap"
    grip = {
        "x": {"signal": f"{middle} - {GRIP / 2:g}"}, "width": {"value": GRIP}, "y": {"value": -4},
        "height": {"signal": "height + 8"}, "fill": {"value": "transparent"}, "cursor": {"value": "ns-resize"},
    }  # fmt: skip
    brush = {
        "x": {"signal": f"{middle} - 7"}, "width": {"value": 14}, "fill": {"value": FAST},
        "fillOpacity": {"value": 0.22}, "stroke": {"value": FAST},
        "y": {"signal": f"b{number} ? min(b{number}[0], b{number}[1]) : 0"},
        "height": {"signal": f"b{number} ? abs(b{number}[1] - b{number}[0]) : 0"},
        "opacity": {"signal": f"b{number} ? 1 : 0"},
    }  # fmt: skip
    return [
        {"type": "rect", "name": f"grip{number}", "encode": {"update": grip}},
        {"type": "rect", "interactive": False, "encode": {"update": brush}},
    ]


def look(mode: Mode) -> dict[str, Any]:
    """Vega's configuration of one mode."""
    ink = INKS[mode]
    return {
        "background": "transparent",
        "axis": {"labelColor": ink.text, "titleColor": ink.text, "domainColor": ink.faint, "tickColor": ink.faint,
                 "labelFontSize": 10, "titleFontSize": 11, "titleFontWeight": 600},
    }  # fmt: skip
