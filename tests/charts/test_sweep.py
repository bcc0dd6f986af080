"""The chart over one axis: the fastest at each value, schemes without the axis as level lines."""

from __future__ import annotations

from typing import Any

from tests.charts.made import estimate_of, made_row, svg
from workbench.charts import sweep


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
