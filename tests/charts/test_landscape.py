"""Charts over axes: one record per cell or value, the best marked, timed before estimated."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import pytest

from tests.charts.made import EVIL, estimate_of, made_row, svg
from workbench.charts import landscape, sweep

# The landscape: one record per cell, timed before estimated, the best marked, what to load on a click.


def cell(key: str, pieces: int, tile: str, time_s: float | None = 0.06, **given: object) -> dict[str, object]:
    axes = {"tile": tile, "pieces": pieces, "steps": key}
    return made_row(key, time_s, scheme="decomposed", axes=axes, **given)


def test_a_cell_is_its_fastest_trial_and_a_click_brings_that_schedule() -> None:
    (found,) = landscape.rows([cell("slow", 4, "t", 0.07), cell("fast", 4, "t", 0.05)], "pieces", "tile")
    assert (found["x"], found["y"], found["time_ms"], found["count"]) == (4, "t", 50, 2)
    assert (found["key"], found["scheme"]) == ("fast", "decomposed")
    assert found["axes"] == {"tile": "t", "pieces": 4, "steps": "fast"}


def test_the_mean_is_of_all_trials_in_the_cell() -> None:
    (found,) = landscape.rows([cell("a", 4, "t", 0.07), cell("b", 4, "t", 0.05)], "pieces", "tile", "mean")
    assert found["time_ms"] == pytest.approx(60)
    assert found["key"] == "b"


def test_symbols_of_estimates_that_would_touch_are_left_out_and_those_of_times_are_not() -> None:
    """On a laptop's window those of 25 tiles were black bars across the map."""

    def hidden(num_tiles: int) -> int:
        measured = [cell("m", 4, "0")]
        estimates = [estimate_of(cell(f"e{tile}", 4, str(tile)), 0.06) for tile in range(1, num_tiles)]
        drawn = svg(landscape.live("pieces", "tile", num_rows=num_tiles), {landscape.DATASET: landscape.rows(
            [*measured, *estimates], "pieces", "tile")})  # fmt: skip
        return len(re.findall(r'<path [^>]*fill-opacity="0"[^>]* opacity="0"', drawn))

    assert hidden(5) == 0
    assert hidden(60) == 59


def test_the_legend_has_three_digits_and_none_without_a_time() -> None:
    rows = landscape.rows([cell("a", 1, "t", 0.318756), cell("b", 2, "t", 0.543432)], "pieces", "tile")
    drawn = svg(landscape.live("pieces", "tile"), {landscape.DATASET: rows})
    assert ">319 ms<" in drawn
    assert ">543 ms<" in drawn
    assert ">NaN" not in svg(landscape.live("pieces", "tile"), {landscape.DATASET: []})


def test_cells_that_hardly_differ_have_hardly_other_colours() -> None:
    """30.8 and 30.9 µs were yellow and purple, and the legend read 30.9, 30.8, 30.8."""
    given = [cell(str(pieces), pieces, "t", time_s) for pieces, time_s in ((1, 30.8e-6), (2, 30.9e-6))]
    rows = landscape.rows(given, "pieces", "tile")
    assert [cell["ink"] for cell in rows] == [landscape.ON_PALE] * 2
    live = svg(landscape.live("pieces", "tile"), {landscape.DATASET: rows})
    for drawn in (live, svg(landscape.chart(given, "pieces", "tile"))):
        fills = [tuple(map(int, parts)) for parts in re.findall(r'fill="rgb\((\d+), (\d+), (\d+)\)"', drawn)]
        assert len(fills) == 2
        assert all(abs(one - other) < 60 for one, other in zip(*fills, strict=True))
        labels = re.findall(r">([0-9.]+) µs<", drawn)
        assert len(labels) == len(set(labels)) >= 2


def test_what_was_timed_covers_what_was_estimated_even_if_that_is_faster() -> None:
    measured = cell("a", 4, "t", 0.07)
    (found,) = landscape.rows([measured, estimate_of(measured, 0.05)], "pieces", "tile")
    assert (found["look"], found["time_ms"], found["estimate"]) == ("measured", 70, "50 ms")


def test_estimates_have_the_scale_of_what_the_same_run_timed_and_the_map_says_so() -> None:
    timed = [cell(f"m{pieces}", pieces, "t", time_s) for pieces, time_s in ((1, 0.10), (2, 0.06), (4, 0.05))]
    estimates = [estimate_of(row, row["time_s"] * 2) for row in timed]
    alone = estimate_of(cell("e", 8, "t"), 0.08)
    rows = [*estimates, alone, *timed]
    cells = {found["x"]: found for found in landscape.rows(rows, "pieces", "tile")}
    assert {x: found["time_ms"] for x, found in cells.items()} == pytest.approx({1: 100, 2: 60, 4: 50, 8: 40})
    assert cells[8]["look"] == "estimated"
    assert cells[8]["estimate"] == "80 ms", "the estimate itself is in the tooltip"
    assert "about 40 ms, as timed here" in cells[8]["time"]
    title = str(landscape.chart(rows, "pieces", "tile").to_dict()["title"])
    assert "times 0.50: timed / estimated of 3 schedules of this run" in title


def test_without_a_schedule_of_both_kinds_estimates_stay_as_they_are_and_the_map_says_so() -> None:
    rows = [cell("a", 1, "t", 0.07), estimate_of(cell("e", 2, "t"), 0.04)]
    assert sorted(found["time_ms"] for found in landscape.rows(rows, "pieces", "tile")) == [40, 70]
    assert "no schedule was both timed and estimated" in landscape.scale_text(rows)
    assert landscape.scale_text(rows[1:]) == landscape.scale_text(rows[:1]) == ""


def test_a_map_has_one_star_on_the_fastest_cell_that_was_timed() -> None:
    estimated = [estimate_of(cell(f"e{pieces}", pieces, "u"), 0.04 + pieces / 1000) for pieces in (1, 2)]
    rows = [cell("a", 1, "t", 0.07), cell("b", 2, "t", 0.05), *estimated]
    best = {(found["x"], found["y"]) for found in landscape.rows(rows, "pieces", "tile") if found["best"]}
    assert best == {(2, "t")}
    assert [found["x"] for found in landscape.rows(estimated, "pieces", "tile") if found["best"]] == [1]


def test_a_cell_that_only_failed_says_why() -> None:
    (found,) = landscape.rows([cell("a", 64, "t", None, stage="refused", message="64 > 32.")], "pieces", "tile")
    assert (found["look"], found["time_ms"], found["time"]) == ("failed", None, "no time: refused. 64 > 32.")


def test_the_subtitle_counts_what_has_no_place() -> None:
    rows = [cell("a", 1, "t"), made_row("s", scheme="sequential", axes={"tile": "t"})]
    assert "Outcomes without pieces or tile, and so not here: 1." in str(
        landscape.chart(rows, "pieces", "tile").to_dict()
    )


def test_an_unknown_statistic_is_refused_with_what_is_accepted() -> None:
    with pytest.raises(ValueError, match=r"There is no statistic 'median'\. Accepted: best, mean"):
        landscape.rows([], "pieces", "tile", "median")


def test_axes_that_came_back_from_a_file_as_text_still_count() -> None:
    frame = pd.DataFrame([{**cell("a", 4, "t"), "axes": json.dumps({"tile": "t", "pieces": 4})}])
    assert landscape.rows(frame, "pieces", "tile")[0]["x"] == 4


def test_many_cells_have_no_number_each() -> None:
    rows = [cell(f"{x}-{y}", x, str(y)) for x in range(1, 21) for y in range(10)]
    assert {found["label"] for found in landscape.rows(rows, "pieces", "tile")} == {None}


def test_markup_in_an_axis_value_shows_as_text() -> None:
    drawn = svg(landscape.chart([cell("a", 1, EVIL)], "pieces", "tile"))
    assert "<img" not in drawn
    assert "&lt;img" in drawn


# The chart over one axis: the fastest at each value, schemes without the axis as level lines.


def at(pieces: int, time_s: float, **axes: Any) -> dict[str, Any]:
    return made_row(f"{pieces}{axes}", time_s, scheme="decomposed", axes={"pieces": pieces, **axes})


def x_of(chart: Any) -> dict[str, Any]:
    layers = chart.to_dict()["layer"]
    return next(layer["encoding"]["x"] for layer in layers if layer["name"] == "points")


def test_halving_and_doubling_are_equal_steps() -> None:
    scale = x_of(sweep.live("pieces", (1, 2, 4, 64)))["scale"]
    assert (scale["type"], scale["base"]) == ("log", 2)


def test_an_axis_that_may_be_zero_is_not_logarithmic() -> None:
    assert "type" not in x_of(sweep.live("comm_sms", (0, 4, 8)))["scale"]


def test_words_have_no_line_between_them() -> None:
    spec = sweep.live("tile_order", ("natural", "rotated")).to_dict()
    assert "lines" not in [layer["name"] for layer in spec["layer"]]


def test_the_fastest_of_all_is_named_with_its_value() -> None:
    rows = [at(2, 0.08), at(8, 0.061), at(8, 0.0517, split="columns"), at(32, 0.07), estimate_of(at(4, 0.06), 0.02)]
    assert "8: 51.7 ms" in svg(sweep.chart(rows, "pieces"))


def test_sequential_is_a_level_line_with_its_name() -> None:
    sequential = made_row("s", 0.085, scheme="sequential", axes={"tile": "64x64x64"})
    drawn = svg(sweep.live("pieces", (1, 2)), {sweep.DATASET: sweep.rows([sequential, at(1, 0.07)], "pieces")})
    assert "sequential 85 ms" in drawn
    assert "floor 43 ms" in drawn


def test_failures_are_no_points() -> None:
    assert sweep.rows([made_row("a", None, stage="hang")], "pieces") == []
