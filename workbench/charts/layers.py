"""Layers that several charts share: the first row of a group, and the trials that are being timed."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import altair as alt

from workbench.charts.labels import axis_value, facts, is_whole, milliseconds
from workbench.charts.theme import scheme, tooltip_and_description
from workbench.results.rows import Row

# The first row of a group, which the page picks while rows arrive, so that no row is sent twice.


def order(fields: Sequence[str]) -> list[Any]:
    """Sort fields of a window transform; a minus before a field means descending order."""
    return [
        alt.SortField(field.removeprefix("-"), order="descending" if field.startswith("-") else "ascending")
        for field in fields
    ]


def first(chart: alt.Chart, by: Sequence[str], groups: Sequence[str] = ()) -> alt.Chart:
    """*chart* with only the first row in the order *by*, or the first row of each of *groups*."""
    ranked = chart.transform_window(place="row_number()", sort=order(by), groupby=list(groups))
    return ranked.transform_filter("datum.place === 1")


# Trials that are being timed: hollow marks of the scheme's colour at the running median, replaced at every tick.

DATASET = "running"


def rows(running: Sequence[Row], numbers: MutableMapping[str, int], axis: str | None = None) -> list[dict[str, Any]]:
    """One record per whole trial that is being timed, or was stopped; *numbers* (by key) or *axis* place it."""
    return [_record(row, numbers, axis) for row in running if is_whole(row)]


def progress_text(row: Row) -> str:
    """`running, 7 of 20 samples`, or `stopped after 7 of 20 samples`."""
    count = f"{row['samples']} of {row['due']}" if row.get("due") else str(row["samples"])
    return f"stopped after {count} samples" if row["stopped"] else f"running, {count} samples"


def _record(row: Row, numbers: MutableMapping[str, int], axis: str | None) -> dict[str, Any]:
    number = numbers.setdefault(str(row["key"]), len(numbers) + 1)
    shown = facts(row) | {"source": progress_text(row), "verified": "yes, before the clock started"}
    return shown | {
        "key": row["key"], "scheme": row["scheme"], "place": number, "number": number, "stopped": bool(row["stopped"]),
        "value": axis_value(row, axis) if axis else None, "time_ms": milliseconds(row["time_s"]),
        "low_ms": milliseconds(row["low_s"]), "high_ms": milliseconds(row["high_s"]),
        "aloud": f"{shown['schedule']}: {shown['time']}, {shown['source']}",
    }  # fmt: skip


def layers(time: Callable[[str], alt.Y], schemes: Sequence[str], place: str) -> list[alt.Chart]:
    """The layers of the dataset `DATASET`: an interval and a mark for each running trial."""
    stroke = scheme(alt.Stroke, schemes)
    running = alt.Chart(alt.NamedData(DATASET)).transform_filter(f"isValid(datum.{place})")
    spread = running.transform_filter("isValid(datum.low_ms)").mark_rule(opacity=0.35, strokeWidth=5, aria=False)
    # with a shape from the theme, a point would add a legend entry that most runs never show
    shape = alt.condition("datum.stopped", alt.value("square"), alt.value("triangle-right"))
    marks = running.mark_point(filled=False, fillOpacity=0, strokeWidth=2, size=90)
    return [
        spread.encode(y=time("low_ms"), y2="high_ms:Q", stroke=stroke).properties(name="running_spread"),
        marks.encode(y=time("time_ms"), stroke=stroke, shape=shape, **tooltip_and_description()).properties(
            name="running"
        ),
    ]
