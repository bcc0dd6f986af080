"""The chart of trials: measured, estimated, floor, guess and failures of one trial share its number."""

from __future__ import annotations

import pandas as pd

from tests.charts.made import EVIL, estimate_of, made_row, svg
from workbench.charts import trials


def test_measured_estimate_and_floor_of_one_trial_stand_at_its_number() -> None:
    row = made_row("a", 0.0612)
    found = trials.rows([made_row("z"), row, estimate_of(row, 0.059)])
    second = [record for record in found if record["number"] == 2]
    assert [(record["look"], record["time_ms"]) for record in second] == [
        ("measured", 61.2),
        ("floor", 43),
        ("estimated", 59),
    ]
    assert all(abs(record["place"] - 2) < 0.5 for record in second)


def test_the_same_numbers_at_every_append_number_on() -> None:
    numbers: dict[str, int] = {}
    trials.rows([made_row("a"), made_row("b")], numbers=numbers)
    later = trials.rows([made_row("c"), made_row("a")], numbers=numbers)
    assert [record["number"] for record in later if record["look"] == "measured"] == [3, 1]


def test_compute_alone_is_not_a_trial_of_its_own() -> None:
    assert trials.rows([made_row("a", part="compute")]) == []


def test_a_failure_has_no_time_and_says_its_stage_and_sentence() -> None:
    (failed, _) = trials.rows([made_row("a", None, stage="refused", message="64 > 32.")])
    assert (failed["look"], failed["time_ms"]) == ("failed", None)
    assert failed["time"] == "no time: refused. 64 > 32."


def test_a_guess_has_the_trials_colour_and_its_own_look() -> None:
    record = trials.guess(made_row("a"), 0.05, number=7)
    assert (record["look"], record["time_ms"], record["scheme"], record["number"]) == ("guess", 50, "fused", 7)


def test_over_an_axis_a_scheme_without_it_is_shown_apart_and_not_left_out() -> None:
    sequential = made_row("s", scheme="sequential", axes={"tile": "64x64x64"}, floor_s=None)
    found = trials.rows([made_row("a", floor_s=None), sequential], axis="slice_tiles")
    assert [record["place"] for record in found] == [8, trials.WITHOUT]


def test_a_frame_says_the_same_as_rows() -> None:
    rows = [made_row("a"), made_row("b", None, stage="hang", message="Rank 1 waited.")]
    assert trials.rows(pd.DataFrame(rows)) == trials.rows(rows)


def test_cpu_times_are_labelled_and_uncalibrated_estimates_say_so() -> None:
    row = made_row("a")
    measured, _, estimated = trials.rows([row, estimate_of(row, 0.05) | {"calibrated": False}])
    assert measured["machine"] == "laptop, plan executed on CPU ranks"
    assert estimated["source"] == "estimated, not calibrated"
    assert estimated["verified"].startswith("does not apply")


def test_markup_in_a_message_and_a_machine_shows_as_text() -> None:
    rows = [made_row("a", None, stage="wrong", message=EVIL), made_row("b", machine=EVIL)]
    drawn = svg(trials.chart(rows))
    assert "<img" not in drawn
    assert "&lt;img" in drawn


def test_every_source_has_a_look_of_its_own() -> None:
    rows = [made_row(source, source=source) for source in ("measured", "recorded", "estimated", "published")]
    assert len({trials.LOOKS[record["look"]] for record in trials.rows(rows) if record["look"] != "floor"}) == 4
