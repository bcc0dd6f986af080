"""Which data stays in the cache? Cycles by policy, DRAM bytes and stalls by structure, savings of a larger L2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from workbench.charts.labels import title
from workbench.results.rows import Row

QUESTION = "Which cache policy is the best?"
SAVES = "How much does a larger L2 save?"
WHY = "Where did the DRAM bytes and the stalls go?"
BELOW, ABOVE = 0.52, 1.38
"""Relative cycles outside of these bounds have a dark cell, whose number is written in white."""
ON_PALE, ON_DEEP = "#1f2328", "#ffffff"
CELL_PIXELS = {"width": 52, "height": 20}
MEGABYTE, MEBIBYTE = 1e6, 2**20
COUNTED = {
    "dram_read_bytes": ("DRAM read (MB)", MEGABYTE), "dram_write_bytes": ("DRAM written (MB)", MEGABYTE),
    "stall_cycles": ("Waited for a way (thousand cycles)", 1e3),
}  # fmt: skip
"""Heading and unit of each count that the chart `why` shows."""


def heat_map(study: Sequence[Row]) -> alt.LayerChart:
    """Cycles relative to Uncached by application and policy, from the rows of a *study*; rows without them are omitted.

    The best static policy of each application has a frame.
    """
    records = heat_rows(study)
    data = pd.DataFrame(records, columns=["application", "policy", "relative_cycles", "best", "deep", "aloud"])
    policies, applications = (list(dict.fromkeys(data[name])) for name in ("policy", "application"))
    base = alt.Chart(data).encode(
        x=alt.X("policy:N", sort=policies, title=None, axis=alt.Axis(labelAngle=-40, labelOverlap=False, orient="top")),
        y=alt.Y("application:N", sort=applications, title=None),
        tooltip=[alt.Tooltip("application:N"), alt.Tooltip("policy:N"),
                 alt.Tooltip("relative_cycles:Q", title="Of Uncached", format=".3f")],
        description=alt.Description("aloud:N"),
    )  # fmt: skip
    scale = alt.Scale(scheme="purpleorange", domainMid=1.0, domain=[0.4, 1.6], clamp=True, reverse=True)
    cells = base.mark_rect().encode(
        color=alt.Color("relative_cycles:Q", scale=scale, legend=alt.Legend(title="Cycles, Uncached = 1"))
    )
    frames = base.mark_rect(fillOpacity=0, stroke=ON_PALE, strokeWidth=2).transform_filter("datum.best")
    numbers = base.mark_text(fontSize=10).encode(
        text=alt.Text("relative_cycles:Q", format=".2f"),
        color=alt.condition("datum.deep", alt.value(ON_DEEP), alt.value(ON_PALE)),
    )
    context = ["Simulated cycles relative to Uncached; less is better. A frame marks the best static policy.",
               "The applications' labels are reconstructed by us."]  # fmt: skip
    layers: alt.LayerChart = cells + frames + numbers
    return layers.properties(
        title=title(QUESTION, context), width={"step": CELL_PIXELS["width"]}, height={"step": CELL_PIXELS["height"]},
        description="A heat map of applications by cache policies, coloured by simulated cycles relative to Uncached.",
    )  # fmt: skip


def heat_rows(study: Sequence[Row]) -> list[dict[str, Any]]:
    """One record for each cell."""
    shown = [row for row in study if row["relative_cycles"] is not None]
    best: dict[str, float] = {}
    for row in shown:
        if row["group"] == "static":
            best[row["application"]] = min(row["cycles"], best.get(row["application"], row["cycles"]))
    return [
        {"application": row["application"], "policy": row["policy"], "relative_cycles": row["relative_cycles"],
         "best": row["group"] == "static" and row["cycles"] == best[row["application"]],
         "deep": not BELOW < row["relative_cycles"] < ABOVE,
         "aloud": f"{row['application']}, {row['policy']}: {row['relative_cycles']:.3f} of Uncached"}
        for row in shown
    ]  # fmt: skip


def sizes(swept: Sequence[Row], measured: Sequence[Row] = (), context: str = "") -> alt.LayerChart:
    """DRAM bytes read over the size of the L2: a line for each `label` of *swept*, a point for each *measured* row."""
    records = size_rows(swept, "estimated") + size_rows(measured, "measured")
    data = pd.DataFrame(records, columns=["label", "source", "l2_mib", "read", "aloud"])
    base = alt.Chart(data).encode(
        x=alt.X("l2_mib:Q", title="L2 (MiB)", scale=alt.Scale(type="log", base=2)),
        y=alt.Y("read:Q", title="DRAM read (MB)", scale=alt.Scale(type="log")),
        color=alt.Color("label:N", title=None), tooltip=[alt.Tooltip("aloud:N", title="This point")],
        description=alt.Description("aloud:N"),
    )  # fmt: skip
    lines = base.mark_line().transform_filter("datum.source == 'estimated'")
    points = base.mark_point(size=50).transform_filter("datum.source == 'estimated'")
    truth = base.mark_point(size=90, filled=True, opacity=1).transform_filter("datum.source == 'measured'")
    below = [text for text in (context, "Rings are simulated, full points are measured." if measured
                              else "All values are simulated; nothing was measured yet.") if text]  # fmt: skip
    layers: alt.LayerChart = lines + points + truth
    return layers.properties(
        title=title(SAVES, below), description="Lines of the bytes that DRAM reads over the size of L2, by kernel.",
    )  # fmt: skip


def size_rows(rows: Sequence[Row], source: str) -> list[dict[str, Any]]:
    """One record for each point."""
    return [
        {"label": row["label"], "source": source, "l2_mib": row["l2_bytes"] / MEBIBYTE,
         "read": row["dram_read_bytes"] / MEGABYTE,
         "aloud": f"{row['label']}, L2 of {row['l2_bytes'] / MEBIBYTE:.0f} MiB, {source}: DRAM reads "
                  f"{row['dram_read_bytes'] / MEGABYTE:,.1f} MB"}
        for row in rows
    ]  # fmt: skip


def why(study: Sequence[Row], context: str = "") -> alt.FacetChart:
    """DRAM bytes read and written, and cycles that requests waited for a way, by policy and structure.

    *study* holds the rows of one trace. The three counts are drawn side by side, each on its own axis.
    """
    records = why_rows(study)
    data = pd.DataFrame(records, columns=["policy", "structure", "what", "value", "aloud"])
    policies = list(dict.fromkeys(data["policy"]))
    bars = alt.Chart().mark_bar().encode(
        x=alt.X("value:Q", title=None), y=alt.Y("policy:N", sort=policies, title=None),
        color=alt.Color("structure:N", title=None), tooltip=[alt.Tooltip("aloud:N", title="This bar")],
        description=alt.Description("aloud:N"),
    ).properties(width=170)  # fmt: skip
    context_lines = [text for text in (context, "Simulated; each part has its own axis.") if text]
    return bars.facet(
        data=data, column=alt.Column("what:N", sort=[heading for heading, _ in COUNTED.values()], title=None),
    ).resolve_scale(x="independent").properties(
        title=title(WHY, context_lines),
        description="Bars by cache policy and data structure: DRAM bytes read, DRAM bytes written, cycles stalled.",
    )  # fmt: skip


def why_rows(study: Sequence[Row]) -> list[dict[str, Any]]:
    """One record for each bar."""
    return [
        {"policy": row["policy"], "structure": name, "what": heading, "value": traffic[key] / unit,
         "aloud": f"{row['policy']}, {name}: {heading} {traffic[key] / unit:,.2f}"}
        for row in study if row.get("structures")
        for name, traffic in row["structures"].items()
        for key, (heading, unit) in COUNTED.items()
    ]  # fmt: skip
