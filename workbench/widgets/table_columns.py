"""The columns of the table: their titles, what they mean, and how a value is written in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.units import bytes_text, percent_text
from workbench.charts.labels import in_one_unit, link_label
from workbench.naming import axis_title, operator_title, shape_title, source_title, value_title
from workbench.results.columns import Frame, Numbers, Texts, number_text
from workbench.widgets.row_grid import GridColumn

SECONDS, RATIO, SHARE, BYTES, COUNT = "seconds", "ratio", "share", "bytes", "count"
"""How numbers are written."""


@dataclass(frozen=True, slots=True)
class About:
    """A column that is no axis: its title, what it means, and how its numbers are written."""

    title: str
    tip: str
    kind: str = COUNT


ABOUT: Mapping[str, About] = {
    "time_s": About("Time", "Median of the slowest rank; of an estimate, its value", SECONDS),
    "speedup": About("Speedup", "Time of the fastest sequential schedule of the same block over this time", RATIO),
    "over_floor": About("Over floor", "Time over the floor, below which no schedule can be", RATIO),
    "floor_s": About("Floor", "No schedule is faster", SECONDS),
    "sequential_s": About("Sequential", "The fastest sequential schedule of the same block", SECONDS),
    "compute_s": About("Compute alone", "The computation by itself", SECONDS),
    "comm_s": About("Comm. alone", "The communication by itself", SECONDS),
    "skew_s": About("Skew", "How much later the last rank ends than the first", SECONDS),
    "share_of_ideal": About("Share of ideal", "Share of the possible gain that was reached", SHARE),
    "overlap_ratio": About("Overlap", "Share of the shorter part that was hidden", SHARE),
    "others_share": About("Others", "Share of the cores that others used meanwhile", SHARE),
    "wire_bytes_per_rank": About("Bytes on the wire", "Sent by each rank", BYTES),
    "samples": About("Samples", "Timed iterations"),
    "world": About("Ranks", "Ranks of the problem"),
    "source": About("Source", "Filled marks were timed, hollow ones are estimated"),
    "scheme": About("Scheme", "Kind of overlap"),
    "operator": About("Operator", "Computation and collective"),
    "run": About("Run", "The run that timed it"),
    "block": About("Block", "Schedules of one block were timed in turns"),
    "stage": About("Failed", "The stage at which a trial failed"),
    "machine": About("Machine", "Description of the machine"),
    "fabric": About("Link", "How ranks are linked"),
    "protocol": About("Protocol", "How it was timed"),
    "regime": About("Regime", "Whether the power cap decided the clock: burst, steady or unknown"),
    "dtype": About("Type", "Type of the numbers"),
    "backend": About("Backend", "What executed it"),
    "tile_rows": About("Tile rows", "Rows of the output that a CTA computes at a time"),
    "tile_columns": About("Tile columns", "Columns of the output that a CTA computes at a time"),
    "tile_depth": About("Tile depth", "Contraction that a CTA reads at a time"),
}
ALWAYS = ("source", "scheme", "time_s")
"""Columns that are shown whether they vary or not."""
SELDOM = ("block", "samples", "skew_s", "floor_s", "sequential_s", "compute_s", "comm_s", "wire_bytes_per_rank",
          "others_share", "share_of_ideal", "overlap_ratio", "machine", "backend", "fabric", "regime")  # fmt: skip
"""Columns that are shown only where a person chose them."""
WIDTH_MOST = 22
"""In characters; what is longer is cut, and whole in its cell's text."""

NUMBER_WIDTH = 7
"""Least width of a column of numbers, so that new rows seldom make one wider."""

Write = Callable[[int], str]


def title_of(name: str) -> str:
    """The title of column *name*."""
    known = ABOUT.get(name)
    return known.title if known else axis_title(name) if axis_title(name) != name else shape_title(name)


def automatic(frame: Frame) -> tuple[str, ...]:
    """The columns that are shown where a person chose none: source and time, then axes that vary, then the rest."""
    varying = [name for name in frame.varying if name not in (*ALWAYS, *SELDOM)]
    axes = [name for name in varying if name in frame.axes]
    numbers = [name for name in ("speedup", "over_floor") if name in varying]
    others = [name for name in varying if name not in (*axes, *numbers)]
    return ("source", "time_s", *numbers, "scheme", *axes, *others)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of the grid, and what writes the cell of a row."""

    shown: GridColumn
    write: Write


def table_column(frame: Frame, name: str) -> TableColumn:
    """Column *name* of *frame*; numbers of one column share their unit."""
    column, about = frame.columns[name], ABOUT.get(name)
    tip = about.tip if about else ""
    if isinstance(column, Texts):
        texts = [_written(name, text) for text in column.texts]
        shown = GridColumn(name=name, title=title_of(name), tip=tip, width=_width(title_of(name), texts))
        return TableColumn(shown, lambda place: texts[code] if (code := int(column.codes[place])) >= 0 else "")
    write, unit = _number_writer(column, about.kind if about else COUNT)
    title = ", ".join(filter(None, (title_of(name), unit)))
    present = column[~np.isnan(column)]
    ends = [write(value) for value in (present.min(), present.max())] if len(present) else []
    width = max(NUMBER_WIDTH, _width(title, ends))
    shown = GridColumn(name=name, title=title, tip=tip, is_number=True, width=width)
    return TableColumn(shown, lambda place: "" if np.isnan(value := column[place]) else write(float(value)))


def _written(name: str, text: str) -> str:
    """A text of column *name* as people read it."""
    if name == "source":
        return source_title(text)
    if name == "operator":
        return operator_title(text)
    if name == "fabric":
        return link_label(text)
    return text if name in ABOUT else value_title(text)


def _width(title: str, cells: Sequence[str]) -> int:
    # a title takes two lines where that makes it narrower
    words = max(len(title) // 2 + 2, *(len(word) for word in title.split()))
    return min(WIDTH_MOST, max(words + 2, *(len(cell) for cell in cells), 4))


def _number_writer(column: Numbers, kind: str) -> tuple[Callable[[float], str], str]:
    """What writes the numbers of a column, and their unit if it is in the title."""
    if kind == SECONDS:
        present = column[~np.isnan(column)]
        factor, unit = in_one_unit([1e3 * float(np.median(present))] if len(present) else [])
        return lambda value: f"{1e3 * value * factor:,.4g}" if 1e3 * value * factor < 1000 else (
            f"{1e3 * value * factor:,.0f}"), unit  # fmt: skip
    if kind == RATIO:
        return lambda value: f"{value:.2f}x", ""
    if kind == SHARE:
        return percent_text, ""
    if kind == BYTES:
        return bytes_text, ""
    return number_text, ""
