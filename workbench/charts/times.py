"""Times as people read them, on axes and in words that the page writes: the values decide between ns, µs, ms and s.

Records hold milliseconds. Rows come while a chart is on screen, so the page chooses the unit, with expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

UNITS = ((1e-3, 1e6, "ns"), (1.0, 1e3, "µs"), (1e3, 1.0, "ms"))
"""Milliseconds below which a unit is used, what they are multiplied by, and its name."""
SECONDS = (1e-3, "s")
ROUNDED = 0.9995
"""999.7 µs are 1 ms, as kernels.units writes it."""
TICK_PIXELS = 80
"""Room for one label of a horizontal axis."""
EXTENT_PIXELS = 58
"""Of a vertical axis: its labels get longer and shorter while rows come, and the plot stays where it is."""


def time_expr(milliseconds: str) -> str:
    """The Vega expression that writes *milliseconds*, an expression, in its own unit: `'61.2 ms'`."""
    words = f"format({milliseconds} * {SECONDS[0]}, '.3~r') + ' {SECONDS[1]}'"
    for limit, factor, unit in reversed(UNITS):
        scaled = f"format({milliseconds} * {factor:g}, '.3~r') + ' {unit}'"
        words = f"{milliseconds} < {limit * ROUNDED:g} ? {scaled} : {words}"
    return f"({words})"


def label_expr(scale: str) -> str:
    """The expression for the labels of an axis or legend on *scale*: all in the unit that its largest time has."""
    largest = f"max(abs(domain('{scale}')[0]), abs(domain('{scale}')[1]))"
    chosen = f"[{SECONDS[0]}, ' {SECONDS[1]}']"
    for limit, factor, unit in reversed(UNITS):
        chosen = f"{largest} < {limit} ? [{factor:g}, ' {unit}'] : {chosen}"
    return f"datum.value === 0 ? '0' : format(datum.value * ({chosen})[0], '.6~r') + ({chosen})[1]"


def in_one_unit(milliseconds: Sequence[float]) -> tuple[float, str]:
    """The factor and the unit for all of *milliseconds*, as `label_expr` chooses them."""
    largest = max(map(abs, milliseconds), default=0.0)
    return next(((factor, unit) for limit, factor, unit in UNITS if largest < limit), SECONDS)


def time_x(field: str, title: str | None, scale: alt.Scale) -> alt.X:
    """Milliseconds from left to right. Labels have their unit: a *title* is needed where the heading says not what."""
    axis = alt.Axis(labelExpr=label_expr("x"), tickCount=alt.expr(f"ceil(width / {TICK_PIXELS})"), labelFlush=False)
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=axis)


def time_y(field: str, scale: alt.Scale, title: str = "Time") -> alt.Y:
    """Milliseconds upwards."""
    axis = alt.Axis(labelExpr=label_expr("y"), minExtent=EXTENT_PIXELS)
    return alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis)


def time_legend(**options: Any) -> alt.Legend:
    """The legend of a colour that stands for a time."""
    return alt.Legend(labelExpr=label_expr("color"), labelOverlap="greedy", labelSeparation=6, **options)
