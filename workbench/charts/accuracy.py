"""How far are estimates off? One line per operator and scheme shows each trial's error and the accepted band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import altair as alt
import pandas as pd

from kernels.units import percent_text, seconds_text
from workbench.charts.labels import BETWEEN, is_whole, schedule_label, title
from workbench.charts.theme import INK, SCHEMES, legend, present, scheme
from workbench.naming import operator_title
from workbench.results.rows import Row

QUESTION = "How far are estimates off?"
CONTEXT = ("Left of 0 %: estimated shorter than it was. 90 % of the errors must stay within the band; a stroke marks "
           "the median error of a roofline. Nothing was fitted to the held-out trials.")  # fmt: skip
HELD_OUT, OTHERS = "held out", "others"
SHAPES = {HELD_OUT: "triangle-up", OTHERS: "circle"}
STEP_PIXELS = 22
FACTS = {"error": "Error", "measured": "Measured", "estimated": "Estimated", "schedule": "Schedule", "shape": "Shape",
         "machine": "Machine", "split": "Split"}  # fmt: skip
COLUMNS = ("kind", "scheme", "off", *FACTS, "aloud")
KIND_COLUMNS = ("kind", "scheme", "low", "high", "roofline", "aloud")


def chart(trials: Sequence[Row], bounds: Sequence[Row] = ()) -> alt.LayerChart:
    """Errors of *trials*, rows of `workbench validate --json`, with those *bounds* of its committed file that apply."""
    known = [row for row in trials if is_whole(row)]
    marks, of_kinds = rows(known), kinds(known, bounds)
    order = [record["kind"] for record in of_kinds]
    schemes = present(SCHEMES, [record["scheme"] for record in marks])
    splits = present(tuple(SHAPES), [record["split"] for record in marks])
    y = alt.Y("kind:N", sort=order, title=None, axis=alt.Axis(labelLimit=260, grid=True))
    about = alt.Chart(pd.DataFrame(of_kinds, columns=list(KIND_COLUMNS))).encode(y=y)
    off = alt.X("off:Q", title="Estimated over measured, less 1", axis=alt.Axis(format="+%"))
    spoken = alt.Description("aloud:N")
    points = alt.Chart(pd.DataFrame(marks, columns=list(COLUMNS))).mark_point(size=34, fillOpacity=0.3)
    layers = [
        about.transform_filter("isValid(datum.low)").mark_bar(opacity=0.18, fill=INK, cornerRadiusEnd=0).encode(
            x=alt.X("low:Q"), x2="high:Q", description=spoken),
        about.mark_tick(color=INK, thickness=2).encode(x=alt.X("roofline:Q"), description=spoken),
        points.encode(
            x=off, y=y, order=alt.Order("split:N", sort="descending"),
            shape=alt.Shape("split:N", scale=alt.Scale(domain=list(SHAPES), range=list(SHAPES.values())),
                            legend=legend(splits, orient="bottom", symbolStrokeColor=INK, symbolFillColor=INK)),
            fill=scheme(alt.Fill, schemes), stroke=scheme(alt.Stroke, schemes), description=spoken,
            tooltip=[alt.Tooltip(f"{column}:N", title=name) for column, name in FACTS.items()],
        ),
        alt.Chart(pd.DataFrame({"off": [0.0]})).mark_rule(color=INK).encode(x=off),
    ]  # fmt: skip
    context = f"{len(marks)} whole trials. {CONTEXT}"
    return alt.LayerChart(
        layer=layers, height=alt.Step(STEP_PIXELS), title=title(QUESTION, context),
        description="Operators and schemes from top to bottom; every mark is the error of one trial's estimate.",
    )  # fmt: skip


def rows(trials: Sequence[Row]) -> list[dict[str, Any]]:
    """One record per trial: the relative error of its estimate, and the trial's facts."""
    return [_record(row) for row in trials]


def kinds(trials: Sequence[Row], bounds: Sequence[Row]) -> list[dict[str, Any]]:
    """One record per operator and scheme: its band, where all its machines have a bound, and the roofline's median."""
    accepted: dict[tuple[str, ...], float] = {
        (bound["machine"], bound["operator"], bound["scheme"]): bound["p90"] for bound in bounds
    }
    of_kind: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(trials, key=lambda row: (row["operator"], SCHEMES.index(row["scheme"]))):
        of_kind.setdefault((row["operator"], row["scheme"]), []).append(row)
    return [_kind(each, accepted) for each in of_kind.values()]


def _record(row: Row) -> dict[str, Any]:
    kind, off = _name(row), row["error"]
    facts = {"error": percent_text(off, "+"), "measured": seconds_text(row["measured_s"]),
            "estimated": seconds_text(row["estimated_s"]), "schedule": schedule_label(row),
            "shape": " ".join(f"{key}={size}" for key, size in row["shape"].items()), "machine": row["machine"],
            "split": HELD_OUT if row["held_out"] else OTHERS}  # fmt: skip
    aloud = BETWEEN.join((kind, facts["shape"], f"{facts['error']} off", facts["split"]))
    return {"kind": kind, "scheme": row["scheme"], "off": off, **facts, "aloud": aloud}


def _kind(trials: Sequence[Row], accepted: Mapping[tuple[str, ...], float]) -> dict[str, Any]:
    first = trials[0]
    most = [accepted.get((row["machine"], row["operator"], row["scheme"])) for row in trials]
    known = [bound for bound in most if bound is not None]
    bound = max(known) if len(known) == len(trials) else None
    roofline = median(row["trivial_s"] / row["measured_s"] - 1 for row in trials)
    within = "no bound" if bound is None else f"90 % within {percent_text(bound)}"
    return {
        "kind": _name(first), "scheme": first["scheme"], "low": None if bound is None else -bound, "high": bound,
        "roofline": roofline, "aloud": f"{_name(first)}: {within}; a roofline {percent_text(roofline, '+')}",
    }  # fmt: skip


def _name(row: Row) -> str:
    return f"{operator_title(row['operator'])}, {row['scheme']}"
