"""Columns of a table: which rows are equal in all values, so that each distinct row is computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Problem

# A problem whose sizes are columns.


class SizedByColumns:
    """A stand-in for a Problem whose sizes are columns; operators and prices read it as they read one problem."""

    def __init__(self, problem: Problem, counts: Mapping[str, Any]) -> None:
        self._problem, self._counts = problem, counts
        self.operator, self.world = problem.operator, problem.world
        self.dtype, self.itemsize = problem.dtype, problem.itemsize

    def __getitem__(self, key: str) -> Any:
        return self._counts[key]

    def word(self, key: str) -> str:
        return self._problem.word(key)


# A key of caches.


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """A key of caches that is equal for one *value* and no other, however alike.

    A machine's tables take longer to compare than what is cached of them.
    """

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


# Equal rows of a table.

Column = NDArray[Any]
Ints = NDArray[np.int64]

SPARE = 8
"""Most places of a table of flags, per row, with which it is faster than sorting."""
FEW = 65536
"""Places of a table that is fast for any number of rows."""
SAMPLE = 1024
"""Rows by which it is judged whether a column's values repeat."""
BLOCK = 8192
"""Rows compared at once, so that copies stay in the cache."""
CHOICES = 24
"""Most distinct values for which comparing one by one is faster than a look-up."""
TRIES = 2
"""Hashes that are tried for a column: in one, two texts may have the same place."""
PLACE_BITS = 14
"""The bits of a hash that are a place in a table."""
MANY = 2**64
"""How many numbers a hash can be."""


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """A column as its distinct values and their numbers."""

    values: Column
    """The distinct values."""
    which: NDArray[np.integer[Any]]
    """By row, the number of its value; as narrow as they allow."""


def distinct_values(column: Column) -> Kinds:
    """*column* as its distinct values."""
    if (few := _few_texts(column)) is not None:
        return few
    which, count = _numbers(column)
    return Kinds(column[_example_rows(which, count)], which)


def distinct_rows(columns: Sequence[Kinds]) -> tuple[Ints, Ints]:
    """One example row of each kind of row, and by row the number of its kind. *columns* are of one length."""
    which, count = columns[0].which.astype(np.int64), len(columns[0].values)
    for column in columns[1:]:
        which, count = which * len(column.values) + column.which, count * len(column.values)
        if count > SPARE * len(which):
            which, count = _without_gaps(which, count)
    which, count = _without_gaps(which, count)
    return _example_rows(which, count), which


def once_for_equal_rows(columns: Sequence[Any], answer: Callable[..., Any]) -> Column:
    """By row, *answer* of its values, one argument for each of *columns*; called once for equal rows.

    Columns are of one length, or single values; where all are single there is one answer.
    """
    narrow = [_once(np.atleast_1d(column)) for column in columns]
    varied = [distinct_values(column) for column in narrow if len(column) > 1]
    examples, which = distinct_rows(varied) if varied else (np.zeros(1, np.int64), np.zeros(1, np.int64))
    values = (np.broadcast_to(column, np.shape(which))[examples].tolist() for column in narrow)
    return np.array([answer(*row) for row in zip(*values, strict=True)])[which]


def has_repeats(column: Column) -> bool:
    """Whether values of *column* repeat, as choices do; sizes drawn from a wide range do not."""
    sample = column[:: max(1, len(column) // SAMPLE)]
    return len(np.unique(sample)) <= len(sample) // 4


def groups_of_equal_rows(columns: Sequence[Kinds]) -> list[Ints]:
    """The rows of each kind, in their order."""
    _, which = distinct_rows(columns)
    ordered = np.argsort(which.astype(np.uint16) if which.max() < FEW else which, kind="stable")
    return np.split(ordered, np.cumsum(np.bincount(which))[:-1])


def _once(column: Column) -> Column:
    """*column*, shortened to one value if it only repeats that value."""
    return column[:1] if column.strides == (0,) else column


def _example_rows(which: Ints, count: int) -> Ints:
    """The row that is the example of each kind: the last one that has it."""
    place = np.empty(count, dtype=np.int64)
    place[which] = np.arange(len(which))
    return place


def _numbers(column: Column) -> tuple[Ints, int]:
    """By row a number from 0 that equal values share, and how many numbers there are."""
    if column.dtype.kind in "iub":
        values = column.astype(np.int64, copy=False)
        least = int(values.min())
        return _without_gaps(values - least, int(values.max()) - least + 1)
    if column.dtype.kind == "U" and column.dtype.itemsize:
        number, count = _without_gaps(_hashed(column), MANY)
        if _are_equal(column, column[_example_rows(number, count)], number):  # else two texts have one hash
            return number, count
    levels, number = np.unique(column.astype(str) if column.dtype.kind == "O" else column, return_inverse=True)
    return number, len(levels)


def _few_texts(column: Column) -> Kinds | None:
    """*column* as its distinct values, if it has texts, few of them, and a sample has them all; else None.

    A hash of each text is its place in a table. Each row is compared with the text of its place.
    """
    if column.dtype.kind != "U" or not column.dtype.itemsize:
        return None
    codes = _codes(column)
    step, shift = max(1, len(column) // SAMPLE), codes.dtype.type(8 * codes.dtype.itemsize - PLACE_BITS)
    for seed in range(TRIES):
        factors = _factors(seed, codes.shape[1]).astype(codes.dtype)
        places, rows = np.unique((codes[::step] @ factors) >> shift, return_index=True)
        if len(places) > CHOICES:
            return None
        table = np.zeros(2**PLACE_BITS, dtype=np.uint8)
        table[places] = np.arange(len(places))
        values, which = codes[rows * step], np.empty(len(column), dtype=np.uint8)
        for start in range(0, len(column), BLOCK):
            block, numbers = codes[start : start + BLOCK], which[start : start + BLOCK]
            table.take((block @ factors) >> shift, out=numbers, mode="wrap")
            if not np.array_equal(values.take(numbers, 0), block):
                break
        else:
            return Kinds(column[rows * step], which)
    return None


def _are_equal(column: Column, values: Column, which: Ints) -> bool:
    """Whether row i of *column* is values[which[i]]; compared in blocks, whose copies stay in the cache."""
    blocks = (slice(start, start + BLOCK) for start in range(0, len(column), BLOCK))
    return all((values[which[block]] == column[block]).all() for block in blocks)


def _hashed(column: Column) -> Ints:
    """A number for each text; equal texts have equal numbers."""
    codes = _codes(column)
    return (codes @ _factors(0, codes.shape[1])).view(np.int64)


def _codes(column: Column) -> Column:
    """The characters of each text, two as one number where their count is even."""
    codes = np.ascontiguousarray(column).view(np.uint32).reshape(len(column), -1)
    return codes.view(np.uint64) if codes.shape[1] % 2 == 0 else codes


@lru_cache(maxsize=256)
def _factors(seed: int, count: int) -> Column:
    """*count* odd numbers: the factors of a hash."""
    return np.random.default_rng(seed).integers(1, 2**63, count, dtype=np.uint64) | np.uint64(1)


def _without_gaps(number: Ints, count: int) -> tuple[Ints, int]:
    """*number*, below *count*, renumbered from 0 without gaps; and how many numbers there are."""
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
    """By row, the place of the last of the ascending *levels* that its number reaches."""
    closed = np.zeros(len(number), dtype=np.uint8)
    for level in levels[1:]:
        closed += number >= level
    return closed.astype(np.int64)
