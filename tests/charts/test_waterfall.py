"""Charts of what a time consists of, which share of the ideal it reaches, and how far its estimate is off."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd
import pytest

from tests.charts.made import made_row, svg
from workbench.charts import accuracy, share_of_ideal, theme, waterfall

# The waterfall: parts that sum to the time, and a sentence where one is not known.

PARTS = {
    **{"floor": 0.041, "disturbance": 0.002, "fill and drain": 0.005, "waiting": 0.001, "decomposition": 0.0045},
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
    noise = by_name(waterfall.rows({**PARTS, "contention": -2.8e-17}, 0.055))
    assert noise["contention"]["words"] == "0 s", "what a difference of numbers leaves is no gain"


def test_a_part_that_is_not_known_says_so_and_has_no_bar() -> None:
    found = by_name(waterfall.rows({"floor": 0.043, "fill and drain": 0.006, "contention": None}, 0.061))
    unknown = ("disturbance", "waiting", "decomposition", "contention")
    assert [found[name]["words"] for name in unknown] == ["not known"] * 4
    assert found["decomposition"]["start_ms"] is None


def test_unexplained_holds_what_is_not_known_and_names_it() -> None:
    rest = by_name(waterfall.rows({"floor": 0.043, "fill and drain": 0.006}, 0.061))["unexplained"]
    assert rest["words"] == "12 ms, with what is not known"
    assert rest["meaning"].endswith("disturbance, waiting, decomposition, contention")


def test_without_a_floor_nothing_is_made_up() -> None:
    found = by_name(waterfall.rows({}, 0.061))
    assert {found[name]["words"] for name in waterfall.MEANING} == {"not known"}
    assert found["measured"]["words"] == "61 ms"


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match=r"There is no part 'magic'\. Accepted: floor"):
        waterfall.rows({"magic": 1.0}, 2.0)


def test_the_words_reach_the_page() -> None:
    assert "-2 ms, a gain" in svg(waterfall.chart(PARTS, 0.055))


# Two schedules next to each other: the chosen one's words say how much each part is longer or shorter.


def test_the_parts_of_two_schedules_differ_in_words_and_meet_at_their_times() -> None:
    less = {**PARTS, "fill and drain": 0.002, "contention": 0.0}
    chosen = waterfall.Schedule(name="fused", parts=less, time_s=0.054, source="measured")
    other = waterfall.Schedule(name="decomposed", parts=PARTS, time_s=0.055, source="measured")
    records = waterfall.two(chosen, other)
    above, below = ({record["name"]: record for record in records if record["lane"] == lane} for lane in (0, 1))
    assert above["fill and drain"]["words"] == "2 ms, 3 ms less"
    assert above["contention"]["words"] == "0 s, 2 ms more"
    assert above["floor"]["words"] == below["floor"]["words"] == "41 ms", "what is alike has no difference"
    assert below["fill and drain"]["words"] == "5 ms"
    assert above["time, measured"]["words"] == "54 ms, 1 ms less"
    assert {record["schedule"] for record in records} == {"fused", "decomposed"}
    assert all(record["aloud"].startswith(record["schedule"]) for record in records)


def test_a_part_that_one_of_two_lacks_has_no_difference() -> None:
    chosen = waterfall.Schedule(name="a", parts={"floor": 0.04}, time_s=0.05, source="measured")
    other = waterfall.Schedule(name="b", parts=PARTS, time_s=0.055, source="measured")
    assert by_name(waterfall.two(chosen, other)[:8])["contention"]["words"] == "not known"


# Share of ideal is drawn for what has T_c and T_comm of its own block, told apart by operator and by source.

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


# The chart of errors: a mark for each whole trial, a band where a bound is known, held out told by shape.


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
