"""Along an axis a line joins marks that may be compared, and no others."""

from __future__ import annotations

import json
import re
from typing import Any

import altair as alt
import pytest
import vl_convert

from tests.widgets.conftest import row
from workbench.charts import sweep, trials
from workbench.results import verdict
from workbench.results.rows import Row

ROUNDS = [1e-3, 1.1e-3, 0.9e-3]


def sliced(slices: int, **more: Any) -> Row:
    """A fused schedule of so many tiles per slice, in block `r.1` unless *more* says otherwise."""
    axes = {"tile": "32x64x64", "slice_tiles": slices}
    return row(key=f"k{slices}", axes=axes, **{"block": "r.1", "rounds_s": ROUNDS, **more})


@pytest.mark.parametrize(
    ("first", "second", "is_joined"),
    [
        (sliced(1), sliced(2), True),
        (sliced(1), sliced(2, block="r.2"), False),
        (sliced(1, block=None), sliced(2, block=None), True),
        (sliced(1, block=None), sliced(2, block=None, run="other"), False),
    ],
)
def test_a_line_joins_two_marks_where_the_verdict_compares_them(first: Row, second: Row, is_joined: bool) -> None:
    one, other = sweep.rows([first, second], "slice_tiles")
    assert (one["turns"] == other["turns"]) == is_joined
    assert (verdict.decide(first, second).word != verdict.NOT_COMPARED) == is_joined
    for chart in (sweep.chart([first, second], "slice_tiles"), sweep.live("slice_tiles", (1, 2))):
        (lines,) = [layer for layer in chart.to_dict()["layer"] if layer.get("name") == "lines"]
        assert "turns" in [each["field"] for each in lines["encoding"]["detail"]]


def test_estimates_of_all_blocks_are_joined() -> None:
    estimates = [sliced(slices, source="estimated", block=None, run=run) for slices, run in ((1, "a"), (2, "b"))]
    one, other = sweep.rows(estimates, "slice_tiles")
    assert one["turns"] == other["turns"] == ""


def drawn(chart: alt.LayerChart) -> str:
    """The picture of *chart* as SVG."""
    return vl_convert.vegalite_to_svg(json.dumps({**chart.to_dict(), "width": 600, "height": 200}))


def test_labels_of_levels_that_are_near_each_other_have_places_of_their_own() -> None:
    """Sequential and decomposed differ by 2 %: at one place their labels lay over each other."""
    levels = [row(key=scheme, scheme=scheme, axes={"tile": "32x64x64"}, time_s=seconds)
              for scheme, seconds in (("sequential", 3e-3), ("decomposed", 2.94e-3))]  # fmt: skip
    svg = drawn(sweep.chart([*levels, sliced(1), sliced(2)], "slice_tiles"))
    places = {words: float(x) for x, words in re.findall(r'translate\(([\d.]+),[\d.]+\)"[^>]*>(\w+ [\d.]+ ms)<', svg)}
    assert abs(places["sequential 3 ms"] - places["decomposed 2.94 ms"]) > 100


def test_no_mark_lies_at_the_end_of_the_axis_of_trials() -> None:
    """Of two schedules the last estimate lay at the end of the chart, beyond the last tick."""
    rows = [row(key=f"k{number}", source=source) for number in (1, 2) for source in ("measured", "estimated")]
    chart = trials.chart(rows).to_dict()
    (ends,) = [layer for layer in chart["layer"] if layer.get("name") == "ends"]
    assert ends["transform"][1]["calculate"] == "[0.5, datum.last + 0.5]"
    ticks = [text for text in re.findall(r">(\d+)</text>", drawn(trials.chart(rows))) if text in ("1", "2", "3")]
    assert ticks == ["1", "2"]
