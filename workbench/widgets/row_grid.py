"""A grid of any number of rows: the browser has the ones in sight, and asks for others while a person scrolls.

DataTables draws it (its Scroller in server-side mode), which comes with itables and needs no network.
"""

from __future__ import annotations

import gzip
import importlib.resources
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anywidget
import traitlets

_LOG = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def library() -> tuple[bytes, str]:
    """DataTables' module, gzipped, and its style sheet."""
    folder = importlib.resources.files("itables") / "html"
    script = gzip.compress((folder / "dt_bundle.js").read_bytes(), mtime=0)
    return script, (folder / "dt_bundle.css").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridColumn:
    """A column that is shown."""

    name: str
    title: str
    tip: str = ""
    """What the number means, shown at the title."""
    is_number: bool = False
    width: int = 8
    """In characters."""
    sorts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """A row that is in sight."""

    id: str
    cells: Sequence[str]
    kind: str = ""
    """A CSS class of its look."""


@dataclass(frozen=True, slots=True)
class GridRows:
    """All rows in order; those in sight are made when they are read."""

    total: int
    between: Callable[[int, int], Sequence[GridRow]]
    """The rows from the first place up to the second, which may be beyond the end."""


FIRST_ROWS = 60
"""Sent with every change, until the browser has said how many fit."""
MOST_ROWS = 1_000
"""No window is higher than this."""


class RowGrid(anywidget.AnyWidget):
    """The widget. `show` gives it other rows; a click, an arrow key and a title are events."""

    _esm = Path(__file__).parent / "row_grid.js"
    _css = Path(__file__).parent / "row_grid.css"
    _library = traitlets.Bytes().tag(sync=True)
    _style = traitlets.Unicode().tag(sync=True)
    _version = traitlets.Unicode().tag(sync=True)
    _columns: Any = traitlets.List().tag(sync=True)
    _order: Any = traitlets.List().tag(sync=True)
    """Name of the column that sorts, and whether it descends."""
    _selected = traitlets.Unicode("").tag(sync=True)
    _label = traitlets.Unicode("").tag(sync=True)

    def __init__(self, label: str) -> None:
        script, style = library()
        super().__init__(_library=script, _style=style, _version=version("itables"), _label=label)
        self.add_class("workbench-row-grid-place")
        self._rows = GridRows(0, lambda start, stop: ())
        self._window = 0, FIRST_ROWS
        self._listeners: dict[str, Callable[..., Any]] = {}
        self.on_msg(self._receive)

    def on_sort(self, listener: Callable[[str, bool], Any]) -> None:
        """Calls *listener* with a column and whether it descends, when a title is pressed."""
        self._listeners["sort"] = listener

    def on_select(self, listener: Callable[[str], Any]) -> None:
        """Calls *listener* with a row's id when it is clicked."""
        self._listeners["select"] = listener

    def on_step(self, listener: Callable[[int], Any]) -> None:
        """Calls *listener* with the number of rows to go, when an arrow key is pressed."""
        self._listeners["step"] = listener

    def show(self, columns: Sequence[GridColumn], order: tuple[str, bool], rows: GridRows, *, hold: bool) -> None:
        """Shows other *rows*. *hold* leaves the scroll where it is; otherwise the first row comes into sight."""
        self._rows = rows
        shown = [asdict(column) for column in columns]
        with self.hold_sync():
            if shown != self._columns:
                self._columns = shown
            if list(order) != self._order:
                self._order = list(order)
        start, length = self._window
        first = min(start, max(0, rows.total - length)) if hold else 0
        self._answer(first, length, {"kind": "fresh", "hold": hold})

    def select(self, row: str | None, place: int | None = None) -> None:
        """Marks the row with this id; a *place* brings it into sight."""
        self._selected = row or ""
        if place is not None:
            self.send({"kind": "reveal", "place": place})

    def _answer(self, start: int, length: int, content: Mapping[str, Any]) -> None:
        rows = [[row.id, row.kind, *row.cells] for row in self._rows.between(start, start + length)]
        self.send({**content, "start": start, "rows": rows, "total": self._rows.total})

    def _receive(self, _: Any, content: Mapping[str, Any], buffers: Any) -> None:
        try:
            match content:
                case {"kind": "window", "start": int(start), "length": int(length), "draw": int(draw)}:
                    self._window = max(0, start), min(max(1, length), MOST_ROWS)
                    self._answer(*self._window, {"kind": "window", "draw": draw})
                case {"kind": "sort", "column": str(column), "descending": bool(descending)}:
                    self._call("sort", column, descending)
                case {"kind": "select", "row": str(row)}:
                    self._call("select", row)
                case {"kind": "step", "by": int(by)}:
                    self._call("step", by)
        except Exception:  # a message of the browser must not end the others
            _LOG.exception("The table could not answer %s.", content.get("kind"))

    def _call(self, name: str, *values: Any) -> None:
        if name in self._listeners:
            self._listeners[name](*values)
