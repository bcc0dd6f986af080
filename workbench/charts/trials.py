"""How long does each trial take? Measured and estimated times, the floor and the student's guess in one chart."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import altair as alt

from kernels.units import seconds_text
from workbench.charts import layers as chart_layers
from workbench.charts.labels import (
    Rows,
    axis_value,
    context,
    facts,
    is_whole,
    listed,
    milliseconds,
    schedule_label,
    title,
)
from workbench.charts.layers import PLAIN, Look, marked
from workbench.charts.relative import TimeAxis, against, name_of
from workbench.charts.theme import (
    FACTS,
    FAILED,
    FLOOR,
    GUESS,
    INK,
    LOOKS,
    SCHEMES,
    filling,
    present,
    scheme,
    tooltip_and_description,
)
from workbench.naming import axis_title
from workbench.results.deltas import Pinned
from workbench.results.rows import Row

DATASET = "trials"
QUESTION = "How long does each trial take?"
TRIAL = "trial"
"""The axis of the schedules in the order of their first row."""
IN_ORDER = "Schedules, in the order of their first result"

WITHOUT = "without"
"""Position of trials whose scheme does not have the axis."""
SHIFT = 0.22
_SIDES = {GUESS: -1, "estimated": 1}
"""Guess and estimate are drawn left and right of the measured time, so that their spreads do not overlap."""


def chart(trials: Rows, axis: str = TRIAL, baseline: Pinned | None = None) -> alt.LayerChart:
    """The times of all *trials* in order, or over the value of *axis*, or their differences to *baseline*."""
    records = rows(trials, axis, baseline=baseline)
    looks = present(tuple(LOOKS), [row["look"] for row in records])
    legends = present(SCHEMES, [row["scheme"] for row in records]), looks
    return _drawn(chart_layers.table(records, _COLUMNS), axis, context(trials), legends,
                  TimeAxis(alt.Scale(zero=True), name_of(baseline)))  # fmt: skip


def live(
    axis: str = TRIAL, context: str = "", schemes: Sequence[str] = SCHEMES, baseline: str = "", look: Look = PLAIN
) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended. The legend lists *schemes*.

    With a *baseline*, as `relative.name_of` says it, it draws differences: rows are made with the same one.
    """
    data, time = alt.NamedData(DATASET), TimeAxis.of(alt.Scale(zero=True), baseline, look.scale, look.runs)
    return _drawn(data, axis, context, (schemes, tuple(LOOKS)), time, is_live=axis == TRIAL)


def rows(
    trials: Rows,
    axis: str = TRIAL,
    numbers: MutableMapping[str, int] | None = None,
    baseline: Pinned | None = None,
) -> list[dict[str, Any]]:
    """One record per time, floor or failure of whole trials; the floor of a trial is drawn once.

    *numbers* holds the trials' numbers by key and grows with each new key: pass the same one at every append.
    """
    numbers = {} if numbers is None else numbers
    records: list[dict[str, Any]] = []
    with_floor: set[tuple[Any, Any]] = set()
    for row in listed(trials):
        if not is_whole(row):
            continue
        number = numbers.setdefault(str(row.get("key")), len(numbers) + 1)
        records.append(against(marked(_record(row, number, axis), row), row, baseline))
        of = row.get("key"), row.get("run_name")
        if row.get("floor_s") is not None and of not in with_floor:
            with_floor.add(of)
            records.append(against(marked(_floor(row, number, axis), row), row, baseline))
    return records


def guess(row: Row, guess_s: float, number: int, axis: str = TRIAL, baseline: Pinned | None = None) -> dict[str, Any]:
    """The record of the time that the student expects for the trial of *row*."""
    time = seconds_text(guess_s)
    shown = {"time": time, "source": "your guess", "verified": "does not apply: a guess"}
    record = _placed(row, number, axis, GUESS) | shown | {
        "time_ms": milliseconds(guess_s), "aloud": f"Your guess for {schedule_label(row)}: {time}",
    }  # fmt: skip
    return against(marked(record, row), row, baseline)


def _placed(row: Row, number: int, axis: str, look: str) -> dict[str, Any]:
    """The columns that all marks of one trial share, with their position on the axis."""
    value, side = axis_value(row, axis), _SIDES.get(look, 0)
    # of several runs each has a share of the room around the number
    across = number + side * SHIFT * float(row.get("run_share") or 1) + float(row.get("run_shift") or 0)
    place = across if axis == TRIAL else WITHOUT if value is None else value
    order = -1 if value is None else value if isinstance(value, int) else 0
    where = {"number": number, "place": place, "side": side, "order": order}
    return _EMPTY | where | {"key": row.get("key"), "scheme": row.get("scheme"), "look": look} | facts(row)


def _record(row: Row, number: int, axis: str) -> dict[str, Any]:
    if row.get("time_s") is None:
        placed = _placed(row, number, axis, FAILED)
        return placed | {"aloud": f"{placed['schedule']}: {placed['time']}"}
    placed = _placed(row, number, axis, row["source"])
    return placed | {
        "time_ms": milliseconds(row["time_s"]),
        "low_ms": milliseconds(row.get("low_s")),
        "high_ms": milliseconds(row.get("high_s")),
        "aloud": f"{placed['schedule']}: {placed['time']}, {placed['source']}",
    }


def _floor(row: Row, number: int, axis: str) -> dict[str, Any]:
    time = seconds_text(row["floor_s"])
    source = "floor: the best compute alone, or the least bytes over the link"
    shown = {"time": time, "source": source, "verified": "does not apply: a bound"}
    return _placed(row, number, axis, FLOOR) | shown | {
        "time_ms": milliseconds(row["floor_s"]), "aloud": f"Floor of {schedule_label(row)}: {time}",
    }  # fmt: skip


_COLUMNS = (
    "key",
    "number",
    "place",
    "side",
    "order",
    "scheme",
    "look",
    "time_ms",
    "low_ms",
    "high_ms",
    *FACTS,
    "aloud",
)
_EMPTY: dict[str, Any] = dict.fromkeys(_COLUMNS)


def _drawn(
    data: Any,
    axis: str,
    context: str,
    shown: tuple[Sequence[str], Sequence[str]],
    time: TimeAxis,
    *,
    is_live: bool = False,
) -> alt.LayerChart:
    schemes, looks = shown
    # the first layer with a shape decides how the legend is filled
    layers = [_spread(time, schemes), _points(time, axis, shown), _floors(time, looks), _failures(time, schemes, looks)]
    layers += [*chart_layers.layers(time, schemes, "place"), *_selected(time)] if is_live else []
    question = QUESTION if axis == TRIAL else f"How long does each trial take, by {axis}?"
    drawn = alt.LayerChart(
        layer=[*(layer.encode(**_place(axis)) for layer in layers), *_ends(axis), *time.zero()],
        data=data,
        title=title(question, [context, *time.subtitle]),
        description="Times of trials: measured, estimated, floor and guess. Arrow keys go from one to another.",
    )
    return chart_layers.selectable(drawn) if is_live else drawn


def _in_order(field: str) -> alt.X:
    # with two or three trials Vega still halves the steps
    steps = alt.Axis(tickMinStep=1, grid=False, labelExpr="datum.value % 1 ? '' : datum.value")
    return alt.X(f"{field}:Q", title=IN_ORDER, axis=steps, scale=alt.Scale(zero=False, nice=False, padding=14))


def _ends(axis: str) -> list[alt.Chart]:
    """Nothing that is seen: half a schedule on either side of all, so that no mark lies at the end of the axis."""
    if axis != TRIAL:
        return []
    last = alt.Chart(name="ends").transform_aggregate(last="max(number)")
    both = last.transform_calculate(ends="[0.5, datum.last + 0.5]").transform_flatten(["ends"])
    return [both.transform_filter("isValid(datum.last)").mark_text(text="", aria=False).encode(x=_in_order("ends"))]


def _place(axis: str) -> dict[str, Any]:
    if axis == TRIAL:
        return {"x": _in_order("place")}
    by_value = alt.EncodingSortField(field="order", op="min")
    return {
        "x": alt.X("place:N", title=axis_title(axis), axis=alt.Axis(labelAngle=0, labelLimit=120), sort=by_value),
        "xOffset": alt.XOffset("side:O", scale=alt.Scale(domain=[-1, 0, 1])),
    }


def _tooltip(time: TimeAxis) -> dict[str, Any]:
    return tooltip_and_description({**time.facts, "number": "Order"})


def _points(time: TimeAxis, axis: str, shown: tuple[Sequence[str], Sequence[str]]) -> alt.Chart:
    schemes, looks = shown
    crowd = alt.expr("isValid(domain('x')[1]) ? clamp(3 * width / (domain('x')[1] - domain('x')[0]), 12, 55) : 30")
    return (
        alt.Chart(name="times")
        .transform_filter(f"{time.known('time')} && datum.look !== '{FLOOR}'")
        .mark_point(size=crowd if axis == TRIAL else alt.Undefined)
        .encode(
            y=time.y("time"),
            shape=chart_layers.form(time, looks),
            fillOpacity=filling(),
            fill=scheme(alt.Fill, schemes),
            stroke=scheme(alt.Stroke, schemes),
            **_tooltip(time),
        )
    )


def _spread(time: TimeAxis, schemes: Sequence[str]) -> alt.Chart:
    return (
        alt.Chart(name="spread")
        .transform_filter(time.known("low", "high"))
        .mark_rule(opacity=0.55)
        .encode(y=time.y("low"), y2=f"{time.column('high')}:Q", stroke=scheme(alt.Stroke, schemes), **_tooltip(time))
    )


def _floors(time: TimeAxis, looks: Sequence[str]) -> alt.Chart:
    return (
        alt.Chart(name="floor")
        .transform_filter(f"datum.look === '{FLOOR}'")
        .mark_point(size=300, strokeWidth=2, stroke=INK)
        .encode(y=time.y("time"), shape=chart_layers.form(time, looks), **_tooltip(time))
    )


AT_THE_BOTTOM = alt.value(alt.expr("height - 7"))
"""The place of failures, which have no time: on the axis."""


def _selected(time: TimeAxis) -> list[alt.Chart]:
    """A ring around the selected trial, whether it has a time or is a failure."""
    timed = f"{time.known('time')} && datum.look !== '{FLOOR}' && datum.look !== '{GUESS}'"
    failed = chart_layers.ring(time, f"datum.look === '{FAILED}'", AT_THE_BOTTOM).properties(name="selected_failure")
    return [chart_layers.ring(time, timed), failed]


def _failures(time: TimeAxis, schemes: Sequence[str], looks: Sequence[str]) -> alt.Chart:
    """Marks of failures, on the axis."""
    return (
        alt.Chart(name="failures")
        .transform_filter(f"datum.look === '{FAILED}'")
        .mark_point(size=40, strokeWidth=2)
        .encode(
            y=AT_THE_BOTTOM,
            shape=chart_layers.form(time, looks),
            stroke=scheme(alt.Stroke, schemes),
            **_tooltip(time),
        )
    )
