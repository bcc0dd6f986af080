"""Tables of outcomes on a page: pressed headings sort them, and each scrolls in a box of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from workbench.reports.tables import Table


@dataclass(frozen=True, slots=True)
class Part:
    """One table, what it is about, and what follows from it."""

    table: Table
    title: str = ""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As the browser gets it."""
        table = self.table
        columns = [
            {"heading": column.heading, "figure": column.figure, "descends": column.descends}
            for column in table.columns
        ]
        rows = [
            {
                "best": number == table.best,
                "cells": [
                    {"text": cell.text, "aside": cell.aside, "share": cell.share, "badge": cell.badge,
                     "order": cell.text if not column.figure else cell.order}
                    for column, cell in zip(table.columns, row, strict=True)
                ],
            }
            for number, row in enumerate(table.rows)
        ]  # fmt: skip
        return {"title": self.title, "note": self.note, "columns": columns, "rows": rows, "sorted": table.sorted_by}


class OutcomeView(anywidget.AnyWidget):
    """Shows `Part`s one below the other."""

    _esm = Path(__file__).parent / "outcome_view.js"
    _css = Path(__file__).parent / "outcome_view.css"
    parts: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def show(self, parts: Sequence[Part]) -> None:
        """These instead of what was shown; how a person sorted a table of the same title stays."""
        self.parts = [part.to_json() for part in parts]

    @property
    def text(self) -> str:
        """All words, for tests and for who searches."""
        lines = [[cell["text"], cell["aside"], cell["badge"]] for part in self.parts for row in part["rows"]
                 for cell in row["cells"]]  # fmt: skip
        return "\n".join(" ".join(filter(None, line)) for line in lines)
