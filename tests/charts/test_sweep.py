"""Along an axis a line joins marks that may be compared, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.widgets.conftest import row
from workbench.charts import sweep
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
