"""Where does the time go? Bars from the floor through each loss to the measured time, or a note for unknown parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from kernels.units import seconds_text
from workbench.charts.labels import milliseconds, time_x, title
from workbench.charts.theme import INK, LOSS_COLOURS, loss_colour

DATASET = "waterfall"
TIME = "time"
"""Name of the last bar of two schedules."""
ALIKE = 1e-3
"""Parts that differ by no more than this share of the time are alike."""
QUESTION = "Where does the time go?"
LABEL_PIXELS = 170
LANE_PIXELS = 17
"""Height of one of the two bars of a part."""
ABOVE = "The chosen schedule is above, the one that it is compared with is below and pale."
NOISE_S = 1e-13
REST = "unexplained"
TOTAL = "total"
MEANING: Mapping[str, str] = {
    "floor": "no schedule is faster",
    "disturbance": "what computation alone usually takes over its fastest here; 0 where the wire is the floor",
    "fill and drain": "time before the busier of processors and links begins and after it ends",
    "waiting": "time in which the busier of processors and links waits between its first and its last work",
    "decomposition": "the pieces alone take this much longer than the whole alone",
    "contention": "computation takes this much longer during communication than alone",
    REST: "the remainder after all other parts",
}
SIMULATED = "the longer of both alone, by the simulator; the floor of the problem was measured"
"""The meaning of a first part that is not the floor."""


def chart(
    parts: Mapping[str, float | None], time_s: float | None, context: str = "", name: str = "measured"
) -> alt.LayerChart:
    """The waterfall of one trial; see `rows`."""
    return _drawn(pd.DataFrame(rows(parts, time_s, name), columns=list(_COLUMNS)), context)


def live(context: str = "", *, of_two: bool = False) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(...)`; *of_two*: by `two(...)`."""
    return _drawn(alt.NamedData(DATASET), context, of_two=of_two)


def chart_of_two(chosen: Schedule, other: Schedule, context: str = "") -> alt.LayerChart:
    """The waterfalls of two schedules next to each other; see `two`."""
    data = pd.DataFrame(two(chosen, other), columns=[*_COLUMNS, "lane", "schedule"])
    return _drawn(data, context, of_two=True)


def rows(
    parts: Mapping[str, float | None], time_s: float | None, name: str = "measured", first: str = "floor"
) -> list[dict[str, Any]]:
    """One record per part and one for the time *name*, in the order of `LOSS_COLOURS`. *parts* are seconds by part.

    A part that is missing or None is not known: its line says so, and *unexplained* includes it. Where *unexplained*
    is not given, it is *time_s* less the known parts. A negative loss is a gain. *first* names the first part where
    that is not the floor of the problem.
    """
    if unknown := [part for part in parts if part not in LOSS_COLOURS]:
        raise ValueError(f"There is no part {unknown[0]!r}. Accepted: {', '.join(LOSS_COLOURS)}.")
    known = {part: _without_noise(parts.get(part)) for part in LOSS_COLOURS}
    missing = [part for part, value in known.items() if value is None and part != REST]
    if known[REST] is None and time_s is not None and known["floor"] is not None:
        known[REST] = time_s - sum(value for value in known.values() if value is not None)
    records: list[dict[str, Any]] = []
    reached = 0.0
    for part, value in known.items():
        records.append(_record(part, value, reached, _meaning(part, missing)))
        if part == REST and missing and value is not None:
            records[-1]["words"] += ", with what is not known"
        reached += value or 0.0
    if first != "floor":
        words = {"meaning": SIMULATED, "aloud": f"{first}: {records[0]['words']}; {SIMULATED}"}
        records[0] |= {"name": first, **words}
    records.append(_record(name, time_s, 0.0, "the slowest rank's median") | {"part": TOTAL})
    return [{"place": place, **record} for place, record in enumerate(records)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One of two schedules whose parts are drawn next to each other."""

    name: str
    """What distinguishes it from the other one."""
    parts: Mapping[str, float | None]
    """As for `rows`."""
    time_s: float | None
    source: str
    first: str = "floor"
    """The name of the first part, the same for both."""


def two(chosen: Schedule, other: Schedule) -> list[dict[str, Any]]:
    """The records of both, those of *chosen* above; its words say how much each part is longer or shorter."""
    both = []
    for lane, schedule in enumerate((chosen, other)):
        for record in rows(schedule.parts, schedule.time_s, TIME, schedule.first):
            last = {"name": f"{TIME}, {schedule.source}"} if record["part"] == TOTAL else {}
            both.append(record | last | {"lane": lane, "schedule": schedule.name})
    half = len(both) // 2
    for record, same in zip(both[:half], both[half:], strict=True):
        record["words"] += _difference(record, same)
    for record in both:
        record["aloud"] = f"{record['schedule']}, {record['name']}: {record['words']}; {record['meaning']}"
    return both


def _without_noise(seconds: float | None) -> float | None:
    """*seconds*, or 0 where that is what a difference of numbers leaves; a part of -3e-8 ns is no gain."""
    return 0.0 if seconds is not None and abs(seconds) < NOISE_S else seconds


def _difference(record: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """`, 9 ms less` than the same part of the other schedule; empty where one is not known or they are alike."""
    if record["start_ms"] is None or other["start_ms"] is None:
        return ""
    longer_ms = (record["stop_ms"] - record["start_ms"]) - (other["stop_ms"] - other["start_ms"])
    if abs(longer_ms) <= ALIKE * max(record["edge_ms"], other["edge_ms"]):
        return ""
    return f", {seconds_text(abs(longer_ms) / 1e3)} {'more' if longer_ms > 0 else 'less'}"


def _meaning(part: str, missing: list[str]) -> str:
    included = f", and what is not known: {', '.join(missing)}" if part == REST and missing else ""
    return MEANING[part] + included


def _record(part: str, value: float | None, reached: float, meaning: str) -> dict[str, Any]:
    if value is None:
        text = "not known"
    elif part in ("floor", REST) or value >= 0:
        text = seconds_text(value)
    else:
        text = f"{seconds_text(value)}, a gain"
    start, stop = (None, None) if value is None else (milliseconds(reached), milliseconds(reached + value))
    edge = max(reached, reached + (value or 0.0))
    shown = {"words": text, "meaning": meaning, "aloud": f"{part}: {text}; {meaning}"}
    return {"name": part, "part": part, "start_ms": start, "stop_ms": stop, "edge_ms": milliseconds(edge), **shown}


_COLUMNS = ("place", "name", "part", "start_ms", "stop_ms", "edge_ms", "words", "meaning", "aloud")


def _drawn(data: Any, context: str, *, of_two: bool = False) -> alt.LayerChart:
    names = {"name": "Part", "words": "Time", "meaning": "Meaning"} | ({"schedule": "Schedule"} if of_two else {})
    tooltip = [alt.Tooltip(f"{field}:N", title=name) for field, name in names.items()]
    lanes = {"yOffset": "lane:O"} if of_two else {}
    layers = [
        layer.encode(y=_parts(), **lanes, tooltip=tooltip, description="aloud:N")
        for layer in (_losses(of_two), _total(of_two), _labels())
    ]
    text = "Waterfall: each part starts where the one above it ends; the last bar is their sum."
    return alt.LayerChart(
        layer=[*layers],
        data=data,
        title=title(QUESTION, [context, ABOVE] if of_two else context),
        height=alt.Step(LANE_PIXELS if of_two else 30),
        description=f"{text} {ABOVE}" if of_two else text,
    )


def _parts() -> alt.Y:
    by_place = alt.EncodingSortField(field="place", op="min")
    return alt.Y(
        "name:N", sort=by_place, axis=alt.Axis(title=None, ticks=False, domain=False, labelLimit=200, labelPadding=8)
    )


def _time(field: str) -> alt.X:
    # the room on the right is for the label of the longest bar
    scale = alt.Scale(zero=True, nice=False, range=[0, alt.expr(f"width - {LABEL_PIXELS}")])
    return time_x(field, "Time", scale)


def _losses(of_two: bool) -> alt.Chart:
    return (
        alt.Chart(name="losses")
        .transform_filter(f"datum.part !== '{TOTAL}'")
        .mark_bar(height=_bar(of_two), minBandSize=2)
        .encode(x=_time("start_ms"), x2="stop_ms:Q", color=loss_colour(legend=None), **_pale(of_two))
    )


def _total(of_two: bool) -> alt.Chart:
    return (
        alt.Chart(name="total")
        .transform_filter(f"datum.part === '{TOTAL}'")
        .mark_bar(height=_bar(of_two), fill="transparent", stroke=INK, strokeWidth=2)
        .encode(x=_time("start_ms"), x2="stop_ms:Q", **_pale(of_two))
    )


def _bar(of_two: bool) -> alt.RelativeBandSize:
    return alt.RelativeBandSize(0.8 if of_two else 0.62)


def _pale(of_two: bool) -> dict[str, Any]:
    """The opacity by which two schedules differ."""
    return {"opacity": alt.condition("datum.lane === 1", alt.value(0.45), alt.value(1))} if of_two else {}


def _labels() -> alt.Chart:
    return alt.Chart(name="words").mark_text(align="left", dx=6, aria=False).encode(x=_time("edge_ms"), text="words:N")
