"""What tells one problem from another, for people: operator, sizes, ranks, machine, link."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import altair as alt
import pandas as pd

from kernels.fabric import kind_and_numbers
from kernels.schedule import Refusal
from kernels.trial import protocol_text
from kernels.units import rate_text, seconds_text
from workbench.naming import PUBLISHED, TIMED, operator_title, schedule_title, shape_title, value_title
from workbench.results.rows import Key

# Times as people read them, on axes and in words that the page writes: the values decide between ns, µs, ms and s.

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


# What a chart says of a row: milliseconds, and its schedule, source, link and verdict in words.

Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = Sequence[Row] | pd.DataFrame
"""A frame of the store, or rows; with the columns of kernels.outcome.ROW_KEYS."""

LINE_CHARACTERS = 100
BETWEEN = " · "
CPU_RANKS = "plan executed on CPU ranks"
LINKS = {
    "emulated": "emulated link",
    "shared_memory": "shared memory",
    "network": "network",
    "nvlink": "NVLink",
}
VERDICTS = {True: "yes, equal to the reference", False: "no, the result is wrong"}


def listed(rows: Rows) -> list[dict[str, Any]]:
    """*rows* as dictionaries in which what is missing is None, and axes and shape are dictionaries again."""
    given: Sequence[Any] = rows.to_dict(orient="records") if isinstance(rows, pd.DataFrame) else rows
    return [{key: _present(key, value) for key, value in row.items()} for row in given]


def _present(key: str, value: Any) -> Any:
    if key in ("axes", "shape") and isinstance(value, str):
        return json.loads(value)
    return None if value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value) else value


def milliseconds(seconds: float | None) -> float | None:
    """To six significant digits: more than any screen shows, and short on its way to the page."""
    return None if seconds is None else float(f"{seconds * 1e3:.6g}")


def is_whole(row: Row) -> bool:
    """Whether *row* is about the whole operator, not its computation or its communication alone."""
    return row.get("part") in (None, "whole")


def axis_value(row: Row, axis: str) -> int | str | None:
    """The value of an axis, a shape key or a column such as `world` or `scheme`; None where *row* has none."""
    for values in (row.get("axes") or {}, row.get("shape") or {}, row):
        if (value := values.get(axis)) is not None:
            return value if isinstance(value, int | str) else str(value)
    return None


def schedule_words(row: Row) -> str:
    """`fused, tiles per slice 8, write staged`."""
    return schedule_title(str(row.get("scheme")), row.get("axes") or {})


def source_words(row: Row) -> str:
    """The source; an estimate without calibration says so, and a published number names its paper."""
    source = str(row.get("source"))
    if source == PUBLISHED:
        return ", ".join(filter(None, (source, row.get("paper"), "" if row.get("verified", True) else "unverified")))
    return f"{source}, not calibrated" if source == "estimated" and row.get("calibrated") is False else source


def machine_words(row: Row) -> str:
    """The machine; times of CPU ranks are never shown without saying so."""
    machine = str(row.get("machine") or "")
    on_cpu = row.get("backend") == "cpu" and row.get("source") in TIMED
    return ", ".join(part for part in (machine, CPU_RANKS if on_cpu else "") if part)


@lru_cache(maxsize=256)
def fabric_words(fabric: str | None) -> str:
    """`emulated link, 533 MB/s, wire : compute = 1` for what a Fabric writes of itself."""
    try:
        kind, numbers = kind_and_numbers(fabric or "")
    except Refusal:
        return fabric or ""  # written by someone else: shown as it is
    return ", ".join([LINKS.get(kind, kind), *(_number_words(name, value) for name, value in numbers.items())])


def link_words(fabric: str | None) -> str:
    """The kind of link, its hosts and its wire : compute; the bandwidth that follows is a matter of the machine."""
    words = fabric_words(fabric).split(", ")
    return ", ".join([words[0], *(each for each in words[1:] if each.startswith(_ASKED))])


_ASKED = ("wire : compute", "hosts ", "between hosts ")
"""How the words begin of what people ask of a link."""


def _number_words(name: str, value: float) -> str:
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


def verdict_words(row: Row) -> str:
    """Whether the result was compared with the reference before the clock started."""
    if row.get("source") == PUBLISHED:
        return "does not apply: a paper's number, neither run nor computed here"
    if row.get("source") == "estimated":
        return "does not apply: simulated, nothing was computed"
    return VERDICTS.get(row.get("correct"), "not stated")  # type: ignore[arg-type]


def time_words(row: Row) -> str:
    """`61.2 ms (60.1 ms to 66.3 ms)`; of a failure its stage and sentence."""
    if row.get("time_s") is None:
        return f"no time: {row.get('stage') or 'failed'}. {row.get('message') or 'No reason was given.'}"
    low, high = row.get("low_s"), row.get("high_s")
    spread = f" ({seconds_text(low)} to {seconds_text(high)})" if low is not None and high is not None else ""
    return seconds_text(row["time_s"]) + spread


FACTS = ("time", "schedule", "source", "machine", "fabric", "verified")


def facts(row: Row) -> dict[str, str]:
    """What is told of *row* when it is pointed at."""
    texts = (time_words(row), schedule_words(row), source_words(row), machine_words(row),
            fabric_words(row.get("fabric")), verdict_words(row))  # fmt: skip
    return dict(zip(FACTS, texts, strict=True))


def context(rows: Rows) -> str:
    """What all *rows* have in common, for a subtitle: operator, sizes, world, machine, link."""
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
        [machine_words(row) for row in given if row.get("source") in TIMED] or [machine_words(row) for row in given],
        [fabric_words(row.get("fabric")).partition(", ")[0] for row in given],
    ]
    return BETWEEN.join(column[0] for column in columns if column and column[0] and len(set(column)) == 1)


def title(question: str, context: str | Sequence[str]) -> alt.TitleParams:
    """The question as title, and below it the answer's context, broken into lines between its parts."""
    given = [context] if isinstance(context, str) else context
    lines = [
        line.replace(_KEPT, " ").removesuffix(BETWEEN.rstrip())
        for text in given
        for line in textwrap.wrap(_unbreakable(text), LINE_CHARACTERS)
    ]
    return alt.TitleParams(question, subtitle=lines) if lines else alt.TitleParams(question)


_KEPT = "\N{NO-BREAK SPACE}"


def _unbreakable(text: str) -> str:
    """*text* with spaces that end a line only between the parts that dots separate, where these are short."""
    parts = text.split(BETWEEN)
    return BETWEEN.join(part.replace(" ", _KEPT) if len(parts) > 1 and len(part) < 60 else part for part in parts)


# What tells one problem from another, for people: operator, sizes, ranks, machine, link.


def problem_titles(of: Mapping[Key, Row]) -> dict[Key, str]:
    """For each key one row of whose problem is given: what tells that problem from the others. Of one: its sizes."""
    words_of = {key: {name: words(row) for name, words in _WORDS.items()} for key, row in of.items()}
    differing = [name for name in _WORDS if len({words[name] for words in words_of.values()}) > 1] or ["shape"]
    return {key: ", ".join(filter(None, (words[name] for name in differing))) for key, words in words_of.items()}


def _sizes(row: Row) -> str:
    shape = row.get("shape") or {}
    sizes = json.loads(shape) if isinstance(shape, str) else shape
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


_WORDS: Mapping[str, Callable[[Row], Any]] = {
    "operator": lambda row: operator_title(row.get("operator")),
    "shape": _sizes,
    "dtype": lambda row: str(row.get("dtype") or ""),
    "world": lambda row: f"{row.get('world')} ranks",
    "machine": lambda row: str(row.get("machine") or ""),
    "fabric": lambda row: link_words(row.get("fabric")),
    "protocol": lambda row: protocol_text(row.get("protocol"), row.get("backend")),
}
