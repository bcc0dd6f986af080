"""How fast is the best schedule so far? Trials are dots and the best is a stair, compared with floor and baseline."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from workbench.charts.labels import Rows, context, facts, is_whole, listed, milliseconds, time_expr, time_y, title
from workbench.charts.layers import first, order
from workbench.charts.theme import (
    FACTS,
    FLOOR,
    INK,
    SCHEME_COLOURS,
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
from workbench.naming import PUBLISHED, TIMED
from workbench.results.rows import Row

DATASET = "best"
QUESTION = "How fast is the best schedule so far?"
OVER = {"trials": ("number", "Trial, in order"), "time": ("elapsed_s", "Time since the first outcome in s")}
"""Column and title of each possible horizontal axis."""
LABEL_PIXELS = 150
"""Room for the label to the right of the best trial."""
REFERENCES = {FLOOR: ("floor_ms", INK), "sequential": ("sequential_ms", SCHEME_COLOURS["sequential"])}
"""Column and colour of each reference line, by its name."""
SOURCES = tuple(SOURCE_LOOKS)


def chart(trials: Rows, over: str = "trials") -> alt.LayerChart:
    """The best of *trials*, all of one problem, over their number or the time of their outcome (*over*, see `OVER`)."""
    records = rows(trials)
    legends = present(SCHEMES, [row["scheme"] for row in records]), present(SOURCES, [row["look"] for row in records])
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), over, context(trials), legends)


def live(over: str = "trials", context: str = "", schemes: Sequence[str] = SCHEMES) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended; the page picks the best of them."""
    return _drawn(alt.NamedData(DATASET), over, context, (schemes, SOURCES))


def rows(
    trials: Rows, numbers: MutableMapping[str, int] | None = None, began_at: float | None = None
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
            records.append(_record(row, number, began_at))
    return records


def _record(row: Row, number: int, began_at: float | None) -> dict[str, Any]:
    shown = facts(row)
    at = row.get("at")
    return shown | {
        "key": row.get("key"), "number": number, "scheme": row.get("scheme"), "look": row["source"],
        "elapsed_s": None if at is None or began_at is None else at - began_at,
        "is_timed": int(row["source"] in TIMED), "time_ms": milliseconds(row["time_s"]),
        "floor_ms": milliseconds(row.get("floor_s")), "sequential_ms": milliseconds(row.get("sequential_s")),
        "aloud": f"Trial {number}, {shown['schedule']}: {shown['time']}, {shown['source']}",
    }  # fmt: skip


_COLUMNS = ("key", "number", "elapsed_s", "scheme", "look", "is_timed", "time_ms", "floor_ms", "sequential_ms", *FACTS,
            "aloud")  # fmt: skip


def _drawn(data: Any, over: str, context: str, shown: tuple[Sequence[str], Sequence[str]]) -> alt.LayerChart:
    if over not in OVER:
        raise ValueError(f"There is no best over {over!r}. Accepted: {', '.join(OVER)}.")
    schemes, sources = shown
    across = [_trials(over, schemes, sources), _stair(over), _steps(over, schemes, sources)]
    lines, labels = zip(*map(_reference, REFERENCES), strict=True)
    texts = [layer for label in (*labels, _winner(over)) for layer in haloed(label)]
    return alt.LayerChart(
        layer=[*across, *lines, *texts],
        data=data,
        title=title(QUESTION, context),
        description="The best time so far as a stair that goes down, with lines for the floor and for sequential.",
    )


def _across(over: str) -> alt.X:
    field, name = OVER[over]
    whole = {"tickMinStep": 1, "labelExpr": "datum.value % 1 ? '' : datum.value"}
    steps: dict[str, Any] = whole if over == "trials" else {}
    scale = alt.Scale(zero=False, nice=False, padding=14)
    return alt.X(f"{field}:Q", title=name, axis=alt.Axis(grid=False, labelFlush=False, **steps), scale=scale)


def _time(field: str) -> alt.Y:
    return time_y(field, alt.Scale(zero=False, padding=18))


def _so_far(name: str, over: str) -> alt.Chart:
    """All trials, each with the best time of its source so far."""
    trials, earlier = alt.Chart(name=name), order([OVER[over][0]])
    return trials.transform_window(best_ms="min(time_ms)", sort=earlier, frame=[None, 0], groupby=["look"])


def _stair(over: str) -> alt.Chart:
    return (
        _so_far("stair", over)
        .transform_filter(f"datum.look !== '{PUBLISHED}'")
        .mark_line(interpolate="step-after", stroke=INK, strokeWidth=2)
        .encode(
            x=_across(over), y=_time("best_ms"), strokeDash=source_dash("look"), description=alt.value("Best so far")
        )
    )


def _points(chart: alt.Chart, over: str, schemes: Sequence[str], sources: Sequence[str]) -> alt.Chart:
    return chart.encode(
        x=_across(over),
        y=_time("time_ms"),
        shape=shape(looks=sources),
        fill=scheme(alt.Fill, schemes),
        stroke=scheme(alt.Stroke, schemes),
        fillOpacity=filling(),
        **tooltip_and_description({**FACTS, "number": "Trial"}),
    )


def _trials(over: str, schemes: Sequence[str], sources: Sequence[str]) -> alt.Chart:
    return _points(alt.Chart(name="trials").mark_point(size=22, opacity=0.45), over, schemes, sources)


def _steps(over: str, schemes: Sequence[str], sources: Sequence[str]) -> alt.Chart:
    """The trials that were the best when their outcome arrived."""
    steps = _so_far("steps", over).transform_filter("datum.time_ms === datum.best_ms")
    return _points(steps.mark_point(size=75), over, schemes, sources)


def _winner(over: str) -> alt.Chart:
    """A label of the best trial: a timed one, or an estimate where nothing was timed."""
    side = alt.expr(f"scale('x', datum.{OVER[over][0]}) > width - {LABEL_PIXELS} ? 'right' : 'left'")
    return (
        first(alt.Chart(name="winner"), ["-is_timed", "time_ms"])
        .transform_calculate(words=f"datum.scheme + ', ' + {time_expr('datum.time_ms')}")
        .mark_text(align=side, fontWeight=600, aria=False, **best_label_position())
        .encode(x=_across(over), y=_time("time_ms"), text="words:N")
    )


def _reference(name: str) -> tuple[alt.Chart, alt.Chart]:
    """A line at the newest value, measured rather than estimated, and its label: only the floor's is below the line."""
    field, colour = REFERENCES[name]
    words = f"'{name} ' + {time_expr(f'datum.{field}')}"

    def newest(part: str) -> alt.Chart:
        valid = alt.Chart(name=f"{name}_{part}").transform_filter(f"isValid(datum.{field})")
        return first(valid, ["-is_timed", "-number"]).transform_calculate(words=words).encode(y=_time(field))

    line = newest("line").mark_rule(stroke=colour, strokeDash=[6, 3]).encode(description="words:N")
    side: dict[str, Any] = {"baseline": "top", "dy": 4} if name == FLOOR else {"baseline": "bottom", "dy": -3}
    label = newest("label").mark_text(align="right", x=alt.expr("width"), aria=False, **side)
    return line, label.encode(text="words:N")
