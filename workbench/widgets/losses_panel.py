"""Where the time of one trial went, of which trial, and what follows from it; or why that cannot be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets

from kernels.units import seconds_text
from workbench import busy, metrics
from workbench.charts import waterfall
from workbench.reports import stored
from workbench.reports.derived import derived, derived_table
from workbench.store import Store
from workbench.widgets.controls import html
from workbench.widgets.live_chart import LiveChart
from workbench.widgets.live_spec import ready
from workbench.widgets.words import note_html

Row = Mapping[str, Any]


class LossesPanel:
    """`view` is the tab."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shown: tuple[Any, ...] = ()
        self.chart, self.note = LiveChart(ready(waterfall.live)), html("wb-losses-note")
        self.numbers = html("wb-derived")
        self.view = ipywidgets.VBox([self.note, self.chart, self.numbers])

    def begin(self) -> None:
        """Another run: nothing is known of it."""
        self._shown = ()
        self.note.value = self.numbers.value = ""
        self.chart.replace(waterfall.DATASET, [])

    def show(self, run: str, rows: Sequence[Row], row: Row, name: str) -> None:
        """The losses of *row*, which is called *name*; of its run all *rows* are known so far."""
        pieces_s = stored.pieces_alone_s(rows, row)
        row = metrics.completed(row, rows)
        known = (run, row, pieces_s)
        if known == self._shown:
            return
        self._shown = known
        spans = self._store.spans(run, row["key"], row["source"], row.get("block"))
        steps = busy.waterfall(row, spans, pieces_s)
        words = f"{name}: {seconds_text(row['time_s'])}, {row['source']}."
        if steps is None:
            words += (
                " Its computation was not timed alone, so only the floor is known. Load this schedule and run it "
                "by itself to see each part."
            )
        self.note.value = note_html(words)
        parts = {"floor": row["floor_s"]} if steps is None else dict(steps)
        self.chart.replace(waterfall.DATASET, waterfall.rows(parts, row["time_s"], row["source"]))
        numbers = derived(row, spans, pieces_s)
        self.numbers.value = str(derived_table(numbers).to_html()) if numbers else ""
