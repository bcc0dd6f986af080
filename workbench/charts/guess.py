"""How far off was the guess? Guess, estimate and measurement together: on one ruler, or on the scale of the choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from workbench.charts.labels import title
from workbench.charts.theme import GUESS, INK, SOURCE_LOOKS, filling, haloed, present, shape

ESTIMATED = "estimated"
LOOKS = (*SOURCE_LOOKS, GUESS)


class GuessMark(NamedTuple):
    """One mark of the chart."""

    name: str
    """Its row: who says it, or the choice that it is about."""
    look: str
    """The source of its number, or GUESS."""
    value: float | None
    """None where a choice was guessed that has no number: then the mark is at the left edge."""
    text: str = ""
    """The text at the mark."""


def chart(question: str, sentences: Sequence[str], axis: str, marks: Sequence[GuessMark]) -> alt.LayerChart:
    """The *marks* under the *question*; *sentences* are below it, and *axis* is the title with the unit of values."""
    import pandas as pd

    rows = pd.DataFrame([_row(mark) for mark in marks])
    names = list(dict.fromkeys(mark.name for mark in marks))
    titles = alt.Axis(title=None, ticks=False, domain=False, grid=False, labelLimit=240, labelPadding=8)
    most = max((mark.value for mark in marks if mark.value is not None), default=1.0)
    x = alt.X("value:Q", title=axis, scale=alt.Scale(domain=[0, 1.15 * most], nice=False))
    y = alt.Y("name:N", sort=names, scale=alt.Scale(domain=names), axis=titles)
    numbers = alt.Chart(rows).transform_filter("isValid(datum.value)").encode(x=x, y=y)
    chosen = alt.Chart(rows, name="chosen").transform_filter("!isValid(datum.value)")
    layers = [
        _points(numbers, present(LOOKS, [mark.look for mark in marks])),
        *haloed(_words(numbers, "timed", f"datum.look !== '{ESTIMATED}'", baseline="bottom", dy=-9)),
        *haloed(_words(numbers, "estimates", f"datum.look === '{ESTIMATED}'", baseline="top", dy=10)),
        *haloed(chosen.mark_text(align="left", x=4, aria=False).encode(y=y, text="text:N")),
    ]
    described = f"{question} Guess, estimate and answer, one mark each."
    heading = title(question, list(sentences))
    return alt.LayerChart(layer=layers, title=heading, height=alt.Step(44), description=described)


def _points(numbers: alt.Chart, looks: Sequence[str]) -> alt.Chart:
    colour = alt.Scale(domain=list(LOOKS), range=[INK] * len(LOOKS))
    tooltip = [alt.Tooltip("name:N", title="Row"), alt.Tooltip("look:N", title="Source"),
               alt.Tooltip("text:N", title="Value")]  # fmt: skip
    return numbers.mark_point(size=110).encode(
        shape=shape(looks=looks), fillOpacity=filling(), fill=alt.Fill("look:N", scale=colour, legend=None),
        stroke=alt.Stroke("look:N", scale=colour, legend=None), tooltip=tooltip, description="aloud:N",
    )  # fmt: skip


def _words(numbers: alt.Chart, name: str, where: str, **place: Any) -> alt.Chart:
    """The texts at the marks that fulfil *where*; an estimate has it below, so that two near marks are legible."""
    some = numbers.copy().transform_filter(where).mark_text(aria=False, **place).encode(text="text:N")
    some.name = name
    return some


def _row(mark: GuessMark) -> dict[str, Any]:
    return {**mark._asdict(), "aloud": f"{mark.name}, {mark.look}: {mark.text}"}
