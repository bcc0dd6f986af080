"""The views of the explorer, one line each: they lie in tabs, and the open one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

from workbench.experiment.estimated_space import SpaceQuestion
from workbench.results import comparison
from workbench.results.columns import Frame, frame_of
from workbench.results.deltas import Pinned
from workbench.results.metrics import Joins
from workbench.results.rows import Row, is_tried_whole
from workbench.results.store import Store
from workbench.widgets.compare_view import CompareView
from workbench.widgets.controls import QuietControls
from workbench.widgets.exploration import Dispatch, Exploration, Explored, OpenView, Scene, View
from workbench.widgets.matters_view import MattersView
from workbench.widgets.panels import ALONG, BEST, LANDSCAPE, LOSSES, SAMPLES, STEP, TRIALS, Panels
from workbench.widgets.results import Results
from workbench.widgets.runs_drawer import RunsDrawer
from workbench.widgets.table_view import TableView
from workbench.widgets.why_view import WhyView

# The table of views.


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewParts:
    """What a view may be made of: where its events go, and the charts of the run."""

    explored: Explored
    panels: Panels
    store: Store
    drawer: RunsDrawer
    saved: ipywidgets.Widget
    """The menu of saved views."""
    outcomes: Results
    """The tables of outcomes."""
    measure_together: Callable[[Sequence[Row]], Any]
    """Times the schedules of rows in turns."""

    @property
    def dispatch(self) -> Dispatch:
        return self.explored.dispatch


@dataclass(frozen=True, slots=True)
class ViewLine:
    """One view: its name in links and saved views, the title of its tab, and what makes it."""

    name: str
    title: str
    make: Callable[[ViewParts], View]


class OutcomesView(View):
    """The tables of outcomes, as a view: of the rows that the filters keep."""

    def __init__(self, results: Results) -> None:
        self._results, self.widget = results, results.table

    def draw(self, scene: Scene) -> None:
        """Shows the rows that *scene* keeps."""
        filters = scene.state.filters
        self._results.keep(scene.kept_names, filters)


class RunsView(View):
    """The drawer of stored runs below the menu of saved views, as a view."""

    def __init__(self, drawer: RunsDrawer, saved: ipywidgets.Widget) -> None:
        self._drawer, self.widget = drawer, ipywidgets.VBox([saved, drawer.widget])

    def draw(self, scene: Scene) -> None:
        """Marks the runs that are shown."""
        self._drawer.mark(scene.state.runs)


def _differences(scene: Scene) -> Callable[[Row], str]:
    """What writes the signed difference of a row to the baseline; nothing is written where that has no time."""
    if scene.baseline is None or scene.baseline.get("time_s") is None:
        return lambda row: ""
    pinned = Pinned.of(scene.baseline, scene.rows)
    return lambda row: pinned.delta(row).text


def _compare(parts: ViewParts) -> CompareView:
    return CompareView(parts.dispatch, parts.measure_together, lambda run: parts.store.run(run)["provenance"])


class ChartOfRun(View):
    """A chart that is fed with the news of a run (workbench/widgets/panels.py), as a view."""

    def __init__(self, panels: Panels, title: str) -> None:
        self._panels, self._title = panels, title
        self.widget = panels.charts[title]

    def open(self) -> None:
        """Opens the chart, which its run draws."""
        self._panels.open = self._title

    def draw(self, scene: Scene) -> None:
        """Nothing to do: the chart has the same rows."""
        self.open()


def _of_run(name: str, title: str) -> ViewLine:
    return ViewLine(name, title, lambda parts: ChartOfRun(parts.panels, title))


VIEWS: tuple[ViewLine, ...] = (
    ViewLine("table", "Table", lambda parts: TableView(parts.dispatch, _differences)),
    _of_run("trials", TRIALS),
    _of_run("along", ALONG),
    _of_run("landscape", LANDSCAPE),
    ViewLine("matters", "What matters", lambda parts: MattersView(parts.dispatch, parts.panels.landscape.choose)),
    ViewLine("why", "Why", lambda parts: WhyView(parts.dispatch, parts.store)),
    ViewLine("compare", "Compare", _compare),
    ViewLine("outcomes", "Outcomes", lambda parts: OutcomesView(parts.outcomes)),
    _of_run("losses", LOSSES),
    _of_run("samples", SAMPLES),
    _of_run("best", BEST),
    _of_run("step", STEP),
    ViewLine("runs", "Runs, views", lambda parts: RunsView(parts.drawer, parts.saved)),
)
FIRST = "landscape"
"""The view of a page that has run nothing yet."""


class ViewDeck(QuietControls):
    """The tabs of `VIEWS`; which one is open is a part of the page's state. A view is made when it is opened first."""

    def __init__(self, parts: ViewParts, scene: Callable[[], Scene]) -> None:
        self._parts, self._scene = parts, scene
        self._explored, self._panels = parts.explored, parts.panels
        self._made: dict[str, View] = {}
        self._question: object = None
        """The question whose estimates the open view was drawn with."""
        self._places = [ipywidgets.VBox(layout=ipywidgets.Layout(width="100%")) for _ in VIEWS]
        self.tabs = ipywidgets.Tab(self._places, titles=tuple(line.title for line in VIEWS))
        self.tabs.add_class("wb-panels")
        for line, place in zip(VIEWS, self._places, strict=True):
            place.add_class(f"wb-view-{line.name}")
        self.view = ipywidgets.VBox([parts.panels.note, parts.panels.problem.view, self.tabs])
        self.view.add_class("wb-views")
        self.tabs.observe(self._picked, "selected_index")
        self._explored.on_change(self._follow)
        self._open(self.line)

    @property
    def line(self) -> ViewLine:
        """The open view."""
        return line_named(self._explored.state.view)

    def view_named(self, name: str) -> View:
        """The view *name*, made now if it was never open."""
        if name not in self._made:
            number, line = next((number, line) for number, line in enumerate(VIEWS) if line.name == name)
            self._made[name] = line.make(self._parts)
            self._places[number].children = (self._made[name].widget,)
        return self._made[name]

    def draw(self) -> None:
        """Draws the open view: rows or state have changed."""
        view = self.view_named(self.line.name)
        if isinstance(view, ChartOfRun):
            view.open()  # its run draws it
        else:
            self._panels.open = ""
            view.draw(self._scene())

    def follow(self, question: object) -> None:
        """Draws the open view again where its estimates are of another *question* than this one."""
        if question != self._question:
            self._question = question
            if not isinstance(self.view_named(self.line.name), ChartOfRun):
                self.draw()

    def close(self) -> None:
        """Ends what the views do in threads."""
        for view in self._made.values():
            view.close()

    def _open(self, line: ViewLine) -> None:
        with self._silently():
            self.tabs.selected_index = VIEWS.index(line)
        self.draw()

    def _picked(self, _: object) -> None:
        if not self._quiet and self.tabs.selected_index is not None:
            self._explored.dispatch(OpenView(VIEWS[self.tabs.selected_index].name))

    def _follow(self, before: Exploration, after: Exploration) -> None:
        if before.view != after.view:
            self._open(self.line)
        else:
            self.draw()


def line_named(name: str) -> ViewLine:
    """The line of the view *name*; of the first view where there is no such view, as in a link of another version."""
    lines = {line.name: line for line in VIEWS}
    return lines.get(name) or lines[FIRST]


# The rows that views read.


class ShownRows:
    """The whole rows of the shown runs: of the page's own run as they come, of others from the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_others: dict[str, list[Row]] = {}
        """By id of a run that has ended, its rows."""
        self._joins = Joins()
        self._own: dict[int, Row] = {}
        self._filled: dict[int, Row] = {}
        """The page's own rows with their derived numbers, by id; without those whose block has had news."""
        self._blocks: dict[object, list[int]] = {}
        """By block, the ids of the page's own rows."""
        self._together: tuple[tuple[str, ...], list[Row]] | None = None
        """The runs that were read last, and their rows; None when news has come."""
        self._listed: tuple[Sequence[Row], Sequence[Row]] | None = None
        """The rows of which one time for each schedule was picked last, and those."""
        self._frame: tuple[Sequence[Row], Frame] | None = None
        """The rows that were made columns of last, and those."""
        self._scene: Scene | None = None
        """The scene that was made last: one event is heard by several who read the same one."""
        self.run: str | None = None
        """The page's own run."""

    def begin(self, run: str | None) -> None:
        """Starts the page's own *run*, which has no rows yet; None: there is none."""
        self.run, self._joins, self._own, self._together = run, Joins(), {}, None
        self._filled, self._blocks = {}, {}
        self._of_others.pop(run or "", None)

    def add(self, rows: Iterable[Row]) -> None:
        """Adds news of the page's own run."""
        for row in rows:
            self._joins.add(row)
            if is_tried_whole(row):
                self._own[row["id"]] = row
                self._blocks.setdefault(row.get("block"), []).append(row["id"])
            for known in self._blocks.get(row.get("block"), ()):
                self._filled.pop(known, None)
            self._together = None

    def settle(self) -> None:
        """Derives all numbers anew: the run has ended, and one block may tell of another."""
        self._filled.clear()
        self._together = None

    def rows(self, runs: Sequence[str]) -> list[Row]:
        """Rows of *runs* with their derived numbers. ValueError if the store has not one of them."""
        if self._together is None or self._together[0] != tuple(runs):
            self._of_others = {run: rows for run, rows in self._of_others.items() if run in runs}
            self._together = tuple(runs), [row for run in runs for row in self._rows_of(run)]
        return self._together[1]

    def scene(self, state: Exploration, space: SpaceQuestion | None) -> Scene:
        """The scene of *state* and *space*: the one of before where nothing in it differs."""
        rows, last = self.rows(state.runs), self._scene
        if last is None or last.rows is not rows or (last.state, last.space) != (state, space):
            self._scene = last = Scene(state, rows, space=space, columns=self._columns, once=self._once)
        return last

    def _once(self, rows: Sequence[Row]) -> Sequence[Row]:
        if self._listed is None or self._listed[0] is not rows:
            self._listed = rows, comparison.once_each_run(rows)
        return self._listed[1]

    def _columns(self, rows: Sequence[Row]) -> Frame:
        if self._frame is None or self._frame[0] is not rows:
            self._frame = rows, frame_of(rows)
        return self._frame[1]

    def _rows_of(self, run: str) -> list[Row]:
        if run == self.run:
            for number, row in self._own.items():
                if number not in self._filled:
                    self._filled[number] = self._joins.completed(row)
            return [self._filled[number] for number in self._own]
        if run not in self._of_others:
            stored = self._store.run(run)["id"]
            joins, rows = Joins(), self._store.rows(stored)
            for row in rows:
                joins.add(row)
            self._of_others[run] = [joins.completed(row) for row in rows if is_tried_whole(row)]
        return self._of_others[run]
