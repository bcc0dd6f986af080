"""Which axis matters? A bar per axis with the share of the variance of log time it explains; estimates are hollow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from kernels.units import percent_text
from workbench.charts.labels import title
from workbench.charts.theme import INK, LOOKS, filling, present, shape
from workbench.naming import TIMED, TOGETHER, axis_text, axis_title
from workbench.results.rows import Row

DATASET = "importance"
QUESTION = "Which axis matters?"
HINT = "Click a bar: its axis and the most important other one as a landscape."
REST = "several together, and noise"
BAR = "#2490d0"
"""The colour of an axis's bar; what no axis explains by itself has that of marks of no scheme."""
SMALL = 0.001
"""A smaller share than this is not written as a number."""
NAMES_MOST = 2
"""The most names of axes that are known together only: the others are counted."""
LOOK_NAMES = tuple(name for name in LOOKS if name in (*TIMED, "estimated"))
STEP_PIXELS, LABEL_PIXELS = 14, 150
"""Height of one bar, and the room for the words of its longest bar."""


def chart(shares: Sequence[Row], context: str = "") -> alt.LayerChart:
    """The bars of *shares*; see `rows`."""
    records = rows(shares)
    looks = present(LOOK_NAMES, [record["look"] for record in records])
    return _drawn(pd.DataFrame(records, columns=list(_COLUMNS)), context, looks)


def live(context: str = "") -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(...)`."""
    return _drawn(alt.NamedData(DATASET), context, LOOK_NAMES)


def rows(shares: Sequence[Row]) -> list[dict[str, Any]]:
    """One record per axis and source, the most important axis first and the rest last.

    *shares* have the columns axis (None for the rest), source, share (0 to 1, or None where it is not known), chance,
    why (it is not known) and values (their number). An axis without effect has a share up to its chance. Axes are in
    the order of what was timed, then of estimates.
    """
    records = [_record(share) for share in shares]
    best: dict[str, tuple[bool, bool, float]] = {}
    for record in records:
        # what was timed leads, where it is known; the rest is no axis, and comes last
        rank = (record["axis"] is None, record["share"] is None or record["look"] == "estimated", -record["percent"])
        best[record["name"]] = min(best.get(record["name"], rank), rank)
    order = sorted(best, key=lambda name: best[name])
    placed = ({"place": order.index(record["name"]), **record} for record in records)
    return sorted(placed, key=lambda record: (record["place"], LOOK_NAMES.index(record["look"])))


def _record(share: Row) -> dict[str, Any]:
    axis, known = share["axis"], share["share"]
    name = REST if axis is None else _name(axis)
    is_chance = known is not None and axis is not None and share["chance"] > 0 and known <= share["chance"]
    words = _words_of(known) + (", no more than chance" if is_chance else "")
    meaning = _meaning(share, is_chance)
    return {
        "name": name, "axis": axis, "look": share["source"], "share": known, "percent": 100 * (known or 0.0),
        "ink": INK if axis is None else BAR, "words": words, "meaning": meaning, "values": share["values"],
        "aloud": f"{name}, {share['source']}: {words}; {meaning}",
    }  # fmt: skip


def _name(axis: str) -> str:
    """`Tile rows`; of axes that are known together only `Tile rows, store and 2 more`."""
    first, *others = axis.split(TOGETHER)
    shown = [axis_title(first), *map(axis_text, others[: NAMES_MOST - 1])]
    more = len(others) + 1 - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _words_of(share: float | None) -> str:
    if share is None:
        return "not known"
    return percent_text(share) if share == 0 or share >= SMALL else f"under {percent_text(SMALL)}"


def _meaning(share: Row, is_chance: bool) -> str:
    if share["share"] is None:
        return str(share["why"])
    if share["axis"] is None:
        return "no axis explains it by itself"
    several = share["axis"].split(TOGETHER)
    who = f"{axis_text(several[0])} alone explains" if len(several) == 1 else f"{_listed(several)} together explain"
    alone = f"{who} so much of the variance of log time"
    return f"{alone}; chance reaches {percent_text(share['chance'])}" if is_chance else alone


def _listed(several: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(map(axis_text, several[:-1])), axis_text(several[-1]))))


_COLUMNS = ("place", "name", "axis", "look", "share", "percent", "words", "meaning", "values", "ink",
            "aloud")  # fmt: skip


def _drawn(data: Any, context: str, looks: Sequence[str]) -> alt.LayerChart:
    facts = {"name": "Axis", "words": "Share", "look": "Source", "meaning": "Meaning", "values": "Values"}
    tooltip = [alt.Tooltip(f"{field}:N", title=name) for field, name in facts.items()]
    layers = [
        layer.encode(y=_axes(), yOffset=_by_source(), tooltip=tooltip, description="aloud:N")
        for layer in (_sources(looks), _bars(), _words())
    ]
    return alt.LayerChart(
        layer=layers,
        data=data,
        title=title(QUESTION, [context, HINT]),
        height=alt.Step(STEP_PIXELS),
        description="Share of the variance of log time by axis; the last bar is what no axis explains by itself.",
    )


def _axes() -> alt.Y:
    by_place = alt.EncodingSortField(field="place", op="min")
    axis = alt.Axis(title=None, ticks=False, domain=False, labelLimit=190, labelPadding=8)
    return alt.Y("name:N", sort=by_place, axis=axis)


def _by_source() -> alt.YOffset:
    """Sources of one axis are next to each other, what was timed above."""
    return alt.YOffset("look:N", sort=list(LOOK_NAMES))


def _share(field: str = "percent") -> alt.X:
    room = alt.expr(f"width - min({LABEL_PIXELS}, 0.35 * width)")
    scale = alt.Scale(zero=True, nice=False, range=[0, room])
    axis = alt.Axis(labelExpr="datum.label + ' %'", tickCount=alt.expr("ceil(width / 80)"))
    return alt.X(f"{field}:Q", title="Share of the variance of log time", scale=scale, axis=axis)


def _bars() -> alt.Chart:
    return (
        alt.Chart(name="bars")
        .mark_bar(strokeWidth=1.5, minBandSize=2, cursor="pointer")
        .encode(x=_share(), **_ink(), fillOpacity=filling())
    )


def _sources(looks: Sequence[str]) -> alt.Chart:
    """A symbol of the source at the end of each bar."""
    symbols = alt.Chart(name="sources").mark_point(size=36, xOffset=9, aria=False)
    return symbols.encode(x=_share(), shape=shape(looks=looks), **_ink(), fillOpacity=filling())


def _ink() -> dict[str, Any]:
    return {"fill": alt.Fill("ink:N", scale=None, legend=None), "stroke": alt.Stroke("ink:N", scale=None, legend=None)}


def _words() -> alt.Chart:
    return alt.Chart(name="words").mark_text(align="left", dx=18, aria=False).encode(x=_share(), text="words:N")
