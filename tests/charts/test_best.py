"""The chart of the best so far: the page finds it among the rows, timed before estimated."""

from __future__ import annotations

import re

import pytest

from tests.charts.made import estimate_of, made_row, svg
from workbench.charts import best, sweep
from workbench.charts.theme import HALO, INKS, Mode, config


def test_the_best_timed_trial_is_named_even_when_an_estimate_is_faster() -> None:
    rows = [made_row("a", 0.07, scheme="sequential"), made_row("b", 0.0523), made_row("c", 0.08)]
    drawn = svg(best.chart([*rows, estimate_of(rows[0], 0.01)]))
    assert "fused, 52.3 ms" in drawn


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
        (y,) = set(re.findall(r"translate\([\d.]+,([\d.]+)\)[^>]*>fused, 50 ms", drawn))
        return float(y)

    assert height(0.049) < height(None) - 15
