"""Which rows of a table are alike: rows that share all values share one estimate, and are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
Ints = NDArray[np.int64]

SPARE = 8
"""A table of flags may have so many times as many places as there are rows: it is then faster than sorting."""
FEW = 65536
"""A table of so many places is fast for any number of rows."""
SAMPLE = 1024
"""By so many rows it is judged whether a column's values repeat."""
ASCII = 128


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """A column by its different values."""

    values: Column
    """Each once."""
    which: Ints
    """By row, the number of its value."""


def kinds(column: Column) -> Kinds:
    """The different values of *column*."""
    which, count = _numbers(column)
    one_of_each = _one_of_each(which, count)
    return Kinds(column[one_of_each], which)


def rows(columns: Sequence[Kinds]) -> tuple[Ints, Ints]:
    """Of columns of one length: the place of one row of each kind, and by row which kind it is of."""
    which, count = columns[0].which, len(columns[0].values)
    for column in columns[1:]:
        which, count = which * len(column.values) + column.which, count * len(column.values)
        if count > SPARE * len(which):
            which, count = _without_gaps(which, count)
    which, count = _without_gaps(which, count)
    return _one_of_each(which, count), which


def repeats(column: Column) -> bool:
    """Whether values of *column* come again and again, as choices do; sizes drawn from a wide range do not."""
    some = column[:: max(1, len(column) // SAMPLE)]
    return len(np.unique(some)) <= len(some) // 4


def groups(columns: Sequence[Kinds]) -> list[Ints]:
    """The rows of each kind, in their order."""
    _, which = rows(columns)
    ordered = np.argsort(which.astype(np.uint16) if which.max() < FEW else which, kind="stable")
    return np.split(ordered, np.cumsum(np.bincount(which))[:-1])


def _one_of_each(which: Ints, count: int) -> Ints:
    place = np.empty(count, dtype=np.int64)
    place[which] = np.arange(len(which))
    return place


def _numbers(column: Column) -> tuple[Ints, int]:
    """By row a number from 0 that equal values share, and how many there are."""
    if column.dtype.kind in "iub":
        values = column.astype(np.int64, copy=False)
        least = int(values.min())
        return _without_gaps(values - least, int(values.max()) - least + 1)
    if column.dtype.kind == "U" and (words := _ascii(column)) is not None:
        number, count = _numbers(words[:, 0])
        for word in words.T[1:]:
            more, more_count = _numbers(word)
            number, count = _without_gaps(number * more_count + more, count * more_count)
        return number, count
    levels, number = np.unique(column.astype(str) if column.dtype.kind == "O" else column, return_inverse=True)
    return number, len(levels)


def _ascii(column: Column) -> NDArray[np.int64] | None:
    """[rows, words] texts as numbers of eight characters each; None where one has other characters."""
    characters = np.ascontiguousarray(column).view(np.uint32).reshape(len(column), -1)
    if (characters >= ASCII).any():
        return None
    padded = np.zeros((len(column), -(-characters.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : characters.shape[1]] = characters
    return padded.view(np.int64)


def _without_gaps(number: Ints, count: int) -> tuple[Ints, int]:
    """The same numbers, of which there may be *count*, as numbers from 0 that all occur."""
    if count <= max(FEW, SPARE * len(number)):
        taken = np.zeros(count, dtype=bool)
        taken[number] = True
        place = np.cumsum(taken) - 1
        return place[number], int(place[-1]) + 1
    levels = np.unique(number[:: max(1, len(number) // SAMPLE)])
    closed = np.minimum(np.searchsorted(levels, number), len(levels) - 1)
    if not (levels[closed] == number).all():  # the sample lacked some
        levels, closed = np.unique(number, return_inverse=True)
    return closed, len(levels)
