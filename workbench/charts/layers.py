"""What several charts of trials share: the names of their marks, the first row of a group, the trials being timed."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from workbench.charts.labels import axis_value, facts, is_whole, milliseconds
from workbench.charts.relative import LINEAR, TimeAxis, against
from workbench.charts.theme import SOURCE_LOOKS, run_shape, scheme, shape, tooltip_and_description
from workbench.results.deltas import Pinned
from workbench.results.rows import Row

# How a person wants trials drawn, and which row a mark is of.

SELECTED = "selected"
"""The parameter of a live chart that holds the mark of the selected row."""
SELECTED_INK = "#e6007a"
"""Its colour, which no scheme, time or difference has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What all charts of trials are drawn with."""

    scale: str = LINEAR
    """LOGARITHMIC or LINEAR, see `relative.scale_of`."""
    runs: tuple[str, ...] = ()
    """The names of several runs, whose marks differ in shape; empty where one is drawn."""


PLAIN = Look()


def marked(record: dict[str, Any], row: Row) -> dict[str, Any]:
    """*record* with what names its row: the column `mark` of *row* and, of several runs, its run, which has the entry
    `run_name` in the legend."""
    named, entry = {**record, "mark": row.get("mark")}, row.get("run_name")
    if entry is None:
        return named
    look, run = str(record["look"]), str(row["run"])
    return {**named, "run": run, "form": entry if look in SOURCE_LOOKS else look,
            "aloud": f"{record['aloud']}; run {run}"}  # fmt: skip


def groups(fields: Sequence[str], time: TimeAxis) -> list[str]:
    """*fields* of a window's groups; several runs are groups of their own."""
    return [*fields, *(["run"] if time.runs else [])]


def form(time: TimeAxis, looks: Sequence[str]) -> alt.Shape:
    """Shape by the source of a time; of several runs by the run."""
    others = [look for look in looks if look not in SOURCE_LOOKS]
    return run_shape(time.runs, others) if time.runs else shape(looks=looks)


def ring(time: TimeAxis, which: str = "true", y: Any = None) -> alt.Chart:
    """A ring around the mark of the selected row, which the page names by the parameter SELECTED."""
    at = f"isValid(datum.mark) && datum.mark === {SELECTED} && {which}"
    chosen = alt.Chart(name="selected").transform_filter(at).mark_point(shape="circle", size=380, aria=False)
    return chosen.encode(
        y=time.y("time") if y is None else y, stroke=alt.value(SELECTED_INK), strokeWidth=alt.value(2.5)
    )


def selectable(chart: alt.LayerChart) -> alt.LayerChart:
    """*chart* with the parameter SELECTED, which no mark has yet."""
    return chart.add_params(alt.param(name=SELECTED, value=""))


# The first row of a group, which the page picks while rows arrive, so that no row is sent twice.


def order(fields: Sequence[str]) -> list[Any]:
    """Sort fields of a window transform; a minus before a field means descending order."""
    return [
        alt.SortField(field.removeprefix("-"), order="descending" if field.startswith("-") else "ascending")
        for field in fields
    ]


def first(chart: alt.Chart, by: Sequence[str], groups: Sequence[str] = ()) -> alt.Chart:
    """*chart* with only the first row in the order *by*, or the first row of each of *groups*."""
    ranked = chart.transform_window(place="row_number()", sort=order(by), groupby=list(groups))
    return ranked.transform_filter("datum.place === 1")


def table(records: Sequence[Row], columns: Sequence[str]) -> pd.DataFrame:
    """*records* as a frame with at least *columns*, for a chart that must know them without any record."""
    more = dict.fromkeys(name for record in records for name in record)
    return pd.DataFrame(records, columns=list(dict.fromkeys([*columns, *more])))


# Trials that are being timed: hollow marks of the scheme's colour at the running median, replaced at every tick.

DATASET = "running"


def rows(
    running: Sequence[Row],
    numbers: MutableMapping[str, int],
    axis: str | None = None,
    baseline: Pinned | None = None,
) -> list[dict[str, Any]]:
    """One record per whole trial that is being timed, or was stopped; *numbers* (by key) or *axis* place it."""
    return [against(_record(row, numbers, axis), row, baseline) for row in running if is_whole(row)]


def progress_text(row: Row) -> str:
    """`running, 7 of 20 samples`, or `stopped after 7 of 20 samples`."""
    count = f"{row['samples']} of {row['due']}" if row.get("due") else str(row["samples"])
    return f"stopped after {count} samples" if row["stopped"] else f"running, {count} samples"


def _record(row: Row, numbers: MutableMapping[str, int], axis: str | None) -> dict[str, Any]:
    number = numbers.setdefault(str(row["key"]), len(numbers) + 1)
    shown = facts(row) | {"source": progress_text(row), "verified": "yes, before the clock started"}
    return shown | {
        "key": row["key"], "scheme": row["scheme"], "place": number, "number": number, "stopped": bool(row["stopped"]),
        "value": axis_value(row, axis) if axis else None, "time_ms": milliseconds(row["time_s"]),
        "low_ms": milliseconds(row["low_s"]), "high_ms": milliseconds(row["high_s"]),
        "aloud": f"{shown['schedule']}: {shown['time']}, {shown['source']}",
    }  # fmt: skip


def layers(time: TimeAxis, schemes: Sequence[str], place: str) -> list[alt.Chart]:
    """The layers of the dataset `DATASET`: an interval and a mark for each running trial."""
    stroke = scheme(alt.Stroke, schemes)
    running = alt.Chart(alt.NamedData(DATASET)).transform_filter(f"isValid(datum.{place})")
    spread = running.transform_filter(time.known("low")).mark_rule(opacity=0.35, strokeWidth=5, aria=False)
    # with a shape from the theme, a point would add a legend entry that most runs never show
    shape = alt.condition("datum.stopped", alt.value("square"), alt.value("triangle-right"))
    marks = running.mark_point(filled=False, fillOpacity=0, strokeWidth=2, size=90)
    return [
        spread.encode(y=time.y("low"), y2=f"{time.column('high')}:Q", stroke=stroke).properties(name="running_spread"),
        marks.encode(y=time.y("time"), stroke=stroke, shape=shape, **tooltip_and_description(time.facts)).properties(
            name="running"
        ),
    ]
