"""Published numbers: results of papers with version, section, machine and baseline; none are ours.

`data/published.csv` has one row for each number. Only numbers that were read in a paper's own abstract are *verified*.
The others are from secondary notes, and every output marks them as unverified.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from kernels import files
from kernels.operators import OPERATORS
from kernels.schemes import SCHEMES
from workbench.naming import PUBLISHED
from workbench.resources import data_directory

UNITS = {"percent": "{:g} %", "x": "{:g}x", "ratio": "{:g}", "count": "{:g}", "holds": "it holds"}
"""Format of a value by unit."""
REDUCTIONS: Mapping[str, Callable[[float], float]] = {
    "time_reduction": lambda value: value / 100, "speedup": lambda value: 1 - 1 / value,
}  # fmt: skip
"""Saved share of the time as a function of the value, for the metrics that have one."""
TRUTH = {"true": True, "false": False}
KIND = files.TextKind("table of published numbers", "published numbers", "a CSV file as data/published.csv", 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedNumber:
    """A number that a paper reports."""

    id: str
    paper: str
    """Such as `arXiv:2305.06942`."""
    version: str
    section: str
    """Its section; for an unverified number, why it was not looked up."""
    work: str
    """Subject of the paper, in a few words."""
    scope: str
    """Subject of the number."""
    operator: str
    """The operator of ours that it concerns; empty if there are none or several."""
    scheme: str
    """The scheme of ours that it concerns; empty if there is none."""
    metric: str
    aggregate: str
    """`mean`, `max`, `min`, `single`, ...: over the paper's own cases."""
    value: float
    unit: str
    """A key of UNITS."""
    baseline: str
    """The baseline in the paper."""
    machine: str
    verified: bool

    @property
    def number(self) -> str:
        """The value with its unit, such as `22 %`."""
        return UNITS[self.unit].format(self.value)

    @property
    def text(self) -> str:
        """The number with its aggregate, such as `up to 22 %` or `20 % on average`."""
        pattern = {"max": "up to {}", "min": "at least {}", "mean": "{} on average"}.get(self.aggregate, "{}")
        return pattern.format(self.number)

    @property
    def mark(self) -> str:
        """The mark `unverified`, or an empty text."""
        return "" if self.verified else "unverified"

    @property
    def reference(self) -> str:
        """Paper, version and section."""
        return f"{self.paper} ({self.version}), {self.section}"

    @property
    def reduction(self) -> float | None:
        """The share of the time that is saved, if the metric has one: 0.2 for `20 percent`."""
        return self.as_reduction(self.value)

    def as_reduction(self, value: float | None) -> float | None:
        """The `reduction` of another *value* with this metric and unit."""
        convert = REDUCTIONS.get(self.metric)
        return None if value is None or convert is None else convert(value)

    def row(self) -> dict[str, Any]:
        """All fields as a row with source `published`, and the reduction."""
        return {**asdict(self), "source": PUBLISHED, "reduction": self.reduction}


COLUMNS = tuple(field.name for field in fields(PublishedNumber))


def published(path: Path | None = None) -> tuple[PublishedNumber, ...]:
    """Every number of *path* (default: the shipped table); ValueError names the wrong line."""
    place = path or data_directory() / "published.csv"
    return _read(place, files.text(place, KIND))


def number(name: str) -> PublishedNumber:
    """The number with id *name*; ValueError lists the ids."""
    known = {each.id: each for each in published()}
    if name not in known:
        raise ValueError(f"There is no published number {name!r}. Accepted: {', '.join(known)}.")
    return known[name]


@lru_cache(maxsize=8)
def _read(path: Path, content: str) -> tuple[PublishedNumber, ...]:
    lines = csv.reader(io.StringIO(content))
    header = next(lines, [])
    if tuple(header) != COLUMNS:
        raise KIND.unreadable(path, f"its first line has the columns {', '.join(header) or 'none'}, and the "
                                    f"{len(COLUMNS)} columns {', '.join(COLUMNS)} are needed")  # fmt: skip
    numbers: dict[str, PublishedNumber] = {}
    for cells in lines:
        try:
            entry = _number(cells)
            if entry.id in numbers:
                raise ValueError(f"its id {entry.id} is in the table already, and 1 row may have it")
        except ValueError as error:
            raise KIND.unreadable(path, f"line {lines.line_num}: {error}") from None
        numbers[entry.id] = entry
    return tuple(numbers.values())


def _number(cells: list[str]) -> PublishedNumber:
    """The number of one line; ValueError says what is wrong."""
    if len(cells) != len(COLUMNS):
        raise ValueError(f"it has {len(cells)} cells, and {len(COLUMNS)} are needed")
    row: Mapping[str, str] = dict(zip(COLUMNS, cells, strict=True))
    empty = [name for name, cell in row.items() if not cell and name not in ("operator", "scheme")]
    if empty:
        raise ValueError(f"its {empty[0]} is empty")
    for name, table in (("operator", OPERATORS), ("scheme", SCHEMES), ("unit", UNITS), ("verified", TRUTH)):
        if row[name] and row[name] not in table:
            raise ValueError(f"its {name} is {row[name]!r}, and one of {', '.join(table)} is needed")
    try:
        value = float(row["value"])
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ValueError(f"its value is {row['value']!r}, and a finite number is needed")
    text_fields = {name: cell for name, cell in row.items() if name not in ("value", "verified")}
    return PublishedNumber(**text_fields, value=value, verified=TRUTH[row["verified"]])
