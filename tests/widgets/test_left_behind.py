"""Who leaves a question, or a way to begin, finds its views and its measurement again, and no others meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.widgets.conftest import FakeLab, eventually, headings, run
from workbench.charts import trials
from workbench.widgets.cluster_watch import MEASURE, REPLAY, SIMULATE
from workbench.widgets.exploration import OpenView, PinBaseline
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.left_behind import RUNS_MOST, MeasuredBefore

MakeExplorer = Callable[..., Explorer]


def measured(explorer: Explorer) -> str | None:
    """The measured time on the ruler."""
    marks = {mark["name"]: mark["text"] for mark in explorer.shown.ruler.drawing["marks"]}
    return marks.get("measured")


def _wait(goes_on: threading.Event) -> None:
    assert goes_on.wait(100)


@pytest.mark.slow
def test_views_are_of_the_way_to_begin_that_is_open(explorer: Explorer) -> None:
    explorer.page.guess.value = "5"
    run(explorer)
    assert eventually(lambda: not explorer._running)
    explorer.explored.dispatch(OpenView("best"))
    explorer.explored.dispatch(PinBaseline(explorer.explored.state.selected))
    before, marks = explorer.explored.state, explorer.panels.trials.rows(trials.DATASET)
    assert before.selected is not None
    explorer.source.source.value = SIMULATE
    assert explorer.explored.state.runs == ()
    assert explorer.panels.trials.rows(trials.DATASET) == []
    assert explorer.results.outcomes.parts == []
    assert explorer.results.progress.layout.display == "none"
    assert "Nothing has run yet" in explorer.panels.note.value
    assert (explorer.page.older.value, explorer.run_id) == ("", None)
    explorer.report.write()
    assert "There is no run yet" in explorer.report.link.value
    run(explorer)
    assert eventually(lambda: not explorer._running)
    simulated = explorer.explored.state.runs
    explorer.source.source.value = MEASURE
    assert explorer.explored.state == before
    assert len(explorer.panels.trials.rows(trials.DATASET)) == len(marks)
    assert measured(explorer) is not None
    assert headings(explorer) == ["measured", "simulated"]
    explorer.source.source.value = SIMULATE
    assert explorer.explored.state.runs == simulated


@pytest.mark.slow
def test_a_run_that_goes_on_while_the_way_changes_is_of_the_way_where_it_began(
    explorer: Explorer, lab: FakeLab
) -> None:
    explorer.source.source.value = SIMULATE
    run(explorer)
    assert eventually(lambda: not explorer._running)
    simulated = explorer.explored.state.runs
    explorer.source.source.value = MEASURE
    goes_on = threading.Event()
    lab.before = lambda trial: _wait(goes_on)
    explorer.page.run.click()
    going = explorer.explored.state.runs
    explorer.source.source.value = SIMULATE
    assert explorer.explored.state.runs == going, "who changes over watches the run that goes on"
    goes_on.set()
    assert explorer.session.wait(100)
    assert eventually(lambda: not explorer._running)
    assert explorer.explored.state.runs == going
    for _ in range(2):
        explorer.source.source.value = MEASURE
        assert explorer.explored.state.runs == going
        assert explorer.run_id == going[0]
        explorer.source.source.value = SIMULATE
        assert explorer.explored.state.runs == simulated
        assert explorer.run_id == simulated[0]


@pytest.mark.slow
def test_a_way_that_never_ran_is_empty_after_a_run_went_on_in_it(explorer: Explorer, lab: FakeLab) -> None:
    goes_on = threading.Event()
    lab.before = lambda trial: _wait(goes_on)
    explorer.page.run.click()
    going = explorer.explored.state.runs
    explorer.source.source.value = SIMULATE
    goes_on.set()
    assert explorer.session.wait(100)
    assert eventually(lambda: not explorer._running)
    explorer.source.source.value = MEASURE
    assert explorer.explored.state.runs == going
    explorer.source.source.value = SIMULATE
    assert explorer.explored.state.runs == ()


@pytest.mark.slow
def test_another_recording_has_empty_views_until_it_is_played(explorer: Explorer) -> None:
    run(explorer)
    explorer.form.scheme.value = "decomposed"
    run(explorer)
    assert eventually(lambda: not explorer._running)
    explorer.source.source.value = REPLAY
    assert explorer.explored.state.runs == ()
    explorer.source.speed.value = float("inf")
    run(explorer)
    assert eventually(lambda: not explorer._running)
    assert explorer.explored.state.runs
    recordings = [value for _, value in explorer.source.recording.options]
    explorer.source.recording.value = next(each for each in recordings if each != explorer.source.recording.value)
    assert explorer.explored.state.runs == ()


@pytest.mark.slow
def test_a_question_that_comes_back_has_its_measurement(explorer: Explorer, lab: FakeLab) -> None:
    lab.seconds = lambda trial: 2e-3 if trial.schedule.scheme == "sequential" and trial.part == "whole" else 1e-3
    run(explorer)
    assert eventually(lambda: not explorer._running)
    first, gain = explorer.shown.row, explorer.shown.gain
    assert first is not None
    assert gain is not None
    explorer.form.problem.operator.value = "gemm_all_reduce"
    assert measured(explorer) is None
    run(explorer)
    assert eventually(lambda: not explorer._running)
    explorer.form.problem.operator.value = "gemm_all_to_all"
    explorer.form.problem.preset.value = "tiny"
    assert "an older question" in explorer.page.older.value, "the views are of the last run"
    assert measured(explorer) == "1 ms"
    assert explorer.shown.row is not None
    assert explorer.shown.row["run"] == first["run"] != explorer.run_id
    assert explorer.shown.gain is not None
    assert explorer.shown.gain.text == gain.text
    assert headings(explorer) == ["measured", "simulated"]
    explorer.store.annotations.delete(first["run"])
    explorer._forget_runs([first["run"]])
    explorer.refresh()
    assert measured(explorer) is None, "its run was deleted"


@pytest.mark.slow
def test_a_kernel_that_begins_elsewhere_keeps_the_last_run_of_this_computer(
    explorer: Explorer, make_explorer: MakeExplorer
) -> None:
    run(explorer)
    assert eventually(lambda: not explorer._running)
    last = explorer.run_id
    explorer.source.source.value = SIMULATE
    explorer.close()
    again = make_explorer()
    assert again.source.value == SIMULATE
    again.source.source.value = MEASURE
    assert again.run_id == last
    assert again.explored.state.runs == (last,)


@pytest.mark.slow
def test_a_deleted_run_that_was_shown_with_another_has_no_measurement(explorer: Explorer) -> None:
    runs = []
    for scheme in ("fused", "decomposed"):
        explorer.form.scheme.value = scheme
        run(explorer)
        assert eventually(lambda: not explorer._running)
        runs.append(str(explorer.run_id))
    first, second = runs
    explorer.show_runs(runs)
    explorer.form.problem.operator.value = "gemm_all_reduce"
    run(explorer)
    assert eventually(lambda: not explorer._running)
    explorer.form.problem.operator.value = "gemm_all_to_all"
    explorer.form.problem.preset.value = "tiny"
    explorer.form.scheme.value = "fused"
    assert explorer.shown.row is not None
    assert explorer.shown.row["run"] == first
    explorer.store.annotations.delete(first)
    explorer._forget_runs([first])
    explorer.refresh()
    assert measured(explorer) is None
    explorer.form.scheme.value = "decomposed"
    assert explorer.shown.row is not None
    assert explorer.shown.row["run"] == second, "the other run is still stored"


def test_the_oldest_run_is_forgotten_first() -> None:
    before = MeasuredBefore()
    for number in range(RUNS_MOST + 1):
        before.keep({(): [{"run": f"r{number}"}]})
    assert list(before._runs) == [f"r{number}" for number in range(1, RUNS_MOST + 1)]
    before.keep({(): [{"run": "r1"}]})
    before.keep({})
    assert list(before._runs)[-1] == "r1"


def test_rows_of_several_shown_runs_are_kept_by_run() -> None:
    before, rows = MeasuredBefore(), [{"run": "a"}, {"run": "b"}]
    before.keep({("one",): rows, ("two",): rows[1:]})
    assert before._runs == {"a": [rows[:1]], "b": [rows[1:], rows[1:]]}
