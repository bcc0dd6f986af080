"""The chart of claims: a published number is a mark of its own, beside ours, and on no line of ours in any chart."""

import json
from typing import Any

import pytest

from tests.charts.made import made_row, svg
from workbench.charts import best, claims, sweep, theme, trials


def answer(name: str, ours: float | None, **given: Any) -> dict[str, Any]:
    low, high = (None, None) if ours is None else (ours - 0.1, ours + 0.05)
    return {"id": name, "scope": f"scope {name}", "aggregate": "max", "version": "v1", "verified": True,
            "scheme": "fused",
            "published_reduction": 0.2, "ours_reduction": ours, "low_reduction": low, "high_reduction": high,
            "source": None if ours is None else "recorded", "paper": "arXiv:1", "published_baseline": "library",
            "published_machine": "one node", "over": "the best", "machine": "h200_nvl2", **given}  # fmt: skip


ANSWERS = [answer("A", 0.3), answer("B", None, verified=False), answer("C", 0.1, published_reduction=None)]


def test_each_claim_has_the_published_mark_and_ours_where_there_is_one() -> None:
    records = claims.rows(ANSWERS)
    assert [(record["claim"][:7], record["look"]) for record in records] == [
        ("scope A", "published"), ("scope A", "recorded"), ("scope B", "published"),
    ]  # fmt: skip
    assert "unverified" in records[2]["claim"]
    assert records[0]["low"] is None, "a published number has no band of ours"


@pytest.mark.parametrize("mode", list(theme.Mode))
def test_it_asks_a_question_and_draws_in_light_and_dark(mode: theme.Mode) -> None:
    with theme.enabled(mode):
        chart = claims.chart(ANSWERS)
        assert chart.to_dict()["title"]["text"].endswith("?")
        drawn = svg(chart)
    assert theme.INKS[mode].text in drawn
    assert "scope A, at most (v1): published 20%" in drawn


def test_a_published_time_is_a_diamond_on_no_line_of_any_chart() -> None:
    ours = [made_row(key, time_s, axes={"tile": "t", "slice_tiles": slices})
            for key, time_s, slices in (("a", 0.06, 1), ("b", 0.05, 2))]  # fmt: skip
    paper = made_row("p", 0.04, source="published", axes={"tile": "t", "slice_tiles": 4}, paper="arXiv:2305.06942",
                     verified=False, correct=None)  # fmt: skip
    for draw in (lambda rows: sweep.chart(rows, "slice_tiles"), best.chart, trials.chart):
        alone, both = svg(draw(ours)), svg(draw([*ours, paper]))
        assert "published, arXiv:2305.06942, unverified" in both
        assert lines(both) == lines(alone), draw
    assert "neither run nor computed here" in json.dumps(trials.rows([paper]))


def lines(drawn: str) -> int:
    """How many marks of lines *drawn* has."""
    return drawn.count('class="mark-line role-mark')
