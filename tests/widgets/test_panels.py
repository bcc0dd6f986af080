"""Rows become charts: appended while a run goes on, about one trial where that is all one can read."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.fabric import Fabric
from kernels.outcome import Span
from kernels.trial import PROTOCOLS, Trial
from tests.widgets.conftest import Row, row
from workbench.charts import best, landscape, layers, samples, sweep, trials, waterfall
from workbench.experiment.run import Progress
from workbench.results.rows import current_problem_and_schedule
from workbench.results.store import Store
from workbench.widgets.chart_panels import LossesPanel
from workbench.widgets.live_chart import Click
from workbench.widgets.panels import ALONG, LANDSCAPE, LOSSES, TRIALS, Panels, RunStart, run_names, varied
from workbench.widgets.session import RunNews

AXES = {"tile": "32x64x64", "slice_tiles": 1}


def news(rows: Sequence[Row] = (), taken: Sequence[Any] = (), ended: bool = False) -> RunNews:
    return RunNews(run="r", rows=rows, samples=taken, progress=Progress(), ended=ended)


def sliced(number: int, **changes: Any) -> Row:
    return row(key=f"slice{number}", axes={**AXES, "slice_tiles": number}, id=number, **changes)


def sample(key: str, index: int, rank: int = 0) -> dict[str, Any]:
    return {"id": index, "run": "r", "key": key, "rank": rank, "index": index, "seconds": 1e-3, "at": 1e9}


@pytest.fixture
def panels(store: Store) -> Panels:
    made = Panels(
        store, lambda x, y: ([{**row(source="estimated", key=None), "axes": {**AXES, x: 4, y: "64x64x64"}}], "")
    )
    made.landscape.offer({"slice_tiles": 3, "tile": 2})
    return made


def test_before_any_run_the_landscape_is_open_and_estimated(panels: Panels) -> None:
    assert panels.open == LANDSCAPE
    assert "Nothing has run yet" in panels.note.value
    assert [cell["look"] for cell in panels.landscape.chart.rows(landscape.DATASET)] == ["estimated"]


def test_estimates_of_the_landscape_are_made_while_somebody_looks(store: Store) -> None:
    asked = []
    panels = Panels(store, lambda x, y: (asked.append((x, y)) or [], ""))
    panels.open = TRIALS
    panels.landscape.offer({"slice_tiles": 3, "tile": 2})
    assert asked == []
    panels.open = LANDSCAPE
    assert asked == [("slice_tiles", "tile")]
    panels.landscape.y.value = "slice_tiles"
    assert asked[1:] == [("slice_tiles", "slice_tiles")]


def test_a_landscape_of_other_axes_has_two_of_them(panels: Panels) -> None:
    panels.landscape.offer({"tile": 25, "micro_batches": 5, "comm_priority": 2})
    assert (panels.landscape.x.value, panels.landscape.y.value) == ("micro_batches", "tile")
    panels.landscape.offer({"tile": 25})
    assert (panels.landscape.x.value, panels.landscape.y.value) == ("tile", "tile")


def test_rows_are_appended_to_the_charts_of_trials(panels: Panels) -> None:
    panels.begin(RunStart(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1)]))
    panels.add(news([sliced(2)]))
    numbers = [drawn["number"] for drawn in panels.trials.rows(trials.DATASET) if drawn["look"] == "measured"]
    assert numbers == [1, 2]
    assert len(panels.best.rows(best.DATASET)) == 2
    assert [drawn["value"] for drawn in panels.along.chart.rows(sweep.DATASET)] == [1, 2]


def test_parts_alone_are_no_trials(panels: Panels) -> None:
    panels.begin(RunStart())
    panels.add(news([row(part="compute"), row(part="communication")]))
    assert panels.trials.rows(trials.DATASET) == []


def test_another_run_empties_everything(panels: Panels) -> None:
    panels.open = LOSSES
    panels.begin(RunStart(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1)], [sample("slice1", 0)]))
    drawn = ((panels.trials, trials), (panels.best, best), (panels.samples, samples), (panels.losses.chart, waterfall))
    assert all(chart.rows(module.DATASET) for chart, module in drawn)
    panels.begin(RunStart())
    assert not any(chart.rows(module.DATASET) for chart, module in drawn)
    assert panels.rows == []


def test_the_guess_stands_beside_the_schedule_that_was_guessed_and_no_other(panels: Panels) -> None:
    panels.begin(RunStart(guess_s=5e-3, guessed=lambda found: found["axes"]["slice_tiles"] == 2))
    panels.add(news([sliced(1), sliced(2)]))
    panels.add(news([sliced(2, source="estimated")]))
    guesses = [drawn for drawn in panels.trials.rows(trials.DATASET) if drawn["look"] == "guess"]
    assert [(guess["number"], guess["time_ms"]) for guess in guesses] == [(2, 5.0)]


def test_the_guess_is_drawn_beside_a_trial_whose_running_median_came_first(panels: Panels) -> None:
    panels.begin(RunStart(guess_s=5e-3, guessed=lambda found: True))
    panels.add(replace(news([]), running=[running_row(7)]))
    panels.add(news([sliced(2)]))
    guesses = [drawn for drawn in panels.trials.rows(trials.DATASET) if drawn["look"] == "guess"]
    assert [guess["time_ms"] for guess in guesses] == [5.0]


def test_while_a_run_goes_on_the_samples_are_those_of_the_newest_trial(panels: Panels) -> None:
    panels.begin(RunStart(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1, source="estimated")], [sample("slice1", 0)]))
    panels.add(news([], [sample("slice1", 1)]))
    assert [drawn["index"] for drawn in panels.samples.rows(samples.DATASET)] == [0, 1]
    panels.add(news([sliced(2, source="estimated")], [sample("slice2", 0)]))
    assert [drawn["index"] for drawn in panels.samples.rows(samples.DATASET)] == [0]
    assert "tiles per slice 2" in panels.samples_note.value


def test_a_chosen_trial_is_the_one_whose_samples_and_losses_are_shown(panels: Panels) -> None:
    panels.open = LOSSES
    panels.begin(RunStart(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1, time_s=1e-3), sliced(2, time_s=2e-3)], [sample("slice1", 0), sample("slice2", 0)]))
    panels.add(news(ended=True))
    assert "tiles per slice 1" in panels.samples_note.value
    assert "tiles per slice 1" in panels.losses.note.value
    panels.choose("slice2")
    assert "tiles per slice 2" in panels.samples_note.value
    assert "tiles per slice 2" in panels.losses.note.value


def test_combinations_that_are_refused_are_no_trials_of_a_sweep(panels: Panels) -> None:
    refused = sliced(3, outcome="failure", stage="refused", message="3 does not divide 4", time_s=None)
    panels.begin(RunStart(swept={"slice_tiles": (1, 2, 3)}))
    panels.add(news([refused, sliced(1)]))
    assert [drawn["look"] for drawn in panels.trials.rows(trials.DATASET)] == ["measured", "floor"]
    panels.begin(RunStart())
    panels.add(news([refused]))
    assert "failed" in {drawn["look"] for drawn in panels.trials.rows(trials.DATASET)}


def test_losses_that_are_not_known_say_so(panels: Panels) -> None:
    panels.begin(RunStart())
    panels.add(news([sliced(1)], [sample("slice1", 0)], ended=True))
    assert panels.losses.chart.rows(waterfall.DATASET) == [], "they are read from the store when somebody looks"
    panels.open = LOSSES
    drawn = {part["name"]: part["words"] for part in panels.losses.chart.rows(waterfall.DATASET)}
    assert drawn["contention"] == "not known"
    assert "run it by itself" in panels.losses.note.value


@pytest.mark.parametrize("is_kept", [True, False])
def test_losses_name_what_is_missing_and_no_timeline_that_is_shown(is_kept: bool) -> None:
    """The timeline of another block stood right below "no timeline of it was kept"."""
    spans = (Span("0/gemm/0/0", 0, "compute", "sm", 0.0, 1e-3),) if is_kept else ()
    kept = SimpleNamespace(spans=lambda run, key, source, block=None: () if block else spans)
    losses = LossesPanel(kept)  # type: ignore[arg-type]
    shown = sliced(1, block="block 2", compute_s=159e-6)
    losses.show("r", [shown], shown, "fused")
    note = losses.note.value
    assert "not timed alone in its block, only that of a sequential schedule, which took 159 µs, and" in note
    assert ("and its block kept no timeline: the one shown is of another block." in note) == is_kept
    assert ("and no timeline of it was kept." in note) != is_kept


def test_losses_follow_from_parts_that_were_timed_after_the_schedule(panels: Panels) -> None:
    panels.open = LOSSES
    panels.begin(RunStart())
    panels.add(news([sliced(1, moving_s=3e-3)]))
    assert "contention loss of communication" not in panels.losses.numbers.value
    parts = [sliced(1, part="communication", time_s=2e-3, moving_s=2e-3)]
    panels.add(news(parts, [sample("slice1", 0)], ended=True))
    assert "contention loss of communication" in panels.losses.numbers.value
    assert "1.5 ×" in panels.losses.numbers.value


def test_the_landscape_shows_what_was_measured_of_the_same_problem(panels: Panels) -> None:
    panels.same_problem = lambda found: found["world"] == 2
    panels.begin(RunStart(swept={"slice_tiles": (1, 2)}))
    panels.open = LANDSCAPE
    both = [sample("slice1", 0), sample("slice2", 0)]
    panels.add(news([sliced(1), sliced(2, world=4)], both, ended=True))
    looks = {cell["x"]: cell["look"] for cell in panels.landscape.chart.rows(landscape.DATASET)}
    assert looks == {4: "estimated", 1: "measured"}


def test_a_click_on_a_mark_finds_its_schedule(panels: Panels) -> None:
    clicked = []
    panels.on_cell(lambda click: clicked.append(panels.row_of(click)))
    panels.begin(RunStart())
    panels.add(news([sliced(2)]))
    for datum in ({"key": "slice2"}, {"scheme": "fused", "axes": AXES}, {"key": "unknown"}):
        panels.trials._on_click(Click(datum=datum, layer="times", shift=False))
    assert [found and found["axes"] for found in clicked] == [{**AXES, "slice_tiles": 2}, AXES, None]


def test_of_several_swept_axes_one_is_chosen_to_draw_along(panels: Panels) -> None:
    panels.begin(RunStart(swept={"slice_tiles": (1, 2), "tile": ("32x64x64", "64x64x64")}))
    panels.open = ALONG
    panels.add(news([sliced(1), sliced(2)]))
    assert panels.along.axis.layout.display is None
    panels.along.axis.value = "tile"
    assert [drawn["value"] for drawn in panels.along.chart.rows(sweep.DATASET)] == ["32x64x64", "32x64x64"]
    panels.begin(RunStart())
    assert "No axis has several values" in panels.along.note.value


def test_a_run_that_has_ended_is_drawn_with_the_axes_that_it_varied(panels: Panels) -> None:
    rows = [row(key="s", scheme="sequential", axes={"tile": "x"}), sliced(1), sliced(2), sliced(4)]
    assert varied(rows) == {"slice_tiles": [1, 2, 4]}
    panels.show("r", [{**each, "outcome": "estimate"} for each in rows], "")
    assert [drawn["value"] for drawn in panels.along.chart.rows(sweep.DATASET)] == [None, 1, 2, 4]


def test_a_thousand_rows_are_appended_within_the_time_of_a_tick(panels: Panels) -> None:
    """Not a measurement: redrawing everything for each row would take minutes."""
    panels.begin(RunStart(swept={"slice_tiles": (1, 2)}))
    for start in range(0, 1000, 100):
        panels.add(news([sliced(number) for number in range(start, start + 100)]))
    assert len(panels.rows) == 1000


def test_samples_of_the_baseline_are_those_of_its_newest_block(panels: Panels) -> None:
    panels.begin(RunStart())
    panels.add(news([sliced(1)], [{**sample("slice1", index), "block": "r.1"} for index in range(3)]))
    panels.add(news([], [{**sample("slice1", index), "block": "r.2"} for index in range(2)]))
    assert len(panels.samples.rows(samples.DATASET)) == 2


def running_row(samples: int, stopped: bool = False, **changes: Any) -> dict[str, Any]:
    return {**row(key="slice2", axes={**AXES, "slice_tiles": 2}), "samples": samples, "due": 20, "stopped": stopped,
            "outcome": "running", **changes}  # fmt: skip


def test_what_is_being_timed_is_drawn_until_its_outcome_comes(panels: Panels) -> None:
    panels.begin(RunStart(swept={"slice_tiles": (1, 2)}))
    panels.add(replace(news([sliced(1)]), running=[running_row(7)]))
    (drawn,) = panels.trials.rows(layers.DATASET)
    assert (drawn["place"], drawn["source"], drawn["time_ms"]) == (2, "running, 7 of 20 samples", 2.0)
    assert [mark["value"] for mark in panels.along.chart.rows(layers.DATASET)] == [2]
    panels.add(news([sliced(2)]))
    assert panels.trials.rows(layers.DATASET) == panels.along.chart.rows(layers.DATASET) == []
    assert [mark["number"] for mark in panels.trials.rows(trials.DATASET) if mark["look"] == "measured"] == [1, 2]


def test_what_a_stop_left_out_has_no_mark_and_is_called_no_failure(panels: Panels) -> None:
    left_out = {**sliced(2), "outcome": "failure", "stage": "cancelled", "message": "Cancelled.", "time_s": None}
    panels.add(news([sliced(1), left_out]))
    assert {mark["key"] for mark in panels.trials.rows(trials.DATASET)} == {sliced(1)["key"]}


@pytest.mark.slow
def test_a_stopped_run_is_shown_again_as_far_as_it_came(
    panels: Panels, store: Store, make_explorer: Callable[..., Any], lab: Any
) -> None:
    began, go_on = threading.Event(), threading.Event()
    measured = lab._measured

    def slowly(trial: Any, world: int) -> Any:
        for number, event in enumerate(measured(trial, world)):
            if trial.schedule.scheme == "fused" and trial.part == "whole" and number == 2 + 3 * world:
                began.set()
                go_on.wait(100)
                raise ValueError("the cable was pulled")
            yield event

    lab._measured = slowly
    explorer = make_explorer()
    explorer.form.problem.preset.value = "tiny"
    explorer.page.run.click()
    assert began.wait(100)
    go_on.set()
    assert explorer.session.wait(100)
    again = make_explorer(run=explorer.run_id)
    for shown in (explorer, again):
        (drawn,) = shown.panels.trials.rows(layers.DATASET)
        assert (drawn["scheme"], drawn["source"]) == ("fused", "stopped after 3 of 5 samples")


def of_two_shapes() -> list[Row]:
    """Three schedules of each of two problems, one a hundred times as fast as the other."""
    small = {"m": 8, "n": 64, "k": 64}
    large = [sliced(number, time_s=(5 - number) * 1e-3) for number in (1, 2, 4)]
    fast = [sliced(number, shape=small, time_s=(5 - number) * 1e-5, floor_s=1e-6) for number in (1, 2, 4)]
    return [*large, *({**each, "key": f"small{each['id']}"} for each in fast)]


def times_drawn(panels: Panels) -> set[float]:
    charts = ((panels.trials, trials.DATASET), (panels.best, best.DATASET), (panels.along.chart, sweep.DATASET))
    drawn = [record for chart, dataset in charts for record in chart.rows(dataset)]
    return {record["time_ms"] for record in drawn if record["look"] == "measured"}


@pytest.mark.slow
def test_problems_of_one_run_share_no_axis_and_no_best(panels: Panels) -> None:
    rows = of_two_shapes()
    found = [sample(row["key"], 0) for row in rows]
    panels.begin(RunStart(swept={"slice_tiles": (1, 2, 4)}))
    panels.open = LOSSES
    panels.add(news(rows[:3], found[:3]))
    assert panels.problem.view.layout.display == "none", "of one problem there is nothing to choose"
    panels.add(news(rows[3:], found[3:]))
    assert panels.problem.view.layout.display is None
    assert times_drawn(panels) == {0.04, 0.03, 0.01}, "the newest problem is looked at while it comes"
    panels.add(news(ended=True))
    assert "tiles per slice 4" in panels.samples_note.value
    assert "10 µs" in panels.losses.note.value, "the fastest of the problem that is shown"
    first, second = (value for _, value in panels.problem.list.options)
    asked: list[Row] = []
    panels.on_problem(asked.append)
    panels.problem.list.value = first
    assert times_drawn(panels) == {4, 3, 1}
    assert [row["key"] for row in asked] == ["slice4"], "the form follows"
    assert "1 ms" in panels.losses.note.value
    panels.choose("small1")
    assert panels.problem.value == second, "the charts follow the form"
    assert times_drawn(panels) == {0.04, 0.03, 0.01}


def test_a_chosen_problem_stays_while_rows_of_others_come(panels: Panels) -> None:
    rows = of_two_shapes()
    panels.begin(RunStart())
    panels.add(news(rows[:4], [sample(row["key"], 0) for row in rows]))
    panels.problem.list.value = panels.problem.list.options[0][1]
    panels.add(news(rows[4:]))
    assert times_drawn(panels) == {4, 3, 1}
    panels.add(news(ended=True))
    assert [axis for _, axis in panels.along.axis.options] == ["slice_tiles"], "what was varied is known at the end"


def test_a_schedule_that_two_machines_ran_has_the_time_of_the_one_that_is_chosen(panels: Panels) -> None:
    """The strip had one machine's recorded time as the other's, or none, as the last row of both stood for them."""
    first, last = (
        sliced(4, machine=name, time_s=time_s) for name, time_s in (("h200_nvl2", 1e-3), ("h100_nvl2", 2e-3))
    )
    panels.begin(RunStart())
    panels.add(news([first, last]))
    problem, schedule = current_problem_and_schedule(first)

    def time_on(machine: str) -> float | None:
        trial = Trial(problem=problem, schedule=schedule, backend="triton", machine=machine,
                      fabric=Fabric(kind="nvlink"), protocol=PROTOCOLS["quick"])  # fmt: skip
        found = panels.timed(trial)
        return None if found is None else found["time_s"]

    assert [time_on(name) for name in ("h200_nvl2", "h100_nvl2", "laptop_cpu")] == [1e-3, 2e-3, None]


def test_a_guess_stands_beside_its_own_problem_alone(panels: Panels) -> None:
    panels.same_problem = lambda found: found["shape"]["m"] == 8
    panels.begin(RunStart(guess_s=1e-3, guessed=lambda found: True))
    panels.same_problem = lambda found: True  # the form is about something else by now
    rows = of_two_shapes()
    panels.add(news(rows, [sample(row["key"], 0) for row in rows]))
    assert panels.problem.value is not None
    assert ("m", 8) in panels.problem.value[1]
    assert len([drawn for drawn in panels.trials.rows(trials.DATASET) if drawn["look"] == "guess"]) == 3
    panels.problem.list.value = panels.problem.list.options[0][1]
    assert not [drawn for drawn in panels.trials.rows(trials.DATASET) if drawn["look"] == "guess"]


def show(panels: Panels, run: str, rows: Sequence[Row]) -> None:
    """Shows *rows* that ended with *run*, whose samples no store has."""
    panels._samples_of = lambda row: []  # type: ignore[method-assign]
    panels.show(run, rows, "")


def of_two_runs() -> list[Row]:
    """The same two schedules in two runs, the second one slower."""
    return [{**sliced(number, run=run, time_s=factor * number * 1e-3), "id": number + 10 * factor}
            for factor, run in ((1, "r"), (2, "s")) for number in (1, 2)]  # fmt: skip


def timed_marks(panels: Panels) -> list[list[dict[str, Any]]]:
    """The marks of times on Trials, Best so far and Along an axis."""
    charts = ((panels.trials, trials.DATASET), (panels.best, best.DATASET), (panels.along.chart, sweep.DATASET))
    return [[mark for mark in chart.rows(dataset) if mark["look"] == "measured"] for chart, dataset in charts]


@pytest.mark.slow
def test_every_run_has_a_mark_of_its_own_for_the_same_schedule(panels: Panels) -> None:
    rows = of_two_runs()
    show(panels, "s", rows)
    for marks in timed_marks(panels):
        assert sorted((mark["run"], mark["time_ms"]) for mark in marks) == [("r", 1), ("r", 2), ("s", 2), ("s", 4)]
        assert {mark["form"] for mark in marks} == {"run r, measured", "run s, measured"}
        assert all(mark["aloud"].endswith(f"; run {mark['run']}") for mark in marks)
    of_trials, of_best, _ = timed_marks(panels)
    assert [mark["number"] for mark in of_trials] == [1, 2, 1, 2], "a schedule has one place"
    assert len({mark["place"] for mark in of_trials}) == 4, "in which the runs' marks lie beside each other"
    assert [mark["number"] for mark in of_best] == [1, 2, 1, 2], "each search has its own order"
    clicked = [panels.row_of(Click(datum=mark, layer="times", shift=False)) for mark in of_trials]
    assert clicked == rows
    assert '"run s, measured"' in json.dumps(panels.trials._chart["spec"]), "the legend"


def test_one_run_is_drawn_as_ever(panels: Panels) -> None:
    show(panels, "s", of_two_runs())
    show(panels, "r", of_two_runs()[:2])
    assert all("run" not in mark and "form" not in mark for marks in timed_marks(panels) for mark in marks)
    assert [mark["place"] for mark in timed_marks(panels)[0]] == [1, 2]
    assert "run s" not in json.dumps(panels.trials._chart["spec"])


def test_runs_are_named_by_what_was_timed_in_them() -> None:
    rows = [sliced(1), sliced(1, source="estimated"), sliced(1, run="s", source="recorded"),
            sliced(1, run="e", source="estimated")]  # fmt: skip
    assert run_names(rows[:2]) == {}
    assert list(run_names(rows).values()) == ["run r, measured", "run s, recorded", "run e, estimated"]


def test_the_selected_row_is_ringed_and_no_row_is_sent_again(panels: Panels) -> None:
    rows = of_two_runs()
    show(panels, "s", rows)
    generations = [chart._rows[name].generation for chart, name in ((panels.trials, trials.DATASET),)]
    panels.mark(rows[2])
    marked = [mark["mark"] for mark in timed_marks(panels)[0] if mark["run"] == "s" and mark["time_ms"] == 2]
    for chart in (panels.trials, panels.best, panels.along.chart):
        assert chart._values == {layers.SELECTED: marked[0]}
        assert layers.SELECTED in {param["name"] for param in chart._chart["spec"]["params"]}
    assert generations == [panels.trials._rows[trials.DATASET].generation]
    panels.mark(None)
    assert panels.trials._values == {layers.SELECTED: ""}


def test_of_a_schedule_that_was_timed_twice_the_drawn_mark_is_ringed(panels: Panels) -> None:
    twice = [{**sliced(1, block=f"r.{number}", time_s=number * 1e-3), "id": number} for number in (1, 2)]
    show(panels, "r", twice)
    (drawn,) = timed_marks(panels)[0]
    for timing in twice:
        panels.mark(timing)
        assert panels.trials._values[layers.SELECTED] == drawn["mark"]


def y_scale(panels: Panels) -> str | None:
    spec = panels.trials._chart["spec"]
    (layer,) = (layer for layer in spec["layer"] if layer["name"] == "times")
    kind: str | None = layer["encoding"]["y"]["scale"].get("type")
    return kind


@pytest.mark.slow
def test_times_far_apart_have_a_log_axis_unless_a_person_wants_another(panels: Panels) -> None:
    panels.begin(RunStart())
    panels.add(news([sliced(1, time_s=1e-3), sliced(2, time_s=2e-3)]))
    assert y_scale(panels) is None
    panels.take_scale("log")
    assert y_scale(panels) == "log"
    panels.take_scale("automatic")
    panels.add(news([sliced(4, time_s=1.0)]))
    assert y_scale(panels) is None, "an axis stays while a run goes on"
    panels._samples_of = lambda row: []  # type: ignore[method-assign]
    panels.add(news(ended=True))
    assert y_scale(panels) == "log"
    assert len(timed_marks(panels)[0]) == 3, "another axis keeps the rows"
    panels.take_scale("linear")
    assert y_scale(panels) is None
    panels.take_scale("log")
    panels.pin(panels.rows[0], panels.rows)
    assert y_scale(panels) is None, "differences may be below zero"
    assert panels.scale.disabled


def test_what_filters_keep_is_drawn_when_somebody_looks(panels: Panels) -> None:
    show(panels, "r", of_two_runs()[:2])
    panels.open = TRIALS
    names = [mark["mark"] for mark in timed_marks(panels)[0]]
    panels.open = ""
    panels.keep(names[:1])
    assert len(timed_marks(panels)[0]) == 2
    panels.open = TRIALS
    assert [mark["mark"] for mark in timed_marks(panels)[0]] == names[:1]
    panels.keep(None)
    assert len(timed_marks(panels)[0]) == 2


def test_the_landscape_outlines_the_cell_of_the_schedule_and_differs_from_a_baseline(panels: Panels) -> None:
    panels.landscape.mark({"scheme": "fused", "axes": {**AXES, "slice_tiles": 4, "tile": "64x64x64"}})
    (cell,) = panels.landscape.chart.rows(landscape.DATASET)
    assert panels.landscape.chart._values == {layers.SELECTED: cell["place"]}
    assert (cell["label"], cell["difference"]) == ("\N{ALMOST EQUAL TO}2", None)
    base = sliced(1, time_s=1e-3)
    panels.pin(base, [base])
    (cell,) = panels.landscape.chart.rows(landscape.DATASET)
    assert cell["label"] == "\N{ALMOST EQUAL TO}+100 %"
    assert cell["difference"].endswith("estimated against measured")
    other = sliced(1, shape={"m": 8, "n": 64, "k": 64})
    panels.pin(other, [other])
    (cell,) = panels.landscape.chart.rows(landscape.DATASET)
    assert cell["label"] == "\N{ALMOST EQUAL TO}2", "the baseline is of another problem"
