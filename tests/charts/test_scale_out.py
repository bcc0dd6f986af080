"""Charts of steps: two bars for each number of ranks, the exposed part on top, and where it shows, in both modes."""

from typing import Any

import pytest

from tests.charts.made import svg
from workbench.charts import scale_out, theme


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
