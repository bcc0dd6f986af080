"""The state of what a person looks at: events change it, and it survives JSON."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.results.filters import Filters
from workbench.widgets.exploration import (
    Brush,
    Choose,
    ClearFilters,
    Event,
    Exploration,
    Explored,
    KeepTop,
    OpenView,
    PinBaseline,
    Restore,
    ScaleTime,
    SearchText,
    Select,
    ShowColumns,
    ShowRuns,
    SortBy,
    reduce,
    row_id,
)

NAMES = st.sampled_from(["time_s", "tile_rows", "scheme", "scheme/with slash", ""])
ROWS = st.one_of(st.none(), st.sampled_from(["r1/k1/b1/measured", "r2/k1//recorded", "/fused {}//estimated"]))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
EVENTS = st.one_of(
    st.builds(OpenView, NAMES),
    st.builds(Select, ROWS),
    st.builds(PinBaseline, ROWS),
    st.builds(Brush, NAMES, st.one_of(st.none(), st.tuples(NUMBERS, NUMBERS))),
    st.builds(Choose, NAMES, st.one_of(st.none(), st.frozensets(st.text()))),
    st.builds(SearchText, st.text()),
    st.builds(KeepTop, st.one_of(st.none(), st.floats(0.1, 100))),
    st.just(ClearFilters()),
    st.builds(SortBy, NAMES, st.booleans()),
    st.builds(ShowColumns, st.lists(NAMES).map(tuple)),
    st.builds(ScaleTime, st.sampled_from(["automatic", "log", "linear"])),
    st.builds(ShowRuns, st.lists(st.sampled_from(["r1", "r2"]), unique=True).map(tuple)),
)


@pytest.mark.slow
@given(st.lists(EVENTS))
def test_any_state_is_the_same_after_json(events: list[Event]) -> None:
    state = Exploration()
    for event in events:
        state = reduce(state, event)
    assert Exploration.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert reduce(Exploration(), Restore(state)) == state


@given(st.lists(EVENTS), EVENTS)
def test_an_event_that_comes_twice_changes_nothing_more(events: list[Event], last: Event) -> None:
    state = Exploration()
    for event in events:
        state = reduce(state, event)
    once = reduce(state, last)
    assert reduce(once, last) == once


def test_a_brush_that_ends_leaves_no_filter() -> None:
    state = reduce(reduce(Exploration(), Brush("time_s", (2.0, 1.0))), Choose("scheme", frozenset({"fused"})))
    assert dict(state.filters.ranges) == {"time_s": (1.0, 2.0)}
    assert state.filters.active
    ended = reduce(reduce(state, Brush("time_s", None)), Choose("scheme", None))
    assert ended.filters == Filters()
    assert reduce(state, ClearFilters()).filters == Filters()


def test_other_runs_keep_what_is_theirs() -> None:
    state = Exploration(runs=("r1",), selected="r1/k//measured", baseline="/fused {}//estimated")
    state = reduce(state, KeepTop(5.0))
    both = reduce(state, ShowRuns(("r1", "r2")))
    assert (both.selected, both.baseline, both.filters.top_percent) == (state.selected, state.baseline, 5.0)
    other = reduce(state, ShowRuns(("r2",)))
    assert (other.selected, other.baseline, other.filters) == (None, state.baseline, Filters())


@pytest.mark.parametrize("percent", [0.0, -1.0, 101.0, float("nan")])
def test_a_share_that_does_not_exist_changes_nothing(percent: float) -> None:
    explored = Explored()
    with pytest.raises(ValueError, match="Accepted: above 0, at most 100"):
        explored.dispatch(KeepTop(percent))
    assert explored.state == Exploration()


@pytest.mark.parametrize("stored", [{}, {"format": 2}, {"format": 1}, {**Exploration().to_json(), "filters": 3}])
def test_another_file_is_refused_in_a_sentence(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Accepted: a view"):
        Exploration.from_json(stored)


def test_listeners_hear_changes_alone_and_do_not_depend_on_each_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a library that configures logging disables the loggers that exist
    monkeypatch.setattr(logging.getLogger(Explored.__module__), "disabled", False)
    explored, heard = Explored(), []

    def fail(before: Exploration, after: Exploration) -> None:
        raise RuntimeError("cannot be drawn")

    explored.on_change(fail)
    explored.on_change(lambda before, after: heard.append((before.view, after.view)))
    explored.dispatch(OpenView("table"))
    explored.dispatch(OpenView("table"))
    assert heard == [("", "table")]
    assert "could not follow OpenView" in caplog.text


def test_rows_have_one_name_each() -> None:
    row = {"run": "r1", "key": "k1", "block": None, "source": "measured", "scheme": "fused", "axes": {"b": 1, "a": 2}}
    assert row_id(row) == "r1/k1//measured"
    assert row_id({**row, "block": "b1"}) == "r1/k1/b1/measured"
    space = {key: value for key, value in row.items() if key != "run"} | {"source": "estimated"}
    assert row_id(space) == row_id({**space, "axes": {"a": 2, "b": 1}}) == '/fused {"a": 2, "b": 1}//estimated'


def test_a_view_that_is_older_than_the_choice_of_the_time_axis_has_the_automatic_one() -> None:
    stored = Exploration(scale="log").to_json()
    assert Exploration.from_json(stored).scale == "log"
    assert Exploration.from_json({key: value for key, value in stored.items() if key != "scale"}).scale == "automatic"
    with pytest.raises(ValueError, match="Accepted: automatic, log, linear"):
        reduce(Exploration(), ScaleTime("cubic"))
