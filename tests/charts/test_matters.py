"""Charts of what matters: a bar per axis and source, and the front of time and what it takes."""

from __future__ import annotations

from typing import Any

import altair as alt
import pytest

from tests.charts.made import EVIL, estimate_of, made_row, svg
from workbench.charts import importance, pareto, theme

# Which axis matters: what was timed leads, the rest comes last, and what is not known has no bar.


def share(axis: str | None, of: float | None, source: str = "measured", **given: Any) -> dict[str, Any]:
    return {"axis": axis, "source": source, "share": of, "chance": 0.0, "values": 4, "why": "", **given}


SHARES = [
    share("tile_rows", 0.4), share("pieces", 0.5), share("split", 0.01, chance=0.05), share(None, 0.09),
    share("tile_rows", 0.8, "estimated"), share("pieces", 0.1, "estimated"), share("group_rows", None, "estimated",
                                                                                    why="no estimate reads it"),
]  # fmt: skip


def test_axes_are_in_the_order_of_what_was_timed_and_the_rest_is_last() -> None:
    records = importance.rows(SHARES)
    assert list(dict.fromkeys(record["axis"] for record in records)) == [
        "pieces", "tile_rows", "split", "group_rows", None,
    ]  # fmt: skip
    assert [record["look"] for record in records[:2]] == ["measured", "estimated"]


def test_a_share_that_chance_may_have_made_and_one_that_is_not_known_say_so() -> None:
    words = {(record["axis"], record["look"]): record for record in importance.rows(SHARES)}
    assert words["split", "measured"]["words"] == "1 %, no more than chance"
    assert words["group_rows", "estimated"]["words"] == "not known"
    assert words["group_rows", "estimated"]["meaning"] == "no estimate reads it"
    assert words["pieces", "measured"]["words"] == "50 %"
    (small,) = importance.rows([share("write", 1e-5)])
    assert small["words"] == "under 0.1 %"


def test_axes_that_are_known_together_are_one_bar_with_all_their_names() -> None:
    (record,) = importance.rows([share("tile_rows + store + num_warps + num_stages", 0.8)])
    assert record["name"] == "Tile rows, store and 2 more"
    assert "tile rows, store, warps and stages together explain" in record["meaning"]


@pytest.mark.parametrize("mode", list(theme.Mode))
def test_it_asks_a_question_and_draws_in_light_and_dark(mode: theme.Mode) -> None:
    trials = [{**made_row("a"), "sms": 4, "standing": pareto.ON}]
    with theme.enabled(mode):
        for chart in (importance.chart(SHARES), pareto.chart(trials, "sms", "SMs")):
            assert chart.to_dict()["title"]["text"].endswith("?")
            assert theme.INKS[mode].text in svg(chart)


def test_live_they_draw_the_same_marks_and_begin_empty() -> None:
    trials = [{**made_row("a"), "sms": 4, "standing": pareto.ON}]
    for live, dataset, records in (
        (importance.live(), importance.DATASET, importance.rows(SHARES)),
        (pareto.live("sms", "SMs"), pareto.DATASET, pareto.rows(trials, "sms")),
    ):
        assert live.to_dict()["data"] == {"name": dataset}
        assert "<svg" in svg(live, {dataset: []})
        grown = svg(live, {dataset: records})
        assert all(record["aloud"] in grown for record in records)


def test_estimates_are_hollow_beside_times() -> None:
    drawn = svg(importance.chart([share("pieces", 0.5), share("pieces", 0.5, "estimated")]))
    assert 'fill-opacity="0"' in drawn
    assert 'fill-opacity="1"' in drawn


# What speed takes.


def trial(key: str, time_s: float, num_bytes: int | None, standing: str = "", **given: Any) -> dict[str, Any]:
    return {**made_row(key, time_s, **given), "bytes_in_flight": num_bytes, "standing": standing, "id": f"r/{key}"}


def test_a_mark_has_its_amount_and_what_a_click_selects() -> None:
    (record,) = pareto.rows([trial("a", 0.05, 2_000_000, pareto.ON)], "bytes_in_flight")
    assert (record["id"], record["amount"], record["is_on"], record["time_ms"]) == ("r/a", "2 MB", 1, 50)


def test_what_is_not_known_has_no_mark() -> None:
    rows = [trial("a", 0.05, None), {**trial("b", 0.05, 8), "time_s": None}, trial("c", 0.05, 8, part="compute")]
    assert pareto.rows(rows, "bytes_in_flight") == []


def test_of_many_rows_the_marked_and_the_timed_stay() -> None:
    many = [{**estimate_of(trial(f"e{number}", 1.0, 8), 1.0), "id": f"e{number}"} for number in range(5000)]
    many[4000]["standing"] = pareto.ON
    timed_rows = [trial(f"t{number}", 1.0, 8) for number in range(50)]
    records = pareto.rows([*many, *timed_rows], "bytes_in_flight")
    assert len(records) == pareto.DRAWN_MOST
    drawn = [record["id"] for record in records]
    assert "e4000" in drawn
    assert {row["id"] for row in timed_rows} <= set(drawn)
    assert drawn[-1].startswith("r/"), "what was timed lies above estimates"


def test_bytes_have_units_and_markup_is_text() -> None:
    rows = [trial("a", 0.05, 2**20, axes={"tile": EVIL}), trial("b", 0.06, 2**24, axes={"tile": "t"})]
    drawn = svg(pareto.chart(rows, "bytes_in_flight", "Bytes"))
    assert ">1.05 MB<" in drawn
    assert "<img" not in drawn


@pytest.fixture(autouse=True)
def plain_theme() -> Any:
    yield
    alt.theme.enable("default")
