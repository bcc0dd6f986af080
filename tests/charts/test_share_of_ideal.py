"""Share of ideal is drawn for what has T_c and T_comm of its own block, told apart by operator and by source."""

import altair as alt
import pandas as pd
import pytest

from tests.charts.made import made_row, svg
from workbench.charts import share_of_ideal, theme

KNOWN = {"whole_s": 0.04, "transfer_s": 0.02}
ROWS = [
    made_row("a", share_of_ideal=0.5, **KNOWN), made_row("b", share_of_ideal=0.8, **KNOWN),
    made_row("c", share_of_ideal=-0.2, source="recorded", operator="all_gather_gemm", **KNOWN),
    made_row("d", share_of_ideal=None, whole_s=0.04, transfer_s=None), made_row("e", None, stage="hang"),
]  # fmt: skip


def test_rows_are_those_with_a_share_and_the_best_of_each_problem_is_marked() -> None:
    records = share_of_ideal.rows(ROWS)
    assert [(each["key"], each["ratio"], each["of_ideal"], each["is_best"]) for each in records] == [
        ("a", 0.5, 0.5, 0), ("b", 0.5, 0.8, 1), ("c", 0.5, -0.2, 1),
    ]  # fmt: skip
    assert [each["key"] for each in share_of_ideal.rows(pd.DataFrame(ROWS))] == ["a", "b", "c"]
    assert records[2]["aloud"].startswith("all-gather -> GEMM, ")


@pytest.mark.parametrize("mode", list(theme.Mode))
def test_it_draws_in_light_and_dark_with_its_lines_operators_and_sources(mode: theme.Mode) -> None:
    before = alt.theme.active
    theme.enable(mode)
    drawn = svg(share_of_ideal.chart(ROWS))
    alt.theme.enable(before)
    assert theme.INKS[mode].text in drawn
    for words in ("perfect overlap", "no gain", "GEMM -&gt; all-to-all", "recorded", "measured", "T_comm / T_c"):
        assert words in drawn, words
    assert ">estimated<" not in drawn, "the legend lists what is there"


def test_live_it_draws_the_same_marks_and_begins_empty() -> None:
    assert share_of_ideal.live().to_dict()["data"] == {"name": share_of_ideal.DATASET}
    assert "<svg" in svg(share_of_ideal.live(), {share_of_ideal.DATASET: []})
    grown = svg(share_of_ideal.live(), {share_of_ideal.DATASET: share_of_ideal.rows(ROWS)})
    assert all(each["aloud"].replace(">", "&gt;") in grown for each in share_of_ideal.rows(ROWS))
