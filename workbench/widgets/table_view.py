"""The table of all trials and estimates: sorted, filtered and searched, with the lines of its rows above it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import is_
from typing import Any

import ipywidgets
import numpy as np

from workbench.experiment.estimated_space import EstimatedSpace, SpaceQuestion
from workbench.naming import SIGNS
from workbench.results.columns import Frame, Mask, Places, Texts, frame_of, together, with_sides
from workbench.results.filters import kept
from workbench.results.rows import Row
from workbench.widgets.controls import html, marked, note_html
from workbench.widgets.exploration import (
    Brush,
    Choose,
    Dispatch,
    Exploration,
    Scene,
    Select,
    SortBy,
    View,
    estimate_row,
    row_id,
)
from workbench.widgets.filter_bar import FilterBar
from workbench.widgets.latest import Latest
from workbench.widgets.parallel_view import Kept, ParallelLines
from workbench.widgets.row_grid import GridColumn, GridRow, GridRows, RowGrid
from workbench.widgets.table_columns import TableColumn, automatic, table_column, title_of

# Estimates of a space are made once for a question, in a thread.


class SpaceKeeper:
    """The estimates of the newest question; `space` is called while a view is open, and *made* when they are there.

    Until then those of the question before stay, if they are of the same problem: a row that is loaded moves nothing.
    """

    def __init__(self, made: Callable[[], Any]) -> None:
        self._made = made
        self.work = Latest("estimates of a space", self._refuse)
        self._known: dict[Hashable, EstimatedSpace] = {}
        """By key of the question, the last few answers."""
        self._shown: tuple[Hashable, EstimatedSpace] | None = None
        """The problem of the estimates that were given last, and those."""
        self._refused: tuple[Hashable, str] | None = None
        """The question that failed last, and why: it is tried again once there was another one."""
        self._newest: Hashable = None
        self.note = ""

    def space(self, question: SpaceQuestion | None) -> EstimatedSpace | None:
        """The estimates of *question*, or of one before it about the same problem; None where there are none yet."""
        if question is None:
            self.work.forget()
            self._newest = self._refused = None
            return None
        self._newest = key = question.key
        if (known := self._known.get(key)) is not None:
            self.work.forget()
            self.note, self._refused = known.note, None
            self._shown = question.place, known
            return known
        if self._refused is not None and self._refused[0] == key:
            self.note = self._refused[1]
            return None
        self.note, self._refused = ESTIMATING, None
        self.work.ask(key, lambda: (key, question.answer()), self._answered)
        return self._shown[1] if self._shown is not None and self._shown[0] == question.place else None

    def _answered(self, answer: tuple[Hashable, EstimatedSpace]) -> None:
        self._known = dict([*list(self._known.items())[-KEPT_SPACES:], answer])
        self._made()

    def _refuse(self, message: str) -> None:
        self._refused = self._newest, message
        self._made()


ESTIMATING = "Estimating the space …"
KEPT_SPACES = 2
"""Spaces of questions before, to which a person returns."""


# The view.

LEAST_PAUSE_S = 0.8
"""Between two times at which new rows are taken in: with 100,000 estimates that takes a tenth of a second."""

Deltas = Callable[[Scene], Callable[[Row], str]]
"""Makes, of a scene with a baseline, what writes the signed difference of a row to it."""
LINES_LACK = ("run", "block", "speedup", "over_floor")
"""Columns that are no axes of lines: names of runs, and what follows from the time."""
DELTA = GridColumn(name="delta", title="To baseline", tip="Signed difference to the pinned baseline", width=22,
                   sorts=False)  # fmt: skip


class TableView(View):
    """The view `widget`. *deltas* writes differences to a pinned baseline; without it there is no such column."""

    def __init__(self, dispatch: Dispatch, deltas: Deltas | None = None) -> None:
        self._dispatch, self._deltas = dispatch, deltas
        self._scene: Scene | None = None
        self._drawing = threading.RLock()
        """The kernel's thread, that of a run, and that of estimates draw."""
        self._spaces = SpaceKeeper(self._again)
        self._of_rows: tuple[Sequence[Row], Frame, Mapping[str, int]] = ((), frame_of([]), {})
        self._whole: tuple[Frame, EstimatedSpace | None, Frame] | None = None
        self._shown: Places = np.zeros(0, dtype=np.int64)
        """The places of the shown rows, in order."""
        self._next_make = 0.0
        self._timer: threading.Timer | None = None
        self._columns: tuple[Frame | None, tuple[str, ...], list[TableColumn]] = (None, (), [])
        self._drawn = Exploration()
        self.bar = FilterBar(dispatch)
        self.grid = RowGrid("All trials and estimates")
        self.grid.layout = ipywidgets.Layout(flex="1 1 260px", min_height="140px", width="100%", overflow="hidden")
        self.grid.on_sort(lambda name, descending: dispatch(SortBy(name, descending)))
        self.grid.on_select(lambda row: dispatch(Select(row)))
        self.grid.on_step(self._step)
        self.lines = ParallelLines()
        self.lines.on_brush(self._brushed)
        self.lines.on_pick(self._picked)
        self.lines.on_settle(self._again)
        hint = html("wb-lines-hint")
        hint.value = note_html("Lines over all axes, to filter by brush: with Hide timeline.")
        self.widget = marked(ipywidgets.VBox([self.bar.view, hint, self.lines, self.grid]), "wb-table-view")
        self.widget.layout = ipywidgets.Layout(width="100%", height="100%", min_height="320px")

    def draw(self, scene: Scene) -> None:
        """Shows the rows of *scene* that its filters keep."""
        with self._drawing:
            self._scene = scene
            frame, state = self._frame(scene), scene.state
            mask = kept(frame, state.filters)
            order = frame.order(state.sorted_by, state.descending) if state.sorted_by else timed_first(frame)
            self._shown = order[mask[order]]
            self.bar.draw(frame, state, self._counts(frame, mask))
            before, self._drawn = self._drawn, state
            order_of = (before.filters, before.sorted_by, before.descending, before.columns, before.runs)
            hold = order_of == (state.filters, state.sorted_by, state.descending, state.columns, state.runs)
            self.lines.show(frame, mask, line_titles(frame, state.columns), state.filters)
            self._show_rows(frame, scene, hold)
            place = self._place_of(state.selected, frame)
            self.lines.choose(place)
            reveal = self._number_of(place) if before.selected != state.selected else None
            self.grid.select(state.selected, reveal)

    def close(self) -> None:
        """Ends the thread of estimates, and the wait for new rows."""
        self._spaces.work.close()
        with self._drawing:
            if self._timer is not None:
                self._timer.cancel()

    def _again(self) -> None:
        """Estimates have come. The scene is read under the lock: else an older one could replace a newer one."""
        with self._drawing:
            if self._scene is not None:
                self.draw(self._scene)

    def _frame(self, scene: Scene) -> Frame:
        """The listed rows of *scene* and the estimates of its space as one frame; made anew only where they differ."""
        rows, of_rows, _ = self._of_rows
        is_same = len(rows) == len(scene.listed) and all(map(is_, rows, scene.listed))
        if not is_same and self._may_make(scene):
            of_rows, places = frame_of(scene.listed), {row_id(row): place for place, row in enumerate(scene.listed)}
            self._of_rows = tuple(scene.listed), of_rows, places
        space = self._spaces.space(scene.space)
        if self._whole is None or self._whole[0] is not of_rows or self._whole[1] is not space:
            whole = of_rows if space is None else together([of_rows, space.frame])
            self._whole = of_rows, space, whole
        return self._whole[2]

    def _may_make(self, scene: Scene) -> bool:
        """Whether new rows become columns now. While a run brings some all the time, brushes have most of the kernel:
        they are drawn with the rows that are there, and a timer brings the new ones."""
        now = time.monotonic()
        if scene.state.runs != self._drawn.runs or now >= self._next_make:
            self._next_make = now + LEAST_PAUSE_S
            return True
        if self._timer is None:
            self._timer = threading.Timer(self._next_make - now, self._make_late)
            self._timer.daemon = True
            self._timer.start()
        return False

    def _make_late(self) -> None:
        with self._drawing:
            self._timer = None
        self._again()

    def _counts(self, frame: Frame, mask: Mask) -> str:
        """How many rows are kept, of how many, by source."""
        sources = frame.as_texts("source")
        kept_codes = np.bincount(sources.codes[mask & (sources.codes >= 0)], minlength=len(sources.texts))
        by_source = [f"{SIGNS.get(text, '')} {count:,} {text}" for text, count in
                     zip(sources.texts, kept_codes.tolist(), strict=True) if count]  # fmt: skip
        of = f" of {len(frame):,}" if not mask.all() else ""
        note = f" {self._spaces.note}" if self._scene is not None and self._scene.space is not None else ""
        return f"{int(mask.sum()):,}{of} rows: {', '.join(by_source) or 'none'}.{note}"

    def _show_rows(self, frame: Frame, scene: Scene, hold: bool) -> None:
        names = [name for name in scene.state.columns or automatic(frame) if name in frame.columns]
        columns = self._written(frame, tuple(names))
        shown = [column.shown for column in columns]
        delta = self._deltas(scene) if self._deltas is not None and scene.baseline is not None else None
        beyond = names.index("time_s") + 1 if "time_s" in names else len(names)
        if delta is not None:  # next to the time: at the end it would be out of sight
            shown.insert(beyond, DELTA)
        sources, places = frame.as_texts("source"), self._shown

        def between(start: int, stop: int) -> list[GridRow]:
            made = []
            for place in places[start:stop].tolist():
                row = frame.row(place)
                cells = [column.write(place) for column in columns]
                if delta is not None:
                    cells.insert(beyond, delta(row))
                kind = "workbench-estimate" if sources.text(place) == "estimated" else ""
                made.append(GridRow(id=row_id(row), cells=cells, kind=kind))
            return made

        order = scene.state.sorted_by or "time_s", scene.state.descending
        self.grid.show(shown, order, GridRows(len(places), between), hold=hold)

    def _written(self, frame: Frame, names: tuple[str, ...]) -> list[TableColumn]:
        """The columns *names* of *frame*, made once for both."""
        if self._columns[:2] != (frame, names):
            self._columns = frame, names, [table_column(frame, name) for name in names]
        return self._columns[2]

    def _brushed(self, name: str, ends: Kept) -> None:
        """Filters by the brush of an axis."""
        if isinstance(ends, frozenset):
            self._dispatch(Choose(name, ends))
        elif ends is not None:
            self._dispatch(Brush(name, ends))
        else:
            self._dispatch(Brush(name, None))
            self._dispatch(Choose(name, None))

    def _picked(self, place: int) -> None:
        """Selects the row of a line."""
        with self._drawing:
            if self._whole is None or not 0 <= place < len(self._whole[2]):
                return
            chosen = row_id(self._whole[2].row(place))
        self._dispatch(Select(chosen))

    def _step(self, by: int) -> None:
        """Selects the next row in the order that is shown."""
        with self._drawing:
            if self._scene is None or self._whole is None or not len(self._shown):
                return
            frame = self._whole[2]
            at = self._number_of(self._place_of(self._scene.state.selected, frame))
            number = 0 if at is None else min(max(at + by, 0), len(self._shown) - 1)
            chosen = row_id(frame.row(int(self._shown[number])))
        self._dispatch(Select(chosen))

    def _number_of(self, place: int | None) -> int | None:
        """At which place of the shown rows that at *place* of all rows is; None where it is not shown."""
        at = np.flatnonzero(self._shown == (-1 if place is None else place))
        return int(at[0]) if len(at) else None

    def _place_of(self, row: str | None, frame: Frame) -> int | None:
        """The place in *frame* of the row with this id; None where it has none."""
        if row is None:
            return None
        if (place := self._of_rows[2].get(row)) is not None:
            return place
        return place_of_estimate(row, frame, len(self._of_rows[0]))


def timed_first(frame: Frame) -> Places:
    """The places of rows by time, what was timed before estimates: a run would be lost among thousands of them."""
    order, sources = frame.order("time_s"), frame.as_texts("source")
    estimated = sources.texts.index("estimated") if "estimated" in sources.texts else -2
    times = frame.columns["time_s"]
    has_time = times.codes >= 0 if isinstance(times, Texts) else ~np.isnan(times)
    first = (sources.codes != estimated) & has_time
    return np.concatenate([order[first[order]], order[~first[order]]])


def line_titles(frame: Frame, chosen: Sequence[str]) -> dict[str, str]:
    """The axes of lines by column: those of *chosen* that vary, or the automatic ones; the time is last."""
    varying = set(frame.varying)
    names = [name for name in chosen or automatic(frame) if name in varying and name not in LINES_LACK]
    return {name: title_of(name) for name in (*(each for each in names if each != "time_s"), "time_s")}


def place_of_estimate(row: str, frame: Frame, first: int) -> int | None:
    """The place of the estimate with the id *row*, at *first* or after it; None where there is none."""
    if (estimate := estimate_row(row)) is None:
        return None
    mask = np.arange(len(frame)) >= first
    for name, value in {"scheme": estimate["scheme"], **with_sides(estimate["axes"])}.items():
        if name not in frame.columns:
            return None
        column = frame.as_texts(name)
        mask &= column.codes == (column.texts.index(str(value)) if str(value) in column.texts else -2)
    places = np.flatnonzero(mask)
    return int(places[0]) if len(places) else None
