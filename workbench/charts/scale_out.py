"""How long is a step as ranks increase? Bars for 8 to 4,096 ranks, with exposed communication in a paler colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.schemes import BASELINE
from workbench.charts.labels import milliseconds, time_x, time_y, title
from workbench.charts.theme import SCHEMES, present, scheme
from workbench.results.rows import Row

QUESTION = "How long is a step on more and more ranks?"
WHERE = "Where does communication show?"
DATASET = "steps"
PARTS = {"hidden or computing": 1.0, "exposed": 0.45}
"""The parts of a bar and their opacity."""
CONTEXT = "Estimated, nothing was run. Pale: exposed communication, and above it its share of the step."
CONTEXT_WHERE = "Estimated. Exposed: no computation runs meanwhile."
COLUMNS = ("world", "side", "configuration", "scheme", "part", "low_ms", "high_ms", "share", "aloud")
PLACES = ("place", "configuration", "scheme", "exposed_ms", "aloud")


def chart(steps: Sequence[Row], context: str = "") -> alt.LayerChart:
    """Times of *steps*, rows of `predict-step`: one configuration at several worlds, each with its sequential step."""
    data = pd.DataFrame(rows(steps), columns=list(COLUMNS))
    return _drawn(data, present(SCHEMES, list(data["scheme"])), context)


def live(context: str = "") -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are appended."""
    return _drawn(alt.NamedData(DATASET), SCHEMES, context)


def _drawn(data: Any, schemes: Sequence[str], context: str) -> alt.LayerChart:
    base = alt.Chart().encode(
        x=alt.X("world:O", title="Ranks", axis=alt.Axis(labelAngle=0, format=",d")),
        xOffset=alt.XOffset("side:O"),
        tooltip=[alt.Tooltip("aloud:N", title="This part")], description=alt.Description("aloud:N"),
    )  # fmt: skip
    solid = alt.Scale(domain=list(PARTS), range=list(PARTS.values()), type="ordinal")
    bars = base.mark_bar().encode(
        y=time_y("low_ms", alt.Scale(zero=True)), y2="high_ms:Q",
        color=scheme(alt.Color, schemes),
        opacity=alt.Opacity("part:N", scale=solid, legend=alt.Legend(title=None, orient="bottom")),
    )  # fmt: skip
    shares = base.transform_filter("datum.part === 'exposed'").mark_text(dy=-6, fontSize=10, aria=False)
    return alt.LayerChart(
        data=data,
        layer=[bars, shares.encode(y=time_y("high_ms", alt.Scale(zero=True)), text=alt.Text("share:Q", format=".0%"))],
        title=title(QUESTION, [text for text in (context, CONTEXT) if text]),
        description="Bars of the time of a step over the number of ranks, sequential next to overlapped.",
    )  # fmt: skip


def rows(steps: Sequence[Row]) -> list[dict[str, Any]]:
    """Two records for each bar: the exposed part is stacked on the other one."""
    records: list[dict[str, Any]] = []
    for step in sorted(steps, key=lambda each: int(each["world"])):
        records += _bar(step, BASELINE, BASELINE, (step["baseline_s"], step["baseline_exposed_share"]))
        records += _bar(step, step["configuration"], step["scheme"], (step["fused_s"], step["exposed_share"]))
    return records


def _bar(step: Row, name: str, scheme_name: str, time: tuple[float, float]) -> list[dict[str, Any]]:
    time_s, share = time
    title_of = name.replace("_", " ")
    ends = {"hidden or computing": (0.0, time_s * (1 - share)), "exposed": (time_s * (1 - share), time_s)}
    return [{
        "world": step["world"], "side": int(name != BASELINE), "configuration": title_of, "scheme": scheme_name,
        "part": part, "share": share,
        "low_ms": milliseconds(low_s), "high_ms": milliseconds(high_s),
        "aloud": f"{title_of}, {step['world']:,} ranks, {part}: {milliseconds(high_s - low_s)} ms",
    } for part, (low_s, high_s) in ends.items()]  # fmt: skip


def where(step: Row, most: int = 8) -> alt.Chart:
    """The exposed time of one row of `predict-step`, sequential and overlapped, by layer and then by dimension."""
    data = pd.DataFrame(where_rows(step, most), columns=list(PLACES))
    names, places = (list(dict.fromkeys(data[column])) for column in ("configuration", "place"))
    chart: alt.Chart = alt.Chart(
        data, title=title(WHERE, [CONTEXT_WHERE]), height=alt.Step(12),
        description="Bars of exposed communication by layer and pass, and by dimension of the network.",
    ).mark_bar().encode(
        x=time_x("exposed_ms", "Exposed", alt.Scale(zero=True)),
        y=alt.Y("place:N", title=None, sort=places, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("configuration:N", sort=names),
        color=scheme(alt.Color, present(SCHEMES, list(data["scheme"]))),
        tooltip=[alt.Tooltip("aloud:N", title="This bar")], description=alt.Description("aloud:N"),
    )  # fmt: skip
    return chart


def where_rows(step: Row, most: int = 8) -> list[dict[str, Any]]:
    """One record for each bar, for the *most* layers with the longest exposed time in the sequential step."""
    sides = ((BASELINE, BASELINE, "baseline_"), (str(step["configuration"]).replace("_", " "), step["scheme"], ""))
    layers = [(part["layer"], part["pass"]) for part in step["baseline_exposed_by_layer"][:most]]
    return [
        {"place": place, "configuration": words, "scheme": scheme_name, "exposed_ms": milliseconds(seconds),
         "aloud": f"{place}, {words}: {milliseconds(seconds)} ms exposed"}
        for words, scheme_name, prefix in sides
        for place, seconds in [*_by_layer(step[f"{prefix}exposed_by_layer"], layers),
                               *_by_dimension(step[f"{prefix}exposed_by_level"])]
    ]  # fmt: skip


def _by_layer(parts: Sequence[Row], layers: Sequence[tuple[str, str]]) -> list[tuple[str, float]]:
    exposed = {(part["layer"], part["pass"]): float(part["exposed_s"]) for part in parts}
    return [(f"layer {layer}, {passes}", exposed.get((layer, passes), 0.0)) for layer, passes in layers]


def _by_dimension(parts: Sequence[Row]) -> list[tuple[str, float]]:
    return [(f"dimension {part['level']}: {part['count']:,} by {str(part['topology']).replace('_', ' ')}",
             float(part["exposed_s"])) for part in parts]  # fmt: skip
