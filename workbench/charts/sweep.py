"""How does the time depend on one axis? One line per scheme; estimates are drawn behind measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

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
    title,
)
from workbench.charts.layers import PLAIN, Look, first, form, groups, marked, ring, selectable
from workbench.charts.relative import TimeAxis, against, name_of
from workbench.charts.theme import (
    FACTS,
    INK,
    SCHEMES,
    SOURCE_LOOKS,
    filling,
    haloed,
    present,
    scheme,
    source_dash,
    tooltip_and_description,
)
from workbench.naming import PUBLISHED, TIMED, axis_text, axis_title
from workbench.results.deltas import Pinned
from workbench.results.rows import Row, turns

DATASET = "sweep"
SOURCES = tuple(SOURCE_LOOKS)
HINT = "Lines join what was timed in one block. At each value the fastest counts; a ring marks a scheme's best."
TIMED_HERE = f"!datum.is_estimate && datum.look !== '{PUBLISHED}'"
"""Filter for rows that were timed on a machine of this workbench."""
_OWN_PLACE = f"width * (indexof({list(SCHEMES)}, datum.scheme) + 0.5) / {len(SCHEMES)}"
"""Where the label of a scheme's level is: two levels may be so near that labels at one place would touch."""
CATEGORIES = "words"
"""Kind of an axis whose values are not numbers."""


def chart(trials: Rows, axis: str, baseline: Pinned | None = None) -> alt.LayerChart:
    """The times of *trials* over the values of *axis*, or their differences to *baseline*."""
    records = rows(trials, axis, baseline)
    legends = present(SCHEMES, [row["scheme"] for row in records]), present(SOURCES, [row["look"] for row in records])
    values = [row["value"] for row in records if row["value"] is not None]
    data, kind = layers.table(records, _COLUMNS), _scale(values)
    time = TimeAxis(alt.Scale(zero=False, padding=18), name_of(baseline))
    return _drawn(data, (axis, kind), context(trials), legends, time)


def live(
    axis: str,
    values: Sequence[Value],
    context: str = "",
    schemes: Sequence[str] = SCHEMES,
    baseline: str = "",
    look: Look = PLAIN,
) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended. *values* are the axis's possible values.

    With a *baseline*, as `relative.name_of` says it, it draws differences: rows are made with the same one.
    """
    time = TimeAxis.of(alt.Scale(zero=False, padding=18), baseline, look.scale, look.runs)
    kind = _scale(values)
    drawn = _drawn(alt.NamedData(DATASET), (axis, kind), context, (schemes, SOURCES), time, is_live=True)
    drawn.layer.insert(0, ring(time, "isValid(datum.value)").encode(x=_across(axis, kind)))
    return selectable(drawn)


def rows(trials: Rows, axis: str, baseline: Pinned | None = None) -> list[dict[str, Any]]:
    """One record per whole trial that has a time; its value is None where its scheme does not have *axis*."""
    timed = [row for row in listed(trials) if is_whole(row) and row.get("time_s") is not None]
    return [against(marked(_record(row, axis), row), row, baseline) for row in timed]


def _record(row: Row, axis: str) -> dict[str, Any]:
    shown, value = facts(row), axis_value(row, axis)
    at = f"{axis_title(axis)} {'absent' if value is None else value}"
    return shown | {
        "key": row.get("key"), "scheme": row.get("scheme"), "look": row["source"], "value": value,
        "turns": str(turns(row)) if row["source"] in TIMED else "", "is_estimate": int(row["source"] == "estimated"),
        "time_ms": milliseconds(row["time_s"]),
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
    "turns",
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
    data: Any,
    axis: tuple[str, str],
    context: str,
    shown: tuple[Sequence[str], Sequence[str]],
    time: TimeAxis,
    *,
    is_live: bool = False,
) -> alt.LayerChart:
    schemes = shown[0]
    running_marks = layers.layers(time, schemes, "value") if is_live else []
    # no line connects categories
    lines = [] if axis[1] == CATEGORIES else [_lines(time, schemes)]
    over = [
        layer.encode(x=_across(*axis))
        for layer in (*lines, _spread(time, schemes), _points(time, *shown), _rings(time, schemes), *running_marks)
    ]
    (level, level_label), (floor, floor_label) = _level(time, schemes), _floor(time)
    texts = [layer for label in (level_label, floor_label, _least(time).encode(x=_across(*axis)))
             for layer in haloed(label)]  # fmt: skip
    return alt.LayerChart(
        layer=[*over, level, floor, *time.zero("right"), *texts],
        data=data,
        title=title(f"How does the time depend on {axis_text(axis[0])}?", [context, *time.subtitle, HINT]),
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


def _fastest(time: TimeAxis, name: str) -> alt.Chart:
    """The fastest trial at each value, by scheme and source."""
    placed = alt.Chart(name=name).transform_filter(f"isValid(datum.value) && {time.known('time')}")
    return first(placed, [time.column("time")], groups(["scheme", "look", "value"], time))


def _lines(time: TimeAxis, schemes: Sequence[str]) -> alt.Chart:
    opacity = alt.condition("datum.is_estimate", alt.value(0.55), alt.value(1))
    ours = _fastest(time, "lines").transform_filter(f"datum.look !== '{PUBLISHED}'")
    return ours.mark_line().encode(
        y=time.y("time"), stroke=scheme(alt.Stroke, schemes), strokeDash=source_dash("look"), opacity=opacity,
        detail=["turns:N", *(["run:N"] if time.runs else [])],
    )  # fmt: skip


def _spread(time: TimeAxis, schemes: Sequence[str]) -> alt.Chart:
    """Intervals of timed trials only: an uncalibrated estimate's band is as wide as the chart."""
    timed = _fastest(time, "spread").transform_filter(f"{TIMED_HERE} && {time.known('low', 'high')}")
    return timed.mark_rule(opacity=0.6, aria=False).encode(
        y=time.y("low"), y2=f"{time.column('high')}:Q", stroke=scheme(alt.Stroke, schemes)
    )


def _points(time: TimeAxis, schemes: Sequence[str], sources: Sequence[str]) -> alt.Chart:
    return (
        _fastest(time, "points")
        .mark_point()
        .encode(
            y=time.y("time"),
            shape=form(time, sources),
            fill=scheme(alt.Fill, schemes),
            stroke=scheme(alt.Stroke, schemes),
            fillOpacity=filling(),
            **tooltip_and_description(time.facts),
        )
    )


def _bottom(time: TimeAxis, name: str, groups: Sequence[str]) -> alt.Chart:
    """The fastest timed trial of each of *groups*."""
    known = f"isValid(datum.value) && {time.known('time')} && {TIMED_HERE}"
    timed = alt.Chart(name=name).transform_filter(known)
    return first(timed, [time.column("time")], groups).encode(y=time.y("time"))


def _rings(time: TimeAxis, schemes: Sequence[str]) -> alt.Chart:
    rings = _bottom(time, "rings", ["scheme"]).mark_point(size=220, strokeWidth=2, aria=False)
    return rings.encode(stroke=scheme(alt.Stroke, schemes))


def _least(time: TimeAxis) -> alt.Chart:
    """A label of the fastest trial of all."""
    words = f"datum.value + ': ' + {time.text('time')}"
    least = _bottom(time, "least", []).transform_calculate(words=words)
    return least.mark_text(fontWeight=600, aria=False, **time.label_position()).encode(text="words:N")


def _level(time: TimeAxis, schemes: Sequence[str]) -> tuple[alt.Chart, alt.Chart]:
    """A line at the fastest trial of each scheme that does not have the axis, and the label of the fastest."""

    def best(part: str, by: Sequence[str]) -> alt.Chart:
        known = f"!isValid(datum.value) && {time.known('time')}"
        without = alt.Chart(name=f"level_{part}").transform_filter(known)
        return first(without, [time.column("time")], by).encode(y=time.y("time"))

    stroke = scheme(alt.Stroke, schemes)
    line = (
        best("line", groups(["scheme", "look"], time))
        .mark_rule(strokeWidth=2)
        .encode(stroke=stroke, strokeDash=source_dash("look"), **tooltip_and_description(time.facts))
    )
    timed = best("label", ["scheme", "look"]).transform_filter(TIMED_HERE)
    named = timed.transform_calculate(words=f"datum.scheme + ' ' + {time.text('time')}")
    label = named.mark_text(baseline="bottom", dy=-3, x=alt.expr(_OWN_PLACE), aria=False).encode(text="words:N")
    return line, label


def _floor(time: TimeAxis) -> tuple[alt.Chart, alt.Chart]:
    """A line at the floor, and its label below the line, where no trial can be."""

    def lowest(part: str) -> alt.Chart:
        known = alt.Chart(name=f"floor_{part}").transform_filter(time.known("floor"))
        floors = first(known, ["is_estimate", time.column("floor")])
        return floors.transform_calculate(words=f"'floor ' + {time.text('floor')}").encode(y=time.y("floor"))

    line = lowest("line").mark_rule(stroke=INK, strokeDash=[6, 3]).encode(description="words:N")
    label = lowest("label").mark_text(align="right", baseline="top", dy=4, x=alt.expr("width"), aria=False)
    return line, label.encode(text="words:N")
