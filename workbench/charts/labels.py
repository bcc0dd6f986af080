"""Text for people about rows: times with units, schedules, sources, links, and titles that distinguish problems."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import altair as alt
import pandas as pd

from kernels.fabric import kind_and_numbers
from kernels.schedule import Refusal, is_tile
from kernels.trial import protocol_text
from kernels.units import rate_text, seconds_text
from workbench.naming import PUBLISHED, TILE_SIDES, TIMED, operator_title, schedule_title, shape_title, value_title
from workbench.results.rows import Key, Row, tile_sides

# Times with units, in Python and in Vega expressions: the values decide between ns, µs, ms and s.

UNITS = ((1e-3, 1e6, "ns"), (1.0, 1e3, "µs"), (1e3, 1.0, "ms"))
"""Upper limit in milliseconds, factor and name of each unit below seconds."""
SECONDS = (1e-3, "s")
ROUNDED = 0.9995
"""From this share of its limit on, a time has the next unit: 999.7 µs is 1 ms, as in kernels.units."""
TICK_PIXELS = 80
"""Width of one label of a horizontal axis."""
EXTENT_PIXELS = 58
"""Least width of a vertical axis's labels, so that the plot does not move while rows arrive."""


def time_expr(milliseconds: str) -> str:
    """The Vega expression that writes *milliseconds*, itself an expression, with its unit: `'61.2 ms'`."""
    text = f"format({milliseconds} * {SECONDS[0]}, '.3~r') + ' {SECONDS[1]}'"
    for limit, factor, unit in reversed(UNITS):
        scaled = f"format({milliseconds} * {factor:g}, '.3~r') + ' {unit}'"
        text = f"{milliseconds} < {limit * ROUNDED:g} ? {scaled} : {text}"
    return f"({text})"


EXACT, ROUGH = ".6~r", ".3~r"
"""Digits of labels: an axis may be zoomed until its ticks differ in the sixth one."""


def label_expr(scale: str) -> str:
    """The expression for the labels of an axis or legend on *scale*: all have the unit of its largest time."""
    largest = f"max(abs(domain('{scale}')[0]), abs(domain('{scale}')[1]))"
    chosen = f"[{SECONDS[0]}, ' {SECONDS[1]}']"
    for limit, factor, unit in reversed(UNITS):
        chosen = f"{largest} < {limit} ? [{factor:g}, ' {unit}'] : {chosen}"
    return f"datum.value === 0 ? '0' : format(datum.value * ({chosen})[0], '{EXACT}') + ({chosen})[1]"


def in_one_unit(milliseconds: Sequence[float]) -> tuple[float, str]:
    """The factor and the unit for all of *milliseconds*, as `label_expr` chooses them."""
    largest = max(map(abs, milliseconds), default=0.0)
    return next(((factor, unit) for limit, factor, unit in UNITS if largest < limit), SECONDS)


def time_x(field: str, title: str | None, scale: alt.Scale) -> alt.X:
    """A horizontal axis of milliseconds, labelled with units; *title* is needed where the heading names no quantity."""
    axis = alt.Axis(labelExpr=label_expr("x"), tickCount=alt.expr(f"ceil(width / {TICK_PIXELS})"), labelFlush=False)
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=axis)


def time_y(field: str, scale: alt.Scale, title: str = "Time") -> alt.Y:
    """A vertical axis of milliseconds."""
    axis = alt.Axis(labelExpr=label_expr("y"), minExtent=EXTENT_PIXELS)
    return alt.Y(f"{field}:Q", title=title, scale=scale, axis=axis)


def time_legend(**options: Any) -> alt.Legend:
    """The legend of a colour scale of times; of none without a time.

    A scale without a round time in it has its ends for labels, to all their digits.
    """
    known = "isFinite(datum.value) ? "
    label = f"{known}{label_expr('color').replace(EXACT, ROUGH)} : ''"
    return alt.Legend(labelExpr=label, labelOverlap="greedy", labelSeparation=6, **options)


# Facts of a row as text: its time, schedule, source, machine, link and verdict.

Rows: TypeAlias = Sequence[Row] | pd.DataFrame
"""Rows, or a frame of the store, with the columns of kernels.outcome.ROW_KEYS."""

LINE_CHARACTERS = 100
BETWEEN = " · "
CPU_RANKS = "plan executed on CPU ranks"
LINKS = {
    "emulated": "emulated link",
    "shared_memory": "shared memory",
    "network": "network",
    "nvlink": "GPU links",  # of some machines PCI Express or Infinity Fabric
    "shared_gpu": "one shared GPU",
}
VERDICTS = {True: "yes, equal to the reference", False: "no, the result is wrong"}


def listed(rows: Rows) -> list[dict[str, Any]]:
    """*rows* as dictionaries: missing values become None, JSON texts of axes and shape become dictionaries."""
    given: Sequence[Any] = rows.to_dict(orient="records") if isinstance(rows, pd.DataFrame) else rows
    return [{key: _present(key, value) for key, value in row.items()} for row in given]


def _present(key: str, value: Any) -> Any:
    if key in ("axes", "shape") and isinstance(value, str):
        return json.loads(value)
    return None if value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value) else value


def milliseconds(seconds: float | None) -> float | None:
    """*seconds* in milliseconds with six significant digits: more than a screen shows, and short in a message."""
    return None if seconds is None else float(f"{seconds * 1e3:.6g}")


def is_whole(row: Row) -> bool:
    """Whether *row* is about the whole operator, not its computation or its communication alone."""
    return row.get("part") in (None, "whole")


def axis_value(row: Row, axis: str) -> int | str | None:
    """The value of an axis, a side of the tile, a shape key or a column such as `world`; None where *row* has none."""
    if axis in TILE_SIDES:
        size = (row.get("axes") or {}).get("tile")
        return tile_sides(str(size))[axis] if is_tile(size) else None
    for values in (row.get("axes") or {}, row.get("shape") or {}, row):
        if (value := values.get(axis)) is not None:
            return value if isinstance(value, int | str) else str(value)
    return None


def schedule_label(row: Row) -> str:
    """`fused, tiles per slice 8, write staged`."""
    return schedule_title(str(row.get("scheme")), row.get("axes") or {})


def source_label(row: Row) -> str:
    """The source; an uncalibrated estimate is marked as such, and a published number names its paper."""
    source = str(row.get("source"))
    if source == PUBLISHED:
        return ", ".join(filter(None, (source, row.get("paper"), "" if row.get("verified", True) else "unverified")))
    return f"{source}, not calibrated" if source == "estimated" and row.get("calibrated") is False else source


def machine_label(row: Row) -> str:
    """The machine, with a note where the times are of CPU ranks."""
    machine = str(row.get("machine") or "")
    on_cpu = row.get("backend") == "cpu" and row.get("source") in TIMED
    return ", ".join(part for part in (machine, CPU_RANKS if on_cpu else "") if part)


@lru_cache(maxsize=256)
def fabric_label(fabric: str | None) -> str:
    """`emulated link, 533 MB/s, wire : compute = 1` for the text of a Fabric; other texts are returned as they are."""
    try:
        kind, numbers = kind_and_numbers(fabric or "")
    except Refusal:
        return fabric or ""  # not the text of a Fabric
    return ", ".join([LINKS.get(kind, kind), *(_number_text(name, value) for name, value in numbers.items())])


def link_label(fabric: str | None) -> str:
    """The kind of link, its hosts and its wire : compute, without the bandwidth, which depends on the machine."""
    parts = fabric_label(fabric).split(", ")
    return ", ".join([parts[0], *(each for each in parts[1:] if each.startswith(_REQUESTED))])


_REQUESTED = ("wire : compute", "hosts ", "between hosts ")
"""Beginnings of the parts of a link's label that people request."""


def _number_text(name: str, value: float) -> str:
    match name:
        case "bandwidth_bytes_per_second":
            return rate_text(value)
        case "latency_seconds":
            return f"latency {seconds_text(value)}"
        case "message_seconds":
            return f"{seconds_text(value)} per message"
        case "wire_to_compute":
            return f"wire : compute = {value:g}"
        case "hosts":
            return f"hosts = {value:g}"
        case "between_slowdown":
            return f"between hosts 1/{value:g} of the rate"
        case "between_latency_seconds":
            return f"latency between hosts {seconds_text(value)}"
    return f"{name} = {value:g}"


def verdict_text(row: Row) -> str:
    """Whether the result was found equal to the reference before timing, as text."""
    if row.get("source") == PUBLISHED:
        return "does not apply: a published number, neither run nor computed here"
    if row.get("source") == "estimated":
        return "does not apply: simulated, nothing was computed"
    return VERDICTS.get(row.get("correct"), "not stated")  # type: ignore[arg-type]


def time_text(row: Row) -> str:
    """`61.2 ms (60.1 ms to 66.3 ms)`; for a failure its stage and message."""
    if row.get("time_s") is None:
        return f"no time: {row.get('stage') or 'failed'}. {row.get('message') or 'No reason was given.'}"
    low, high = row.get("low_s"), row.get("high_s")
    spread = f" ({seconds_text(low)} to {seconds_text(high)})" if low is not None and high is not None else ""
    return seconds_text(row["time_s"]) + spread


FACTS = ("time", "schedule", "source", "machine", "fabric", "verified")


def facts(row: Row) -> dict[str, str]:
    """The facts of *row* that a tooltip shows, by the names in `FACTS`."""
    texts = (time_text(row), schedule_label(row), source_label(row), machine_label(row),
            fabric_label(row.get("fabric")), verdict_text(row))  # fmt: skip
    return dict(zip(FACTS, texts, strict=True))


def context(rows: Rows) -> str:
    """A subtitle of what all *rows* have in common: operator, sizes, ranks, machine, link."""
    given = listed(rows)
    shapes = [
        ", ".join(f"{shape_title(name)} = {value_title(value)}" for name, value in (row.get("shape") or {}).items())
        for row in given
    ]
    columns = [
        [operator_title(row.get("operator")) for row in given],
        shapes,
        [str(row.get("dtype") or "") for row in given],
        [f"{row['world']} ranks" if row.get("world") else "" for row in given],
        [machine_label(row) for row in given if row.get("source") in TIMED] or [machine_label(row) for row in given],
        [fabric_label(row.get("fabric")).partition(", ")[0] for row in given],
    ]
    return BETWEEN.join(column[0] for column in columns if column and column[0] and len(set(column)) == 1)


def title(question: str, context: str | Sequence[str]) -> alt.TitleParams:
    """The *question* as title with *context* as subtitle, whose lines break between its parts."""
    given = [context] if isinstance(context, str) else context
    lines = [
        line.replace(_KEPT, " ").removesuffix(BETWEEN.rstrip())
        for text in given
        for line in textwrap.wrap(_unbreakable(text), LINE_CHARACTERS)
    ]
    return alt.TitleParams(question, subtitle=lines) if lines else alt.TitleParams(question)


_KEPT = "\N{NO-BREAK SPACE}"


def _unbreakable(text: str) -> str:
    """*text* with no-break spaces inside its short parts, so that lines end only at the dots between parts."""
    parts = text.split(BETWEEN)
    return BETWEEN.join(part.replace(" ", _KEPT) if len(parts) > 1 and len(part) < 60 else part for part in parts)


# Titles that distinguish problems: operator, sizes, ranks, machine, link.


def problem_titles(of: Mapping[Key, Row]) -> dict[Key, str]:
    """Titles by key, from one row *of* each problem: what differs between them, or the sizes of a single one."""
    labels_of = {key: {name: label(row) for name, label in _PROBLEM_LABELS.items()} for key, row in of.items()}
    differing = [name for name in _PROBLEM_LABELS if len({labels[name] for labels in labels_of.values()}) > 1] or [
        "shape"
    ]
    return {key: ", ".join(filter(None, (labels[name] for name in differing))) for key, labels in labels_of.items()}


def _sizes(row: Row) -> str:
    shape = row.get("shape") or {}
    sizes = json.loads(shape) if isinstance(shape, str) else shape
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


_PROBLEM_LABELS: Mapping[str, Callable[[Row], Any]] = {
    "operator": lambda row: operator_title(row.get("operator")),
    "shape": _sizes,
    "dtype": lambda row: str(row.get("dtype") or ""),
    "world": lambda row: f"{row.get('world')} ranks",
    "machine": lambda row: str(row.get("machine") or ""),
    "fabric": lambda row: link_label(row.get("fabric")),
    "protocol": lambda row: protocol_text(row.get("protocol"), row.get("backend")),
}
