"""Where does the time go? Bars from the floor through each loss to the measured time, or a note for unknown parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from kernels.units import seconds_text
from workbench.charts.labels import milliseconds, time_x, title
from workbench.charts.theme import INK, LOSS_COLOURS, loss_colour

DATASET = "waterfall"
QUESTION = "Where does the time go?"
LABEL_PIXELS = 170
REST = "unexplained"
TOTAL = "total"
MEANING: Mapping[str, str] = {
    "floor": "no schedule is faster",
    "disturbance": "what computation alone usually takes over its fastest here; 0 where the wire is the floor",
    "fill and drain": "time before the busier of processors and links begins and after it ends",
    "decomposition": "the pieces alone take this much longer than the whole alone",
    "contention": "computation takes this much longer during communication than alone",
    REST: "the remainder after all other parts",
}


def chart(
    parts: Mapping[str, float | None], time_s: float | None, context: str = "", name: str = "measured"
) -> alt.LayerChart:
    """The waterfall of one trial; see `rows`."""
    return _drawn(pd.DataFrame(rows(parts, time_s, name), columns=list(_COLUMNS)), context)


def live(context: str = "") -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(...)`."""
    return _drawn(alt.NamedData(DATASET), context)


def rows(parts: Mapping[str, float | None], time_s: float | None, name: str = "measured") -> list[dict[str, Any]]:
    """One record per part and one for the time *name*, in the order of `LOSS_COLOURS`. *parts* are seconds by part.

    A part that is missing or None is not known: its line says so, and *unexplained* includes it. Where *unexplained*
    is not given, it is *time_s* less the known parts. A negative loss is a gain.
    """
    if unknown := [part for part in parts if part not in LOSS_COLOURS]:
        raise ValueError(f"There is no part {unknown[0]!r}. Accepted: {', '.join(LOSS_COLOURS)}.")
    known = {part: parts.get(part) for part in LOSS_COLOURS}
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
    records.append(_record(name, time_s, 0.0, "the slowest rank's median") | {"part": TOTAL})
    return [{"place": place, **record} for place, record in enumerate(records)]


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


def _drawn(data: Any, context: str) -> alt.LayerChart:
    tooltip = [alt.Tooltip(f"{field}:N", title=name) for field, name in
               {"name": "Part", "words": "Time", "meaning": "Meaning"}.items()]  # fmt: skip
    layers = [
        layer.encode(y=_parts(), tooltip=tooltip, description="aloud:N") for layer in (_losses(), _total(), _labels())
    ]
    return alt.LayerChart(
        layer=[*layers],
        data=data,
        title=title(QUESTION, context),
        height=alt.Step(30),
        description="Waterfall: each part starts where the one above it ends; the last bar is their sum.",
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


def _losses() -> alt.Chart:
    return (
        alt.Chart(name="losses")
        .transform_filter(f"datum.part !== '{TOTAL}'")
        .mark_bar(height=alt.RelativeBandSize(0.62), minBandSize=2)
        .encode(x=_time("start_ms"), x2="stop_ms:Q", color=loss_colour(legend=None))
    )


def _total() -> alt.Chart:
    return (
        alt.Chart(name="total")
        .transform_filter(f"datum.part === '{TOTAL}'")
        .mark_bar(height=alt.RelativeBandSize(0.62), fill="transparent", stroke=INK, strokeWidth=2)
        .encode(x=_time("start_ms"), x2="stop_ms:Q")
    )


def _labels() -> alt.Chart:
    return alt.Chart(name="words").mark_text(align="left", dx=6, aria=False).encode(x=_time("edge_ms"), text="words:N")
