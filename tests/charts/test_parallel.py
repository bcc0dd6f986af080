"""Lines over upright axes: which rows and axes are drawn, and that Vega draws what the numbers say."""

from __future__ import annotations

import json
import re

import numpy as np
import vl_convert

from workbench.charts import parallel
from workbench.results.columns import Frame, frame_of, grid_frame

SAME = {"source": "estimated", "scheme": "fused", "shape": {"m": 64}, "world": 2}


def frame(count: int) -> Frame:
    points = {"pieces": 2 ** (np.arange(count) % 7), "write": np.array(["staged", "zero_copy"])[np.arange(count) % 2]}
    return grid_frame(SAME, points, 1e-3 * (1 + np.arange(count)))


def axes(given: Frame) -> tuple[parallel.ParallelAxis, ...]:
    names = ["write", "pieces", "world", "time_s"]
    return parallel.axes_of(given, names, ["Write", "Pieces", "Ranks", "Time"])


def test_axes_vary_powers_are_logarithmic_and_the_time_is_last() -> None:
    drawn = axes(frame(100))
    assert [axis.column for axis in drawn] == ["write", "pieces", "time_s"]
    assert [axis.scale for axis in drawn] == ["point", "log", "log"]
    assert drawn[1].ticks == (1, 2, 4, 8, 16, 32, 64)
    assert drawn[2].title == "Time, ms"


def test_of_many_rows_the_fastest_are_among_the_lines_and_on_top() -> None:
    given = frame(50_000)
    places = parallel.sample(given, np.arange(50_000) % 3 == 0)
    assert len(places) == len(set(places.tolist())) == parallel.LINES_MOST
    assert places[-500:].tolist() == [3 * number for number in reversed(range(500))]
    assert set((places % 3).tolist()) == {0}
    assert places[0] > 49_990
    assert len(parallel.sample(given, np.zeros(50_000, dtype=bool))) == 0


def test_a_line_has_its_place_whether_it_was_timed_and_a_number_for_each_axis() -> None:
    timed = {**SAME, "source": "measured", "time_s": 5e-3, "axes": {"pieces": 4}}
    given = frame_of([{**SAME, "time_s": 1e-3, "axes": {"pieces": 64, "write": "zero_copy"}},
                      {**SAME, "time_s": 2e-3, "axes": {"pieces": 1, "write": "staged"}}, timed])  # fmt: skip
    lines = parallel.rows(given, parallel.sample(given, np.ones(3, dtype=bool)), axes(given))
    np.testing.assert_allclose(lines[:, 2:], [[np.nan, 4, 5e-3], [0, 1, 2e-3], [1, 64, 1e-3]], rtol=1e-6)
    assert lines[:, :2].tolist() == [[2, 1], [1, 0], [0, 0]]


def test_vega_draws_each_line_through_its_values_and_a_brush_hides_others() -> None:
    given = frame(7)
    drawn = axes(given)
    drawing = parallel.drawing(drawn)
    drawing["data"][0]["values"] = [
        {"place": 0, "timed": False, "fast": 0, "v0": "staged", "v1": 1, "v2": 1e-3},
        {"place": 1, "timed": True, "fast": 1, "v0": "zero_copy", "v1": None, "v2": 7e-3},
    ]
    every = paths(drawing)
    assert len(every) == 2
    assert all(path.count("L") == 2 for path in every)
    assert f",{parallel.HEIGHT + parallel.NONE_BELOW:.1f}L" in every[1]
    brush = next(signal for signal in drawing["signals"] if signal["name"] == "b2")
    brush["value"] = [0, 20]  # the slow end
    hidden = vl_convert.vega_to_svg(json.dumps(drawing))
    assert hidden.count('stroke-opacity="0.05"') == 1


def paths(drawing: dict[str, object]) -> list[str]:
    """The lines that are drawn, in the order of their rows."""
    return re.findall(r'd="(M[^"]*L[^"]*L[^"]*)"', vl_convert.vega_to_svg(json.dumps(drawing)))
