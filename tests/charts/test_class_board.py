"""The class board's charts: a mark for each guess, answers where they are shown, numbers and words, light and dark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.charts.made import svg
from workbench.charts import class_board, theme
from workbench.charts.class_board import CHOICE, DATASET, NUMBER, UNIT


def guess(alias: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"alias": alias, "guess": value, "unit": "ms", "estimate": None, "measured": None, "source": None} | more


REVEALED = [
    guess("heron", 3.0, estimate=2.5, measured=2.75, source="recorded"),
    guess("<b>lynx</b>", 1.0, default=True),
]


def test_a_guess_is_a_record_and_so_is_each_answer_that_is_shown() -> None:
    records = class_board.rows(REVEALED)
    assert [(each["alias"], each["look"], each["value"], each["typed"]) for each in records] == [
        ("heron", "guess", 3.0, True), ("heron", "estimated", 2.5, True), ("heron", "recorded", 2.75, True),
        ("<b>lynx</b>", "guess", 1.0, False),
    ]  # fmt: skip
    assert records[2]["aloud"] == "heron: recorded 2.75 ms"


@pytest.mark.parametrize("mode", list(theme.Mode))
@pytest.mark.parametrize("kind", [NUMBER, CHOICE])
def test_it_asks_a_question_and_draws_in_light_and_dark(kind: str, mode: theme.Mode) -> None:
    entries = REVEALED if kind == NUMBER else [guess("heron", "fused", unit=""), guess("lynx", "sequential", unit="")]
    with theme.enabled(mode):
        chart = class_board.chart(entries, kind, "ms")
        spec, drawn = chart.to_dict(), svg(chart.properties(width=500))
    assert spec["title"]["text"].endswith("?")
    assert spec["description"].endswith(".")
    assert theme.INKS[mode].text in drawn
    assert drawn.count('aria-label="heron: guess') == 1
    assert "<b>" not in drawn


@pytest.mark.parametrize("kind", [NUMBER, CHOICE])
def test_live_it_names_one_dataset_without_rows_and_the_page_writes_the_unit(kind: str) -> None:
    spec = class_board.live(kind).to_dict()
    assert spec["data"] == {"name": DATASET}
    assert (UNIT in str(spec)) == (kind == NUMBER)
    assert "<svg" in svg(class_board.live(kind).properties(width=500), {DATASET: []})


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="Accepted: number, choice"):
        class_board.live("essay")
