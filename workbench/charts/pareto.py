"""What does speed take? Time against SMs, bytes in flight or memory, with the front of what is best at both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import altair as alt
import pandas as pd

from kernels.units import bytes_text
from workbench.charts.labels import Rows, context, facts, is_whole, listed, milliseconds, title
from workbench.charts.relative import TimeAxis, against, name_of
from workbench.charts.theme import (
    FACTS,
    INK,
    SCHEMES,
    SOURCE_LOOKS,
    filling,
    present,
    scheme,
    shape,
    source_dash,
    tooltip_and_description,
)
from workbench.results.deltas import Pinned
from workbench.results.rows import Row

DATASET = "pareto"
QUESTION = "What does speed take?"
SOURCES = tuple(SOURCE_LOOKS)
BYTES = "replace(format(datum.value, '.3~s'), regexp('([kMGT]?)$'), ' $1B')"
"""The expression of a label that counts bytes, with the space that all our units have."""
HINT = "No schedule is faster and takes less than one on the line. Rings may belong to it."
ON, MAYBE = "on the front", "may be on the front"
"""The standings of rows that are marked."""
DRAWN_MOST = 1500
"""The most marks: of more rows, those on the front and a share of the others are drawn."""


def chart(trials: Rows, resource: str, name: str, baseline: Pinned | None = None) -> alt.LayerChart:
    """The times of *trials* over their column *resource*, called *name*, or differences to *baseline*; see `rows`."""
    records = rows(trials, resource, baseline)
    legends = present(SCHEMES, [row["scheme"] for row in records]), present(SOURCES, [row["look"] for row in records])
    data = pd.DataFrame(records, columns=list(_COLUMNS))
    return _drawn(data, (resource, name), context(trials), legends, name_of(baseline))


def live(resource: str, name: str, context: str = "", baseline: str = "") -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(...)`.

    With a *baseline*, as `relative.name_of` says it, it draws differences: rows are made with the same one.
    """
    return _drawn(alt.NamedData(DATASET), (resource, name), context, (SCHEMES, SOURCES), baseline)


def rows(trials: Rows, resource: str, baseline: Pinned | None = None) -> list[dict[str, Any]]:
    """One record per whole trial whose time and *resource* are known.

    *trials* have the columns standing (ON, MAYBE or another word), selected and, for a click, id. Of more than
    DRAWN_MOST, all marked ones stay, then timed ones, and a random share of the others.
    """
    given = listed(trials) if isinstance(trials, pd.DataFrame) else trials
    known = [row for row in given if is_whole(row) and row.get("time_s") and row.get(resource) is not None]
    return [against(_record(row, resource), row, baseline) for row in listed(thinned(known))]


def thinned(known: Sequence[Row]) -> list[Row]:
    """At most DRAWN_MOST rows of *known*, estimates first: all that are marked, then timed ones, then any others."""
    drawn = list(known)
    if len(known) > DRAWN_MOST:
        # in no order of the space, of which every n-th point may have one value; the same ones each time
        shuffled = Random(0).sample(drawn, len(drawn))
        drawn = sorted(shuffled, key=lambda row: (not _is_marked(row), _is_estimate(row)))
    return sorted(drawn[:DRAWN_MOST], key=_is_estimate, reverse=True)


def _is_marked(row: Row) -> bool:
    return row.get("standing") in (ON, MAYBE) or bool(row.get("selected"))


def _is_estimate(row: Row) -> bool:
    return bool(row["source"] == "estimated")


def _record(row: Row, resource: str) -> dict[str, Any]:
    shown, takes = facts(row), row[resource]
    amount = bytes_text(takes) if is_bytes(resource) else f"{takes:g}"
    standing = str(row.get("standing") or "")
    return shown | {
        "id": row.get("id"), "key": row.get("key"), "scheme": row.get("scheme"), "look": row["source"],
        "takes": takes, "amount": amount, "time_ms": milliseconds(row["time_s"]), "standing": standing,
        "is_on": int(standing == ON), "is_maybe": int(standing == MAYBE), "is_selected": int(bool(row.get("selected"))),
        "line": "estimated" if _is_estimate(row) else "measured",
        "aloud": f"{amount}, {shown['schedule']}: {shown['time']}, {shown['source']}, {standing}",
    }  # fmt: skip


def is_bytes(resource: str) -> bool:
    """Whether the column *resource* counts bytes."""
    return "bytes" in resource


_COLUMNS = ("id", "key", "scheme", "look", "takes", "amount", "time_ms", "standing", "is_on", "is_maybe",
            "is_selected", "line", *FACTS, "aloud", "time_share", "difference")  # fmt: skip


def _drawn(
    data: Any,
    resource: tuple[str, str],
    context: str,
    shown: tuple[Sequence[str], Sequence[str]],
    baseline: str,
) -> alt.LayerChart:
    scale = alt.Scale(nice=False, padding=12) if baseline else alt.Scale(type="log", nice=False, padding=12)
    time = TimeAxis(scale, baseline)
    tooltip = tooltip_and_description({"amount": resource[1], **time.facts, "standing": "Standing"})
    layers = (_points(shown, tooltip), _line(), _rings(), _selected())
    return alt.LayerChart(
        layer=[*(layer.encode(x=_across(*resource), y=time.y("time")) for layer in layers), *time.zero("right")],
        data=data,
        title=title(QUESTION, [context, *time.subtitle, HINT]),
        description=f"Time over {resource[1]}, with the front as a line. Arrow keys go from one schedule to another.",
    )


def _across(resource: str, name: str) -> alt.X:
    """Bytes are halved and doubled by axes, and so on a logarithmic scale; counts begin with 0."""
    if is_bytes(resource):
        axis = alt.Axis(labelExpr=BYTES, grid=False, labelFlush=False)
        return alt.X("takes:Q", title=name, scale=alt.Scale(type="log", base=2, nice=False, padding=16), axis=axis)
    axis = alt.Axis(format="d", grid=False, labelFlush=False, tickMinStep=1)
    return alt.X("takes:Q", title=name, scale=alt.Scale(nice=False, padding=16), axis=axis)


def _points(shown: tuple[Sequence[str], Sequence[str]], tooltip: Mapping[str, Any]) -> alt.Chart:
    opacity = alt.condition("datum.is_on || datum.is_maybe", alt.value(1), alt.value(0.4))
    return (
        alt.Chart(name="schedules")
        .mark_point(cursor="pointer")
        .encode(
            shape=shape(looks=shown[1]),
            fill=scheme(alt.Fill, shown[0]),
            stroke=scheme(alt.Stroke, shown[0]),
            fillOpacity=filling(),
            opacity=opacity,
            size=alt.condition("datum.is_on", alt.value(90), alt.value(35)),
            **tooltip,
        )
    )


def _line() -> alt.Chart:
    """The front, as stairs: between two of its schedules there is the slower one's time."""
    on_it = alt.Chart(name="front").transform_filter("datum.is_on")
    dash = source_dash("line")
    return on_it.mark_line(interpolate="step-after", strokeWidth=1.5).encode(detail="line:N", strokeDash=dash)


def _rings() -> alt.Chart:
    rings = alt.Chart(name="maybe").transform_filter("datum.is_maybe").mark_point(size=150, aria=False)
    return rings.encode(stroke=alt.value(INK))


def _selected() -> alt.Chart:
    """A cross at the selected schedule."""
    chosen = alt.Chart(name="selected").transform_filter("datum.is_selected")
    return chosen.mark_point(shape="cross", size=260, strokeWidth=2, aria=False).encode(stroke=alt.value(INK))
