"""What did the class guess? One line per alias: its guess, and once it is revealed what was measured and estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from workbench.charts.labels import title
from workbench.charts.layers import table
from workbench.charts.theme import GUESS, INK, filling, shape

DATASET = "guesses"
QUESTION = "What did the class guess?"
NUMBER, CHOICE = "number", "choice"
"""Kinds of guesses: a number with a unit, or a word out of several."""
UNIT = "unit of the guesses"
"""Stands for the unit in a live chart; the page writes the question's own."""
STEP_PIXELS = 18
COLOURS = {GUESS: "#c616ac", "measured": "#1fa670", "recorded": "#1fa670", "estimated": "#2490d0"}
"""Colour of each mark by what it is; its shape says the same."""
COLUMNS = ("alias", "value", "look", "typed", "aloud")


def chart(entries: Sequence[Mapping[str, Any]], kind: str = NUMBER, unit: str = "") -> alt.LayerChart:
    """The guesses *entries* of one question, with their answers where they are revealed."""
    return _drawn(table(rows(entries), COLUMNS), kind, unit)


def live(kind: str = NUMBER, unit: str = UNIT) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which the page gives the records of `rows`."""
    return _drawn(alt.NamedData(DATASET), kind, unit)


def rows(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A record for each guess, and one for each answer that is shown; the lecturer's page makes the same ones."""
    records = []
    for each in entries:
        source = each.get("source") or "measured"
        marks = {GUESS: each["guess"], "estimated": each.get("estimate"), source: each.get("measured")}
        records += [
            {"alias": each["alias"], "value": value, "look": look, "typed": not each.get("default"),
             "aloud": f"{each['alias']}: {look} {value}{f' {unit}' if (unit := each.get('unit')) else ''}"}
            for look, value in marks.items() if value is not None
        ]  # fmt: skip
    return records


def _drawn(data: Any, kind: str, unit: str) -> alt.LayerChart:
    if kind not in (NUMBER, CHOICE):
        raise ValueError(f"There is no chart of guesses of kind {kind!r}. Accepted: {NUMBER}, {CHOICE}.")
    across: Any = alt.X("value:Q", title=unit or None, scale=alt.Scale(zero=False, padding=20))
    if kind == CHOICE:
        across = alt.X("value:N", title=None, axis=alt.Axis(labelAngle=0, labelLimit=160))
    base = alt.Chart(data).encode(y=alt.Y("alias:N", title=None, sort="ascending", axis=alt.Axis(labelLimit=200)))
    span = base.mark_rule(stroke=INK, opacity=0.35, aria=False).encode(
        x=alt.X("min(value):Q", title=unit or None), x2="max(value):Q"
    )
    colours = alt.Scale(domain=list(COLOURS), range=list(COLOURS.values()))
    marks = base.mark_point(size=110, strokeWidth=2).encode(
        x=across,
        shape=shape(looks=list(COLOURS)),
        fillOpacity=filling(),
        fill=alt.Fill("look:N", scale=colours, legend=None),
        stroke=alt.Stroke("look:N", scale=colours, legend=None),
        opacity=alt.condition("datum.typed", alt.value(1.0), alt.value(0.45)),
        tooltip=[alt.Tooltip("alias:N", title="Alias"), alt.Tooltip("look:N", title="What"),
                 alt.Tooltip("value:N", title="Value")],
        description=alt.Description("aloud:N"),
    )  # fmt: skip
    if kind == CHOICE:  # several marks of a person are at the same word
        marks = marks.encode(xOffset=alt.XOffset("look:N", scale=alt.Scale(domain=list(COLOURS))))
    named = [layer.properties(name=name) for name, layer in (("span", span), ("marks", marks))]
    return alt.LayerChart(
        layer=named if kind == NUMBER else named[1:],
        data=data, width="container", height=alt.Step(STEP_PIXELS), title=title(QUESTION, "Pale: nobody typed it."),
        description="One line per alias: a triangle for the guess; filled marks for what was measured or recorded.",
    )  # fmt: skip
