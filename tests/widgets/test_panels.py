"""Rows become charts: appended while a run goes on, about one trial where that is all one can read."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.widgets.conftest import Row, row
from workbench.charts import best, landscape, samples, sweep, trials, waterfall
from workbench.sitting import Progress
from workbench.store import Store
from workbench.widgets.live_chart import Click
from workbench.widgets.panels import ALONG, LANDSCAPE, LOSSES, TRIALS, Begun, Panels, varied
from workbench.widgets.session import News

AXES = {"tile": "32x64x64", "slice_tiles": 1}


def news(rows: Sequence[Row] = (), taken: Sequence[Any] = (), ended: bool = False) -> News:
    return News(run="r", rows=rows, samples=taken, progress=Progress(), ended=ended)


def sliced(number: int, **changes: Any) -> Row:
    return row(key=f"slice{number}", axes={**AXES, "slice_tiles": number}, id=number, **changes)


def sample(key: str, index: int, rank: int = 0) -> dict[str, Any]:
    return {"id": index, "run": "r", "key": key, "rank": rank, "index": index, "seconds": 1e-3, "at": 1e9}


@pytest.fixture
def panels(store: Store) -> Panels:
    made = Panels(store, lambda x, y: [{**row(source="estimated", key=None), "axes": {**AXES, x: 4, y: "64x64x64"}}])
    made.landscape.offer({"slice_tiles": 3, "tile": 2})
    return made


def test_before_any_run_the_landscape_is_open_and_estimated(panels: Panels) -> None:
    assert panels.open == LANDSCAPE
    assert "Nothing has run yet" in panels.note.value
    assert [cell["look"] for cell in panels.landscape.chart.rows(landscape.DATASET)] == ["estimated"]


def test_estimates_of_the_landscape_are_made_while_somebody_looks(store: Store) -> None:
    asked = []
    panels = Panels(store, lambda x, y: asked.append((x, y)) or [])
    panels.open = TRIALS
    panels.landscape.offer({"slice_tiles": 3, "tile": 2})
    assert asked == []
    panels.open = LANDSCAPE
    assert asked == [("slice_tiles", "tile")]
    panels.landscape.y.value = "slice_tiles"
    assert asked[1:] == [("slice_tiles", "slice_tiles")]


def test_rows_are_appended_to_the_charts_of_trials(panels: Panels) -> None:
    panels.begin(Begun(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1)]))
    panels.add(news([sliced(2)]))
    numbers = [drawn["number"] for drawn in panels.trials.rows(trials.DATASET) if drawn["look"] == "measured"]
    assert numbers == [1, 2]
    assert len(panels.best.rows(best.DATASET)) == 2
    assert [drawn["value"] for drawn in panels.along.chart.rows(sweep.DATASET)] == [1, 2]


def test_parts_alone_are_no_trials(panels: Panels) -> None:
    panels.begin(Begun())
    panels.add(news([row(part="compute"), row(part="communication")]))
    assert panels.trials.rows(trials.DATASET) == []


def test_another_run_empties_everything(panels: Panels) -> None:
    panels.open = LOSSES
    panels.begin(Begun(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1)], [sample("slice1", 0)]))
    drawn = ((panels.trials, trials), (panels.best, best), (panels.samples, samples), (panels.losses.chart, waterfall))
    assert all(chart.rows(module.DATASET) for chart, module in drawn)
    panels.begin(Begun())
    assert not any(chart.rows(module.DATASET) for chart, module in drawn)
    assert panels.rows == []


def test_the_guess_stands_beside_the_schedule_that_was_guessed_and_no_other(panels: Panels) -> None:
    panels.begin(Begun(guess_s=5e-3, guessed=lambda found: found["axes"]["slice_tiles"] == 2))
    panels.add(news([sliced(1), sliced(2)]))
    panels.add(news([sliced(2, source="estimated")]))
    guesses = [drawn for drawn in panels.trials.rows(trials.DATASET) if drawn["look"] == "guess"]
    assert [(guess["number"], guess["time_ms"]) for guess in guesses] == [(2, 5.0)]


def test_while_a_run_goes_on_the_samples_are_those_of_the_newest_trial(panels: Panels) -> None:
    panels.begin(Begun(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1, source="estimated")], [sample("slice1", 0)]))
    panels.add(news([], [sample("slice1", 1)]))
    assert [drawn["index"] for drawn in panels.samples.rows(samples.DATASET)] == [0, 1]
    panels.add(news([sliced(2, source="estimated")], [sample("slice2", 0)]))
    assert [drawn["index"] for drawn in panels.samples.rows(samples.DATASET)] == [0]
    assert "slice_tiles 2" in panels.samples_note.value


def test_a_chosen_trial_is_the_one_whose_samples_and_losses_are_shown(panels: Panels) -> None:
    panels.open = LOSSES
    panels.begin(Begun(swept={"slice_tiles": (1, 2)}))
    panels.add(news([sliced(1, time_s=1e-3), sliced(2, time_s=2e-3)], [sample("slice1", 0), sample("slice2", 0)]))
    panels.add(news(ended=True))
    assert "slice_tiles 1" in panels.samples_note.value
    assert "slice_tiles 1" in panels.losses.note.value
    panels.choose("slice2")
    assert "slice_tiles 2" in panels.samples_note.value
    assert "slice_tiles 2" in panels.losses.note.value


def test_combinations_that_are_refused_are_no_trials_of_a_sweep(panels: Panels) -> None:
    refused = sliced(3, outcome="failure", stage="refused", message="3 does not divide 4", time_s=None)
    panels.begin(Begun(swept={"slice_tiles": (1, 2, 3)}))
    panels.add(news([refused, sliced(1)]))
    assert [drawn["look"] for drawn in panels.trials.rows(trials.DATASET)] == ["measured", "floor"]
    panels.begin(Begun())
    panels.add(news([refused]))
    assert "failed" in {drawn["look"] for drawn in panels.trials.rows(trials.DATASET)}


def test_losses_that_are_not_known_say_so(panels: Panels) -> None:
    panels.begin(Begun())
    panels.add(news([sliced(1)], [sample("slice1", 0)], ended=True))
    assert panels.losses.chart.rows(waterfall.DATASET) == [], "they are read from the store when somebody looks"
    panels.open = LOSSES
    drawn = {part["name"]: part["words"] for part in panels.losses.chart.rows(waterfall.DATASET)}
    assert drawn["contention"] == "not known"
    assert "run it by itself" in panels.losses.note.value


def test_the_landscape_shows_what_was_measured_of_the_same_problem(panels: Panels) -> None:
    panels.same_problem = lambda found: found["world"] == 2
    panels.begin(Begun(swept={"slice_tiles": (1, 2)}))
    panels.open = LANDSCAPE
    panels.add(news([sliced(1), sliced(2, world=4)], [sample("slice1", 0)], ended=True))
    looks = {cell["x"]: cell["look"] for cell in panels.landscape.chart.rows(landscape.DATASET)}
    assert looks == {4: "estimated", 1: "measured"}


def test_a_click_on_a_mark_finds_its_schedule(panels: Panels) -> None:
    clicked = []
    panels.on_cell(lambda click: clicked.append(panels.row_of(click)))
    panels.begin(Begun())
    panels.add(news([sliced(2)]))
    for datum in ({"key": "slice2"}, {"scheme": "fused", "axes": AXES}, {"key": "unknown"}):
        panels.trials._on_click(Click(datum=datum, layer="times", shift=False))
    assert [found and found["axes"] for found in clicked] == [{**AXES, "slice_tiles": 2}, AXES, None]


def test_of_several_swept_axes_one_is_chosen_to_draw_along(panels: Panels) -> None:
    panels.begin(Begun(swept={"slice_tiles": (1, 2), "tile": ("32x64x64", "64x64x64")}))
    panels.open = ALONG
    panels.add(news([sliced(1), sliced(2)]))
    assert panels.along.axis.layout.display is None
    panels.along.axis.value = "tile"
    assert [drawn["value"] for drawn in panels.along.chart.rows(sweep.DATASET)] == ["32x64x64", "32x64x64"]
    panels.begin(Begun())
    assert "tries one value of each axis" in panels.along.note.value


def test_a_run_that_has_ended_is_drawn_with_the_axes_that_it_varied(panels: Panels) -> None:
    rows = [row(key="s", scheme="sequential", axes={"tile": "x"}), sliced(1), sliced(2), sliced(4)]
    assert varied(rows) == {"slice_tiles": [1, 2, 4]}
    panels.show("r", [{**each, "outcome": "estimate"} for each in rows], "")
    assert [drawn["value"] for drawn in panels.along.chart.rows(sweep.DATASET)] == [None, 1, 2, 4]


def test_a_thousand_rows_are_appended_within_the_time_of_a_tick(panels: Panels) -> None:
    """Not a measurement: redrawing everything for each row would take minutes."""
    panels.begin(Begun(swept={"slice_tiles": (1, 2)}))
    for start in range(0, 1000, 100):
        panels.add(news([sliced(number) for number in range(start, start + 100)]))
    assert len(panels.rows) == 1000
