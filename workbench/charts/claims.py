"""Do the papers' numbers hold here? One line per claim shows the published mark and below it ours with its range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from workbench.charts.labels import title
from workbench.charts.theme import INK, SCHEMES, SOURCE_LOOKS, filling, present, scheme, shape
from workbench.naming import PUBLISHED

QUESTION = "Do the papers' numbers hold here?"
SOURCES = tuple(SOURCE_LOOKS)
CONTEXT = ("Time saved against the baseline; right of zero is faster. A thin line is the range of our cases. "
           "Papers use other shapes, machines and baselines.")  # fmt: skip
COLUMNS = ("claim", "scheme", "side", "look", "saved", "low", "high", "paper", "over", "machine", "aloud")
STEP_PIXELS = 17
SIDES = ("theirs", "ours")
"""Lanes of one claim: the published mark is drawn above ours."""


def chart(answers: Sequence[Mapping[str, Any]]) -> alt.LayerChart:
    """The claims of *answers*, rows of `workbench claims --json`; those without a published reduction are omitted."""
    records = rows(answers)
    data = pd.DataFrame(records, columns=list(COLUMNS))
    claims = list(dict.fromkeys(data["claim"]))
    base = alt.Chart(data).encode(
        y=alt.Y("claim:N", sort=claims, title=None, axis=alt.Axis(labelLimit=320)),
        yOffset=alt.YOffset("side:N", scale=alt.Scale(domain=list(SIDES))),
        tooltip=[alt.Tooltip("claim:N", title="Claim"), alt.Tooltip("look:N", title="Source"),
                 alt.Tooltip("saved:Q", title="Time saved", format=".0%"), alt.Tooltip("paper:N", title="Paper"),
                 alt.Tooltip("over:N", title="Over"), alt.Tooltip("machine:N", title="Machine")],
        description=alt.Description("aloud:N"),
    )  # fmt: skip
    scale = alt.Scale(zero=True)
    schemes = present(SCHEMES, list(data["scheme"]))
    band = base.transform_filter("isValid(datum.low) && isValid(datum.high)").mark_rule(opacity=0.6, stroke=INK)
    marks = base.mark_point(size=110, strokeWidth=2)
    layers = [
        band.encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
        marks.encode(
            x=alt.X("saved:Q", title="Time saved", axis=alt.Axis(format="%"), scale=scale),
            shape=shape(looks=present(SOURCES, list(data["look"]))), fillOpacity=filling(),
            fill=scheme(alt.Fill, schemes), stroke=scheme(alt.Stroke, schemes),
        ),
    ]  # fmt: skip
    return alt.LayerChart(
        layer=layers, height=alt.Step(STEP_PIXELS), title=title(QUESTION, CONTEXT),
        description="Published claims from top to bottom: a diamond for the reported saving, below it ours.",
    )  # fmt: skip


def rows(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Two records for each claim that has both numbers, one where ours is missing."""
    records: list[dict[str, Any]] = []
    for answer in answers:
        if answer["published_reduction"] is None:
            continue
        records.append(_published(answer))
        if answer["ours_reduction"] is not None:
            records.append(_ours(answer))
    return records


def claim_label(answer: Mapping[str, Any]) -> str:
    """Scope, aggregate and version, which distinguish the claims of a chart."""
    which = {"max": "at most", "mean": "on average"}.get(answer["aggregate"], "")
    mark = "" if answer["verified"] else ", unverified"
    return f"{', '.join(filter(None, (answer['scope'], which)))} ({answer['version']}{mark})"


def _published(answer: Mapping[str, Any]) -> dict[str, Any]:
    saved = answer["published_reduction"]
    return _record(answer) | {
        "look": PUBLISHED, "side": SIDES[0], "saved": saved, "over": answer["published_baseline"],
        "machine": answer["published_machine"], "aloud": f"{claim_label(answer)}: published {saved:.0%}",
    }  # fmt: skip


def _ours(answer: Mapping[str, Any]) -> dict[str, Any]:
    saved = answer["ours_reduction"]
    aloud = f"{claim_label(answer)}: {answer['source']} {saved:.0%} on {answer['machine']}"
    return _record(answer) | {
        "look": answer["source"], "side": SIDES[1], "saved": saved, "low": answer["low_reduction"],
        "high": answer["high_reduction"], "over": answer["over"], "machine": answer["machine"], "aloud": aloud,
    }  # fmt: skip


def _record(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that both marks of a claim share."""
    known = {"claim": claim_label(answer), "scheme": answer["scheme"], "paper": answer["paper"]}
    return dict.fromkeys(COLUMNS) | known


def __getattr__(name: str) -> Any:
    """Names of the release before."""
    from kernels.old_names import renamed

    return renamed(__name__, name, {"claim_words": "claim_label"})
