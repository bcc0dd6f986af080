"""The look of all charts: one Altair theme in light and dark, and tables of colours, shapes and dashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import altair as alt

from workbench.naming import SIGNS

# One Altair theme in light and dark, and the colours of data.

Colour = alt.Color | alt.Fill | alt.Stroke

THEME = "workbench"
HALO = "halo"
"""The style of a text in the colour of the page, drawn behind the same text so that no line crosses it."""
PATH = "path"
"""The style of a line in the colour of text, which is drawn over bars."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"


class Mode(StrEnum):
    """Brightness of the page behind a chart."""

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
    """The background of JupyterLab behind the chart, which is itself transparent."""


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
    "waiting": "#ae01fe",
    "decomposition": "#1fa670",
    "contention": "#d27a00",
    "unexplained": "#c616ac",
}
"""Colours of the waterfall's parts, from the floor to the measured time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Shape, filling and dash of a mark, which show the source of its number; its colour is independent."""

    shape: str
    filled: bool
    """True for timed numbers only."""
    dash: tuple[int, ...]
    """Lengths of stroke and gap in pixels; empty is a solid line."""


SHAPES = {
    "\N{BLACK CIRCLE}": ("circle", True),
    "\N{BLACK SQUARE}": ("square", True),
    "\N{WHITE CIRCLE}": ("circle", False),
    "\N{WHITE DIAMOND}": ("diamond", False),
}
"""Shape and filling that draw each sign of a source."""
_DASHES: Mapping[str, tuple[int, ...]] = {"measured": (), "recorded": (8, 2), "estimated": (4, 3), "published": (1, 3)}

SOURCE_LOOKS: Mapping[str, Look] = {
    source: Look(shape=SHAPES[sign][0], filled=SHAPES[sign][1], dash=_DASHES[source]) for source, sign in SIGNS.items()
}
"""The look of each source, equal to the sign that tables show for it."""


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
    """Enables the theme inside a `with` block, and restores the previous one after it."""
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
        "style": styles(ink.text, ink.page),
    }


def styles(text: str, page: str) -> dict[str, Any]:
    """The styles of marks that have the colour of *text* or of the *page*."""
    return {
        HALO: {"stroke": page, "strokeWidth": 5, "strokeJoin": "round"},
        PATH: {"color": text, "stroke": text, "strokeWidth": 2, "strokeJoin": "round"},
    }


def dark_page_rules(charts: str = "svg.marks") -> str:
    """CSS with which drawn *charts* of the light theme are legible on a dark page: each ink by that of the dark theme.

    A picture in a page follows the page's `color-scheme`, which JupyterLab sets by its theme.
    """
    light, dark = INKS[Mode.LIGHT], INKS[Mode.DARK]
    inks = [(getattr(light, each.name), getattr(dark, each.name)) for each in fields(Ink)]
    rules = (f'{charts} [{way}="{before}"]{{{way}:{after}}}' for before, after in inks for way in ("fill", "stroke"))
    return f"@media screen and (prefers-color-scheme: dark){{{''.join(rules)}}}"


# Legends: colour shows the scheme; shape and filling show the source of a number.

FLOOR, GUESS, FAILED = "floor", "guess", "failed"
LOOKS: Mapping[str, tuple[str, float]] = {
    **{source: (look.shape, float(look.filled)) for source, look in SOURCE_LOOKS.items()},
    FLOOR: ("stroke", 0.0),
    GUESS: ("triangle-down", 0.0),
    FAILED: ("M-1,-1L1,1M-1,1L1,-1", 0.0),
}
"""Shape and filling of each source, and of the floor, the guess and failures; only timed numbers are filled."""
FACTS = {"time": "Time", "schedule": "Schedule", "source": "Source", "machine": "Machine", "fabric": "Fabric",
         "verified": "Verified"}  # fmt: skip
"""Columns of a tooltip, which workbench/charts/labels.py fills, and their titles."""
INK = LOSS_COLOURS["floor"]
"""Colour of marks that belong to no scheme, legible on light and dark pages."""
SCHEMES = tuple(SCHEME_COLOURS)


def present(table: Sequence[str], occurring: Sequence[object]) -> list[str]:
    """The entries of *table* that are among *occurring*, in the table's order, for a legend."""
    return [entry for entry in table if entry in occurring]


NEAR_PIXELS = 34
"""A label needs more room than this between a mark and the floor line below it."""
ENTRY_PIXELS, LETTER_PIXELS = 32, 6.6
"""Width of a legend entry's symbol and margins, and of each letter of its text."""


def legend(values: Sequence[str], **options: Any) -> alt.Legend:
    """A legend of *values* in as many columns as the plot has room for, so that it is never wider than the plot."""
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


RUN_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-right")
"""Shapes of the runs of a chart, in turns."""


def run_shape(runs: Sequence[str], looks: Sequence[str] = ()) -> alt.Shape:
    """Shape by run, in the column `form`, which has *looks* for what is of no run; filling shows the source."""
    shapes = {run: RUN_SHAPES[number % len(RUN_SHAPES)] for number, run in enumerate(runs)}
    shapes |= {name: LOOKS[name][0] for name in looks}
    plain = {"symbolFillColor": "transparent", "symbolStrokeColor": INK, "labelLimit": 0}
    listed = legend(tuple(shapes), orient="bottom", **plain)
    return alt.Shape("form:N", scale=alt.Scale(domain=list(shapes), range=list(shapes.values())), legend=listed)


def filling(field: str = "look") -> alt.FillOpacity:
    """Fill opacity by source: solid for timed numbers, hollow for others."""
    opacity = {name: filling for name, (_, filling) in LOOKS.items()}
    # "ordinal" said aloud: Vega-Lite would take the list for the two ends of a continuous range
    scale = alt.Scale(type="ordinal", domain=list(opacity), range=list(opacity.values()))
    return alt.FillOpacity(f"{field}:N", scale=scale, legend=None)


def tooltip_and_description(columns: Mapping[str, str] = FACTS) -> dict[str, Any]:
    """The channels of a mark's tooltip, and of its description for screen readers: the column `aloud`."""
    shown = [alt.Tooltip(f"{column}:N", title=name) for column, name in columns.items()]
    return {"tooltip": shown, "description": alt.Description("aloud:N")}


def haloed(text: alt.Chart) -> list[alt.Chart]:
    """The layer *text* over its halo, so that no line or mark crosses a letter; draw both after the other layers."""
    halo = text.copy()
    halo.mark.style, halo.name = HALO, f"{text.name}_halo"
    return [halo, text]


def best_label_position(floor: str = "datum.floor_ms", time: str = "datum.time_ms") -> dict[str, Any]:
    """Position of the label of the best time: below its mark, or above it where the floor is near."""
    near = f"isValid({floor}) && scale('y', {floor}) - scale('y', {time}) < {NEAR_PIXELS}"
    return {"baseline": alt.expr(f"{near} ? 'bottom' : 'top'"), "dy": alt.expr(f"{near} ? -13 : 13")}
