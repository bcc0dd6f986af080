"""How long does each trial take? Measured and estimated times, the floor and the student's guess in one chart."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.units import seconds_text
from workbench.charts import layers as chart_layers
from workbench.charts.labels import Rows, axis_value, context, facts, is_whole, listed, milliseconds, time_y, title
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
    shape,
    tooltip_and_description,
)
from workbench.naming import axis_title
from workbench.results.rows import Row

DATASET = "trials"
QUESTION = "How long does each trial take?"
TRIAL = "trial"
"""The axis that numbers the trials in the order of their first row."""

WITHOUT = "without"
"""Position of trials whose scheme does not have the axis."""
SHIFT = 0.22
_SIDES = {GUESS: -1, "estimated": 1}
"""Guess and estimate are drawn left and right of the measured time, so that their spreads do not overlap."""


def chart(trials: Rows, axis: str = TRIAL) -> alt.LayerChart:
    """The times of all *trials* over their number, or over the value of *axis*."""
    records = rows(trials, axis)
    looks = present(tuple(LOOKS), [row["look"] for row in records])
    legends = present(SCHEMES, [row["scheme"] for row in records]), looks
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), axis, context(trials), legends)


def live(axis: str = TRIAL, context: str = "", schemes: Sequence[str] = SCHEMES) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended. The legend lists *schemes*."""
    return _drawn(alt.NamedData(DATASET), axis, context, (schemes, tuple(LOOKS)), is_live=axis == TRIAL)


def rows(trials: Rows, axis: str = TRIAL, numbers: MutableMapping[str, int] | None = None) -> list[dict[str, Any]]:
    """One record per time, floor or failure of whole trials; the floor of a trial is drawn once.

    *numbers* holds the trials' numbers by key and grows with each new key: pass the same one at every append.
    """
    numbers = {} if numbers is None else numbers
    records: list[dict[str, Any]] = []
    with_floor: set[str] = set()
    for row in listed(trials):
        if not is_whole(row):
            continue
        number = numbers.setdefault(str(row.get("key")), len(numbers) + 1)
        records.append(_record(row, number, axis))
        if row.get("floor_s") is not None and row.get("key") not in with_floor:
            with_floor.add(row["key"])
            records.append(_floor(row, number, axis))
    return records


def guess(row: Row, guess_s: float, number: int, axis: str = TRIAL) -> dict[str, Any]:
    """The record of the time that the student expects for the trial of *row*."""
    time = seconds_text(guess_s)
    shown = {"time": time, "source": "your guess", "verified": "does not apply: a guess"}
    return _placed(row, number, axis, GUESS) | shown | {
        "time_ms": milliseconds(guess_s), "aloud": f"Your guess for trial {number}: {time}",
    }  # fmt: skip


def _placed(row: Row, number: int, axis: str, look: str) -> dict[str, Any]:
    """The columns that all marks of one trial share, with their position on the axis."""
    value, side = axis_value(row, axis), _SIDES.get(look, 0)
    place = number + side * SHIFT if axis == TRIAL else WITHOUT if value is None else value
    order = -1 if value is None else value if isinstance(value, int) else 0
    where = {"number": number, "place": place, "side": side, "order": order}
    return _EMPTY | where | {"key": row.get("key"), "scheme": row.get("scheme"), "look": look} | facts(row)


def _record(row: Row, number: int, axis: str) -> dict[str, Any]:
    if row.get("time_s") is None:
        placed = _placed(row, number, axis, FAILED)
        return placed | {"aloud": f"Trial {number}, {placed['schedule']}: {placed['time']}"}
    placed = _placed(row, number, axis, row["source"])
    return placed | {
        "time_ms": milliseconds(row["time_s"]),
        "low_ms": milliseconds(row.get("low_s")),
        "high_ms": milliseconds(row.get("high_s")),
        "aloud": f"Trial {number}, {placed['schedule']}: {placed['time']}, {placed['source']}",
    }


def _floor(row: Row, number: int, axis: str) -> dict[str, Any]:
    time = seconds_text(row["floor_s"])
    source = "floor: the best compute alone, or the least bytes over the link"
    shown = {"time": time, "source": source, "verified": "does not apply: a bound"}
    return _placed(row, number, axis, FLOOR) | shown | {
        "time_ms": milliseconds(row["floor_s"]), "aloud": f"Floor of trial {number}: {time}",
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
    data: Any, axis: str, context: str, shown: tuple[Sequence[str], Sequence[str]], *, is_live: bool = False
) -> alt.LayerChart:
    schemes, looks = shown
    # the first layer with a shape decides how the legend is filled
    layers = [_spread(schemes), _points(axis, schemes, looks), _floors(looks), _failures(schemes, looks)]
    layers += chart_layers.layers(_time, schemes, "place") if is_live else []
    return alt.LayerChart(
        layer=[layer.encode(**_place(axis)) for layer in layers],
        data=data,
        title=title(QUESTION if axis == TRIAL else f"How long does each trial take, by {axis}?", context),
        description="Times of trials: measured, estimated, floor and guess. Arrow keys go from one to another.",
    )


def _place(axis: str) -> dict[str, Any]:
    if axis == TRIAL:
        # with two or three trials Vega still halves the steps
        steps = alt.Axis(tickMinStep=1, grid=False, labelExpr="datum.value % 1 ? '' : datum.value")
        scale = alt.Scale(zero=False, nice=False, padding=14)
        return {"x": alt.X("place:Q", title="Trial, in order", axis=steps, scale=scale)}
    by_value = alt.EncodingSortField(field="order", op="min")
    return {
        "x": alt.X("place:N", title=axis_title(axis), axis=alt.Axis(labelAngle=0, labelLimit=120), sort=by_value),
        "xOffset": alt.XOffset("side:O", scale=alt.Scale(domain=[-1, 0, 1])),
    }


def _time(field: str = "time_ms") -> alt.Y:
    return time_y(field, alt.Scale(zero=True))


_TOOLTIP = tooltip_and_description({**FACTS, "number": "Trial"})


def _points(axis: str, schemes: Sequence[str], looks: Sequence[str]) -> alt.Chart:
    crowd = alt.expr("isValid(domain('x')[1]) ? clamp(3 * width / (domain('x')[1] - domain('x')[0]), 12, 55) : 30")
    return (
        alt.Chart(name="times")
        .transform_filter(f"isValid(datum.time_ms) && datum.look !== '{FLOOR}'")
        .mark_point(size=crowd if axis == TRIAL else alt.Undefined)
        .encode(
            y=_time(),
            shape=shape(looks=looks),
            fillOpacity=filling(),
            fill=scheme(alt.Fill, schemes),
            stroke=scheme(alt.Stroke, schemes),
            **_TOOLTIP,
        )
    )


def _spread(schemes: Sequence[str]) -> alt.Chart:
    return (
        alt.Chart(name="spread")
        .transform_filter("isValid(datum.low_ms) && isValid(datum.high_ms)")
        .mark_rule(opacity=0.55)
        .encode(y=_time("low_ms"), y2="high_ms:Q", stroke=scheme(alt.Stroke, schemes), **_TOOLTIP)
    )


def _floors(looks: Sequence[str]) -> alt.Chart:
    return (
        alt.Chart(name="floor")
        .transform_filter(f"datum.look === '{FLOOR}'")
        .mark_point(size=300, strokeWidth=2, stroke=INK)
        .encode(y=_time(), shape=shape(looks=looks), **_TOOLTIP)
    )


def _failures(schemes: Sequence[str], looks: Sequence[str]) -> alt.Chart:
    """Marks of failures, which have no time, on the axis."""
    return (
        alt.Chart(name="failures")
        .transform_filter(f"datum.look === '{FAILED}'")
        .mark_point(size=40, strokeWidth=2)
        .encode(
            y=alt.value(alt.expr("height - 7")),
            shape=shape(looks=looks),
            stroke=scheme(alt.Stroke, schemes),
            **_TOOLTIP,
        )
    )
