"""The table: what its filters keep, what its events say, and that it follows whatever was selected elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.schedule import Refusal
from tests.widgets.conftest import eventually, row, space_of
from workbench.experiment.estimated_space import EstimatedSpace
from workbench.results.columns import grid_frame
from workbench.results.rows import Row, problem_of
from workbench.widgets.exploration import (
    Brush,
    Choose,
    ClearFilters,
    Exploration,
    Explored,
    KeepTop,
    PinBaseline,
    Scene,
    SearchText,
    Select,
    ShowColumns,
    SortBy,
    row_id,
)
from workbench.widgets.table_view import TableView, place_of_estimate
from workbench.widgets.timeline_view import is_estimate_of

ROWS = [
    row(id=number, key=f"k{number}", time_s=1e-3 * (8 - number), axes={"tile": "32x64x64", "slice_tiles": 2**number})
    for number in range(6)
]


class Space:
    """A question whose answer is made by this test."""

    def __init__(self, answer: Callable[[], EstimatedSpace]) -> None:
        self.key, self.place, self.answer = object(), "one problem", answer


def estimates() -> EstimatedSpace:
    same = {key: value for key, value in row().items() if key not in ("run", "key", "axes", "time_s", "block", "id")}
    points = {"tile": np.array(["32x64x64", "64x64x64"]), "slice_tiles": np.array([4, 8])}
    return EstimatedSpace(grid_frame({**same, "source": "estimated"}, points, np.array([5e-4, 9e-3])), "Two estimates.")


class Page:
    """A table with the state that it follows."""

    def __init__(self, rows: Sequence[Row] = ROWS, **more: Any) -> None:
        self.rows, self.space = list(rows), None
        self.explored = Explored(Exploration(runs=("r",)))
        self.sent: list[Any] = []
        self.view = TableView(self.dispatch, **more)
        self.explored.on_change(lambda before, after: self.draw())
        self.draw()

    def dispatch(self, event: Any) -> None:
        self.sent.append(event)
        self.explored.dispatch(event)

    def draw(self) -> None:
        self.view.draw(Scene(self.explored.state, self.rows, space=self.space))  # type: ignore[arg-type]

    @property
    def shown(self) -> list[str]:
        """The ids of the grid's rows from top to bottom."""
        return [each.id for each in self.view.grid._rows.between(0, 1000)]

    @property
    def cells(self) -> list[list[str]]:
        return [list(each.cells) for each in self.view.grid._rows.between(0, 1000)]

    def column(self, title: str) -> list[str]:
        number = [column["title"] for column in self.view.grid._columns].index(title)
        return [cells[number] for cells in self.cells]

    def say(self, **content: Any) -> None:
        """The browser sends a message of the grid."""
        self.view.grid._receive(None, content, [])


def ids(*numbers: int) -> list[str]:
    return [row_id(ROWS[number]) for number in numbers]


def test_rows_are_sorted_by_time_and_filters_leave_some_out() -> None:
    page = Page()
    assert page.shown == ids(5, 4, 3, 2, 1, 0)
    page.dispatch(Brush("slice_tiles", (2, 8)))
    assert page.shown == ids(3, 2, 1)
    assert "3 of 6 rows" in page.view.bar.counts.value
    page.dispatch(SearchText("8"))
    assert page.shown == ids(3)
    page.dispatch(ClearFilters())
    page.dispatch(KeepTop(34.0))
    assert page.shown == ids(5, 4, 3)
    assert page.view.bar.top.label == "34 %"
    page.view.bar.top.value = 100.0
    assert page.explored.state.filters.top_percent is None
    page.dispatch(KeepTop(34.0))
    page.dispatch(Choose("scheme", frozenset({"decomposed"})))
    assert page.shown == []


def test_what_was_timed_stands_above_estimates_until_somebody_sorts() -> None:
    page = Page([*ROWS, row(key="none", outcome="failure", time_s=None, stage="wrong")])
    page.space = Space(estimates)  # type: ignore[assignment]
    page.draw()
    assert eventually(lambda: len(page.shown) == 9)
    assert page.shown[:6] == ids(5, 4, 3, 2, 1, 0)
    assert [name.startswith("/") for name in page.shown[6:]] == [True, True, False]
    page.dispatch(SortBy("time_s"))
    assert page.shown[0].startswith("/"), "an estimate has the least time"


def test_a_title_sorts_and_the_grid_shows_it() -> None:
    page = Page()
    page.say(kind="sort", column="slice_tiles", descending=False)
    assert page.sent == [SortBy("slice_tiles", False)]
    assert page.shown == ids(0, 1, 2, 3, 4, 5)
    assert page.view.grid._order == ["slice_tiles", False]


def test_columns_are_those_that_vary_until_somebody_chooses() -> None:
    page = Page()
    titles = [column["title"] for column in page.view.grid._columns]
    assert titles[:2] == ["Source", "Time, ms"]
    assert "Tiles per slice" in titles
    assert "Tile rows" not in titles
    page.view.bar.columns.value = ["Tile rows", "Time"]
    assert page.sent == [ShowColumns(("tile_rows", "time_s"))]
    assert page.cells[0] == ["32", "3"]


def test_what_is_selected_elsewhere_is_marked_and_arrows_go_on_from_there() -> None:
    page = Page()
    page.explored.dispatch(Select(row_id(ROWS[3])))
    assert page.view.grid._selected == row_id(ROWS[3])
    assert page.view.lines._chosen == 3
    page.say(kind="step", by=1)
    assert page.explored.state.selected == row_id(ROWS[2])
    page.say(kind="select", row=row_id(ROWS[0]))
    assert page.explored.state.selected == row_id(ROWS[0])
    page.say(kind="step", by=1)  # there is no row below the last one
    assert page.explored.state.selected == row_id(ROWS[0])


def test_a_brush_of_the_lines_filters_and_ends() -> None:
    page = Page()
    receive = page.view.lines._receive
    receive(None, {"kind": "brush", "column": "time_s", "kept": [3e-3, 5.5e-3]}, [])
    assert page.shown == ids(5, 4, 3)
    assert page.view.lines._brushes == {"time_s": [3e-3, 5.5e-3]}
    assert len(page.view.bar.chips.children) == 1
    page.view.bar.chips.children[0].click()
    assert page.view.lines._brushes == {}
    receive(None, {"kind": "brush", "column": "slice_tiles", "kept": [1, 2]}, [])
    receive(None, {"kind": "brush", "column": "slice_tiles", "kept": None}, [])
    assert not page.explored.state.filters.active


def test_a_range_is_typed_with_units_and_a_wrong_one_is_explained() -> None:
    page = Page()
    line = page.view.bar.line
    line.column.value, line.high.value = "time_s", "4.5"
    line.keep.click()
    assert page.shown == ids(5, 4)
    assert page.view.bar.chips.children[0].description == "Time up to 4.5 ms"
    json.dumps(page.explored.state.to_json(), allow_nan=False)
    assert page.explored.state.filters.ranges["time_s"][0] < 0, "a column of differences has numbers below 0"
    line.low.value, line.high.value = "4.5", ""
    line.keep.click()
    assert page.view.bar.chips.children[0].description == "Time from 4.5 ms"
    line.low.value = ""
    line.keep.click()
    assert not page.explored.state.filters.active
    line.high.value = "4.5"
    line.keep.click()
    line.high.value = "soon"
    line.keep.click()
    assert "Accepted: two numbers" in page.view.bar.message.value
    assert page.shown == ids(5, 4)


def test_a_filter_that_ends_is_no_longer_marked_where_it_was_typed() -> None:
    page = Page([*ROWS, {**ROWS[0], "scheme": "sequential", "trial": "another"}])
    bar = page.view.bar
    bar.line.column.value = "scheme"
    bar.line.words.value = (bar.line.words.options[0][1],)
    bar.line.keep.click()
    assert page.explored.state.filters.words["scheme"] == frozenset(bar.line.words.value) != frozenset()
    bar.clear.click()
    assert bar.line.words.value == ()
    bar.line.column.value, bar.line.high.value = "time_s", "4.5"
    bar.line.keep.click()
    bar.chips.children[0].click()
    assert (bar.line.high.value, page.explored.state.filters.active) == ("", False)


def test_new_rows_keep_order_filter_and_scroll() -> None:
    page = Page()
    page.dispatch(Brush("time_s", (1e-3, 6.5e-3)))
    messages: list[Any] = []
    page.view.grid.send = lambda content, buffers=None: messages.append(content)  # type: ignore[method-assign]
    page.rows.append(row(id=9, key="new", time_s=3.5e-3, axes={"tile": "32x64x64", "slice_tiles": 3}))
    page.draw()
    assert eventually(lambda: page.shown[1] == row_id(page.rows[-1]))
    assert eventually(lambda: messages[-1]["total"] == 5), "the last message comes after the rows are in order"
    assert {each["hold"] for each in messages} == {True}
    page.dispatch(SortBy("time_s", True))
    assert messages[-1]["hold"] is False


def test_estimates_come_when_they_are_made_and_one_of_them_is_selected() -> None:
    page = Page()
    may_go = threading.Event()

    def answer() -> EstimatedSpace:
        assert may_go.wait(60)
        return estimates()

    page.space = Space(answer)  # type: ignore[assignment]
    page.draw()
    assert "Estimating the space" in page.view.bar.counts.value
    assert len(page.shown) == 6
    may_go.set()
    assert eventually(lambda: len(page.shown) == 8)
    assert "2 estimated" in page.view.bar.counts.value
    fastest = page.shown[6]
    assert fastest.endswith("//estimated")
    page.say(kind="select", row=fastest)
    assert page.view.lines._chosen == 6
    page.say(kind="step", by=-1)
    assert page.explored.state.selected == row_id(ROWS[0])


def test_estimates_of_the_question_before_stay_until_there_are_new_ones_of_the_same_problem() -> None:
    page, may_go = Page(), threading.Event()
    page.space = Space(estimates)  # type: ignore[assignment]
    page.draw()
    assert eventually(lambda: len(page.shown) == 8)
    page.space = Space(lambda: EstimatedSpace(estimates().frame, f"New ones: {may_go.wait(60)}."))  # type: ignore[assignment]
    page.draw()
    assert len(page.shown) == 8
    assert "Estimating the space" in page.view.bar.counts.value
    may_go.set()
    assert eventually(lambda: "New ones: True" in page.view.bar.counts.value)
    page.space = Space(lambda: EstimatedSpace(estimates().frame, "of another problem"))  # type: ignore[assignment]
    page.space.place = "another problem"  # type: ignore[attr-defined]
    page.draw()
    assert len(page.shown) == 6 or "of another problem" in page.view.bar.counts.value


def test_a_space_that_is_refused_leaves_the_rows_and_says_why() -> None:
    def answer() -> EstimatedSpace:
        raise Refusal("There are 9 points: 9 > 8. Accepted: at most 8.")

    page = Page()
    page.space = Space(answer)  # type: ignore[assignment]
    page.draw()
    assert eventually(lambda: "Accepted: at most 8" in page.view.bar.counts.value)
    assert len(page.shown) == 6


def test_a_space_that_fails_says_so_and_is_tried_again_after_another_question() -> None:
    tries = []

    def answer() -> EstimatedSpace:
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("nothing")
        return estimates()

    page = Page()
    space = page.space = Space(answer)  # type: ignore[assignment]
    page.draw()
    assert eventually(lambda: "could not be computed" in page.view.bar.counts.value)
    page.draw()
    assert page.view._spaces.work.wait(10)
    assert len(tries) == 1, "a failure is not repeated by each brush"
    page.space = None
    page.draw()
    page.space = space
    page.draw()
    assert eventually(lambda: len(page.shown) == 8)


def test_of_several_questions_the_newest_one_is_estimated_and_an_older_refusal_is_not_said() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def refuses_late() -> EstimatedSpace:
        begun.set()
        assert may_end.wait(10)
        raise Refusal("Old. Accepted: none.")

    page = Page()
    page.space = Space(refuses_late)  # type: ignore[assignment]
    page.draw()
    assert begun.wait(10)
    page.space = Space(estimates)  # type: ignore[assignment]
    page.draw()
    may_end.set()
    assert eventually(lambda: len(page.shown) == 8)
    assert "Old" not in page.view.bar.counts.value


def test_a_link_with_a_strange_estimate_selects_nothing() -> None:
    page = Page()
    for strange in ("/fused nonsense//estimated", "/", "/fused {}", '/fused {"unknown": 1}//estimated'):
        page.explored.dispatch(Select(strange))
        assert page.view.lines._chosen is None
    assert place_of_estimate('/fused {"tile": "1x1x1"}//estimated', estimates().frame, 0) is None


def test_a_pinned_baseline_adds_a_column_of_differences() -> None:
    def deltas(scene: Scene) -> Callable[[Row], str]:
        baseline = scene.baseline
        assert baseline is not None
        return lambda each: f"{1e3 * (each['time_s'] - baseline['time_s']):+.0f} ms"

    page = Page(deltas=deltas)
    assert "To baseline" not in [column["title"] for column in page.view.grid._columns]
    page.dispatch(PinBaseline(row_id(ROWS[5])))
    assert page.column("To baseline") == ["+0 ms", "+1 ms", "+2 ms", "+3 ms", "+4 ms", "+5 ms"]
    names = [column["name"] for column in page.view.grid._columns]
    assert names.index("delta") == names.index("time_s") + 1, "in sight without scrolling"


def test_a_saved_view_restores_all_of_it() -> None:
    page, other = Page(), Page()
    for event in (Brush("slice_tiles", (2, 16)), SearchText("fused"), SortBy("slice_tiles"), ShowColumns(("time_s",))):
        page.dispatch(event)
    other.explored.state = replace(Exploration.from_json(page.explored.state.to_json()), view="")
    other.draw()
    assert (other.shown, other.cells) == (page.shown, page.cells)
    assert other.view.bar.search.value == "fused"
    assert other.view.lines._brushes == page.view.lines._brushes


def test_a_run_without_rows_and_a_failure_are_shown() -> None:
    assert Page(rows=[]).shown == []
    failed = row(id=3, key="f", time_s=None, stage="hang", source="measured", axes={"slice_tiles": 4})
    page = Page(rows=[*ROWS, failed])
    assert page.shown[-1] == row_id(failed)
    assert page.column("Failed")[-1] == "hang"
    assert page.column("Time, ms")[-1] == ""


@pytest.mark.parametrize("content", [{}, {"kind": "window"}, {"kind": "step", "by": "x"}, {"kind": "select"}])
def test_a_strange_message_changes_nothing(content: dict[str, Any]) -> None:
    page = Page()
    page.view.grid._receive(None, content, [])
    page.view.lines._receive(None, content, [])
    assert not page.sent


def test_a_row_of_the_space_by_itself_is_that_of_the_table() -> None:
    """A pinned or selected estimate has the time and the name that the table shows."""
    space = space_of("fused")
    frame = space.answer().frame
    for place in (0, len(frame) // 2, len(frame) - 1):
        shown = frame.row(place)
        alone = space.row(shown["scheme"], shown["axes"])
        assert alone is not None
        assert row_id(alone) == row_id(shown)
        assert alone["time_s"] == pytest.approx(shown["time_s"], rel=1e-9)
        assert problem_of(alone) == problem_of(shown)
        assert space.is_about(alone)
    of_form = space.form_row()
    assert of_form is not None
    assert is_estimate_of(of_form, space.question.trial(space.machine))
    assert space.row("fused", {"no such axis": 1}) is None
    assert space.row("fused", {"tile": "not a tile"}) is None
    assert space.row("no such scheme", {}) is None
    assert not space.is_about({**alone, "machine": "another"})
