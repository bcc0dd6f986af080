"""Where the time of one trial went, of which trial, and what follows from it; or why that cannot be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ipywidgets

from kernels.outcome import Span
from kernels.units import seconds_text
from workbench import busy
from workbench.charts import waterfall
from workbench.reports import stored
from workbench.reports.derived import derived, derived_table
from workbench.store import Store
from workbench.widgets.controls import html
from workbench.widgets.live_chart import LiveChart
from workbench.widgets.live_spec import ready
from workbench.widgets.words import note_html

Row = Mapping[str, Any]

FAR = 0.05
"""A timeline that took more or less than this share of the timed calls explains them only so far."""
RUN_IT = "Load this schedule and run it by itself to see each part."


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
        """The losses of *row*, which is called *name* and completed; of its run all *rows* are known so far."""
        pieces_s = stored.pieces_alone_s(rows, row)
        known = (run, row, pieces_s)
        if known == self._shown:
            return
        self._shown = known
        spans = self._store.spans(run, row["key"], row["source"], row.get("block"))
        steps = busy.waterfall(row, spans, pieces_s)
        words = [f"{name}: {seconds_text(row['time_s'])}, {row['source']}.", *_of_timeline(row, spans)]
        self.note.value = note_html(" ".join([*words, *_missing(row, steps or {}, pieces_s)]))
        parts = {"floor": row["floor_s"]} if steps is None else steps
        self.chart.replace(waterfall.DATASET, waterfall.rows(parts, row["time_s"], row["source"]))
        numbers = derived(row, spans, pieces_s)
        self.numbers.value = str(derived_table(numbers).to_html()) if numbers else ""


def _missing(row: Row, parts: Mapping[str, float | None], pieces_s: float | None) -> list[str]:
    """Which losses are not known, why, and what to do where this person can."""
    if not (unknown := busy.unknown(parts)):
        return []
    lacks = ["its computation was not timed alone in its block"] * (pieces_s is None)
    lacks += ["no timeline of it was kept"] * ("fill and drain" in unknown)
    why = f"Not known: {', '.join(unknown)}, since {' and '.join(lacks) or 'its floor is not known'}."
    return [why, RUN_IT] if row["source"] == "measured" else [why]


def _of_timeline(row: Row, spans: Sequence[Span]) -> list[str]:
    """Where the timeline took another time than the timed calls: losses that are read from it are off as far."""
    taken_s = max((span.stop_s for span in busy.per_problem(spans, row)), default=row["time_s"])
    if abs(taken_s / row["time_s"] - 1) < FAR:
        return []
    took = f"Fill and drain and contention are read from its timeline, which took {seconds_text(taken_s)}"
    return [f"{took}: what that differs by is among the unexplained."]
