"""Legends: colour says the scheme; shape and filling say where a number comes from, or what else it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import altair as alt

from workbench.naming import SIGNS

# How every chart looks: one Altair theme in light and dark, and one table of colours for what is drawn.

Colour = alt.Color | alt.Fill | alt.Stroke

THEME = "workbench"
HALO = "halo"
"""The style of words in the colour of the page, which lie behind the same words: no line crosses them."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"


class Mode(StrEnum):
    """What lies behind a chart."""

    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ink:
    """The colours of everything on a chart that is not data."""

    text: str
    """Titles and the numbers on axes."""
    faint: str
    """Subtitles, legends, axis lines."""
    grid: str
    page: str
    """Behind the chart in JupyterLab; charts themselves are transparent."""


INKS: Mapping[Mode, Ink] = {
    Mode.LIGHT: Ink(text="#1f2328", faint="#59636e", grid="#e4e7eb", page="#ffffff"),
    Mode.DARK: Ink(text="#e6e9ed", faint="#a3abb5", grid="#363b42", page="#212121"),
}

SCHEME_COLOURS: Mapping[str, str] = {
    "sequential": "#6c707a",
    "concurrent": "#a02be8",
    "decomposed": "#2490d0",
    "fused": "#e65c10",
}

SPAN_COLOURS: Mapping[str, str] = {
    "compute": "#7f86f5",
    "put": "#d27a00",
    "reduce": "#ae01fe",
    "copy": "#1fa670",
    "collective": "#c616ac",
    "wait": "#6d717b",
}

LOSS_COLOURS: Mapping[str, str] = {
    "floor": "#6d717b",
    "disturbance": "#846c2e",
    "fill and drain": "#7f86f5",
    "decomposition": "#1fa670",
    "contention": "#d27a00",
    "unexplained": "#c616ac",
}
"""The waterfall from the floor to the measured time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a number shows where it comes from, beside whatever colour it has."""

    shape: str
    filled: bool
    """Only what was timed is filled."""
    dash: tuple[int, ...]
    """Lengths of stroke and gap in pixels; empty is a solid line."""


SHAPES = {
    "\N{BLACK CIRCLE}": ("circle", True),
    "\N{BLACK SQUARE}": ("square", True),
    "\N{WHITE CIRCLE}": ("circle", False),
    "\N{WHITE DIAMOND}": ("diamond", False),
}
"""Shape and filling of the signs."""
_DASHES: Mapping[str, tuple[int, ...]] = {"measured": (), "recorded": (8, 2), "estimated": (4, 3), "published": (1, 3)}

SOURCE_LOOKS: Mapping[str, Look] = {
    source: Look(shape=SHAPES[sign][0], filled=SHAPES[sign][1], dash=_DASHES[source]) for source, sign in SIGNS.items()
}
"""Each source drawn as the sign that tables write for it."""


def scheme_colour(field: str = "scheme", channel: type[Colour] = alt.Color, **options: Any) -> Colour:
    """The colour of a column that holds schemes. Hollow marks need it twice, as `alt.Fill` and as `alt.Stroke`."""
    return _nominal(channel, field, SCHEME_COLOURS, options)


def span_colour(field: str = "kind", channel: type[Colour] = alt.Color, **options: Any) -> Colour:
    """The colour of a column that holds kinds of spans."""
    return _nominal(channel, field, SPAN_COLOURS, options)


def loss_colour(field: str = "part", channel: type[Colour] = alt.Color, **options: Any) -> Colour:
    """The colour of a column that holds the parts of a waterfall."""
    return _nominal(channel, field, LOSS_COLOURS, options)


def source_dash(field: str = "source", **options: Any) -> alt.StrokeDash:
    """The dashes of a line or of a bar's outline."""
    dashes = {source: list(look.dash) or [1, 0] for source, look in SOURCE_LOOKS.items()}
    return _nominal(alt.StrokeDash, field, dashes, {"legend": None, **options})


def _nominal(channel: Any, field: str, table: Mapping[str, Any], options: dict[str, Any]) -> Any:
    # "ordinal" said aloud: Vega-Lite would take an opacity's list for the two ends of a continuous range
    scale = alt.Scale(type="ordinal", domain=list(table), range=list(table.values()))
    return channel(f"{field}:N", scale=scale, **options)


def enable(mode: Mode = Mode.LIGHT) -> None:
    """Make every Altair chart of this process look like the workbench's."""
    alt.theme.register(THEME, enable=False)(_theme)
    alt.theme.enable(THEME, mode=Mode(mode).value)


@contextmanager
def enabled(mode: Mode = Mode.LIGHT) -> Iterator[None]:
    """The same for a while: whatever theme was enabled before is again afterwards."""
    alt.theme.register(THEME, enable=False)(_theme)
    with alt.theme.enable(THEME, mode=Mode(mode).value):
        yield


def _theme(mode: str = Mode.LIGHT.value) -> alt.theme.ThemeConfig:
    return {"config": config(Mode(mode))}  # type: ignore[typeddict-item]


def config(mode: Mode, height: int = 240) -> dict[str, Any]:
    """The Vega-Lite configuration of one mode: fonts, sizes, ink; no colour of data depends on *mode*."""
    ink = INKS[mode]
    label = {"labelColor": ink.text, "labelFontSize": 11, "titleColor": ink.text, "titleFontSize": 12}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None, "continuousWidth": 420, "continuousHeight": height, "discreteHeight": {"step": 22}},
        "title": {
            **{"anchor": "start", "fontSize": 14, "fontWeight": 600, "offset": 10, "color": ink.text},
            **{"subtitleColor": ink.faint, "subtitleFontSize": 12},
        },
        "axis": {
            **label,
            **{"titleFontWeight": "normal", "titlePadding": 8, "labelPadding": 4, "labelOverlap": True},
            **{"domainColor": ink.faint, "tickColor": ink.faint, "tickSize": 4},
            **{"grid": True, "gridColor": ink.grid, "gridOpacity": 1},
        },
        "axisBand": {"grid": False},
        "legend": {**label, "titleFontWeight": "normal", "symbolSize": 90, "symbolStrokeWidth": 2, "orient": "top"},
        "header": {**label, "titleFontWeight": "normal"},
        "range": {"category": list(SCHEME_COLOURS.values()), "heatmap": {"scheme": "viridis"}},
        "bar": {"cornerRadiusEnd": 1},
        "line": {"strokeWidth": 2},
        "point": {"size": 55, "strokeWidth": 1.5, "opacity": 1},
        "rule": {"color": ink.text, "strokeWidth": 1.5},
        "text": {"color": ink.text, "fontSize": 11},
        "tick": {"thickness": 2},
        "style": {HALO: {"stroke": ink.page, "strokeWidth": 5, "strokeJoin": "round"}},
    }


# Legends: colour says the scheme; shape and filling say where a number comes from, or what else it is.

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
"""Columns of a tooltip (workbench/charts/labels.py fills them) and what they are called."""
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
