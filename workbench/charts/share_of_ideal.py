"""How much of perfect overlap is reached? The share of ideal over T_comm / T_c, by operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.operators import OPERATORS
from kernels.units import percent_text
from workbench.charts.labels import Rows, context, facts, is_whole, listed, title
from workbench.charts.theme import (
    FACTS,
    INK,
    LOSS_COLOURS,
    SOURCE_LOOKS,
    SPAN_COLOURS,
    filling,
    legend,
    present,
    shape,
    tooltip_and_description,
)
from workbench.naming import operator_title
from workbench.results.rows import Row

DATASET = "share_of_ideal"
QUESTION = "How much of perfect overlap is reached?"
LINES = {"perfect overlap": 1.0, "no gain": 0.0}
"""Reference shares: T = max(T_c, T_comm), and T = T_c + T_comm."""
_PALETTE = (SPAN_COLOURS["compute"], SPAN_COLOURS["put"], LOSS_COLOURS["disturbance"], SPAN_COLOURS["reduce"],
            SPAN_COLOURS["copy"], SPAN_COLOURS["collective"], SPAN_COLOURS["wait"])  # fmt: skip
COLOURS = dict(zip(map(operator_title, OPERATORS), _PALETTE, strict=True))
"""Colour of each operator: those of spans, which this chart lacks and which colour-blind readers can distinguish."""
OPERATOR_TITLES, SOURCES = tuple(COLOURS), tuple(SOURCE_LOOKS)
SHOWN = {"operator": "Operator", "share": "Share of ideal", "balance": "T_comm / T_c", **FACTS}


def chart(trials: Rows) -> alt.LayerChart:
    """The whole trials of *trials* whose block has T_c and T_comm; the best of each problem has a larger mark."""
    records = rows(trials)
    operators, sources = (present(table, [each[key] for each in records])
                          for table, key in ((OPERATOR_TITLES, "operator"), (SOURCES, "look")))  # fmt: skip
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), context(trials), operators, sources)


def live(context: str = "") -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to which `rows(...)` are given."""
    return _drawn(alt.NamedData(DATASET), context, OPERATOR_TITLES, SOURCES)


def rows(trials: Rows) -> list[dict[str, Any]]:
    """One record for each whole trial that has a share of ideal."""
    known = [row for row in listed(trials) if is_whole(row) and _number(row.get("share_of_ideal")) is not None]
    best: dict[tuple[Any, ...], float] = {}
    for row in known:
        best[_place(row)] = max(row["share_of_ideal"], best.get(_place(row), row["share_of_ideal"]))
    return [_record(row, is_best=row["share_of_ideal"] == best[_place(row)]) for row in known]


def _number(value: Any) -> float | None:
    """*value* as a number; None for None and for the nan of frames."""
    return None if value is None or value != value else float(value)


def _place(row: Row) -> tuple[Any, ...]:
    """The key of rows that share a source, T_c and T_comm."""
    return row.get("operator"), str(row.get("shape")), row.get("source"), row["whole_s"], row["transfer_s"]


def _record(row: Row, *, is_best: bool) -> dict[str, Any]:
    shown, operator = facts(row), operator_title(row["operator"])
    ratio, share = row["transfer_s"] / row["whole_s"], row["share_of_ideal"]
    return shown | {
        "key": row.get("key"), "operator": operator, "look": row["source"], "ratio": ratio, "of_ideal": share,
        "is_best": int(is_best), "share": percent_text(share), "balance": f"{ratio:.2g}",
        "aloud": f"{operator}, {shown['schedule']}: {percent_text(share)} of ideal at T_comm / T_c {ratio:.2g}, "
                 f"{shown['source']}",
    }  # fmt: skip


_COLUMNS = ("key", "operator", "look", "ratio", "of_ideal", "is_best", "share", "balance", *FACTS, "aloud")


def _drawn(data: Any, context: str, operators: Sequence[str], sources: Sequence[str]) -> alt.LayerChart:
    rest = _points(22, 0.45, operators, sources).transform_filter("datum.is_best === 0")
    best = _points(75, 1.0, operators, sources).transform_filter("datum.is_best === 1")
    return alt.LayerChart(
        layer=[rest, best, *(layer for name in LINES for layer in _line(name))],
        data=data,
        title=title(QUESTION, context),
        description="Share of ideal of every schedule over T_comm / T_c, between perfect overlap and no gain.",
    )


def _points(size: int, opacity: float, operators: Sequence[str], sources: Sequence[str]) -> alt.Chart:
    return (
        alt.Chart()
        .mark_point(size=size, opacity=opacity)
        .encode(
            x=alt.X("ratio:Q", title="T_comm / T_c", scale=alt.Scale(type="log", nice=False, padding=14),
                    axis=alt.Axis(grid=False, labelExpr="format(datum.value, '~g')")),
            y=alt.Y("of_ideal:Q", title="Share of ideal", scale=alt.Scale(padding=10), axis=alt.Axis(format="%")),
            shape=shape(looks=sources), fill=_colour(alt.Fill, operators), stroke=_colour(alt.Stroke, operators),
            fillOpacity=filling(), **tooltip_and_description(SHOWN),
        )
    )  # fmt: skip


def _colour(channel: Any, operators: Sequence[str]) -> Any:
    scale = alt.Scale(type="ordinal", domain=list(COLOURS), range=list(COLOURS.values()))
    listed_alone = legend(operators, symbolType="square", symbolOpacity=1, symbolStrokeWidth=0)
    return channel("operator:N", scale=scale, legend=listed_alone)


def _line(name: str) -> list[alt.Chart]:
    """A line across the plot, and its label."""
    at = alt.Chart(alt.InlineData(values=[{"at": LINES[name], "words": name}])).encode(y=alt.Y("at:Q"))
    line = at.mark_rule(stroke=INK, strokeDash=[6, 3]).encode(description="words:N")
    label = at.mark_text(align="right", baseline="bottom", dy=-3, x=alt.expr("width"), aria=False)
    return [line, label.encode(text="words:N")]
