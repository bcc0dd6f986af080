"""Charts of trials, of the best so far and of samples, and the words for their rows."""

from __future__ import annotations

import re
from typing import Any

import altair as alt
import pandas as pd
import pytest
import vl_convert

from kernels.outcome import Sample
from tests.charts.made import EVIL, FABRIC, estimate_of, made_row, svg
from workbench.charts import best, labels, layers, samples, sweep, trials
from workbench.charts.theme import HALO, INKS, Mode, config

# The chart of trials: measured, estimated, floor, guess and failures of one trial share its number.


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


def test_every_mark_is_called_by_its_schedule_and_none_by_its_number() -> None:
    row = made_row("a", 0.0612)
    records = [*trials.rows([made_row("z", None, stage="hang"), row]), *best.rows([row]), trials.guess(row, 0.05, 7)]
    assert all("fused, tile 128x128x64, tiles per slice 8" in record["aloud"] for record in records)
    assert not re.search(r"[Tt]rial [0-9]", svg(trials.chart([row])) + svg(best.chart([row])))


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


# The chart of the best so far: the page finds it among the rows, timed before estimated.


def test_the_best_timed_trial_is_named_even_when_an_estimate_is_faster() -> None:
    rows = [made_row("a", 0.07, scheme="sequential"), made_row("b", 0.0523), made_row("c", 0.08)]
    drawn = svg(best.chart([*rows, estimate_of(rows[0], 0.01)]))
    assert "fused, tiles per slice 8, 52.3 ms" in drawn


def test_floor_and_sequential_are_lines_with_names_and_the_newest_value() -> None:
    rows = [made_row("a", floor_s=0.050), made_row("b", floor_s=0.043), made_row("c", floor_s=None)]
    drawn = svg(best.live(), {best.DATASET: best.rows(rows)})
    assert "floor 43 ms" in drawn
    assert "sequential 85 ms" in drawn


def test_failures_take_a_number_but_have_no_dot() -> None:
    found = best.rows([made_row("a", None, stage="hang"), made_row("b")])
    assert [record["number"] for record in found] == [2]


def test_over_time_the_first_row_is_the_beginning() -> None:
    found = best.rows([{**made_row("a"), "at": 100.0}, {**made_row("b"), "at": 102.5}])
    assert [record["elapsed_s"] for record in found] == [0.0, 2.5]
    assert best.rows([{**made_row("c"), "at": 105.0}], began_at=100.0)[0]["elapsed_s"] == 5.0


def test_another_axis_is_refused() -> None:
    with pytest.raises(ValueError, match=r"There is no best over 'money'\. Accepted: trials, time"):
        best.live("money")


def test_words_of_levels_and_bests_lie_over_lines_and_marks_in_a_halo() -> None:
    for chart in (best.live(), sweep.live("pieces", (1, 2, 4))):
        marks = [layer["mark"] for layer in chart.to_dict()["layer"]]
        is_text = [mark["type"] == "text" for mark in marks]
        assert is_text == sorted(is_text), "words come after what they lie on"
        texts = [mark for mark in marks if mark["type"] == "text"]
        assert [mark.get("style") for mark in texts] == [HALO, None] * 3
        assert all(config(mode)["style"][HALO]["stroke"] == INKS[mode].page for mode in Mode)


def test_the_best_is_named_above_itself_where_the_floor_is_near() -> None:
    def height(floor_s: float | None) -> float:
        drawn = svg(best.chart([made_row(key, time_s, floor_s=floor_s) for key, time_s in (("a", 0.09), ("b", 0.05))]))
        (y,) = set(re.findall(r"translate\([\d.]+,([\d.]+)\)[^>]*>fused, tiles per slice 8, 50 ms", drawn))
        return float(y)

    assert height(0.049) < height(None) - 15


# The chart of samples: one dot each, and the slowest rank's median in words, found by the page.


def some(rank: int, *milliseconds: float) -> list[Sample]:
    return [Sample("k", rank, index, time / 1000, 0.0) for index, time in enumerate(milliseconds)]


def test_a_sample_is_a_small_record_in_milliseconds() -> None:
    (record,) = samples.rows(some(1, 61.25), scheme="fused")
    assert (record["rank"], record["index"], record["time_ms"], record["scheme"]) == (1, 0, 61.25, "fused")


def test_rows_of_the_store_and_samples_give_the_same_records() -> None:
    assert samples.rows([{"rank": 1, "index": 0, "seconds": 0.06}]) == samples.rows(some(1, 60))


def test_the_slowest_ranks_median_is_named_not_the_slowest_sample() -> None:
    drawn = svg(samples.chart([*some(0, 50, 51, 900), *some(1, 60, 61, 62)], "fused"))
    assert "slowest: rank 1, median 61 ms" in drawn


def test_rows_that_arrive_later_are_counted_in() -> None:
    rows = samples.rows([*some(0, 50, 51, 52), *some(1, 10, 11, 12), *some(1, 80, 81, 82, 83)])
    assert "slowest: rank 1, median 80 ms" in svg(samples.live(), {samples.DATASET: rows})


# Rows in words: units, what is missing, what CPU ranks are.


def test_a_link_is_said_in_peoples_units() -> None:
    assert labels.fabric_label(FABRIC) == "emulated link, wire : compute = 1, 533 MB/s, latency 100 µs"
    assert labels.fabric_label("shared_memory") == "shared memory"
    assert labels.fabric_label("somebody's:speed=fast") == "somebody's:speed=fast"


def test_what_is_missing_in_a_frame_is_none() -> None:
    frame = pd.DataFrame([{"time_s": 1.0, "stage": None}, {"time_s": float("nan"), "stage": "hang"}])
    assert labels.listed(frame)[1]["time_s"] is None
    assert labels.listed(frame)[0]["stage"] is None


@pytest.mark.parametrize(
    ("correct", "source", "verdict"),
    [
        (True, "measured", "yes, equal to the reference"),
        (False, "measured", "no, the result is wrong"),
        (None, "measured", "not stated"),
        (None, "estimated", "does not apply: simulated, nothing was computed"),
    ],
)
def test_verified_is_never_claimed_for_what_was_not(correct: bool | None, source: str, verdict: str) -> None:
    assert labels.verdict_text(made_row("a", correct=correct, source=source)) == verdict


def test_only_timed_rows_of_cpu_ranks_are_called_so() -> None:
    row = made_row("a")
    assert labels.machine_label(row) == "laptop, plan executed on CPU ranks"
    assert labels.machine_label(estimate_of(row, 0.05)) == "laptop"
    assert labels.machine_label({**row, "backend": "triton"}) == "laptop"


def test_the_context_is_what_all_rows_have_in_common() -> None:
    said = labels.context([made_row("a"), made_row("b", world=4)])
    assert said == (
        "GEMM -> all-to-all · m = 2048, n = 512, k = 1024 · float32 · laptop, plan executed on CPU ranks"
        " · emulated link"
    )


def test_a_long_subtitle_breaks_between_its_parts() -> None:
    lines = labels.title("Why?", labels.context([made_row("a")])).to_dict()["subtitle"]
    assert len(lines) == 2
    assert lines[1].startswith("laptop, plan executed on CPU ranks")
    assert not any(line.endswith("·") for line in lines)


# Several runs, and the selected row.

TWO_RUNS = [{**made_row("a", time_s), "run": run, "run_name": f"run {run}, measured", "mark": f"{run}/a"}
            for run, time_s in (("r", 0.05), ("s", 0.06))]  # fmt: skip
LOOK = layers.Look(runs=("run r, measured", "run s, measured"))


@pytest.mark.parametrize(
    ("live", "dataset", "records"),
    [
        (trials.live(look=LOOK), trials.DATASET, trials.rows(TWO_RUNS)),
        (best.live(look=LOOK), best.DATASET, best.rows(TWO_RUNS)),
        (sweep.live("slice_tiles", (1, 8), look=LOOK), sweep.DATASET, sweep.rows(TWO_RUNS, "slice_tiles")),
    ],
    ids=["trials", "best", "sweep"],
)
def test_two_runs_differ_in_shape_and_the_selected_mark_has_a_ring(
    live: alt.LayerChart, dataset: str, records: list[dict[str, Any]]
) -> None:
    drawn = svg(live, {dataset: records})
    for row in TWO_RUNS:
        assert f">{row['run_name']}<" in drawn, "the legend lists it"
        assert f"measured; run {row['run']}" in drawn
    assert layers.SELECTED_INK not in drawn, "nothing is selected"
    spec = live.to_dict()
    (parameter,) = (one for one in spec["params"] if one["name"] == layers.SELECTED)
    parameter["value"] = "s/a"
    ringed = vl_convert.vegalite_to_svg({**spec, "datasets": {dataset: records}}, vl_version="6.4")
    assert ringed.count(layers.SELECTED_INK) == 1


def test_a_failure_that_is_selected_has_a_ring_too() -> None:
    failure = {**made_row("f", None, stage="hang"), "mark": "r/f"}
    spec = trials.live().to_dict()
    spec["params"][0]["value"] = "r/f"
    ringed = vl_convert.vegalite_to_svg({**spec, "datasets": {trials.DATASET: trials.rows([failure])}},
                                        vl_version="6.4")  # fmt: skip
    assert ringed.count(layers.SELECTED_INK) == 1
