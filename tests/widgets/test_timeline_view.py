"""The view of the timeline without a browser: ranges, the difference, the file for Perfetto."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.widgets.conftest import run
from workbench.charts import parting, timeline
from workbench.results.timelines import end_s
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.live_chart import Click
from workbench.widgets.timeline_view import DIFFERENCE, SPANS, TimelineView


@pytest.fixture
def view(explorer: Explorer) -> TimelineView:
    """The timeline of an explorer that has only simulated."""
    return explorer.shown


def drag(view: TimelineView, *edges: float) -> None:
    """What the page sends while a mouse moves, and without *edges* when it is released."""
    view._dragged(SimpleNamespace(name=timeline.DRAG, value={"from_ms": list(edges)} if edges else {}))


def click(view: TimelineView, layer: str = "bars", *, shift: bool = False, **datum: Any) -> None:
    view._clicked(Click(datum=datum, layer=layer, shift=shift))


def whole_ms(view: TimelineView) -> float:
    assert view.estimate is not None
    return 1e3 * end_s(view.estimate.spans)


def test_a_dragged_range_ends_at_the_edges_of_the_time_and_stays_when_the_mouse_is_released(view: TimelineView) -> None:
    whole = whole_ms(view)
    drag(view, 0.6 * whole, 0.2 * whole)
    assert view.range_s == pytest.approx((0.2e-3 * whole, 0.6e-3 * whole)), "backwards is the same range"
    assert "rank 0 computes" in view.words.value
    drag(view)
    assert view.range_s is not None
    drag(view, -whole, 5 * whole)
    assert view.range_s == pytest.approx((0.0, 1e-3 * whole))
    assert view.timeline.rows(timeline.RANGE)
    view.measure(None)
    assert view.timeline.rows(timeline.RANGE) == []
    assert "Critical path" in view.words.value


def test_a_click_measures_a_bar_and_with_shift_all_up_to_another(view: TimelineView) -> None:
    click(view, start_ms=2.0, stop_ms=3.0)
    assert view.range_s == (0.002, 0.003)
    click(view, start_ms=0.5, stop_ms=1.0, shift=True)
    assert view.range_s == (0.0005, 0.003)
    click(view, "headings", start_ms=None, stop_ms=None)
    assert view.range_s == (0.0005, 0.003)


def test_a_range_stays_while_a_slider_moves_and_goes_with_the_question(explorer: Explorer) -> None:
    explorer.shown.measure((0.0, 1e-3))
    explorer.form.scheme.value = "sequential"
    assert explorer.page.timeline.rows(timeline.RANGE)
    explorer.shown.forget()
    explorer.shown.draw()
    assert explorer.page.timeline.rows(timeline.RANGE) == []


def test_the_difference_needs_a_timed_timeline_and_then_compares_step_by_step(explorer: Explorer) -> None:
    view = explorer.shown
    view.look.value = DIFFERENCE
    assert "nothing to compare yet" in view.words.value
    assert view.difference.rows(parting.DATASET) == []
    run(explorer)
    assert view.row is not None
    measured, simulated = view._compared()
    assert len(view.difference.rows(parting.DATASET)) == len(parting.rows(measured, simulated))
    assert "counterpart" in view.words.value or "parts" in view.words.value
    view.look.value = SPANS
    assert (view.timeline.layout.display, view.difference.layout.display) == (None, "none")


def test_the_file_has_the_schedules_name_and_its_timelines_without_the_pinned_one(explorer: Explorer) -> None:
    explorer.shown.toggle_pin()
    name, content = explorer.shown.trace()
    events = json.loads(content)["traceEvents"]
    assert name.startswith("fused-tile-")
    assert [event["args"]["name"].partition(":")[0] for event in events if event["name"] == "process_name"] == [
        "simulated"
    ]


def test_a_schedule_that_is_not_legal_has_no_file_and_the_button_says_so(view: TimelineView) -> None:
    view.estimate = view.row = None
    view.draw()
    view.perfetto.offer()
    assert "cannot become a trace: 0 of 0 timelines of it were kept" in view.perfetto.message
    assert not view.perfetto.busy
