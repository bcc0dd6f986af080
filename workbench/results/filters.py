"""Which rows a person keeps: ranges of numbers, values of words, text, and the fastest few per cent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np

from kernels.units import num_text
from workbench.results.columns import Frame, Mask, Texts

Range = tuple[float, float]
"""Least and most value that is kept, both included, in the column's unit."""
TOP_PERCENT = (0.0, 100.0)
"""A share of the rows is above the first and at most the second."""


def _frozen(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """All of them have to hold: a row outside of one range is left out, whatever the others say."""

    ranges: Mapping[str, Range] = field(default_factory=lambda: _frozen({}))
    """By column of numbers, what is kept. A row without a value is left out."""
    words: Mapping[str, frozenset[str]] = field(default_factory=lambda: _frozen({}))
    """By column of words, the values that are kept, as text."""
    text: str = ""
    """Words that must all occur in the row's text, in any order and case."""
    top_percent: float | None = None
    """The share of the fastest rows that is kept, in per cent of those that pass the rest; None keeps all.

    Estimates have a share of their own, so that their number does not change which times are kept.
    """

    @property
    def active(self) -> bool:
        """Whether any row may be left out."""
        return self != Filters()

    def with_range(self, column: str, kept: Range | None) -> Filters:
        """*column* filtered by *kept*, lower end first; None ends its filter. ValueError if the ends are no numbers."""
        others = {name: each for name, each in self.ranges.items() if name != column}
        if kept is None:
            return replace(self, ranges=_frozen(others))
        low, high = sorted(map(float, kept))
        if not low <= high:
            raise ValueError(f"{column} from {kept[0]} to {kept[1]} is no range. Accepted: two numbers.")
        return replace(self, ranges=_frozen({**others, column: (low, high)}))

    def with_words(self, column: str, kept: frozenset[str] | None) -> Filters:
        """*column* filtered by the values *kept*; None ends its filter."""
        others = {name: each for name, each in self.words.items() if name != column}
        return replace(self, words=_frozen(others if kept is None else {**others, column: kept}))

    def with_top(self, percent: float | None) -> Filters:
        """Only the fastest *percent* of the rows; None keeps all. ValueError unless it is above 0 and at most 100."""
        least, most = TOP_PERCENT
        if percent is not None and not least < percent <= most:
            raise ValueError(f"The fastest {percent:g} % cannot be kept. Accepted: above {least:g}, at most {most:g}.")
        return replace(self, top_percent=percent)

    def to_json(self) -> dict[str, Any]:
        return {
            "ranges": {column: list(each) for column, each in self.ranges.items()},
            "words": {column: sorted(each) for column, each in self.words.items()},
            "text": self.text,
            "top_percent": self.top_percent,
        }

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Filters:
        """The filters that `to_json` wrote; ValueError or TypeError for other content, such as a huge number."""
        try:
            return Filters._from_json(stored)
        except OverflowError:
            raise ValueError("A filter has a number that is too large. Accepted: a finite number.") from None

    @staticmethod
    def _from_json(stored: Mapping[str, Any]) -> Filters:
        filters = Filters(text=str(stored.get("text", "")))
        for column, kept in dict(stored.get("ranges", {})).items():
            low, high = kept
            filters = filters.with_range(str(column), (float(low), float(high)))
        for column, kept in dict(stored.get("words", {})).items():
            filters = filters.with_words(str(column), frozenset(map(str, kept)))
        percent = stored.get("top_percent")
        return filters.with_top(None if percent is None else float(percent))


def left_out_text(left: int, count: int, name: str = "row") -> str:
    """That filters leave out *left* of *count* rows, which people call *name*; empty where they leave out none."""
    return f"The filter leaves out {left:,} of {num_text(count, name)}." if left else ""


# Which rows of a frame are kept.


def kept(frame: Frame, filters: Filters) -> Mask:
    """Whether each row of *frame* is kept. Rows as fast as the last one of the fastest are kept with it."""
    mask = np.ones(len(frame), dtype=np.bool_)
    for name, ends in filters.ranges.items():
        mask &= _in_range(frame, name, ends)
    for name, words in filters.words.items():
        mask &= _is_one_of(frame, name, words)
    for word in filters.text.casefold().split():
        mask &= _has(frame, word)
    if filters.top_percent is not None:
        estimated = _is_one_of(frame, "source", frozenset({"estimated"}))
        fastest = (_among_fastest(frame, mask & kind, filters.top_percent) & kind for kind in (estimated, ~estimated))
        mask &= np.logical_or(*fastest)
    return mask


def _in_range(frame: Frame, name: str, ends: Range) -> Mask:
    column = frame.columns.get(name)
    if column is None or isinstance(column, Texts):
        return np.zeros(len(frame), dtype=np.bool_)
    low, high = ends
    return (column >= low) & (column <= high)


def _is_one_of(frame: Frame, name: str, words: frozenset[str]) -> Mask:
    if name not in frame.columns:
        return np.zeros(len(frame), dtype=np.bool_)
    return _where(frame.as_texts(name), lambda text: text in words)


def _has(frame: Frame, word: str) -> Mask:
    """Whether one of a row's texts has *word* in it, or one of its axes has it as its value."""
    mask = np.zeros(len(frame), dtype=np.bool_)
    for name, column in frame.kinds.items():
        if isinstance(frame.columns[name], Texts):
            mask |= _where(column, lambda text: word in _spoken(text))
        else:
            mask |= _where(column, lambda text: word == text)
    return mask


def _spoken(text: str) -> str:
    """*text* as it is stored and as people see it, in lower case."""
    return f"{text} {text.replace('_', ' ')}".casefold()


def _where(column: Texts, is_kept: Callable[[str], bool]) -> Mask:
    # the last place is that of rows without a text, which have the code -1
    return np.array([*map(is_kept, column.texts), False], dtype=np.bool_)[column.codes]


def _among_fastest(frame: Frame, mask: Mask, percent: float) -> Mask:
    times = frame.columns["time_s"]
    assert not isinstance(times, Texts)
    timed = times[mask & ~np.isnan(times)]
    if not len(timed):
        return np.zeros(len(frame), dtype=np.bool_)
    place = max(1, ceil(len(timed) * percent / 100)) - 1
    return np.asarray(times <= np.partition(timed, place)[place])
