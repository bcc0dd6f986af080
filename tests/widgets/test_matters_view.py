"""The view of what matters: shares of axes and the front for the problem of the selection; clicks open and select."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest

from kernels import fabric as fabrics
from kernels.schemes import schedule
from tests.widgets.conftest import row, space_of
from workbench.analysis.front import standings
from workbench.charts import importance as importance_chart
from workbench.charts import pareto
from workbench.charts.pareto import ON
from workbench.machines import shipped_machine
from workbench.results.filters import Filters
from workbench.results.resources import IN_FLIGHT, MEMORY, SMS, with_resource
from workbench.results.rows import current_problem_and_schedule
from workbench.widgets.exploration import Event, Exploration, OpenView, Scene, Select, row_id
from workbench.widgets.live_chart import Click
from workbench.widgets.matters_view import LOOKING, NOTHING, UNTIMED, MattersView, two_axes

LAPTOP = shipped_machine("laptop_cpu")
SHAPE = {"m": 2048, "n": 512, "k": 1024}


def trial(key: str, time_s: float, scheme: str = "decomposed", **values: Any) -> dict[str, Any]:
    given = row(shape=SHAPE, key=key, scheme=scheme, time_s=time_s, sequential_s=1e-2, low_s=None, high_s=None)
    problem, _ = current_problem_and_schedule({**given, "axes": {}, "scheme": "sequential"})
    link = fabrics.parse(given["fabric"])
    return {**given, "axes": dict(schedule(problem, scheme, values, LAPTOP, link).axes)}


def sweep(source: str = "measured") -> list[dict[str, Any]]:
    rows = []
    for pieces, split in product((1, 2, 4, 8, 16), ("rows", "columns")):
        time_s = 1e-3 * pieces**0.5 * (1 + 0.02 * (split == "rows"))
        rows.append({**trial(f"{pieces}{split}", time_s, pieces=pieces, split=split), "source": source})
    return rows


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def opened() -> list[Sequence[str]]:
    return []


@pytest.fixture
def view(events: list[Event], opened: list[Sequence[str]]) -> Iterator[MattersView]:
    made = MattersView(events.append, opened.append, {"laptop_cpu": LAPTOP}.get)
    yield made
    made.close()


def drawn(view: MattersView, scene: Scene) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    view.draw(scene)
    assert view.work.wait(60)
    return view.importance.rows(importance_chart.DATASET), view.pareto.rows(pareto.DATASET)


def test_shares_of_times_and_of_the_estimated_space_are_beside_each_other(view: MattersView) -> None:
    shares, trials = drawn(view, Scene(Exploration(), sweep()))
    by = {(share["axis"], share["look"]): share for share in shares}
    assert by["pieces", "measured"]["share"] > 0.9
    assert by["pieces", "estimated"]["share"] > 0.2
    assert by["tile_rows", "estimated"]["share"] is not None, "the space has axes that nothing swept"
    assert "measured: 10 times, each over the baseline of its block" in view.note.value
    assert "all combinations" in view.note.value
    assert len(trials) == 10


def test_too_few_times_for_a_bar_say_how_many_are_needed(view: MattersView) -> None:
    drawn(view, Scene(Exploration(), sweep()[:2]))
    assert "measured: 2 times" in view.note.value
    assert "; not known with 2 times: axes with so many values need 6." in view.note.value
    drawn(view, Scene(Exploration(), sweep()[:1]))
    assert "; not known: no axis varies in them." in view.note.value


def test_of_stored_estimates_the_space_is_shown(view: MattersView) -> None:
    shares, trials = drawn(view, Scene(Exploration(), sweep("estimated")))
    assert {share["look"] for share in shares} == {"estimated"}
    assert len(trials) == 10
    assert {record["look"] for record in trials} == {"estimated"}


def test_without_any_row_it_says_so(view: MattersView) -> None:
    shares, trials = drawn(view, Scene(Exploration(), []))
    assert (shares, trials) == ([], [])
    assert NOTHING in view.note.value
    scene = Scene(Exploration(), sweep())
    before = drawn(view, scene)
    assert drawn(view, Scene(Exploration(), [])) == ([], [])
    assert drawn(view, scene) == before


def test_nothing_of_another_problem_stays_while_what_matters_is_read(view: MattersView) -> None:
    scene = Scene(Exploration(), sweep())
    drawn(view, scene)
    with patch.object(view.work, "ask"):  # it takes seconds where the space is large
        view.draw(Scene(Exploration(), [*sweep(), trial("32rows", 6e-3, pieces=32, split="rows")]))
        assert LOOKING not in view.note.value, "a row that comes while a run goes on takes nothing away"
        view.draw(Scene(Exploration(), [{**each, "shape": {**SHAPE, "m": 4096}} for each in sweep()]))
    assert LOOKING in view.note.value
    assert view.importance.rows(importance_chart.DATASET) == []
    assert view.pareto.rows(pareto.DATASET) == []


@pytest.mark.slow
def test_other_rows_of_the_same_number_with_the_same_last_one_are_drawn(view: MattersView) -> None:
    rows = sweep()
    drawn(view, Scene(Exploration(), [rows[0], *rows[2:]]))
    _, trials = drawn(view, Scene(Exploration(), rows[1:]))
    assert {record["id"] for record in trials} == {row_id(each) for each in rows[1:]}


def test_rows_of_another_problem_are_left_out_and_the_selected_one_decides(view: MattersView) -> None:
    other = {**trial("other", 5e-3, pieces=4), "shape": {**SHAPE, "m": 4096}}
    rows = [*sweep(), other]
    assert len(drawn(view, Scene(Exploration(), rows))[1]) == 1, "the newest problem"
    assert len(drawn(view, Scene(Exploration(selected=row_id(rows[0])), rows))[1]) == 10


def test_a_bar_opens_the_landscape_over_its_axis_and_the_most_important_other(
    view: MattersView, events: list[Event], opened: list[Sequence[str]]
) -> None:
    drawn(view, Scene(Exploration(), sweep()))
    view._bar_clicked(Click(datum={"axis": "tile_rows"}, layer="bars", shift=False))
    assert opened == [("tile_rows", "pieces")]
    assert events == [OpenView("landscape")]


def test_two_axes_are_the_clicked_ones_first() -> None:
    assert two_axes("", ["pieces", "split", "tile_rows"]) == ("pieces", "split")
    assert two_axes("pieces", ["pieces", "split"]) == ("pieces", "split")
    assert two_axes("store + num_warps + grid", ["pieces"]) == ("store", "num_warps")


def test_a_mark_is_selected_everywhere_and_has_a_cross_then(view: MattersView, events: list[Event]) -> None:
    rows = sweep()
    _, trials = drawn(view, Scene(Exploration(), rows))
    view._mark_clicked(Click(datum=trials[3], layer="schedules", shift=False))
    assert events == [Select(trials[3]["id"])]
    _, trials = drawn(view, Scene(Exploration(selected=row_id(rows[3])), rows))
    assert [record["id"] for record in trials if record["is_selected"]] == [row_id(rows[3])]


def test_the_resource_is_chosen_and_what_is_not_known_is_said(view: MattersView) -> None:
    scene = Scene(Exploration(), sweep())
    view.resource.value = SMS
    assert drawn(view, scene)[1] == []
    assert "CPU ranks have no SMs" in view.resource_note.value
    view.resource.value = IN_FLIGHT
    _, trials = drawn(view, scene)
    whole = SHAPE["m"] // 2 * SHAPE["n"] * 4
    assert sorted({record["takes"] for record in trials}) == [whole // pieces for pieces in (16, 8, 4, 2, 1)]
    view.resource.value = MEMORY
    drawn(view, scene)
    assert "All schedules take the same." in view.resource_note.value


def test_a_scheme_is_chosen_where_there_are_several(view: MattersView) -> None:
    rows = [*sweep(), *(trial(f"s{number}", 1e-3, "fused", slice_tiles=number) for number in (1, 2))]
    shares, _ = drawn(view, Scene(Exploration(), rows))
    assert view.scheme.value == "fused", "that of the newest row"
    view.scheme.value = "decomposed"
    assert view.work.wait(60)
    shares = view.importance.rows(importance_chart.DATASET)
    assert any(share["axis"] == "pieces" for share in shares)


def test_a_machine_without_a_description_has_no_estimates_and_says_so(view: MattersView) -> None:
    rows = [{**each, "machine": "elsewhere"} for each in sweep()]
    shares, _ = drawn(view, Scene(Exploration(), rows))
    assert {share["look"] for share in shares} == {"measured"}
    assert "elsewhere has no description here" in view.note.value


@pytest.mark.slow
def test_before_any_run_the_forms_space_says_what_matters_and_has_a_front(
    view: MattersView, events: list[Event]
) -> None:
    space = space_of("decomposed")
    shares, trials = drawn(view, Scene(Exploration(), [], space=space))
    assert UNTIMED in view.note.value
    assert {share["look"] for share in shares} == {"estimated"}
    assert {share["axis"] for share in shares} > {"pieces", "tile_rows"}
    assert {record["look"] for record in trials} == {"estimated"}
    frame = space.answer().frame
    best = frame.row(int(frame.order("time_s")[0]))
    fastest = min(trials, key=lambda record: record["time_ms"])
    assert fastest["id"] == row_id(best)
    assert fastest["is_on"]
    assert f"of {len(frame):,} estimates of the space" in view.resource_note.value
    view._mark_clicked(Click(datum=fastest, layer="schedules", shift=False))
    assert events == [Select(row_id(best))]
    _, trials = drawn(view, Scene(Exploration(selected=row_id(best)), [], space=space))
    assert [record["id"] for record in trials if record["is_selected"]] == [row_id(best)]


def test_the_front_of_estimates_is_that_of_the_whole_space(view: MattersView) -> None:
    """No estimate that is not drawn is both faster and takes less than one on the line."""
    space = space_of("decomposed")
    _, trials = drawn(view, Scene(Exploration(), [], space=space))
    frame = space.answer().frame
    every = with_resource(map(frame.row, range(len(frame))), IN_FLIGHT, {"laptop_cpu": LAPTOP}.get)
    front = {record["id"] for record in trials if record["is_on"]}
    assert len(front) > 1
    of_all = standings(every, IN_FLIGHT)
    times = sorted((each["time_s"], each[IN_FLIGHT]) for each, stand in zip(every, of_all, strict=True) if stand == ON)
    drawn_times = sorted((each["time_ms"], each["takes"]) for each in trials if each["is_on"])
    assert [takes for _, takes in drawn_times] == [takes for _, takes in times]
    assert [time_ms for time_ms, _ in drawn_times] == pytest.approx([1e3 * time_s for time_s, _ in times], rel=1e-3)


def test_measurements_are_beside_the_estimates_of_their_problem_alone(view: MattersView) -> None:
    rows = sweep()
    _, trials = drawn(view, Scene(Exploration(), rows, space=space_of("decomposed")))
    assert {record["look"] for record in trials} == {"measured", "estimated"}
    assert sum(record["look"] == "measured" for record in trials) == len(rows)
    assert UNTIMED not in view.note.value
    _, trials = drawn(view, Scene(Exploration(), rows, space=space_of("decomposed", {**SHAPE, "m": 4096})))
    assert {record["look"] for record in trials} == {"measured"}


def test_a_filter_reaches_rows_and_estimates_and_the_view_says_how_many_are_left_out(view: MattersView) -> None:
    rows, space = sweep(), space_of("decomposed")
    filters = Filters().with_range("pieces", (4.0, 8.0))
    _, trials = drawn(view, Scene(Exploration(filters=filters), rows, space=space))
    assert "The filter leaves out 6 of 10 rows." in view.note.value
    assert "estimates." in view.resource_note.value.partition("The filter leaves out ")[2]
    assert {json.loads(record["id"].split(" ", 1)[1].removesuffix("//estimated"))["pieces"]
            for record in trials if record["look"] == "estimated"} == {4, 8}  # fmt: skip
