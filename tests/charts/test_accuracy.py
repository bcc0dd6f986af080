"""The chart of errors: a mark for each whole trial, a band where a bound is known, held out told by shape."""

from typing import Any

import pytest

from tests.charts.made import made_row, svg
from workbench.charts import accuracy, theme


def trial(measured: float, estimated: float, **given: Any) -> dict[str, Any]:
    return {**made_row("k", measured), "measured_s": measured, "estimated_s": estimated, "trivial_s": measured / 2,
            "error": estimated / measured - 1, "held_out": False, **given}  # fmt: skip


TRIALS = [trial(1.0, 1.1), trial(2.0, 1.8, held_out=True), trial(1.0, 1.5, scheme="sequential"),
          trial(1.0, 9.0, part="compute")]  # fmt: skip
BOUNDS = [{"machine": "laptop", "operator": "gemm_all_to_all", "scheme": "fused", "p90": 0.2}]


def test_each_whole_trial_is_a_mark_and_each_kind_a_line() -> None:
    marks = accuracy.rows(TRIALS[:3])
    assert [round(mark["off"], 3) for mark in marks] == [0.1, -0.1, 0.5]
    assert [mark["split"] for mark in marks] == ["others", "held out", "others"]
    lines = accuracy.kinds(TRIALS[:3], BOUNDS)
    assert [(line["scheme"], line["low"], line["high"]) for line in lines] == [
        ("sequential", None, None), ("fused", -0.2, 0.2),
    ]  # fmt: skip
    assert {line["roofline"] for line in lines} == {-0.5}


def test_a_machine_without_a_bound_leaves_no_band() -> None:
    (line,) = accuracy.kinds([TRIALS[0], trial(1.0, 1.0, machine="pod")], BOUNDS)
    assert line["high"] is None


@pytest.mark.parametrize("mode", list(theme.Mode))
def test_it_asks_a_question_and_draws_in_light_and_dark(mode: theme.Mode) -> None:
    with theme.enabled(mode):
        chart = accuracy.chart(TRIALS, BOUNDS)
        assert chart.to_dict()["title"]["text"].endswith("?")
        drawn = svg(chart)
    assert theme.INKS[mode].text in drawn
    assert "3 whole trials" in drawn
    assert "-10 % off" in drawn or "10 % off" in drawn
