"""Legends: colour says the scheme; shape and filling say where a number comes from, or what else it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from workbench.charts.theme import HALO, LOSS_COLOURS, SCHEME_COLOURS, SOURCE_LOOKS, Colour, scheme_colour

FLOOR, GUESS, FAILED = "floor", "guess", "failed"
LOOKS: Mapping[str, tuple[str, float]] = {
    **{source: (look.shape, float(look.filled)) for source, look in SOURCE_LOOKS.items()},
    FLOOR: ("stroke", 0.0),
    GUESS: ("triangle-down", 0.0),
    FAILED: ("M-1,-1L1,1M-1,1L1,-1", 0.0),
}
"""Shape and filling: only what was timed is filled."""
FACTS = {"time": "Time", "schedule": "Schedule", "source": "Source", "machine": "Machine", "fabric": "Fabric",
         "verified": "Verified"}  # fmt: skip
"""Columns of a tooltip (workbench/charts/words.py fills them) and what they are called."""
INK = LOSS_COLOURS["floor"]
"""For marks that belong to no scheme: legible on light and dark."""
SCHEMES = tuple(SCHEME_COLOURS)


def present(table: Sequence[str], occurring: Sequence[object]) -> list[str]:
    """The entries of *table* that are among *occurring*, in its order: what a legend lists."""
    return [entry for entry in table if entry in occurring]


NEAR_PIXELS = 34
"""Less room than words take between a mark and a line below it."""
ENTRY_PIXELS, LETTER_PIXELS = 32, 6.6
"""What a legend's entry takes beside its word, and for each letter of it."""


def legend(values: Sequence[str], **options: Any) -> alt.Legend:
    """A legend of *values* beside each other, in as many columns as the plot has room for: never wider than it."""
    entries = [ENTRY_PIXELS + LETTER_PIXELS * len(value) for value in values] or [1.0]
    wrapped = f"clamp(floor(width / {max(entries):.0f}), 1, {len(entries)})"
    columns = alt.expr(f"width > {sum(entries):.0f} ? {len(entries)} : {wrapped}")
    plain = {"title": None, "values": list(values), "columns": columns, "columnPadding": 12, "offset": 6}
    return alt.Legend(**{**plain, **options})


def scheme(channel: type[Colour] = alt.Color, schemes: Sequence[str] = SCHEMES) -> Any:
    """Colour by scheme; the legend above the chart lists *schemes*."""
    listed = legend(schemes, symbolType="square", symbolOpacity=1, symbolStrokeWidth=0)
    return scheme_colour(channel=channel, legend=listed)


def shape(field: str = "look", looks: Sequence[str] = tuple(LOOKS)) -> alt.Shape:
    """Shape by source; the legend below the chart lists *looks*.

    The first layer that has a shape must have a field for its fill, too: Vega-Lite takes the legend's filling from it.
    """
    shapes = {name: form for name, (form, _) in LOOKS.items()}
    filled = " || ".join(f"datum.value === '{name}'" for name, (_, filling) in LOOKS.items() if filling)
    listed = legend(
        looks,
        orient="bottom",
        symbolFillColor=alt.expr(f"{filled} ? '{INK}' : 'transparent'"),
        symbolStrokeColor=INK,
        symbolOpacity=1,
    )
    return alt.Shape(f"{field}:N", scale=alt.Scale(domain=list(shapes), range=list(shapes.values())), legend=listed)


def filling(field: str = "look") -> alt.FillOpacity:
    """Solid when it was timed, hollow when it was not."""
    opacity = {name: filling for name, (_, filling) in LOOKS.items()}
    # "ordinal" said aloud: Vega-Lite would take the list for the two ends of a continuous range
    scale = alt.Scale(type="ordinal", domain=list(opacity), range=list(opacity.values()))
    return alt.FillOpacity(f"{field}:N", scale=scale, legend=None)


def said(columns: Mapping[str, str] = FACTS) -> dict[str, Any]:
    """The channels of what is shown when a mark is pointed at, and of what is read aloud: the column `aloud`."""
    shown = [alt.Tooltip(f"{column}:N", title=name) for column, name in columns.items()]
    return {"tooltip": shown, "description": alt.Description("aloud:N")}


def haloed(words: alt.Chart) -> list[alt.Chart]:
    """The layer *words*, a text, over its halo: no line or mark crosses a letter. Both come after what they lie on."""
    halo = words.copy()
    halo.mark.style, halo.name = HALO, f"{words.name}_halo"
    return [halo, words]


def beside_floor(floor: str = "datum.floor_ms", time: str = "datum.time_ms") -> dict[str, Any]:
    """Where the words of the best time stand: below it, where nothing is faster, or above if the floor is that near."""
    near = f"isValid({floor}) && scale('y', {floor}) - scale('y', {time}) < {NEAR_PIXELS}"
    return {"baseline": alt.expr(f"{near} ? 'bottom' : 'top'"), "dy": alt.expr(f"{near} ? -13 : 13")}
