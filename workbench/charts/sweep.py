"""How does the time depend on one axis? One line per scheme; estimates are drawn behind measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.schedule import Value
from workbench.charts import layers
from workbench.charts.labels import (
    Rows,
    axis_value,
    context,
    facts,
    is_whole,
    listed,
    milliseconds,
    time_expr,
    time_y,
    title,
)
from workbench.charts.layers import first
from workbench.charts.theme import (
    FACTS,
    INK,
    SCHEMES,
    SOURCE_LOOKS,
    best_label_position,
    filling,
    haloed,
    present,
    scheme,
    shape,
    source_dash,
    tooltip_and_description,
)
from workbench.naming import PUBLISHED, axis_text, axis_title
from workbench.results.rows import Row

DATASET = "sweep"
SOURCES = tuple(SOURCE_LOOKS)
HINT = "Of several trials at one value the fastest counts. A ring marks each scheme's best time."
TIMED_HERE = f"!datum.is_estimate && datum.look !== '{PUBLISHED}'"
"""Filter for rows that were timed on a machine of this workbench."""
CATEGORIES = "words"
"""Kind of an axis whose values are not numbers."""


def chart(trials: Rows, axis: str) -> alt.LayerChart:
    """The times of *trials* over the values of *axis*."""
    records = rows(trials, axis)
    legends = present(SCHEMES, [row["scheme"] for row in records]), present(SOURCES, [row["look"] for row in records])
    values = [row["value"] for row in records if row["value"] is not None]
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), (axis, _scale(values)), context(trials), legends)


def live(axis: str, values: Sequence[Value], context: str = "", schemes: Sequence[str] = SCHEMES) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended. *values* are the axis's possible values."""
    return _drawn(alt.NamedData(DATASET), (axis, _scale(values)), context, (schemes, SOURCES), is_live=True)


def rows(trials: Rows, axis: str) -> list[dict[str, Any]]:
    """One record per whole trial that has a time; its value is None where its scheme does not have *axis*."""
    return [_record(row, axis) for row in listed(trials) if is_whole(row) and row.get("time_s") is not None]


def _record(row: Row, axis: str) -> dict[str, Any]:
    shown, value = facts(row), axis_value(row, axis)
    at = f"{axis_title(axis)} {'absent' if value is None else value}"
    return shown | {
        "key": row.get("key"), "scheme": row.get("scheme"), "look": row["source"], "value": value,
        "is_estimate": int(row["source"] == "estimated"), "time_ms": milliseconds(row["time_s"]),
        "low_ms": milliseconds(row.get("low_s")), "high_ms": milliseconds(row.get("high_s")),
        "floor_ms": milliseconds(row.get("floor_s")),
        "aloud": f"{at}, {shown['schedule']}: {shown['time']}, {shown['source']}",
    }  # fmt: skip


_COLUMNS = (
    "key",
    "scheme",
    "look",
    "value",
    "is_estimate",
    "time_ms",
    "low_ms",
    "high_ms",
    "floor_ms",
    *FACTS,
    "aloud",
)


def _scale(values: Sequence[object]) -> str:
    """The kind of scale: logarithmic, linear if a value is not positive, or categories if one is not a number."""
    if not all(isinstance(value, int) for value in values):
        return CATEGORIES
    return "log" if all(isinstance(value, int) and value > 0 for value in values) else "linear"


def _drawn(
    data: Any, axis: tuple[str, str], context: str, shown: tuple[Sequence[str], Sequence[str]], *, is_live: bool = False
) -> alt.LayerChart:
    schemes = shown[0]
    running_marks = layers.layers(_time, schemes, "value") if is_live else []
    # no line connects categories
    lines = [] if axis[1] == CATEGORIES else [_lines(schemes)]
    over = [
        layer.encode(x=_across(*axis))
        for layer in (*lines, _spread(schemes), _points(*shown), _rings(schemes), *running_marks)
    ]
    (level, level_label), (floor, floor_label) = _level(schemes), _floor()
    texts = [layer for label in (level_label, floor_label, _least().encode(x=_across(*axis)))
             for layer in haloed(label)]  # fmt: skip
    return alt.LayerChart(
        layer=[*over, level, floor, *texts],
        data=data,
        title=title(f"How does the time depend on {axis_text(axis[0])}?", [context, HINT]),
        description=f"Time over {axis_text(axis[0])}, one line per scheme. Arrow keys go from one point to another.",
    )


def _across(axis: str, kind: str) -> alt.X:
    if kind == CATEGORIES:
        return alt.X("value:O", title=axis_title(axis), sort=None, axis=alt.Axis(labelAngle=0, labelLimit=120))
    scale = (
        alt.Scale(type="log", base=2, nice=False, padding=36) if kind == "log" else alt.Scale(zero=False, padding=20)
    )
    name = f"{axis_title(axis)} (each step doubles)" if kind == "log" else axis_title(axis)
    return alt.X("value:Q", title=name, scale=scale, axis=alt.Axis(format="d", grid=False, labelFlush=False))


def _time(field: str) -> alt.Y:
    return time_y(field, alt.Scale(zero=False, padding=18))


def _fastest(name: str) -> alt.Chart:
    """The fastest trial at each value, by scheme and source."""
    placed = alt.Chart(name=name).transform_filter("isValid(datum.value)")
    return first(placed, ["time_ms"], ["scheme", "look", "value"])


def _lines(schemes: Sequence[str]) -> alt.Chart:
    opacity = alt.condition("datum.is_estimate", alt.value(0.55), alt.value(1))
    ours = _fastest("lines").transform_filter(f"datum.look !== '{PUBLISHED}'")
    return ours.mark_line().encode(
        y=_time("time_ms"), stroke=scheme(alt.Stroke, schemes), strokeDash=source_dash("look"), opacity=opacity
    )


def _spread(schemes: Sequence[str]) -> alt.Chart:
    """Intervals of timed trials only: an uncalibrated estimate's band is as wide as the chart."""
    timed = _fastest("spread").transform_filter(f"{TIMED_HERE} && isValid(datum.low_ms) && isValid(datum.high_ms)")
    return timed.mark_rule(opacity=0.6, aria=False).encode(
        y=_time("low_ms"), y2="high_ms:Q", stroke=scheme(alt.Stroke, schemes)
    )


def _points(schemes: Sequence[str], sources: Sequence[str]) -> alt.Chart:
    return (
        _fastest("points")
        .mark_point()
        .encode(
            y=_time("time_ms"),
            shape=shape(looks=sources),
            fill=scheme(alt.Fill, schemes),
            stroke=scheme(alt.Stroke, schemes),
            fillOpacity=filling(),
            **tooltip_and_description(),
        )
    )


def _bottom(name: str, groups: Sequence[str]) -> alt.Chart:
    """The fastest timed trial of each of *groups*."""
    timed = alt.Chart(name=name).transform_filter(f"isValid(datum.value) && {TIMED_HERE}")
    return first(timed, ["time_ms"], groups).encode(y=_time("time_ms"))


def _rings(schemes: Sequence[str]) -> alt.Chart:
    rings = _bottom("rings", ["scheme"]).mark_point(size=220, strokeWidth=2, aria=False)
    return rings.encode(stroke=scheme(alt.Stroke, schemes))


def _least() -> alt.Chart:
    """A label of the fastest trial of all."""
    words = f"datum.value + ': ' + {time_expr('datum.time_ms')}"
    least = _bottom("least", []).transform_calculate(words=words)
    return least.mark_text(fontWeight=600, aria=False, **best_label_position()).encode(text="words:N")


def _level(schemes: Sequence[str]) -> tuple[alt.Chart, alt.Chart]:
    """A line at the fastest trial of each scheme that does not have the axis, and its label."""

    def best(part: str) -> alt.Chart:
        without = alt.Chart(name=f"level_{part}").transform_filter("!isValid(datum.value)")
        return first(without, ["time_ms"], ["scheme", "look"]).encode(y=_time("time_ms"))

    stroke = scheme(alt.Stroke, schemes)
    line = (
        best("line")
        .mark_rule(strokeWidth=2)
        .encode(stroke=stroke, strokeDash=source_dash("look"), **tooltip_and_description())
    )
    timed = best("label").transform_filter(TIMED_HERE)
    named = timed.transform_calculate(words=f"datum.scheme + ' ' + {time_expr('datum.time_ms')}")
    label = named.mark_text(baseline="bottom", dy=-3, x=alt.expr("width / 4"), aria=False).encode(text="words:N")
    return line, label


def _floor() -> tuple[alt.Chart, alt.Chart]:
    """A line at the floor, and its label below the line, where no trial can be."""

    def lowest(part: str) -> alt.Chart:
        known = alt.Chart(name=f"floor_{part}").transform_filter("isValid(datum.floor_ms)")
        words = f"'floor ' + {time_expr('datum.floor_ms')}"
        return first(known, ["is_estimate", "floor_ms"]).transform_calculate(words=words).encode(y=_time("floor_ms"))

    line = lowest("line").mark_rule(stroke=INK, strokeDash=[6, 3]).encode(description="words:N")
    label = lowest("label").mark_text(align="right", baseline="top", dy=4, x=alt.expr("width"), aria=False)
    return line, label.encode(text="words:N")
