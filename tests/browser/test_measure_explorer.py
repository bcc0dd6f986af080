"""What is measured of the explorer is held against its targets, without a browser."""

from __future__ import annotations

import pytest

from tests.browser.measure_explorer import TARGETS, TITLES, ages, judgement, summary, table


@pytest.mark.parametrize("name", TARGETS)
def test_each_number_says_its_target_and_whether_it_is_met(name: str) -> None:
    target = TARGETS[name]
    assert judgement(name, summary([target - 1.0] * 20)) == {
        "p50": target - 1, "p95": target - 1, "most": target - 1, "n": 20, "target_p95": target, "met": True,
    }  # fmt: skip
    assert judgement(name, summary([1.0] * 18 + [target + 1.0] * 2))["met"] is False
    assert judgement(name, summary([]))["met"] is False


def test_the_newest_row_has_the_same_target_while_somebody_slides() -> None:
    assert TARGETS["newest_row_while_sliding_ms"] == TARGETS["newest_row_ms"] == 150


def test_a_row_is_as_old_as_it_was_when_it_was_first_drawn() -> None:
    assert ages([(1, 10.0), (2, 11.0)], [(1, 10.25), (1, 12.0), (2, 11.5), (9, 13.0)]) == [250.0, 500.0]


def test_the_table_has_every_number_with_its_unit() -> None:
    found = {name: judgement(name, summary([12.4, 12_340.0])) for name in TITLES}
    lines = table(found | {"slider_ms": judgement("slider_ms", summary([]))}).splitlines()
    assert len(lines) == 1 + len(TITLES)
    assert TARGETS.keys() <= TITLES.keys()
    for line, title in zip(lines[1:], TITLES.values(), strict=True):
        assert line.startswith(title)
        assert ("12.3 s" in line) == (title != TITLES["slider_ms"])
