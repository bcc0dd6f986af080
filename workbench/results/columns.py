"""Rows as columns of numbers and texts: what filters, tables and lines read, a hundred thousand rows at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.schedule import is_tile
from workbench.naming import TILE_SIDES
from workbench.results.rows import Row, tile_sides

Numbers = NDArray[np.float64]
"""A column of numbers; nan where a row has none."""
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]

# A column is numbers or texts.


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """A column of texts: each distinct text once, in the order in which people sort them."""

    texts: tuple[str, ...]
    codes: Places
    """By row, the place of its text in `texts`; -1 where it has none."""

    def __len__(self) -> int:
        return len(self.codes)

    def text(self, place: int) -> str | None:
        """The text of the row at *place*."""
        code = int(self.codes[place])
        return None if code < 0 else self.texts[code]


Column = Numbers | Texts


def texts_of(values: Sequence[Any]) -> Texts:
    """*values* as texts; None stays without a text."""
    given = [None if value is None else str(value) for value in values]
    ordered = sorted({text for text in given if text is not None}, key=sorting_key)
    code = {text: number for number, text in enumerate(ordered)}
    return Texts(tuple(ordered), np.array([-1 if text is None else code[text] for text in given], dtype=np.int64))


@lru_cache(maxsize=65536)
def sorting_key(text: str) -> tuple[tuple[bool, float, str], ...]:
    """A key by which numbers inside of texts are sorted as numbers: 64x32 before 128x32."""
    parts = re.split(r"(\d+)", text)
    return tuple((part.isdigit(), float(part) if part.isdigit() else 0.0, part) for part in parts)


def column_of(values: Sequence[Any]) -> Column:
    """*values* as numbers if none of them is a text, otherwise as texts."""
    if all(value is None or isinstance(value, int | float) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
    return texts_of(values)


def number_text(number: float) -> str:
    """The text of a number of a column, by which it is searched and chosen: `8`, `0.5`."""
    return f"{number:g}" if abs(number) < 1e6 else f"{number:.0f}" if number == int(number) else f"{number:g}"


# Rows as columns.

TEXTS = ("source", "scheme", "run", "operator", "dtype", "backend", "machine", "fabric", "protocol", "regime", "block",
         "stage")  # fmt: skip
"""Columns of texts that every row may have."""
NUMBERS = (
    "time_s", "floor_s", "sequential_s", "compute_s", "comm_s", "world", "wire_bytes_per_rank", "samples", "skew_s",
    "others_share", "share_of_ideal", "overlap_ratio",
)  # fmt: skip
"""Columns of numbers that every row may have."""
DERIVED: Mapping[str, tuple[str, str]] = {"speedup": ("sequential_s", "time_s"), "over_floor": ("time_s", "floor_s")}
"""Columns that are the quotient of two others."""


@dataclass(frozen=True, eq=False)
class Frame:
    """Rows as columns. A row itself is made when somebody reads it."""

    columns: Mapping[str, Column]
    row: Callable[[int], Row]
    """The row at a place."""
    length: int
    axes: frozenset[str] = field(default_factory=frozenset)
    """The columns that are axes of schedules, or sizes of problems; the tile as its sides."""
    parts: tuple[Frame, ...] = ()
    """The frames that this one is made of, whose sorted orders and texts are not made once more."""

    def __len__(self) -> int:
        return self.length

    @cached_property
    def kinds(self) -> Mapping[str, Texts]:
        """The columns that have few distinct values, as texts: those that text is searched in."""
        few = {name: column for name, column in self.columns.items() if isinstance(column, Texts)}
        return few | {name: self._as_texts(name) for name in self.axes - few.keys()}

    def _as_texts(self, name: str) -> Texts:
        if not self.parts:
            return _number_texts(self.columns[name])
        joined = _joined([(part.as_texts(name) if name in part.columns else None, len(part)) for part in self.parts],
                         as_texts=True)  # fmt: skip
        assert isinstance(joined, Texts)
        return joined

    def as_texts(self, name: str) -> Texts:
        """Column *name* as texts; KeyError if there is none."""
        return self.kinds[name] if name in self.kinds else self._as_texts(name)

    @cached_property
    def varying(self) -> tuple[str, ...]:
        """The columns in which rows differ, axes before numbers and texts, the time last."""
        names = [name for name, column in self.columns.items() if name != "time_s" and _varies(column)]
        return (*sorted(names, key=lambda name: name not in self.axes), "time_s")

    @cached_property
    def _orders(self) -> dict[tuple[str, bool], Places]:
        return {}

    def order(self, name: str, descending: bool = False) -> Places:
        """The places of rows sorted by column *name*; rows without a value are last, and equal ones stay in order."""
        if name not in self.columns:
            return np.arange(self.length)
        key = name, descending
        if key not in self._orders:
            self._orders[key] = self._sorted(name, descending)
        return self._orders[key]

    def _sorted(self, name: str, descending: bool) -> Places:
        """The order of column *name*; sorted orders of parts are merged, equal rows of earlier ones first."""
        values = _sorting_values(self.columns[name], descending)
        is_texts = isinstance(self.columns[name], Texts)
        alike = all(isinstance(part.columns[name], Texts) == is_texts for part in self.parts if name in part.columns)
        if not self.parts or not alike:
            return np.argsort(values, kind="stable")
        merged, start = np.zeros(0, dtype=np.int64), 0
        for part in self.parts:
            more = start + part.order(name, descending)
            merged = np.insert(merged, np.searchsorted(values[merged], values[more], side="right"), more)
            start += len(part)
        return merged


def _number_texts(column: Column) -> Texts:
    if isinstance(column, Texts):
        return column
    distinct, codes = np.unique(column[~np.isnan(column)], return_inverse=True)
    every = np.full(len(column), -1, dtype=np.int64)
    every[~np.isnan(column)] = codes
    return Texts(tuple(map(number_text, distinct.tolist())), every)


def _varies(column: Column) -> bool:
    values = column.codes if isinstance(column, Texts) else column
    if len(values) < 2:
        return False
    same = values == values[0]
    if values[0] != values[0]:
        same = np.isnan(values)
    return not bool(same.all())


def _sorting_values(column: Column, descending: bool) -> Numbers:
    """Numbers that ascend in the order of *column*; nan, which is last, where a row has no value."""
    values = column.codes.astype(np.float64) if isinstance(column, Texts) else column.copy()
    if isinstance(column, Texts):
        values[column.codes < 0] = np.nan
    return -values if descending else values  # and not the order backwards: equal rows stay in order, nan stays last


# Rows, or a grid of estimates, become a frame; frames become one.


def frame_of(rows: Sequence[Row]) -> Frame:
    """*rows* as columns; shape keys and axes are columns of their own."""
    columns: dict[str, Column] = {name: texts_of([row.get(name) for row in rows]) for name in TEXTS}
    columns |= {name: numbers_of([row.get(name) for row in rows]) for name in NUMBERS}
    by_name: dict[str, list[Any]] = {}
    for place, row in enumerate(rows):
        for name, value in {**(row.get("shape") or {}), **with_sides(row.get("axes") or {})}.items():
            if name not in by_name:
                by_name[name] = [None] * len(rows)
            by_name[name][place] = value
    axes = {name: column_of(values) for name, values in by_name.items() if name not in columns}
    return Frame(with_derived(columns | axes), rows.__getitem__, len(rows), frozenset(axes))


def numbers_of(values: Iterable[Any]) -> Numbers:
    """*values* as numbers; what is none is nan."""
    return np.array([value if isinstance(value, int | float) else np.nan for value in values], dtype=np.float64)


def with_sides(axes: Mapping[str, Any]) -> dict[str, Any]:
    """*axes* with the tile as its sides."""
    if not is_tile(axes.get("tile")):
        return dict(axes)
    return {**tile_sides(axes["tile"]), **{name: value for name, value in axes.items() if name != "tile"}}


def with_derived(columns: Mapping[str, Column]) -> dict[str, Column]:
    """*columns* with those that are quotients of two of them."""
    more: dict[str, Column] = {}
    for name, (above, below) in DERIVED.items():
        top, bottom = columns[above], columns[below]
        assert not isinstance(top, Texts)
        assert not isinstance(bottom, Texts)
        more[name] = np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)
    return {**columns, **more}


def grid_frame(same: Row, points: Mapping[str, NDArray[Any]], seconds: Numbers) -> Frame:
    """Estimates of one scheme's points: *same* is in every row, *points* are axes, *seconds* the times.

    Points that are nan are illegal and left out.
    """
    places = np.flatnonzero(np.isfinite(seconds))
    kept = {name: values[places] for name, values in points.items()}
    times, count = seconds[places], len(places)
    columns: dict[str, Column] = {name: repeated_text(same.get(name), count) for name in TEXTS}
    columns |= {name: np.full(count, numbers_of([same.get(name)])[0]) for name in NUMBERS}
    columns["time_s"] = times
    sizes = {name: column_of([value]) for name, value in (same.get("shape") or {}).items()}
    axes = {name: np.full(count, each[0]) if not isinstance(each, Texts) else repeated_text(each.texts[0], count)
            for name, each in sizes.items()}  # fmt: skip
    for name, values in kept.items():
        axes |= _axis_columns(name, values)

    def row(place: int) -> Row:
        return {**same, "axes": {name: values[place].item() for name, values in kept.items()},
                "time_s": float(times[place])}  # fmt: skip

    return Frame(with_derived(columns | axes), row, count, frozenset(axes))


def repeated_text(value: Any, count: int) -> Texts:
    """A column of *count* times the same text, or of none."""
    return Texts(() if value is None else (str(value),), np.full(count, -1 if value is None else 0, dtype=np.int64))


def _axis_columns(name: str, values: NDArray[Any]) -> dict[str, Column]:
    """The axis *name* as a column, or the tile as three."""
    if values.dtype.kind in "iufb":
        return {name: values.astype(np.float64)}
    distinct, codes = np.unique(values, return_inverse=True)
    texts = [str(text) for text in distinct]
    if name == "tile" and all(map(is_tile, texts)):
        sides = np.array([list(tile_sides(text).values()) for text in texts], dtype=np.float64)
        return {side: sides[codes, place] for place, side in enumerate(TILE_SIDES)}
    ordered = sorted(range(len(texts)), key=lambda number: sorting_key(texts[number]))
    rank = np.argsort(np.array(ordered))
    return {name: Texts(tuple(texts[number] for number in ordered), rank[codes].astype(np.int64))}


def together(frames: Sequence[Frame]) -> Frame:
    """The rows of *frames*, one after the other."""
    frames = [each for each in frames if len(each)] or list(frames[:1])
    if len(frames) == 1:
        return frames[0]
    ends = np.cumsum([len(each) for each in frames])
    names = dict.fromkeys(name for each in frames for name in each.columns)

    def row(place: int) -> Row:
        number = int(np.searchsorted(ends, place, side="right"))
        return frames[number].row(place - (int(ends[number - 1]) if number else 0))

    columns = {name: _joined([(each.columns.get(name), len(each)) for each in frames]) for name in names}
    return Frame(columns, row, int(ends[-1]), frozenset().union(*(each.axes for each in frames)), tuple(frames))


def _joined(parts: Sequence[tuple[Column | None, int]], *, as_texts: bool = False) -> Column:
    """Columns of one name one after the other, each with its length; numbers become texts if another part has texts."""
    if not as_texts and not any(isinstance(column, Texts) for column, _ in parts):
        return np.concatenate([np.full(count, np.nan) if column is None else column for column, count in parts])
    texts = [repeated_text(None, count) if column is None else _number_texts(column) for column, count in parts]
    every = sorted({text for each in texts for text in each.texts}, key=sorting_key)
    code = {text: number for number, text in enumerate(every)}
    # the last place is that of rows without a text, which have the code -1
    tables = [np.array([*(code[text] for text in each.texts), -1], dtype=np.int64) for each in texts]
    return Texts(tuple(every), np.concatenate([table[each.codes] for table, each in zip(tables, texts, strict=True)]))
