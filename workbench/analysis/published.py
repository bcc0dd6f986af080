"""Published numbers: what papers report, each with its version, section, machine and baseline; nothing of ours.

`data/published.csv` has one row for each number. Only what was read in a paper's own abstract is *verified*; the
rest is from notes of others, and is shown as unverified wherever it is shown.
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
"""The units that a value may have, and how it is written."""
REDUCTIONS: Mapping[str, Callable[[float], float]] = {
    "time_reduction": lambda value: value / 100, "speedup": lambda value: 1 - 1 / value,
}  # fmt: skip
"""The metrics that say a share of the time, and how."""
TRUTH = {"true": True, "false": False}
KIND = files.TextKind("table of published numbers", "published numbers", "a CSV file as data/published.csv", 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedNumber:
    """One number of one paper."""

    id: str
    paper: str
    """`arXiv:2305.06942`."""
    version: str
    section: str
    """Where in the paper it stands; of an unverified one, why nobody looked."""
    work: str
    """What the paper is about, in a few words."""
    scope: str
    """What the number is about."""
    operator: str
    """Our operator of it; empty where there is none, or several."""
    scheme: str
    """Our scheme of it; empty where there is none."""
    metric: str
    aggregate: str
    """`mean`, `max`, `min`, `single`, ...: over the paper's own cases."""
    value: float
    unit: str
    """A key of UNITS."""
    baseline: str
    """What it is compared with there."""
    machine: str
    verified: bool

    @property
    def number(self) -> str:
        """`22 %`."""
        return UNITS[self.unit].format(self.value)

    @property
    def words(self) -> str:
        """`up to 22 %`, `20 % on average`."""
        pattern = {"max": "up to {}", "min": "at least {}", "mean": "{} on average"}.get(self.aggregate, "{}")
        return pattern.format(self.number)

    @property
    def mark(self) -> str:
        """Empty, or `unverified`."""
        return "" if self.verified else "unverified"

    @property
    def reference(self) -> str:
        """Paper, version and section."""
        return f"{self.paper} ({self.version}), {self.section}"

    @property
    def reduction(self) -> float | None:
        """The share of the time that is saved, where the number says one: 0.2 of `20 percent`."""
        return self.as_reduction(self.value)

    def as_reduction(self, value: float | None) -> float | None:
        """The same of a *value* in the unit of this number."""
        way = REDUCTIONS.get(self.metric)
        return None if value is None or way is None else way(value)

    def row(self) -> dict[str, Any]:
        """All of it as a row whose source is `published`, with its reduction."""
        return {**asdict(self), "source": PUBLISHED, "reduction": self.reduction}


COLUMNS = tuple(field.name for field in fields(PublishedNumber))


def published(path: Path | None = None) -> tuple[PublishedNumber, ...]:
    """Every number of *path* (that of the workbench); ValueError names the line that is none."""
    place = path or data_directory() / "published.csv"
    return _read(place, files.text(place, KIND))


def number(name: str) -> PublishedNumber:
    """The number whose id is *name*; ValueError lists them."""
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
            one = _number(cells)
            if one.id in numbers:
                raise ValueError(f"its id {one.id} stands there already, and 1 row may have it")
        except ValueError as error:
            raise KIND.unreadable(path, f"line {lines.line_num}: {error}") from None
        numbers[one.id] = one
    return tuple(numbers.values())


def _number(cells: list[str]) -> PublishedNumber:
    """One line; ValueError says what is wrong with it."""
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
    texts_of_row = {name: cell for name, cell in row.items() if name not in ("value", "verified")}
    return PublishedNumber(**texts_of_row, value=value, verified=TRUTH[row["verified"]])
