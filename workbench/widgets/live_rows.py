"""The rows behind a live chart and the messages that carry them: every row has a number, so a lost one is noticed.

A dataset is a *generation* (a new one begins when its rows are replaced) and the rows number *start* to *end* of it,
the newest `max_rows` of all that were ever added. Rows are kept as the JSON they travel in: encoded once, whatever
happens to the caller's dictionaries later.

    to the browser   {"kind": "rows", "datasets": [Part, ...]}           buffers[i]: the JSON list of part i's rows
    to Python        {"kind": "hello", "have": {name: [generation, end]}}       a page that opens, or missed a message
                     {"kind": "vega"}                                           a page that still waits for Vega
                     {"kind": "click", "datum": {...}, "layer": str, "shift": bool}
                     {"kind": "selection", "name", "type": "point"|"interval", "value", "store"}
"""

from __future__ import annotations

import datetime
import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypedDict

Row: TypeAlias = Mapping[str, Any]


class Part(TypedDict):
    """What one message says about one dataset; the rows themselves are in the buffer at the same position."""

    name: str
    generation: int
    start: int
    """Number of the first row in the buffer. The browser passes over rows that it has."""
    whole: bool
    """Nothing older is kept: the browser misses no row even when its own end lies before *start*."""


class Batch(NamedTuple):
    """Rows that were added together."""

    start: int
    end: int
    encoded: str
    """JSON objects with commas between them."""


@dataclass(slots=True)
class Rows:
    """The newest rows of one dataset, and how many of them the browser has been sent."""

    generation: int
    max_rows: int
    end: int = 0
    sent: int = -1
    """End of what the browser was sent; before anything was, it does not know of this generation."""
    batches: deque[Batch] = field(default_factory=deque)

    @property
    def start(self) -> int:
        """Number of the oldest row kept: up to a batch more than max_rows are."""
        return self.batches[0].start if self.batches else self.end

    def add(self, rows: list[Row]) -> None:
        """Append rows; the oldest make room."""
        encoded = encode(rows[-self.max_rows :])
        end = self.end + len(rows)
        if rows:
            self.batches.append(Batch(max(self.end, end - self.max_rows), end, encoded))
        self.end = end
        while self.batches and self.batches[0].end <= end - self.max_rows:
            self.batches.popleft()

    def since(self, row: int) -> tuple[int, bytes]:
        """The rows kept from number *row* on, or from a little before: the first one's number, and a JSON list."""
        news: list[Batch] = []
        for batch in reversed(self.batches):
            if batch.end <= row:
                break
            news.append(batch)
        encoded = ",".join(batch.encoded for batch in reversed(news))
        return (news[-1].start if news else self.end), f"[{encoded}]".encode()

    def newest(self) -> list[dict[str, Any]]:
        """The newest max_rows rows, as the browser sees them."""
        rows: list[dict[str, Any]] = json.loads(self.since(0)[1])
        return rows[-self.max_rows :]


def message(parts: Iterable[tuple[str, Rows, int]]) -> tuple[dict[str, Any], list[bytes]]:
    """Content and buffers that bring each named dataset's rows from a number on."""
    datasets: list[Part] = []
    buffers: list[bytes] = []
    for name, rows, first in parts:
        start, encoded = rows.since(first)
        datasets.append({"name": name, "generation": rows.generation, "start": start, "whole": start == rows.start})
        buffers.append(encoded)
    return {"kind": "rows", "datasets": datasets}, buffers


def records(rows: Iterable[Row] | Any) -> list[Row]:
    """*rows*, mappings or a pandas DataFrame, as a list of mappings."""
    if hasattr(rows, "to_dict"):
        rows = rows.to_dict(orient="records")
    if isinstance(rows, Mapping):
        raise ValueError("One row came where a list of rows is needed. Accepted: a list, [row].")
    rows = list(rows)
    strange = next((row for row in rows if not isinstance(row, Mapping)), None)
    if strange is not None:
        raise ValueError(f"A row is {strange!r}, a {type(strange).__name__}. Accepted: mappings from column to value.")
    return rows


def encode(rows: list[Row]) -> str:
    """JSON objects with commas between them; what is not a finite number becomes null."""
    try:
        return _STRICT.encode(rows)[1:-1]
    except ValueError:
        # JSON has no infinity and no "not a number"; both mean here that there is nothing to draw
        finite = [{column: _finite(value) for column, value in row.items()} for row in rows]
        return _STRICT.encode(finite)[1:-1]


def _finite(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any) -> Any:
    """A value that JSON does not know, as one that it does and that Vega draws."""
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, datetime.datetime):
        # Vega parses dates while it loads, not when rows are inserted: a temporal axis wants milliseconds
        return value.timestamp() * 1000 if value == value else None
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(
        f"a row holds {value!r}, a {type(value).__name__}; "
        "a live chart draws numbers, text, true and false, None and datetimes: convert it first."
    )


_STRICT = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_plain)
