"""Which rows of a table are alike: rows that share all values share one estimate, and are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Problem

# A problem whose sizes are columns: operators and prices ask it as they ask one problem.


class SizedByColumns:
    """Looks like a Problem, but its counts are columns."""

    def __init__(self, problem: Problem, counts: Mapping[str, NDArray[Any]]) -> None:
        self._problem, self._counts = problem, counts
        self.operator, self.world = problem.operator, problem.world
        self.dtype, self.itemsize = problem.dtype, problem.itemsize

    def __getitem__(self, key: str) -> NDArray[Any]:
        return self._counts[key]

    def word(self, key: str) -> str:
        return self._problem.word(key)


# Which rows of a table are alike: rows that share all values share one estimate, and are computed once.

Column = NDArray[Any]
Ints = NDArray[np.int64]

SPARE = 8
"""A table of flags may have so many times as many places as there are rows: it is then faster than sorting."""
FEW = 65536
"""A table of so many places is fast for any number of rows."""
SAMPLE = 1024
"""By so many rows it is judged whether a column's values repeat."""
BLOCK = 8192
CHOICES = 24
"""So many values, of which each row has one, are compared one by one faster than looked up."""
MANY = 2**64
"""Numbers that a hash may be."""


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


def each(columns: Sequence[Any], answer: Callable[..., Any]) -> Column:
    """By row what *answer* says of its values, one argument for each of *columns*; asked once for equal rows.

    Columns are of one length, or single values; where all are single there is one answer.
    """
    narrow = [_once(np.atleast_1d(column)) for column in columns]
    varied = [kinds(column) for column in narrow if len(column) > 1]
    one_of_each, which = rows(varied) if varied else (np.zeros(1, np.int64), np.zeros(1, np.int64))
    values = (np.broadcast_to(column, np.shape(which))[one_of_each].tolist() for column in narrow)
    return np.array([answer(*row) for row in zip(*values, strict=True)])[which]


def repeats(column: Column) -> bool:
    """Whether values of *column* come again and again, as choices do; sizes drawn from a wide range do not."""
    some = column[:: max(1, len(column) // SAMPLE)]
    return len(np.unique(some)) <= len(some) // 4


def groups(columns: Sequence[Kinds]) -> list[Ints]:
    """The rows of each kind, in their order."""
    _, which = rows(columns)
    ordered = np.argsort(which.astype(np.uint16) if which.max() < FEW else which, kind="stable")
    return np.split(ordered, np.cumsum(np.bincount(which))[:-1])


def _once(column: Column) -> Column:
    """A column that repeats one value, as that value."""
    return column[:1] if column.strides == (0,) else column


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
    if column.dtype.kind == "U" and column.dtype.itemsize:
        number, count = _without_gaps(_hashed(column), MANY)
        if _are(column, column[_one_of_each(number, count)], number):  # else two texts have one hash
            return number, count
    levels, number = np.unique(column.astype(str) if column.dtype.kind == "O" else column, return_inverse=True)
    return number, len(levels)


def _are(column: Column, values: Column, which: Ints) -> bool:
    """Whether each row of *column* is that of *values*; by blocks, whose copies stay in the cache."""
    blocks = (slice(start, start + BLOCK) for start in range(0, len(column), BLOCK))
    return all((values[which[block]] == column[block]).all() for block in blocks)


def _hashed(column: Column) -> Ints:
    """A number of each text, the same of equal ones."""
    words = np.ascontiguousarray(column).view(np.uint32).reshape(len(column), -1)
    if words.shape[1] % 2 == 0:
        words = words.view(np.uint64)
    factors = np.random.default_rng(0).integers(1, 2**63, words.shape[1], dtype=np.uint64) | np.uint64(1)
    return (words @ factors).view(np.int64)


def _without_gaps(number: Ints, count: int) -> tuple[Ints, int]:
    """The same numbers, of which there may be *count*, as numbers from 0 that all occur."""
    if count > FEW:
        levels = np.unique(number[:: max(1, len(number) // SAMPLE)])
        if len(levels) <= CHOICES:
            closed = _places(number, levels)
            if (levels[closed] == number).all():  # else the sample lacked some
                return closed, len(levels)
    if count <= max(FEW, SPARE * len(number)):
        taken = np.zeros(count, dtype=bool)
        taken[number] = True
        place = np.cumsum(taken) - 1
        return place[number], int(place[-1]) + 1
    levels, closed = np.unique(number, return_inverse=True)
    return closed, len(levels)


def _places(number: Ints, levels: Ints) -> Ints:
    """By row the last of the ascending *levels* that its number reaches."""
    closed = np.zeros(len(number), dtype=np.uint8)
    for level in levels[1:]:
        closed += number >= level
    return closed.astype(np.int64)
