"""Which part of the space is fast? The best or mean time over two axes; estimates have the scale of what was timed.

With a pinned baseline the cells have signed differences to it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import altair as alt
import pandas as pd

from kernels.outcome import SOURCES
from kernels.units import percent_text, seconds_text
from workbench.charts.labels import (
    Rows,
    axis_value,
    context,
    facts,
    in_one_unit,
    is_whole,
    listed,
    milliseconds,
    time_legend,
    title,
)
from workbench.charts.layers import SELECTED, SELECTED_INK, selectable
from workbench.charts.relative import NO_DIFFERENCE, RATIO, REACH_MOST, TimeAxis, against, name_of, ratio_legend
from workbench.charts.theme import FACTS, FAILED, INK, LOOKS, filling, present, shape, tooltip_and_description
from workbench.naming import TIMED, axis_text, axis_title
from workbench.results.deltas import Pinned
from workbench.results.rows import Row

DATASET = "landscape"
STATISTICS = ("best", "mean")
ROW_PIXELS, HIGH_MOST = 30, 300
"""Height of one row, and the most for all rows: with many rows cells shrink and labels become fewer."""
LABELS_MOST = 150
"""The most cells that each have a number."""
SPAN_LEAST = 0.05
"""The least span of the colours, as a share of the fastest time: less is no difference for the eye."""
HINT = (
    "A star marks the fastest cell, of the timed ones where there are any; \N{ALMOST EQUAL TO} or no mark is an "
    "estimate. Click a cell to load its best schedule."
)


ON_PALE, ON_DEEP = "#1f2328", "#ffffff"
"""Ink that is legible on a fast and on a slow cell, in light and dark pages."""
STAR = "M0,-1L.225,-.309L.951,-.309L.363,.118L.588,.809L0,.382L-.588,.809L-.363,.118L-.951,-.309L-.225,-.309Z"

ABOUT = "\N{ALMOST EQUAL TO}"
"""Before the number of a cell that is estimated."""

Cell = list[dict[str, Any]]


def chart(trials: Rows, x: str, y: str, statistic: str = "best", baseline: Pinned | None = None) -> alt.LayerChart:
    """The landscape of *trials* over the axes *x* and *y*; the subtitle counts outcomes that lack one of them.

    With a *baseline*, differences to it are drawn.
    """
    whole = [row for row in listed(trials) if is_whole(row)]
    missing = sum(1 for row in whole if axis_value(row, x) is None or axis_value(row, y) is None)
    left_out = f"Outcomes without {axis_text(x)} or {axis_text(y)}, and so not here: {missing}." if missing else ""
    records = rows(whole, x, y, statistic, baseline)
    time = TimeAxis(alt.Scale(), name_of(baseline))
    looks = present(tuple(LOOKS), [row["look"] for row in records])
    data = pd.DataFrame(records, columns=list(_COLUMNS))
    subtitle = [context(whole), *time.subtitle, scale_text(whole), HINT, left_out]
    cells = _cells(statistic, time, str(_most(records) if baseline else _slowest(records)))
    drawn = _drawn(data, (x, y), cells, (subtitle, looks), time)
    return drawn.properties(height=_height(len({row["y"] for row in records})))


def live(
    x: str, y: str, statistic: str = "best", context: str = "", num_rows: int = 8, baseline: str = ""
) -> alt.LayerChart:
    """A chart of the dataset `DATASET`, to be replaced by `rows(...)`, with room for *num_rows* values of *y*.

    The parameter layers.SELECTED outlines the cell whose column `place` it is. With a *baseline*, as
    `relative.name_of` says it, differences are drawn: rows are made with the same one.
    """
    time = TimeAxis(alt.Scale(), baseline)
    legends = [context, *time.subtitle, HINT], (*SOURCES, FAILED)
    drawn = _drawn(
        alt.NamedData(DATASET), (x, y), _cells(statistic, time, LIVE_REACH if baseline else LIVE_SLOWEST), legends, time
    )
    drawn.layer.append(_selected().encode(x=_across(x), y=_upwards(y)))
    return selectable(drawn.properties(height=_height(num_rows)))


def place(row: Row, x: str, y: str) -> str:
    """The column `place` of the cell of *row* over the axes *x* and *y*."""
    return f"{axis_value(row, x)} {axis_value(row, y)}"


def _height(num_rows: int) -> int:
    return min(HIGH_MOST, ROW_PIXELS * max(2, num_rows))


def rows(trials: Rows, x: str, y: str, statistic: str = "best", baseline: Pinned | None = None) -> list[dict[str, Any]]:
    """One record per cell; `scheme`, `axes` and `key` are those of its fastest trial, which a click loads.

    A cell shows timed outcomes if there are any, else estimates; a cell with failures only shows their reason. Where
    schedules were timed, all estimates are multiplied by `scale`, so that one colour means one time.
    """
    if statistic not in STATISTICS:
        raise ValueError(f"There is no statistic {statistic!r}. Accepted: {', '.join(STATISTICS)}.")
    cells: dict[tuple[int | str, int | str], Cell] = {}
    for row in listed(trials):
        at_x, at_y = axis_value(row, x), axis_value(row, y)
        if is_whole(row) and at_x is not None and at_y is not None:
            cells.setdefault((at_x, at_y), []).append(row)
    scaled = scale(trials)
    records = [_record(cell, at, statistic, scaled, baseline) for at, cell in cells.items()]
    _place(records)
    _mark_best(records)
    _ink(records, differ=baseline is not None)
    return records


@dataclass(frozen=True, slots=True)
class Scale:
    """What the estimates of a map are multiplied by: the median of timed / estimated over *count* schedules."""

    factor: float
    count: int


def scale(trials: Rows) -> Scale | None:
    """The scale of the estimates among *trials*; None where no schedule was both timed and estimated."""
    estimated: dict[str, float] = {}
    timed: dict[str, float] = {}
    for row in listed(trials):
        if is_whole(row) and row.get("time_s"):
            name = json.dumps([row.get("scheme"), row.get("axes")], sort_keys=True)
            if row["source"] in TIMED:
                timed[name] = float(row["time_s"])
            elif row["source"] == "estimated":
                estimated.setdefault(name, float(row["time_s"]))
    ratios = [seconds / estimated[name] for name, seconds in timed.items() if name in estimated]
    return Scale(median(ratios), len(ratios)) if ratios else None


def scale_text(trials: Rows) -> str:
    """What the map of *trials* says of its estimates next to timed cells; nothing where only one of both is there."""
    whole = [row for row in listed(trials) if is_whole(row) and row.get("time_s")]
    sources = {row["source"] for row in whole}
    if "estimated" not in sources or sources.isdisjoint(TIMED):
        return ""
    known = scale(whole)
    if known is None:
        return "Estimates are as they are: no schedule was both timed and estimated."
    schedules = "1 schedule" if known.count == 1 else f"{known.count} schedules"
    return f"Estimates are times {known.factor:.2f}: timed / estimated of {schedules} of this run, in the median."


def _record(
    cell: Cell, at: tuple[int | str, int | str], statistic: str, scaled: Scale | None, baseline: Pinned | None
) -> dict[str, Any]:
    timed = [row for row in cell if row.get("time_s") is not None]
    source = next((name for name in SOURCES if any(row["source"] == name for row in timed)), None)
    shown = [row for row in timed if row["source"] == source]
    best = min(shown, key=lambda row: row["time_s"], default=cell[-1])
    time_s = None if source is None else best["time_s"] if statistic == "best" else fmean(r["time_s"] for r in shown)
    shown_facts = facts(best)
    if source == "estimated" and time_s is not None and scaled is not None:
        shown_facts["time"] = (
            f"about {seconds_text(best['time_s'] * scaled.factor)}, as timed here; {shown_facts['time']}"
        )
        time_s *= scaled.factor
    if statistic == "mean" and time_s is not None:
        shown_facts["time"] = f"mean {seconds_text(time_s)} of {len(shown)}; the best {shown_facts['time']}"
    record = _EMPTY | shown_facts | {
        "x": at[0], "y": at[1], "look": source or FAILED, "time_ms": milliseconds(time_s), "estimate": _estimate(timed),
        "count": len(shown), "key": best.get("key"), "scheme": best.get("scheme"), "axes": best.get("axes"),
        "aloud": f"{at[0]} and {at[1]}: {shown_facts['time']}, {shown_facts['source']}, {shown_facts['schedule']}",
        "place": f"{at[0]} {at[1]}",
    }  # fmt: skip
    # the difference is of the number in the cell: that of an estimate has the scale of what was timed
    return _with_ratio(against(record, best if time_s is None else {**best, "time_s": time_s}, baseline))


def _with_ratio(record: dict[str, Any]) -> dict[str, Any]:
    share = record.get("time_share")
    return record if share is None or share <= -1 else record | {RATIO: math.log2(1 + share)}


def _estimate(timed: Cell) -> str:
    """The simulator's best time in a cell, shown in addition to the measured one."""
    estimates = [row["time_s"] for row in timed if row["source"] == "estimated"]
    return seconds_text(min(estimates)) if estimates else "none"


def _place(records: list[dict[str, Any]]) -> None:
    """Adds the order of each value: numbers by size, other values by first occurrence."""
    for field in ("x", "y"):
        categories = list(dict.fromkeys(row[field] for row in records if isinstance(row[field], str)))
        for row in records:
            row[f"{field}_order"] = categories.index(row[field]) if row[field] in categories else row[field]


def _mark_best(records: list[dict[str, Any]]) -> None:
    """Marks one cell: the fastest that was timed, or the fastest estimate where nothing was."""
    with_time = [row for row in records if row["time_ms"] is not None]
    best_of = [row for row in with_time if row["look"] in TIMED] or with_time
    # of two blocks the shares of a common baseline say which is faster, and not the times
    quantity = "time_ms" if any(row["time_share"] is None for row in best_of) else "time_share"
    if best_of:
        min(best_of, key=lambda row: row[quantity])["best"] = True


def _ink(records: list[dict[str, Any]], *, differ: bool) -> None:
    """The number in each cell, in the legend's unit, and the colour that is legible on it; or its difference."""
    for row in records:
        row["about"] = ABOUT if row["look"] == "estimated" else ""
    if differ:
        _ink_differences(records)
        return
    times = [row["time_ms"] for row in records if row["time_ms"]]
    factor, _ = in_one_unit(times)
    lowest, highest = math.log(min(times, default=1.0)), math.log(_slowest(records))
    for row in records:
        if row["time_ms"]:
            slow = (math.log(row["time_ms"]) - lowest) / (highest - lowest)
            row["ink"] = ON_PALE if slow < 0.5 else ON_DEEP
            row["label"] = f"{row['about']}{row['time_ms'] * factor:.3g}" if len(records) <= LABELS_MOST else None


def _most(records: list[dict[str, Any]]) -> float:
    """The largest logarithm of a ratio to the baseline that has a colour of its own, in either direction."""
    known = [abs(row[RATIO]) for row in records if row.get(RATIO) is not None]
    return min(REACH_MOST, max(known, default=0.0) or 1.0)


def _slowest(records: list[dict[str, Any]]) -> float:
    """The time in ms with the colour of slow cells: the slowest, or SPAN_LEAST above the fastest if that is more."""
    times = [row["time_ms"] for row in records if row["time_ms"]]
    return max([*times, (1 + SPAN_LEAST) * min(times, default=1.0)])


def _ink_differences(records: list[dict[str, Any]]) -> None:
    """The signed difference in each cell; the colour is pale where there is none."""
    known = [row for row in records if row.get(RATIO) is not None]
    most = _most(known)
    for row in known:
        row["ink"] = ON_PALE if abs(row[RATIO]) < 0.55 * most else ON_DEEP
        share = row["time_share"]
        text = percent_text(share, "+") if abs(share) >= NO_DIFFERENCE else percent_text(0.0)
        row["label"] = f"{row['about']}{text}" if len(records) <= LABELS_MOST else None


_COLUMNS = ("x", "y", "x_order", "y_order", "look", "time_ms", "estimate", "count", "best", "ink", "label", "key",
            "scheme", "axes", *FACTS, "aloud", "place", "time_share", RATIO, "difference", "about")  # fmt: skip
_EMPTY: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"ink": INK}


def _drawn(
    data: Any,
    axes: tuple[str, str],
    cells: alt.Chart,
    legends: tuple[Sequence[str], Sequence[str]],
    time: TimeAxis,
) -> alt.LayerChart:
    (x, y), (subtitle, looks) = axes, legends
    tooltip = tooltip_and_description({**time.facts, "estimate": "Estimated here"})
    layers = (cells, _failures(time), _numbers())
    inside = [layer.encode(x=_across(x), y=_upwards(y), **tooltip) for layer in layers]
    left, right = (
        symbol.encode(x=_across(x, at), y=_upwards(y), **tooltip)
        for symbol, at in ((_sources(looks), 0.13), (_stars(), 0.8))
    )
    return alt.LayerChart(
        layer=[*inside, left, right],
        data=data,
        title=title(f"Which {axis_text(x)} and {axis_text(y)} are fast?", subtitle),
        description=f"Heat map of the time over {axis_text(x)} and {axis_text(y)}.",
    )


def _across(axis: str, position: float = 0.5) -> alt.X:
    by_value = alt.EncodingSortField(field="x_order", op="min")
    steps = alt.Axis(labelAngle=0, grid=False, labelLimit=120)
    return alt.X("x:O", title=axis_title(axis), axis=steps, sort=by_value, bandPosition=position, scale=_BANDS)


def _upwards(axis: str) -> alt.Y:
    by_value = alt.EncodingSortField(field="y_order", op="min", order="descending")
    return alt.Y("y:O", title=axis_title(axis), axis=alt.Axis(grid=False, labelLimit=160), sort=by_value, scale=_BANDS)


_BANDS = alt.Scale(type="band", padding=0.05)


def _cells(statistic: str, time: TimeAxis, reach: str) -> alt.Chart:
    """The cells by the colour of their time, the slowest *reach*, or of their ratio to the baseline, up to *reach* in
    both directions; *reach* is an expression."""
    cells = alt.Chart(name="cells").transform_filter(time.known("time")).mark_rect(cornerRadius=3, cursor="pointer")
    options: dict[str, Any] = {"orient": "right", "gradientLength": LEGEND_PIXELS, "tickCount": 4}
    if time.baseline:
        ends = {"domainMin": alt.expr(f"-({reach})"), "domainMax": alt.expr(reach)}
        diverging = alt.Scale(scheme="purpleorange", nice=False, clamp=True, **ends)
        legend = ratio_legend(title=["Difference,", "orange is slower"], **options)
        return cells.encode(color=alt.Color(f"{RATIO}:Q", scale=diverging, legend=legend))
    scale = alt.Scale(type="log", scheme="viridis", reverse=True, nice=False, domainMax=alt.expr(reach))
    legend = time_legend(title=[f"{statistic.capitalize()} time,", "brighter is faster"], **options)
    return cells.encode(color=alt.Color("time_ms:Q", scale=scale, legend=legend))


LEGEND_PIXELS = alt.expr("clamp(height - 40, 50, 220)")
"""Length of the gradient at the right of the cells, which need the height."""
LIVE_REACH = (
    f"clamp(max(abs(extent(pluck(data('{DATASET}'), '{RATIO}'))[0] || 0), "
    f"abs(extent(pluck(data('{DATASET}'), '{RATIO}'))[1] || 0)), 1e-3, {REACH_MOST})"
)
"""The expression of the largest logarithm of a ratio that has a colour of its own."""
_TIMES = f"extent(pluck(data('{DATASET}'), 'time_ms'))"
LIVE_SLOWEST = f"max({_TIMES}[1] || 1, {1 + SPAN_LEAST} * ({_TIMES}[0] || 0))"
"""The expression of `_slowest`."""
APART = 7
"""Pixels of a row from which on the symbols of two rows are apart: closer ones would be a black bar over the cells."""
OUTLINE = alt.expr("clamp(bandwidth('y') / 5, 1.5, 4)")


def _selected() -> alt.Chart:
    """The outline of the selected cell."""
    chosen = alt.Chart(name="selected").transform_filter(f"datum.place === {SELECTED}")
    return chosen.mark_rect(fill="transparent", strokeWidth=OUTLINE, cornerRadius=3, stroke=SELECTED_INK, aria=False)


def _failures(time: TimeAxis) -> alt.Chart:
    return (
        alt.Chart(name="failures")
        .transform_filter(f"!({time.known('time')})")
        .mark_rect(fill="transparent", stroke=INK, strokeDash=[2, 3], cornerRadius=3)
    )


def _numbers() -> alt.Chart:
    return (
        alt.Chart(name="numbers")
        .transform_filter("isValid(datum.label)")
        .mark_text(fontSize=12, aria=False, opacity=alt.expr("bandwidth('x') > 56 && bandwidth('y') > 13 ? 1 : 0"))
        .encode(text="label:N", fill=alt.Fill("ink:N", scale=None, legend=None))
    )


def _sources(looks: Sequence[str]) -> alt.Chart:
    """A symbol of the source at the left of each cell; of estimates only where those of two rows do not touch."""
    shown = alt.condition(f"datum.look !== 'estimated' || bandwidth('y') > {APART}", alt.value(1), alt.value(0))
    return _symbol("sources", "true").encode(shape=shape(looks=looks), opacity=shown)


def _stars() -> alt.Chart:
    """A star at the right of the best cell."""
    return _symbol("stars", "datum.best").encode(shape=alt.value(STAR), size=alt.value(alt.expr(_fitting(90))))


def _fitting(size: int) -> str:
    """The expression of an area of *size* square pixels, or less where a cell has no room."""
    return f"min({size}, pow(0.7 * bandwidth('y'), 2), pow(0.4 * bandwidth('x'), 2))"


def _symbol(name: str, which: str) -> alt.Chart:
    return (
        alt.Chart(name=name)
        .transform_filter(which)
        .mark_point(size=alt.expr(_fitting(30)), aria=False)
        .encode(
            fill=alt.Fill("ink:N", scale=None, legend=None),
            stroke=alt.Stroke("ink:N", scale=None, legend=None),
            fillOpacity=filling(),
        )
    )
