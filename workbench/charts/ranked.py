"""The first of many rows, picked by the page while rows arrive: no number has to be sent twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt


def order(fields: Sequence[str]) -> list[Any]:
    """What a window transform sorts by; a field with a minus before it runs downwards."""
    return [
        alt.SortField(field.removeprefix("-"), order="descending" if field.startswith("-") else "ascending")
        for field in fields
    ]


def first(chart: alt.Chart, by: Sequence[str], groups: Sequence[str] = ()) -> alt.Chart:
    """*chart* with only the first row in the order *by*, or that of each of *groups*."""
    ranked = chart.transform_window(place="row_number()", sort=order(by), groupby=list(groups))
    return ranked.transform_filter("datum.place === 1")
