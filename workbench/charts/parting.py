"""Where do the measured and the simulated timeline part? A point per step: when it ended, and how much later that was.

A flat stretch keeps the simulated pace, a rising one is slower, and a jump is one step's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.outcome import Span
from kernels.units import percent_text, seconds_text
from workbench.charts.labels import label_expr, milliseconds, time_x, title
from workbench.charts.theme import INK, SPAN_COLOURS, haloed, legend, span_colour
from workbench.charts.timeline import EXTENT_PIXELS, TOTALS_PIXELS, step_text
from workbench.results.timelines import Engine, Parting, StepDifference, difference, end_s, has_one_stream

DATASET = "parting"
QUESTION = "Where do the measured and the simulated timeline part?"
HINT = "One point per step: how much later than simulated it ended. Those in the band are too close to count."
POINTS_MOST = 2_000
"""The most points: of neighbours in time, the one that differs most is drawn."""
KINDS = tuple(kind for kind in SPAN_COLOURS if kind != "wait")
TITLE_PIXELS = 20
"""Width of the title of the vertical axis."""
THE_FIRST = "the first that parts"


def chart(measured: Sequence[Span], simulated: Sequence[Span], context: str = "") -> alt.LayerChart:
    """The difference of two timelines, which does not change."""
    records = rows(measured, simulated)
    kinds = [kind for kind in KINDS if kind in {record["kind"] for record in records}]
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), context, kinds)


def live(context: str = "", kinds: Sequence[str] = KINDS) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(measured, simulated)`. The legend lists *kinds*."""
    return _drawn(alt.NamedData(DATASET), context, kinds)


def rows(measured: Sequence[Span], simulated: Sequence[Span]) -> list[dict[str, Any]]:
    """One record per step that is in both timelines, thinned out to POINTS_MOST, and one for the band and the axis."""
    between = difference(measured, simulated)
    if not between.steps:
        return []
    lanes = {Engine.of(each.span) for each in between.steps}
    one_stream, first = has_one_stream(lanes), between.first
    records = [
        {**_record(each, between), "lane": Engine.of(each.span).title(one_stream),
         "label": THE_FIRST if each is first else None}
        for each in _thinned(between)
    ]  # fmt: skip
    least_ms = milliseconds(between.least_s)
    whole_ms = milliseconds(max(end_s(measured), end_s(simulated)))
    return [{**_EMPTY, "least_ms": least_ms, "fewer_ms": -(least_ms or 0.0), "whole_ms": whole_ms}, *records]


def sentences(measured: Sequence[Span], simulated: Sequence[Span], name: str = "measured") -> list[str]:
    """The first step that parts, what it waited for, and what cannot be compared; *name* says how it was timed."""
    between = difference(measured, simulated)
    alone = f"Steps without a counterpart: {between.only_measured} {name}, {between.only_simulated} simulated."
    if not between.steps:
        return ["No step is in both timelines.", alone]
    least = f"{seconds_text(between.least_s)} ({percent_text(between.least_s / (end_s(simulated) or 1.0))} of the time)"
    if (first := between.first) is None:
        sentences = [f"No step parts: all ends agree within {least}."]
    else:
        ended = f"ends at {seconds_text(first.measured_s)}, {_later_text(first.later_s)} than simulated"
        sentences = [
            f"The first step that parts: {step_text(first.span.step)}. It {ended}.",
            _cause_text(first, between),
        ]
        sentences.append(f"Differences of less than {least} do not count.")
    return [*sentences, alone] if between.only_measured or between.only_simulated else sentences


def _cause_text(first: StepDifference, between: Parting) -> str:
    """What the first step that parts waited for, and whether that was late already."""
    if (waited := first.span.waited_for) is None:
        return "It waited for no step."
    before = between.by_step.get(waited)
    if before is None:
        when = "is in one timeline only"
    else:
        when = (
            "ended as simulated" if abs(before.later_s) <= between.least_s else f"ended {_later_text(before.later_s)}"
        )
    return f"It waited for: {step_text(waited)}, which {when}."


def _later_text(seconds: float) -> str:
    return f"{seconds_text(abs(seconds))} {'later' if seconds >= 0 else 'earlier'}"


def _thinned(between: Parting) -> Sequence[StepDifference]:
    """All steps, or of each of POINTS_MOST stretches of time the one that differs most, and the first that parts."""
    steps = between.steps
    if len(steps) <= POINTS_MOST:
        return steps
    stretch = (steps[-1].measured_s or 1.0) / POINTS_MOST
    most: dict[int, StepDifference] = {}
    for each in steps:
        place = int(each.measured_s / stretch)
        if place not in most or abs(each.later_s) > abs(most[place].later_s):
            most[place] = each
    chosen = set(map(id, most.values())) | {id(between.first)}
    return [each for each in steps if id(each) in chosen]


def _record(each: StepDifference, between: Parting) -> dict[str, Any]:
    words, later = step_text(each.span.step), _later_text(each.later_s)
    ended, simulated = seconds_text(each.measured_s), seconds_text(each.simulated_s)
    waited = each.span.waited_for
    return _EMPTY | {
        "at_ms": milliseconds(each.measured_s), "later_ms": milliseconds(each.later_s), "kind": each.span.kind,
        "step": each.span.step, "words": words, "ended": ended, "simulated": simulated, "later": later,
        "why": step_text(waited) if waited else "nothing",
        "aloud": f"{words}: ended at {ended}, {later} than simulated",
    }  # fmt: skip


_COLUMNS = ("at_ms", "later_ms", "kind", "lane", "step", "words", "ended", "simulated", "later", "why", "aloud",
            "label", "least_ms", "fewer_ms", "whole_ms")  # fmt: skip
_EMPTY: dict[str, Any] = dict.fromkeys(_COLUMNS)


def _drawn(data: Any, context: str, kinds: Sequence[str]) -> alt.LayerChart:
    return alt.LayerChart(
        layer=[_band(), _zero(), _lines(), _points(kinds), *haloed(_first())],
        data=data,
        title=title(QUESTION, [context, HINT]),
        description="Ends of steps, measured minus simulated, over time. Arrow keys go from step to step.",
    )


def _time(field: str) -> alt.X:
    return time_x(
        field, "When it ended", alt.Scale(nice=False, zero=True, range=[0, alt.expr(f"width - {TOTALS_PIXELS}")])
    )


def _later(field: str) -> alt.Y:
    axis = alt.Axis(labelExpr=label_expr("y"), minExtent=EXTENT_PIXELS - TITLE_PIXELS)
    return alt.Y(f"{field}:Q", title="Later than simulated", scale=alt.Scale(zero=True), axis=axis)


def _band() -> alt.Chart:
    """Differences that are too small to count, along the whole axis."""
    band = alt.Chart(name="band").transform_filter("isValid(datum.whole_ms)")
    band = band.transform_calculate(from_ms="0").mark_rect(color=INK, opacity=0.18, aria=False)
    return band.encode(x=_time("from_ms"), x2="whole_ms:Q", y=_later("fewer_ms"), y2="least_ms:Q")


def _zero() -> alt.Chart:
    return alt.Chart(name="zero").mark_rule(strokeWidth=1, aria=False).encode(y=alt.YDatum(0))


def _of_steps(name: str) -> alt.Chart:
    return alt.Chart(name=name).transform_filter("isValid(datum.at_ms)")


def _lines() -> alt.Chart:
    """The steps of one lane, in the order in which they ended."""
    line = _of_steps("lanes").mark_line(strokeWidth=1, opacity=0.6, stroke=INK, aria=False)
    return line.encode(x=_time("at_ms"), y=_later("later_ms"), detail="lane:N")


def _points(kinds: Sequence[str]) -> alt.Chart:
    shown = {"words": "Step", "lane": "Of", "ended": "Ended at", "simulated": "Simulated", "later": "Which is",
             "why": "Waited for"}  # fmt: skip
    return (
        _of_steps("steps")
        .mark_point(filled=True, size=26, opacity=0.9)
        .encode(
            x=_time("at_ms"),
            y=_later("later_ms"),
            color=span_colour(legend=legend(kinds, symbolType="circle")),
            tooltip=[alt.Tooltip(f"{field}:N", title=name) for field, name in shown.items()],
            description="aloud:N",
        )
    )


def _first() -> alt.Chart:
    """The name of the first step that parts, at its point."""
    side = alt.expr("scale('x', datum.at_ms) > width / 2 ? 'right' : 'left'")
    label = alt.Chart(name="first").transform_filter("isValid(datum.label)")
    label = label.transform_calculate(text="datum.label + ': ' + datum.words")
    return label.mark_text(align=side, baseline="bottom", dy=-6, fontWeight=600, aria=False).encode(
        x=_time("at_ms"), y=_later("later_ms"), text="text:N"
    )
