"""The waterfall: parts that sum to the time, and a sentence where one is not known."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.charts.made import svg
from workbench.charts import waterfall

PARTS = {
    **{"floor": 0.041, "disturbance": 0.002, "fill and drain": 0.006, "decomposition": 0.0045},
    **{"contention": -0.002, "unexplained": 0.0035},
}


def by_name(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record["name"]: record for record in records}


def test_each_part_starts_where_the_one_before_it_ends_and_the_last_ends_at_the_time() -> None:
    *parts, total = waterfall.rows(PARTS, 0.055)
    assert all(after["start_ms"] == pytest.approx(before["stop_ms"]) for before, after in pairwise(parts))
    assert parts[-1]["stop_ms"] == pytest.approx(total["stop_ms"]) == pytest.approx(55)


def test_a_negative_loss_is_called_a_gain() -> None:
    assert by_name(waterfall.rows(PARTS, 0.055))["contention"]["words"] == "-2 ms, a gain"


def test_a_part_that_is_not_known_says_so_and_has_no_bar() -> None:
    found = by_name(waterfall.rows({"floor": 0.043, "fill and drain": 0.006, "contention": None}, 0.061))
    unknown = ("disturbance", "decomposition", "contention")
    assert [found[name]["words"] for name in unknown] == ["not known"] * 3
    assert found["decomposition"]["start_ms"] is None


def test_unexplained_holds_what_is_not_known_and_names_it() -> None:
    rest = by_name(waterfall.rows({"floor": 0.043, "fill and drain": 0.006}, 0.061))["unexplained"]
    assert rest["words"] == "12 ms, with what is not known"
    assert rest["meaning"].endswith("disturbance, decomposition, contention")


def test_without_a_floor_nothing_is_made_up() -> None:
    found = by_name(waterfall.rows({}, 0.061))
    assert {found[name]["words"] for name in waterfall.MEANING} == {"not known"}
    assert found["measured"]["words"] == "61 ms"


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match=r"There is no part 'magic'\. Accepted: floor"):
        waterfall.rows({"magic": 1.0}, 2.0)


def test_the_words_reach_the_page() -> None:
    assert "-2 ms, a gain" in svg(waterfall.chart(PARTS, 0.055))
