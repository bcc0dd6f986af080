"""The views of the page: one is open, all follow one selection, and rows of several runs stand together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernels.outcome import Measurement, Sample
from kernels.trial import Trial
from tests.widgets.conftest import eventually, headings, row, run
from tests.workbench.conftest import machine, make_trial, measure
from workbench.charts import landscape, trials
from workbench.charts.layers import SELECTED
from workbench.naming import TIMED
from workbench.results import metrics
from workbench.results.runs import summaries
from workbench.results.store import Store
from workbench.widgets.cluster_watch import SIMULATE
from workbench.widgets.compare_view import CompareView
from workbench.widgets.copy_as import code_of, read_code
from workbench.widgets.exploration import (
    Brush,
    ClearFilters,
    OpenView,
    PinBaseline,
    Select,
    ShowRuns,
    estimate_row,
    row_id,
)
from workbench.widgets.explorer_page import Explorer
from workbench.widgets.live_chart import Click
from workbench.widgets.table_view import TableView
from workbench.widgets.views import FIRST, VIEWS, ShownRows, line_named

__all__ = ["machine", "make_trial", "measure"]


@pytest.mark.slow
def test_the_open_tab_is_a_part_of_the_state(explorer: Explorer) -> None:
    assert explorer.deck.line.name == FIRST
    for number, line in enumerate(VIEWS):
        explorer.deck.tabs.selected_index = number
        assert explorer.explored.state.view == line.name
    explorer.explored.dispatch(OpenView("samples"))
    assert VIEWS[explorer.deck.tabs.selected_index or 0].name == "samples"


def test_a_view_that_this_version_lacks_is_the_first_one() -> None:
    assert line_named("of another version").name == FIRST
    assert len({line.name for line in VIEWS}) == len({line.title for line in VIEWS}) == len(VIEWS)


@pytest.mark.slow
def test_what_is_selected_anywhere_is_selected_everywhere(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].sweep.value = True
    run(explorer)
    rows = explorer.rows.rows(explorer.explored.state.runs)
    wanted = next(each for each in rows if each["axes"].get("pieces") == 2 and each["source"] == "measured")
    explorer.explored.dispatch(Select(row_id(wanted)))
    assert explorer.form.axes.rows["pieces"].control.value == 2
    assert headings(explorer)[0] == "measured"
    other = next(each for each in rows if each["axes"].get("pieces") == 4 and each["source"] == "measured")
    explorer.panels.trials._on_click(Click(datum={"key": other["key"]}, layer="marks", shift=False))
    assert explorer.explored.state.selected == row_id(other)
    explorer.form.axes.rows["pieces"].control.value = 2
    assert explorer.explored.state.selected == row_id(wanted)


@pytest.mark.slow
def test_a_row_of_another_run_brings_its_timeline(make_explorer: Callable[..., Explorer], store: Store) -> None:
    explorer = make_explorer()
    explorer.form.problem.preset.value = "tiny"
    explorer.form.scheme.value = "sequential"
    run(explorer)
    first = explorer.run_id
    explorer.form.scheme.value = "fused"
    run(explorer)
    assert explorer.run_id != first
    explorer.explored.dispatch(ShowRuns((str(explorer.run_id), str(first))))
    old = next(each for each in store.rows(str(first)) if each["part"] == "whole" and each["source"] == "measured")
    explorer.explored.dispatch(Select(row_id(old)))
    assert explorer.form.scheme.value == "sequential"
    assert explorer.shown.row is not None
    assert explorer.shown.row["run"] == first


def test_rows_are_those_that_were_tried_and_new_ones_come_in(store: Store) -> None:
    shown = ShownRows(store)
    shown.begin("r")
    shown.add([row(id=1, key="a"), row(id=2, key="a", part="compute"), row(id=3, key="b", stage="refused")])
    assert [each["key"] for each in shown.rows(["r"])] == ["a"]
    shown.add([row(id=4, key="c")])
    assert [each["key"] for each in shown.rows(["r"])] == ["a", "c"]


def ran_twice(explorer: Explorer) -> tuple[str, str]:
    """The ids of a run of *sequential* and one of *fused*."""
    explorer.form.problem.preset.value = "tiny"
    ids = []
    for scheme in ("sequential", "fused"):
        explorer.form.scheme.value = scheme
        run(explorer)
        ids.append(str(explorer.run_id))
    return ids[0], ids[1]


@pytest.mark.slow
def test_a_link_brings_back_question_runs_filters_and_view(make_explorer: Callable[..., Explorer]) -> None:
    explorer = make_explorer()
    first, second = ran_twice(explorer)
    explorer.show_runs([first, second])
    explorer.explored.dispatch(Brush("time_s", (0.0, 1.0)))
    explorer.explored.dispatch(OpenView("compare"))
    wanted = explorer.state()
    code = code_of(wanted)
    explorer.show_runs([second])
    explorer.form.problem.preset.value = "laptop_overlap"
    explorer.open(read_code(code))
    assert explorer.state().exploration == wanted.exploration
    assert explorer.form.question == wanted.question


@pytest.mark.slow
def test_a_link_to_a_run_that_is_not_here_says_so_and_keeps_the_question(
    make_explorer: Callable[..., Explorer], store: Store
) -> None:
    explorer = make_explorer()
    first, second = ran_twice(explorer)
    explorer.show_runs([first])
    wanted = explorer.state()
    explorer.show_runs([second])
    store.annotations.delete(first)
    explorer.copying.open(code_of(wanted))
    assert f"its run {first} is not in this store: 1 of 1" in explorer.copying.widget.message
    assert explorer.copying.widget.refused
    assert explorer.form.scheme.value == wanted.question.scheme


@pytest.mark.slow
def test_a_view_is_saved_by_name_opened_and_deleted(make_explorer: Callable[..., Explorer]) -> None:
    explorer = make_explorer()
    ran_twice(explorer)
    explorer.explored.dispatch(OpenView("best"))
    menu = explorer.saved
    menu.name.value = "mine"
    menu.save.click()
    assert menu.name.options == ("mine",)
    explorer.explored.dispatch(OpenView("samples"))
    explorer.form.problem.preset.value = "laptop_overlap"
    menu.load.click()
    assert (explorer.explored.state.view, explorer.form.problem.preset.value) == ("best", "tiny")
    menu.delete.click()
    assert menu.name.options == ()
    menu.name.value = "mine"
    menu.load.click()
    assert "There is no view" in menu.message.value


@pytest.mark.slow
def test_two_runs_are_compared_by_their_fastest_schedules(make_explorer: Callable[..., Explorer]) -> None:
    explorer = make_explorer()
    first, second = ran_twice(explorer)
    explorer.compare_runs(first, second)
    scene = explorer._scene()
    assert scene.baseline is not None
    assert scene.selected is not None
    assert (scene.baseline["run"], scene.selected["run"]) == (first, second)
    assert explorer.deck.line.name == "compare"
    assert explorer.page.baseline.description == "Unpin baseline"
    assert any(column["heading"] for part in explorer.results.outcomes.parts for column in part["columns"])
    explorer.explored.dispatch(PinBaseline(None))
    assert explorer.page.baseline.description == "Pin baseline"


def timed_often(store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]) -> str:
    """A run of two schedules in six blocks each, in which the computer was slower and slower."""
    made = store.begin_run({}, {}, "often")
    for number in range(6):
        for scheme, seconds in (("sequential", 3e-3), ("fused", 2e-3)):
            block = f"{made}.{number}"
            timed = replace(measure(make_trial(scheme), seconds * (1 + number / 10)), block=block)
            samples = [Sample(timed.trial.key, rank, index, each, 1e9, block)
                       for rank, several in enumerate(timed.samples) for index, each in enumerate(several)]  # fmt: skip
            store.add_outcome(made, timed, metrics.row_of(timed, made), samples=samples)
    store.end_run(made)
    return made


@pytest.mark.slow
def test_compared_runs_and_an_opened_link_select_the_same_rows_everywhere(
    make_explorer: Callable[..., Explorer], store: Store, make_trial: Callable[..., Trial],
    measure: Callable[..., Measurement],
) -> None:  # fmt: skip
    runs = [timed_often(store, make_trial, measure) for _ in range(2)]
    explorer = make_explorer()
    explorer.compare_runs(*runs)
    scene, bests = explorer._scene(), {each["run"]: each["best_s"] for each in summaries(store, 10)}
    assert scene.baseline is not None
    assert scene.selected is not None
    assert [(row["run"], row["time_s"]) for row in (scene.baseline, scene.selected)] == [
        (run, bests[run]) for run in runs]  # fmt: skip
    assert explorer.shown.row is scene.selected
    other = next(row for row in scene.listed if row["scheme"] == "sequential" and row["run"] == runs[1])
    explorer.explored.dispatch(Select(row_id(other)))
    code = code_of(explorer.state())
    explorer.show_runs(runs[:1])
    explorer.copying.open(code)
    assert not explorer.copying.widget.refused
    assert explorer.explored.state.selected == row_id(other)
    assert explorer.shown.row is not None
    assert row_id(explorer.shown.row) == row_id(other)


@pytest.mark.slow
def test_a_deleted_run_is_shown_no_longer(make_explorer: Callable[..., Explorer], store: Store) -> None:
    explorer = make_explorer()
    first, second = ran_twice(explorer)
    explorer.show_runs([first, second])
    explorer._forget_runs([first])
    assert explorer.explored.state.runs == (second,)


@pytest.mark.slow
def test_a_run_that_is_brought_back_is_the_baseline_again(make_explorer: Callable[..., Explorer], store: Store) -> None:
    explorer = make_explorer()
    first, second = ran_twice(explorer)
    explorer.compare_runs(first, second)
    before = explorer.explored.state
    explorer.drawer.refresh()
    assert explorer.drawer.wait(100)
    for kind, baseline in (("delete", None), ("undo", before.baseline)):
        explorer.drawer._hear(None, {"kind": kind, "runs": [first]}, [])
        assert explorer.drawer.wait(100)
        assert explorer.explored.state.baseline == baseline
    assert explorer.explored.state == before
    explorer._forget_runs([first])
    explorer.explored.dispatch(PinBaseline(before.selected))
    explorer._bring_back([first])
    assert explorer.explored.state.baseline == before.selected, "another row was pinned meanwhile"


def test_recordings_alone_offer_no_measurement(make_explorer: Callable[..., Explorer]) -> None:
    explorer = make_explorer(measures=False)
    assert explorer.source.value == "recordings"
    assert explorer.source.source.layout.display == "none"
    assert explorer.answer.measure.layout.display == "none"
    assert explorer.watcher._thread is None


@pytest.mark.slow
def test_a_filter_reaches_the_charts_of_a_run(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].sweep.value = True
    run(explorer)
    drawn = {mark["key"] for mark in explorer.panels.trials.rows(trials.DATASET)}
    rows = [each for each in explorer.rows.rows(explorer.explored.state.runs) if each["source"] == "measured"]
    assert len(drawn) > 2
    explorer.explored.dispatch(Brush("pieces", (2.0, 4.0)))
    kept = {mark["key"] for mark in explorer.panels.trials.rows(trials.DATASET)}
    assert kept == {each["key"] for each in rows if each["axes"].get("pieces") in (2, 4)}
    assert {row_id(each) for each in explorer._scene().kept} == {
        row_id(each) for each in explorer._scene().rows if each["axes"].get("pieces") in (2, 4)
    }
    explorer.explored.dispatch(ClearFilters())
    assert eventually(lambda: {mark["key"] for mark in explorer.panels.trials.rows(trials.DATASET)} == drawn), (
        "a redraw that follows another one at once comes a little later"
    )


def test_an_estimate_of_the_space_is_selected_like_a_row(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].control.value = 2
    wanted = {**explorer.state().question.schedule(explorer.form.machine_value).to_json()}
    name = row_id({"scheme": wanted["scheme"], "axes": {**wanted["axes"], "pieces": 4}, "source": "estimated"})
    explorer.explored.dispatch(Select(name))
    assert explorer.form.axes.rows["pieces"].control.value == 4
    assert explorer.explored.state.selected == name
    explorer.form.axes.rows["pieces"].control.value = 2
    assert explorer.explored.state.selected is None


@pytest.mark.parametrize("name", ["/fused not json//estimated", "/fused [1]//estimated", "r/k//measured", "", None])
def test_a_name_that_somebody_wrote_is_no_estimate(name: str | None) -> None:
    assert estimate_row(name) is None


def estimate_of(explorer: Explorer, **axes: object) -> str:
    """The name of the estimate of the form's schedule with other *axes*."""
    known = explorer.form.question.schedule(explorer.form.machine_value)
    return row_id({"scheme": known.scheme, "axes": dict(known.axes) | axes, "source": "estimated"})


@pytest.mark.slow
def test_a_pinned_estimate_is_the_baseline_of_estimates_and_of_what_is_measured(
    make_explorer: Callable[..., Explorer], explorer: Explorer
) -> None:
    explorer.form.scheme.value = "decomposed"
    base, other = estimate_of(explorer, pieces=4), estimate_of(explorer, pieces=2)
    explorer.explored.dispatch(Select(base))
    explorer.page.baseline.click()
    assert explorer.explored.state.baseline == base
    assert explorer.page.baseline.description == "Unpin baseline"
    explorer.explored.dispatch(Select(other))
    explorer.explored.dispatch(OpenView("compare"))
    compare = explorer.deck.view_named("compare")
    assert isinstance(compare, CompareView)
    assert "both estimated" in compare.sentence.value
    assert "Pieces" in compare.differ.text
    explorer.form.scheme.value = "fused"
    run(explorer)
    assert explorer.explored.state.baseline == base, "another run leaves it"
    assert headings(explorer)[0] == "measured"
    assert "measured against estimated" in explorer.results.outcomes.text
    words = {mark["difference"].rpartition(", ")[2] for mark in explorer.panels.trials.rows(trials.DATASET)}
    assert words == {"measured against estimated", "both estimated"}
    table = explorer.deck.view_named("table")
    assert isinstance(table, TableView)
    explorer.explored.dispatch(OpenView("table"))
    assert eventually(lambda: any("both estimated" in " ".join(each.cells) for each in table.grid._rows.between(0, 50)))
    code = code_of(explorer.state())
    assert read_code(code).exploration.baseline == base
    explorer.explored.dispatch(PinBaseline(None))
    explorer.open(read_code(code))
    scene = explorer._scene()
    assert scene.baseline is not None
    assert (scene.baseline["axes"]["pieces"], scene.baseline["source"]) == (4, "estimated")


@pytest.mark.slow
def test_a_pinned_estimate_is_that_of_the_forms_question(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    run(explorer)
    explorer.explored.dispatch(PinBaseline(estimate_of(explorer)))
    before = [mark["difference"] for mark in explorer.panels.trials.rows(trials.DATASET)]
    ratio = explorer._scene().baseline
    assert any("estimated" in each for each in before)
    explorer.form.problem.preset.value = "laptop_overlap"
    assert explorer._scene().baseline != ratio
    assert all("difference" not in mark for mark in explorer.panels.trials.rows(trials.DATASET)), "of another problem"
    explorer.form.problem.preset.value = "tiny"
    assert [mark["difference"] for mark in explorer.panels.trials.rows(trials.DATASET)] == before


@pytest.mark.slow
def test_an_estimate_of_a_measured_schedule_can_be_selected_and_pinned(explorer: Explorer) -> None:
    run(explorer)
    measured, estimate = explorer.explored.state.selected, estimate_of(explorer)
    assert measured is not None
    explorer.explored.dispatch(Select(estimate))
    assert explorer.explored.state.selected == estimate
    assert headings(explorer)[0] == "measured", "its timeline stays"
    explorer.page.baseline.click()
    explorer.explored.dispatch(Select(measured))
    explorer.explored.dispatch(OpenView("compare"))
    compare = explorer.deck.view_named("compare")
    assert isinstance(compare, CompareView)
    assert "measured against estimated" in compare.sentence.value
    run(explorer)
    assert explorer._scene().selected is not None
    assert explorer._scene().selected["source"] in TIMED, "what was timed is selected, not its estimate"


@pytest.mark.slow
def test_axes_have_estimated_importance_until_something_is_timed(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    rows = explorer.form.axes.rows
    assert eventually(lambda: "estimated" in rows["pieces"].importance.value)
    assert "wb-estimated" in rows["pieces"].importance.value
    rows["pieces"].sweep.value = rows["split"].sweep.value = True
    run(explorer)
    assert eventually(lambda: ", measured" in rows["pieces"].importance.value)
    explorer.form.problem.preset.value = "laptop_overlap"
    assert eventually(lambda: "estimated" in rows["pieces"].importance.value), "what was timed is of another question"


def test_a_filter_reaches_outcomes_and_the_cells_of_the_landscape(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.explored.dispatch(OpenView("landscape"))
    explorer.form.axes.rows["pieces"].sweep.value = True
    run(explorer)
    explorer.explored.dispatch(OpenView("outcomes"))
    every = explorer.results.outcomes.text
    explorer.explored.dispatch(Brush("pieces", (2.0, 2.0)))
    assert len(explorer.results.outcomes.text) < len(every)
    assert "The filter leaves out" in explorer.results.left_out.value
    explorer.explored.dispatch(OpenView("landscape"))
    cells = explorer.panels.landscape.chart.rows(landscape.DATASET)
    assert cells
    across = explorer.panels.landscape.x.value
    place = "x" if across == "pieces" else "y"
    assert eventually(lambda: {cell[place] for cell in explorer.panels.landscape.chart.rows(landscape.DATASET)} == {2})
    said = explorer.panels.landscape.message.value
    assert "estimates." in said
    assert "rows." in said
    explorer.explored.dispatch(ClearFilters())
    assert eventually(lambda: explorer.panels.landscape.message.value == "")
    explorer.explored.dispatch(OpenView("outcomes"))
    assert explorer.results.outcomes.text == every


def mark_key(explorer: Explorer) -> str:
    """The key of the trial whose samples are shown."""
    return str(explorer.panels._shown_key)


@pytest.mark.slow
def test_a_mark_of_one_of_several_runs_selects_the_row_of_that_run(
    make_explorer: Callable[..., Explorer], store: Store
) -> None:
    explorer = make_explorer()
    first, second = ran_twice(explorer)
    explorer.show_runs([first, second])
    explorer.explored.dispatch(OpenView("trials"))
    marks = [mark for mark in explorer.panels.trials.rows(trials.DATASET) if mark["look"] in TIMED]
    baselines = {mark["run"]: mark for mark in marks if mark["scheme"] == "sequential"}
    assert baselines.keys() == {first, second}
    for run_of, mark in baselines.items():
        explorer.panels.trials._on_click(Click(datum=mark, layer="times", shift=False))
        assert explorer._scene().selected is not None
        assert explorer._scene().selected["run"] == run_of
        assert explorer.form.scheme.value == "sequential"
        assert explorer.panels.trials._values[SELECTED] == mark["mark"]
        assert explorer.shown.row is not None
        assert explorer.shown.row["run"] == run_of, "its timeline, too"
        assert explorer.panels._whole[mark_key(explorer)]["run"] == run_of, "and its samples"


@pytest.mark.slow
def test_the_time_axis_is_chosen_on_the_page_and_kept_in_a_link(explorer: Explorer) -> None:
    run(explorer)
    explorer.panels.scale.value = "log"
    assert explorer.explored.state.scale == "log"
    code = code_of(explorer.state())
    explorer.panels.scale.value = "linear"
    explorer.open(read_code(code))
    assert (explorer.explored.state.scale, explorer.panels.scale.value) == ("log", "log")


@pytest.mark.slow
def test_a_selected_estimate_of_a_simulated_run_stays_selected(explorer: Explorer) -> None:
    explorer.source.source.value = SIMULATE
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].sweep.value = True
    run(explorer)
    rows = [each for each in explorer._scene().rows if each["axes"].get("pieces") == 2]
    explorer.explored.dispatch(Select(row_id(rows[0])))
    assert explorer.explored.state.selected == row_id(rows[0])
    assert explorer.panels.trials._values[SELECTED] == row_id(rows[0])


@pytest.mark.slow
def test_a_brush_that_is_dragged_draws_the_charts_a_few_times_a_second(explorer: Explorer) -> None:
    explorer.form.scheme.value = "decomposed"
    explorer.form.axes.rows["pieces"].sweep.value = True
    run(explorer)
    drawn: list[object] = []
    keep = explorer.panels.keep
    explorer.panels.keep = lambda names: (drawn.append(names), keep(names))  # type: ignore[method-assign, func-returns-value]
    for number in range(40):
        explorer.explored.dispatch(Brush("pieces", (1.0, 1.0 + number % 2)))
    explorer.explored.dispatch(Brush("pieces", (4.0, 4.0)))
    wanted = {row_id(each) for each in explorer._scene().kept}
    assert eventually(lambda: drawn[-1] == wanted), "the last one is drawn"
    assert len(drawn) < 20
