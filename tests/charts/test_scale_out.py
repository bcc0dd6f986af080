"""Charts of steps on many ranks, and of published numbers beside ours."""

import json
from typing import Any

import pytest

from tests.charts.made import made_row, svg
from workbench.charts import best, claims, scale_out, sweep, theme, trials

# Charts of steps: two bars for each number of ranks, the exposed part on top, and where it shows, in both modes.


def step(world: int, **given: Any) -> dict[str, Any]:
    levels = [{"level": 0, "topology": "switch", "count": 8, "exposed_s": 0.001},
              {"level": 1, "topology": "fully_connected", "count": world // 8, "exposed_s": 0.003}]  # fmt: skip
    layers = [{"layer": "embedding", "pass": "forward", "exposed_s": 0.004}]
    return {"world": world, "configuration": "fused_forward", "scheme": "fused", "baseline_s": 0.02, "fused_s": 0.015,
            "exposed_share": 0.1, "baseline_exposed_share": 0.25, "exposed_by_level": levels, "exposed_by_layer": [],
            "baseline_exposed_by_level": levels, "baseline_exposed_by_layer": layers, **given}  # fmt: skip


STEPS = [step(4096), step(8), step(64)]


def test_the_parts_of_a_bar_are_its_time_and_the_exposed_part_is_its_share() -> None:
    records = scale_out.rows(STEPS)
    assert [record["world"] for record in records] == [8] * 4 + [64] * 4 + [4096] * 4
    for below, above in zip(records[::2], records[1::2], strict=True):
        assert (below["low_ms"], below["high_ms"]) == (0, above["low_ms"])
        assert above["high_ms"] - above["low_ms"] == pytest.approx(above["share"] * above["high_ms"])
    assert {record["high_ms"] for record in records if record["part"] == "exposed"} == {20, 15}


def test_live_it_names_one_dataset_and_draws_the_same_bars() -> None:
    live = scale_out.live()
    assert live.to_dict()["data"] == {"name": scale_out.DATASET}
    assert "fused forward, 4,096 ranks, exposed: 1.5 ms" in svg(live, {scale_out.DATASET: scale_out.rows(STEPS)})
    assert "<svg" in svg(live, {scale_out.DATASET: []})


def test_where_it_shows_is_told_by_layer_and_by_dimension_for_both() -> None:
    records = scale_out.where_rows(STEPS[0])
    assert [(record["place"], record["configuration"], record["exposed_ms"]) for record in records] == [
        ("layer embedding, forward", "sequential", 4), ("dimension 0: 8 by switch", "sequential", 1),
        ("dimension 1: 512 by fully connected", "sequential", 3), ("layer embedding, forward", "fused forward", 0),
        ("dimension 0: 8 by switch", "fused forward", 1), ("dimension 1: 512 by fully connected", "fused forward", 3),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", list(theme.Mode))
def test_they_ask_a_question_and_draw_in_light_and_dark(mode: theme.Mode) -> None:
    with theme.enabled(mode):
        for chart in (scale_out.chart(STEPS, "DLRM"), scale_out.where(STEPS[0])):
            spec = chart.to_dict()
            assert spec["title"]["text"].endswith("?")
            assert spec["description"].endswith(".")
            drawn = svg(chart)
            assert theme.INKS[mode].text in drawn
            assert "Estimated" in drawn
    assert "10%" in svg(scale_out.chart(STEPS))


# The chart of claims: a published number is a mark of its own, beside ours, and on no line of ours in any chart.


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
