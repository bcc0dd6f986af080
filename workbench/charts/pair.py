"""Which of two schedules is faster, and by how much? Both times with their spreads on one ruler, and the floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from workbench.charts import layers
from workbench.charts.labels import context, facts, milliseconds, time_expr, time_x, title
from workbench.charts.theme import (
    INK,
    SCHEMES,
    SOURCE_LOOKS,
    filling,
    haloed,
    present,
    scheme,
    shape,
    tooltip_and_description,
)
from workbench.results.rows import Row

DATASET = "pair"
QUESTION = "Which of the two is faster, and by how much?"
SOURCES = tuple(SOURCE_LOOKS)
EDGE_PIXELS = 60
"""Room at both ends of the ruler, for the texts at its marks."""


def chart(pair: Mapping[str, Row]) -> alt.LayerChart:
    """The times of *pair*, rows by what a person calls them: `baseline` and `selected`."""
    records = rows(pair)
    looks = present(SOURCES, [row["look"] for row in records])
    legends = present(SCHEMES, [row["scheme"] for row in records]), looks
    return _drawn(layers.table(records, _COLUMNS), context(list(pair.values())), legends)


def live(context: str = "") -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(...)`."""
    return _drawn(alt.NamedData(DATASET), context, (SCHEMES, SOURCES))


def rows(pair: Mapping[str, Row]) -> list[dict[str, Any]]:
    """One record for each row that has a time, in the order of *pair*."""
    return [
        {"name": name, "place": place} | _record(name, row)
        for place, (name, row) in enumerate(pair.items()) if row.get("time_s") is not None
    ]  # fmt: skip


def _record(name: str, row: Row) -> dict[str, Any]:
    shown = facts(row)
    return shown | {
        "key": row.get("key"), "scheme": row.get("scheme"), "look": row["source"],
        "time_ms": milliseconds(row["time_s"]), "low_ms": milliseconds(row.get("low_s")),
        "high_ms": milliseconds(row.get("high_s")), "floor_ms": milliseconds(row.get("floor_s")),
        "aloud": f"{name}, {shown['schedule']}: {shown['time']}, {shown['source']}",
    }  # fmt: skip


_COLUMNS = ("name", "place", "key", "scheme", "look", "time_ms", "low_ms", "high_ms", "floor_ms", "time", "aloud")


def _drawn(data: Any, context: str, shown: tuple[Sequence[str], Sequence[str]]) -> alt.LayerChart:
    schemes, looks = shown
    marks = [layer.encode(y=_names()) for layer in (_spread(schemes), _points(schemes, looks))]
    floor, floor_label = _floor()
    texts = [*haloed(_times().encode(y=_names())), *haloed(floor_label)]
    return alt.LayerChart(
        layer=[*marks, floor, *texts],
        data=data,
        title=title(QUESTION, context),
        height=alt.Step(44),
        description="Two times on one ruler, each with its range. Arrow keys go from one to another.",
    )


def _names() -> alt.Y:
    by_place = alt.EncodingSortField(field="place", op="min")
    axis = alt.Axis(title=None, ticks=False, domain=False, labelLimit=200, labelPadding=8)
    return alt.Y("name:N", sort=by_place, axis=axis)


def _time(field: str) -> alt.X:
    return time_x(field, "Time", alt.Scale(zero=False, padding=EDGE_PIXELS))


def _spread(schemes: Sequence[str]) -> alt.Chart:
    known = alt.Chart(name="spread").transform_filter("isValid(datum.low_ms) && isValid(datum.high_ms)")
    return known.mark_rule(strokeWidth=5, opacity=0.35, aria=False).encode(
        x=_time("low_ms"), x2="high_ms:Q", stroke=scheme(alt.Stroke, schemes)
    )


def _points(schemes: Sequence[str], looks: Sequence[str]) -> alt.Chart:
    return (
        alt.Chart(name="times")
        .mark_point(size=90)
        .encode(
            x=_time("time_ms"), shape=shape(looks=looks), fillOpacity=filling(), fill=scheme(alt.Fill, schemes),
            stroke=scheme(alt.Stroke, schemes), **tooltip_and_description(),
        )
    )  # fmt: skip


def _times() -> alt.Chart:
    named = alt.Chart(name="words").transform_calculate(words=time_expr("datum.time_ms"))
    return named.mark_text(baseline="bottom", dy=-9, aria=False).encode(x=_time("time_ms"), text="words:N")


def _floor() -> tuple[alt.Chart, alt.Chart]:
    """A line at the lowest floor, and its label."""

    def lowest(part: str) -> alt.Chart:
        known = alt.Chart(name=f"floor_{part}").transform_filter("isValid(datum.floor_ms)")
        words = f"'floor ' + {time_expr('datum.floor_ms')}"
        return layers.first(known, ["floor_ms"]).transform_calculate(words=words).encode(x=_time("floor_ms"))

    line = lowest("line").mark_rule(stroke=INK, strokeDash=[6, 3]).encode(description="words:N")
    label = lowest("label").mark_text(align="left", baseline="bottom", dx=4, y=alt.expr("height - 2"), aria=False)
    return line, label.encode(text="words:N")
