"""The view of why: two waterfalls and sentences, whose parts were timed or are the simulator's; then it says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kernels import fabric as fabrics
from kernels.outcome import Span
from kernels.schemes import schedule
from kernels.trial import Trial, protocol
from tests.widgets.conftest import row, space_of
from workbench.analysis.why import LONGER_ALONE
from workbench.charts import waterfall
from workbench.machines import shipped_machine
from workbench.results.filters import Filters
from workbench.results.rows import Row, current_problem_and_schedule
from workbench.results.store import Store
from workbench.simulator.predict import predict
from workbench.widgets.exploration import Event, Exploration, Scene, Select, row_id
from workbench.widgets.live_chart import Click
from workbench.widgets.why_view import ALONE, ESTIMATED, NOTHING, SIMULATED, WhyView

LAPTOP = shipped_machine("laptop_cpu")
SHAPE = {"m": 2048, "n": 512, "k": 1024}
ROUNDS = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.01)


def trial(key: str, time_s: float, scheme: str = "decomposed", **values: Any) -> dict[str, Any]:
    noisy = [time_s * (each if number % 2 else 2 - each) for number, each in enumerate(ROUNDS)]
    given = row(shape=SHAPE, key=key, scheme=scheme, time_s=time_s, sequential_s=1e-2, block="b", rounds_s=noisy)
    problem, _ = current_problem_and_schedule({**given, "axes": {}, "scheme": "sequential"})
    return {**given, "axes": dict(schedule(problem, scheme, values, LAPTOP, fabrics.parse(given["fabric"])).axes)}


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def view(events: list[Event], store: Store) -> Iterator[WhyView]:
    made = WhyView(events.append, store, {"laptop_cpu": LAPTOP}.get)
    yield made
    made.close()


def drawn(view: WhyView, scene: Scene) -> list[dict[str, Any]]:
    view.draw(scene)
    assert view.work.wait(60)
    return view.chart.rows(waterfall.DATASET)


SLOW, FAST = trial("slow", 8e-3, pieces=4), trial("fast", 6e-3, "fused")


def test_the_best_is_compared_with_the_runner_up_by_the_simulator_where_parts_were_not_timed(view: WhyView) -> None:
    records = drawn(view, Scene(Exploration(), [SLOW, FAST]))
    assert "fused" in view.text.value
    assert "faster than decomposed" in view.text.value
    assert "The simulator" in view.text.value
    assert SIMULATED in view.text.value
    assert {record["schedule"].partition(",")[0] for record in records} == {"fused", "decomposed"}
    for lane in (0, 1):
        parts = [record for record in records if record["lane"] == lane]
        assert parts[-2]["stop_ms"] == pytest.approx(parts[-1]["stop_ms"], rel=1e-4), "the parts sum to the time"
        assert parts[-1]["name"] == "time, estimated"


def test_the_selected_row_is_compared_with_the_pinned_one(view: WhyView) -> None:
    other = trial("other", 7e-3, pieces=8)
    state = Exploration(selected=row_id(SLOW), baseline=row_id(other))
    records = drawn(view, Scene(state, [SLOW, FAST, other]))
    assert {record["schedule"] for record in records} == {"decomposed, pieces 4", "decomposed, pieces 8"}
    assert "slower than decomposed, pieces 8" in view.text.value


def test_a_click_on_the_other_schedule_selects_it(view: WhyView, events: list[Event]) -> None:
    records = drawn(view, Scene(Exploration(), [SLOW, FAST]))
    view._clicked(Click(datum=records[0], layer="losses", shift=False))
    assert events == [], "it is selected already"
    view._clicked(Click(datum=records[-1], layer="losses", shift=False))
    assert events == [Select(row_id(SLOW))]


def test_one_schedule_alone_is_compared_with_its_floor(view: WhyView) -> None:
    records = drawn(view, Scene(Exploration(), [{**SLOW, "floor_s": None}]))
    assert ALONE in view.text.value
    assert "above its floor" in view.text.value
    assert all("lane" not in record for record in records)
    assert drawn(view, Scene(Exploration(), [SLOW, FAST]))[0]["lane"] == 0, "and with two again"


def test_without_a_time_it_says_so(view: WhyView) -> None:
    assert drawn(view, Scene(Exploration(), [{**SLOW, "time_s": None}])) == []
    assert NOTHING in view.text.value


def test_what_was_drawn_before_there_was_nothing_is_drawn_again(view: WhyView) -> None:
    scene = Scene(Exploration(), [SLOW, FAST])
    before = drawn(view, scene)
    assert drawn(view, Scene(Exploration(), [])) == []
    assert drawn(view, scene) == before


def test_a_calibration_makes_the_parts_anew(events: list[Event], store: Store) -> None:
    machines = {"laptop_cpu": LAPTOP}
    view = WhyView(events.append, store, machines.get)
    before = [record["stop_ms"] for record in drawn(view, Scene(Exploration(), [SLOW]))]
    machines["laptop_cpu"] = replace(LAPTOP, digest="another")
    view.chart.replace(waterfall.DATASET, [])
    assert [record["stop_ms"] for record in drawn(view, Scene(Exploration(), [SLOW]))] == before
    view.close()


def test_estimates_are_compared_as_estimates(view: WhyView) -> None:
    rows = [{**each, "source": "estimated", "rounds_s": None} for each in (SLOW, FAST)]
    drawn(view, Scene(Exploration(selected=row_id(rows[1])), rows))
    assert "By estimate, fused" in view.text.value
    assert SIMULATED not in view.text.value


def test_a_machine_without_a_description_leaves_the_parts_unknown(view: WhyView) -> None:
    rows = [{**each, "machine": "elsewhere"} for each in (SLOW, FAST)]
    records = drawn(view, Scene(Exploration(), rows))
    assert "Which parts make the difference is not known" in view.text.value
    assert {record["words"] for record in records if record["name"] == "contention"} == {"not known"}


def test_before_any_run_the_forms_schedule_is_compared_with_the_best_of_its_space(
    view: WhyView, events: list[Event]
) -> None:
    space = space_of("decomposed", pieces=4)
    records = drawn(view, Scene(Exploration(), [], space=space))
    assert ESTIMATED in view.text.value
    assert "By estimate, decomposed" in view.text.value
    assert "above its floor of" in view.text.value
    assert SIMULATED not in view.text.value
    assert {record["lane"] for record in records} == {0, 1}
    assert records[-1]["name"] == "time, estimated"
    frame = space.answer().frame
    best = frame.row(int(frame.order("time_s")[0]))
    view._clicked(Click(datum=records[-1], layer="losses", shift=False))
    assert events == [Select(row_id(best))], "the fastest of the whole space"


def test_the_best_of_the_space_has_its_runner_up(view: WhyView) -> None:
    space = space_of()
    frame = space.answer().frame
    order = frame.order("time_s").tolist()
    best = frame.row(order[0])
    drawn(view, Scene(Exploration(selected=row_id(best)), [], space=space))
    second = next(each for each in map(frame.row, order) if each["time_s"] > best["time_s"] * (1 + 1e-6))
    assert view._other == row_id(second)
    assert " faster than " in view.text.value


def test_the_runner_up_is_one_that_the_filters_keep_and_it_says_how_many_they_leave_out(view: WhyView) -> None:
    rows = [SLOW, FAST, trial("other", 7e-3, pieces=8)]
    drawn(view, Scene(Exploration(), rows))
    assert view._other == row_id(rows[2])
    filters = Filters().with_range("pieces", (1.0, 4.0))
    drawn(view, Scene(Exploration(selected=row_id(FAST), filters=filters), rows))
    assert view._other == row_id(SLOW)
    assert "The filter leaves out 2 of 3 rows." in view.text.value
    space = space_of("decomposed", pieces=4)
    filters = Filters().with_words("scheme", frozenset({"sequential"}))
    drawn(view, Scene(Exploration(filters=filters), [], space=space))
    assert view._other is not None
    assert view._other.startswith("/sequential ")
    frame = space.answer().frame
    kept = len(space.answer().fastest(filters))
    assert f"The filter leaves out {len(frame) - kept:,} of {len(frame):,} estimates." in view.text.value


def test_a_measurement_is_compared_with_the_pinned_estimate_without_a_verdict(view: WhyView) -> None:
    space = space_of()
    estimate = row_id({**FAST, "run": None, "source": "estimated"})
    scene = Scene(Exploration(selected=row_id(FAST), baseline=estimate), [SLOW, FAST], space=space)
    drawn(view, scene)
    assert scene.baseline is not None
    assert "fused, measured, has" in view.text.value
    assert "an estimate has no verdict" in view.text.value
    assert "faster" not in view.text.value


class TimedStore:
    """Stands for a store with a timeline of each trial, and its computation alone."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = {row["key"]: row for row in rows}

    def spans(self, run: str, key: str, source: str, block: str) -> tuple[Span, ...]:
        problem, chosen = current_problem_and_schedule(self._rows[key])
        trial = Trial(problem=problem, schedule=chosen, backend="cpu", machine=LAPTOP.name, protocol=protocol("quick"),
                      fabric=fabrics.parse(self._rows[key]["fabric"]))  # fmt: skip
        return predict(trial, LAPTOP).spans

    def rows(self, run: str) -> list[Row]:
        return [*self._rows.values(), *({**each, "part": "compute", "time_s": 2e-3} for each in self._rows.values())]


def test_parts_that_were_timed_are_shown_as_such(events: list[Event]) -> None:
    rows = [SLOW, FAST]
    view = WhyView(events.append, TimedStore(rows), {"laptop_cpu": LAPTOP}.get)  # type: ignore[arg-type]
    records = drawn(view, Scene(Exploration(), rows))
    view.close()
    assert SIMULATED not in view.text.value
    assert "The simulator" not in view.text.value
    assert records[-1]["name"] == "time, measured"
    assert {record["words"] for record in records if record["name"] == "decomposition"} == {"1 ms"}
    assert "faster than decomposed, " in view.text.value


def test_no_part_of_the_simulator_is_called_the_floor_where_that_was_measured(view: WhyView) -> None:
    records = drawn(view, Scene(Exploration(), [SLOW, FAST]))
    assert {record["name"] for record in records if record["part"] == "floor"} == {LONGER_ALONE}
    assert "floor" not in view.text.value
    without = [{**each, "floor_s": None} for each in (SLOW, FAST)]
    records = drawn(view, Scene(Exploration(), without))
    assert {record["name"] for record in records if record["part"] == "floor"} == {"floor"}
    assert "above its floor" in view.text.value
