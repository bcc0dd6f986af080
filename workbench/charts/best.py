"""How fast is the best schedule so far? Trials are dots and the best is a stair, compared with floor and baseline."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import altair as alt

from workbench.charts.labels import Rows, context, facts, is_whole, listed, milliseconds, title
from workbench.charts.layers import PLAIN, Look, first, form, groups, marked, order, ring, selectable, table
from workbench.charts.relative import TimeAxis, against, name_of
from workbench.charts.theme import (
    FACTS,
    FLOOR,
    INK,
    SCHEME_COLOURS,
    SCHEMES,
    SOURCE_LOOKS,
    filling,
    haloed,
    present,
    scheme,
    source_dash,
    tooltip_and_description,
)
from workbench.charts.trials import IN_ORDER
from workbench.naming import PUBLISHED, TIMED, short_title
from workbench.results.deltas import Pinned
from workbench.results.rows import Row

DATASET = "best"
QUESTION = "How fast is the best schedule so far?"
OVER = {"trials": ("number", IN_ORDER), "time": ("elapsed_s", "Time since the first outcome in s")}
"""Column and title of each possible horizontal axis."""
LABEL_PIXELS = 260
"""Room for the label to the right of the best trial."""
REFERENCES = {FLOOR: INK, "sequential": SCHEME_COLOURS["sequential"]}
"""Colour of each reference line, by its name."""
SOURCES = tuple(SOURCE_LOOKS)


def chart(trials: Rows, over: str = "trials", baseline: Pinned | None = None) -> alt.LayerChart:
    """The best of *trials*, all of one problem, over their number or the time of their outcome (*over*, see `OVER`).

    With a *baseline*, differences to it are drawn.
    """
    records = rows(trials, baseline=baseline)
    legends = present(SCHEMES, [row["scheme"] for row in records]), present(SOURCES, [row["look"] for row in records])
    time = TimeAxis(alt.Scale(zero=False, padding=18), name_of(baseline))
    return _drawn(table(records, _COLUMNS), over, context(trials), legends, time)


def live(
    over: str = "trials",
    context: str = "",
    schemes: Sequence[str] = SCHEMES,
    baseline: str = "",
    look: Look = PLAIN,
) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended; the page picks the best of them.

    With a *baseline*, as `relative.name_of` says it, it draws differences: rows are made with the same one.
    """
    time = TimeAxis.of(alt.Scale(zero=False, padding=18), baseline, look.scale, look.runs)
    drawn = _drawn(alt.NamedData(DATASET), over, context, (schemes, SOURCES), time)
    drawn.layer.insert(0, ring(time).encode(x=_across(over)))
    return selectable(drawn)


def rows(
    trials: Rows,
    numbers: MutableMapping[str, int] | None = None,
    began_at: float | None = None,
    baseline: Pinned | None = None,
) -> list[dict[str, Any]]:
    """One record per whole trial that has a time, with the numbers that `trials.rows` gives.

    *numbers* grows with each new key: pass the same one at every append. *began_at*: the first row's `at` (Unix time).
    """
    numbers = {} if numbers is None else numbers
    records = []
    for row in listed(trials):
        if not is_whole(row):
            continue
        number = numbers.setdefault(str(row.get("key")), len(numbers) + 1)
        began_at = row.get("at") if began_at is None else began_at
        if row.get("time_s") is not None:
            records.append(against(marked(_record(row, number, began_at), row), row, baseline))
    return records


def _record(row: Row, number: int, began_at: float | None) -> dict[str, Any]:
    shown = facts(row)
    at = row.get("at")
    return shown | {
        "key": row.get("key"), "number": number, "scheme": row.get("scheme"), "look": row["source"],
        "elapsed_s": None if at is None or began_at is None else at - began_at,
        "is_timed": int(row["source"] in TIMED), "time_ms": milliseconds(row["time_s"]),
        "floor_ms": milliseconds(row.get("floor_s")), "sequential_ms": milliseconds(row.get("sequential_s")),
        "short": short_title(str(row.get("scheme")), row.get("axes") or {}),
        "aloud": f"{shown['schedule']}: {shown['time']}, {shown['source']}",
    }  # fmt: skip


_COLUMNS = ("key", "number", "elapsed_s", "scheme", "look", "is_timed", "time_ms", "floor_ms", "sequential_ms", *FACTS,
            "short", "aloud")  # fmt: skip


def _drawn(
    data: Any, over: str, context: str, shown: tuple[Sequence[str], Sequence[str]], time: TimeAxis
) -> alt.LayerChart:
    if over not in OVER:
        raise ValueError(f"There is no best over {over!r}. Accepted: {', '.join(OVER)}.")
    across = [_trials(time, over, shown), _stair(time, over), _steps(time, over, shown)]
    lines, labels = zip(*(_reference(time, name) for name in REFERENCES), strict=True)
    texts = [layer for label in (*labels, _winner(time, over)) for layer in haloed(label)]
    return alt.LayerChart(
        layer=[*across, *lines, *time.zero(), *texts],
        data=data,
        title=title(QUESTION, [context, *time.subtitle]),
        description="The best time so far as a stair that goes down, with lines for the floor and for sequential.",
    )


def _across(over: str) -> alt.X:
    field, name = OVER[over]
    whole = {"tickMinStep": 1, "labelExpr": "datum.value % 1 ? '' : datum.value"}
    steps: dict[str, Any] = whole if over == "trials" else {}
    scale = alt.Scale(zero=False, nice=False, padding=14)
    return alt.X(f"{field}:Q", title=name, axis=alt.Axis(grid=False, labelFlush=False, **steps), scale=scale)


def _so_far(time: TimeAxis, name: str, over: str) -> alt.Chart:
    """All trials, each with the best time of its source, and of its run, so far."""
    trials, earlier = alt.Chart(name=name), order([OVER[over][0]])
    best: dict[str, Any] = {time.column("best"): f"min({time.column('time')})"}
    return trials.transform_window(**best, sort=earlier, frame=[None, 0], groupby=groups(["look"], time))


def _stair(time: TimeAxis, over: str) -> alt.Chart:
    each: dict[str, Any] = {"detail": "run:N"} if time.runs else {}
    return (
        _so_far(time, "stair", over)
        .transform_filter(f"datum.look !== '{PUBLISHED}'")
        .mark_line(interpolate="step-after", stroke=INK, strokeWidth=2)
        .encode(x=_across(over), y=time.y("best"), strokeDash=source_dash("look"),
                description=alt.value("Best so far"), **each)
    )  # fmt: skip


def _points(chart: alt.Chart, time: TimeAxis, over: str, shown: tuple[Sequence[str], Sequence[str]]) -> alt.Chart:
    schemes, sources = shown
    return chart.encode(
        x=_across(over),
        y=time.y("time"),
        shape=form(time, sources),
        fill=scheme(alt.Fill, schemes),
        stroke=scheme(alt.Stroke, schemes),
        fillOpacity=filling(),
        **tooltip_and_description({**time.facts, "number": "Order"}),
    )


def _trials(time: TimeAxis, over: str, shown: tuple[Sequence[str], Sequence[str]]) -> alt.Chart:
    return _points(alt.Chart(name="trials").mark_point(size=22, opacity=0.45), time, over, shown)


def _steps(time: TimeAxis, over: str, shown: tuple[Sequence[str], Sequence[str]]) -> alt.Chart:
    """The trials that were the best when their outcome arrived."""
    is_best = f"datum.{time.column('time')} === datum.{time.column('best')}"
    return _points(_so_far(time, "steps", over).transform_filter(is_best).mark_point(size=75), time, over, shown)


def _winner(time: TimeAxis, over: str) -> alt.Chart:
    """A label of the best trial: a timed one, or an estimate where nothing was timed."""
    side = alt.expr(f"scale('x', datum.{OVER[over][0]}) > width - {LABEL_PIXELS} ? 'right' : 'left'")
    return (
        first(alt.Chart(name="winner"), ["-is_timed", time.column("time")])
        .transform_calculate(words=f"datum.short + ', ' + {time.text('time')}")
        .mark_text(align=side, fontWeight=600, limit=LABEL_PIXELS, aria=False, **time.label_position())
        .encode(x=_across(over), y=time.y("time"), text="words:N")
    )


def _reference(time: TimeAxis, name: str) -> tuple[alt.Chart, alt.Chart]:
    """A line at the newest value, measured rather than estimated, and its label: only the floor's is below the line.

    Of several runs each has a line; the lowest has the label, which names its run.
    """
    words = f"'{name} ' + {time.text(name)}" + (" + ', run ' + datum.run" if time.runs else "")

    def newest(part: str, by: Sequence[str] = ("-is_timed", "-number"), each: Sequence[str] = ()) -> alt.Chart:
        valid = alt.Chart(name=f"{name}_{part}").transform_filter(time.known(name))
        return first(valid, by, each).transform_calculate(words=words).encode(y=time.y(name))

    line = (
        newest("line", each=groups([], time))
        .mark_rule(stroke=REFERENCES[name], strokeDash=[6, 3])
        .encode(description="words:N")
    )
    side: dict[str, Any] = {"baseline": "top", "dy": 4} if name == FLOOR else {"baseline": "bottom", "dy": -3}
    lowest = newest("label", ["-is_timed", time.column(name)]) if time.runs else newest("label")
    label = lowest.mark_text(align="right", x=alt.expr("width"), aria=False, **side)
    return line, label.encode(text="words:N")
