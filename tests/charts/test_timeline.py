"""The timeline: panels on one time axis, spans become bars, thin neighbours merge, gaps say what they wait for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.outcome import Span
from tests.charts.made import EVIL, made_span, svg
from workbench.charts import parting, timeline
from workbench.charts.timeline import at_most, bar_text, merged, step_text, waits

# The timeline: panels on one time axis, one record per bar, the same specification whatever it shows.


def two_ranks(stop_s: float) -> list[Span]:
    return [
        made_span("0/compute/-1/0", 0.0, 0.010),
        made_span("0/put/1/0", 0.010, 0.015, pool="link", after="0/compute/-1/0"),
        made_span("1/reduce/-1/0", 0.016, stop_s, after="0/put/1/0"),
    ]


def test_measured_stands_above_simulated_with_ranks_and_their_rows_in_order() -> None:
    records = timeline.rows({"measured": two_ranks(0.020), "simulated": two_ranks(0.018)})
    ordered = list(dict.fromkeys(row["row"] for row in sorted(records, key=lambda row: row["order"])))
    names = ["rank 0 computes", "rank 0 link", "rank 1 computes"]
    assert ordered == ["0|", *[f"0|{name}" for name in names], "1|", *[f"1|{name}" for name in names]]


def test_problems_on_two_streams_have_a_row_for_each_stream_and_every_bar_names_its_problem() -> None:
    spans = [
        span._replace(micro_batch=number)
        for number in range(8)
        for span in (
            made_span(f"0/compute/-1/{number}", 0.01 * number, 0.01 * (number + 1)),
            made_span(f"0/collective/-1/{number}", 0.01 * (number + 1), 0.01 * (number + 2), pool="library", stream=2),
            made_span(f"0/copy/-1/{number}", 0.01 * (number + 2), 0.01 * (number + 2) + 0.001, stream=2),
        )
    ]
    drawn = [row for row in timeline.rows({"simulated": spans}) if row["kind"]]
    assert {row["row"] for row in drawn} == {"0|rank 0 stream 0", "0|rank 0 stream 2"}
    assert len([row for row in drawn if row["kind"] != "wait"]) == 24
    assert {row["words"].rpartition(", ")[2] for row in drawn} == {f"micro-batch {i}" for i in range(8)}


def test_a_rank_that_computes_on_two_streams_has_a_row_for_each_and_one_for_each_engine() -> None:
    spans = [
        made_span("0/compute/-1/0", 0.0, 0.010),
        made_span("0/reduce/-1/0", 0.0, 0.010, stream=1),
        made_span("0/put/1/0", 0.010, 0.015, pool="link", stream=1),
        made_span("0/put/1/1", 0.010, 0.015, pool="copy_engine"),
        made_span("0/collective/-1/0", 0.010, 0.015, pool="library"),
    ]
    drawn = sorted(timeline.rows({"simulated": spans}), key=lambda row: row["order"])
    names = ["stream 0", "stream 1", "copy engine", "link", "library"]
    assert list(dict.fromkeys(row["row"] for row in drawn)) == ["0|", *[f"0|rank 0 {name}" for name in names]]


def test_a_pool_that_we_do_not_know_is_shown_as_it_is() -> None:
    (row,) = [row for row in timeline.rows({"recorded": [made_span("0/put/1/0", 0, 1, pool="mail")]}) if row["kind"]]
    assert row["row"] == "0|rank 0 mail"


def test_a_panel_is_headed_by_its_name_and_the_end_of_its_last_step() -> None:
    records = timeline.rows({"A": [], "measured": two_ranks(0.020), "simulated": None})
    assert [row["heading"] for row in records if row["heading"]] == [
        "A: no timeline of it was kept",
        "measured: the last step ends at 20 ms",
        "simulated: not yet",
    ]


def test_what_is_yet_to_come_has_a_heading_alone_and_what_was_timed_without_steps_its_rows() -> None:
    """Four empty rows hid the simulated timeline of the first page on a laptop."""

    def places(records: list[dict[str, Any]]) -> list[str]:
        return sorted({row["row"] for row in records})

    simulated = two_ranks(0.020)
    both = places(timeline.rows({"measured": two_ranks(0.018), "simulated": simulated}))
    assert places(timeline.rows({"measured": [], "simulated": simulated})) == both
    assert places(timeline.rows({"measured": None, "simulated": simulated})) == [
        "0|",
        *[row for row in both if row.startswith("1|")],
    ]


def test_a_coarse_clock_is_said_and_what_it_cannot_tell_is_not_given_as_exact() -> None:
    ticked = [span._replace(tick_s=1e-3) for span in [*two_ranks(0.020), made_span("1/put/0/0", 0.02, 0.0205)]]
    records = timeline.rows({"measured": ticked})
    assert records[0]["heading"] == "measured: the last step ends at 20.5 ms (to 1 ms, the clock's tick)"
    lasted = {row["step"]: row["lasted"] for row in records if row["kind"] in ("put", "reduce")}
    assert lasted == {
        "0/put/1/0": "5 ms",
        "1/put/0/0": "less than 1 ms, the clock's tick",
        "1/reduce/-1/0": "4 ms",
    }


def test_times_are_milliseconds_and_the_hover_says_the_step_and_what_it_waited_for() -> None:
    records = timeline.rows({"measured": two_ranks(0.020)})
    (reduce,) = [row for row in records if row["kind"] == "reduce"]
    assert (reduce["start_ms"], reduce["stop_ms"]) == (16, 20)
    assert reduce["words"] == "rank 1 sums its contributions, number 0"
    assert reduce["why"] == "rank 0 sends to rank 1, number 0"
    assert reduce["waited"] == "0/put/1/0"


def test_a_wait_is_thinner_than_a_step() -> None:
    thickness = {row["kind"]: row["thickness"] for row in timeline.rows({"measured": two_ranks(0.020)}) if row["kind"]}
    assert thickness["wait"] < thickness["compute"]


def test_merged_kinds_do_not_hide_each_other_thin_ones_come_later() -> None:
    spans = []
    for number in range(4000):
        at = number * 1e-5
        spans += [
            made_span(f"0/compute/-1/{number}", at, at + 8e-6),
            made_span(f"0/put/1/{number}", at + 8e-6, at + 1e-5),
        ]
    bars = [row for row in timeline.rows({"measured": spans}) if row["kind"]]
    assert [row["kind"] for row in bars] == ["compute", "put"]
    assert bars[0]["thickness"] > bars[1]["thickness"]


def test_of_many_ranks_a_few_are_shown_the_last_among_them_and_the_heading_says_so() -> None:
    spans = [made_span(f"{rank}/compute/-1/0", 0.0, 0.010 + (rank == 40)) for rank in range(64)]
    records = timeline.rows({"measured": spans})
    shown = {row["row"] for row in records if row["kind"]}
    assert len(shown) == timeline.RANKS_MOST
    assert "0|rank 40 computes" in shown
    assert "8 of 64 ranks" in records[0]["heading"]


def test_a_window_shows_single_steps_again() -> None:
    spans = [made_span(f"0/compute/-1/{number}", number * 1e-5, number * 1e-5 + 9e-6) for number in range(9000)]
    assert len(timeline.rows({"measured": spans})) < 50
    close = timeline.rows({"measured": spans}, window_s=(0.0, 2e-4))
    assert {row["kind"] for row in close} == {None, "compute"}
    assert 20 <= len([row for row in close if row["kind"]]) <= 25


def test_the_specification_does_not_depend_on_what_is_shown() -> None:
    assert timeline.live().to_dict() == timeline.live().to_dict()
    assert "datasets" not in timeline.live().to_dict()


def test_a_panel_called_by_markup_shows_it_as_text() -> None:
    drawn = svg(timeline.live(), {timeline.DATASET: timeline.rows({EVIL: two_ranks(0.020)})})
    assert "<img" not in drawn
    assert "&lt;img src=x onerror=alert(1)&gt;" in drawn


# Beside the bars: how busy each row is, the critical path as a line, a range that a person measures.


def test_each_row_says_how_busy_it_is_and_so_does_it_aloud() -> None:
    records = timeline.rows({"measured": two_ranks(0.020)})
    totals = {row["row"]: row["total"] for row in records if row["total"]}
    assert totals == {
        "0|": "busy", "0|rank 0 computes": "10 ms, 50 %", "0|rank 0 link": "5 ms, 25 %",
        "0|rank 1 computes": "4 ms, 20 %",
    }  # fmt: skip
    (link,) = [row for row in records if row["total"] and row["row"] == "0|rank 0 link"]
    assert link["aloud"] == "measured, rank 0 link: busy 5 ms, 25 % of the time"
    assert link["order"] == 2


def test_the_critical_path_is_a_line_from_row_to_row_and_a_sentence() -> None:
    panels = {"measured": two_ranks(0.020), "simulated": None}
    line = [row for row in timeline.rows(panels) if row["path_ms"] is not None]
    assert [(row["row"].partition("|")[2], row["path_ms"]) for row in sorted(line, key=lambda row: row["corner"])] == [
        ("rank 0 computes", 0), ("rank 0 computes", 10), ("rank 0 link", 10), ("rank 0 link", 15),
        ("rank 1 computes", 15), ("rank 1 computes", 20),
    ]  # fmt: skip
    assert {row["strand"] for row in line} == {"0.0"}
    assert timeline.path_texts(timeline.paths(panels)) == [
        "Critical path · measured: compute 50 %, wire 25 %, sums 20 %, waiting 5 %"
    ]
    assert not [row for row in timeline.rows(panels, through={}) if row["path_ms"] is not None]


def test_a_path_of_thousands_of_steps_has_no_more_corners_than_pixels() -> None:
    spans = []
    for number in range(5000):
        at = number * 1e-5
        spans += [
            made_span(f"0/compute/-1/{number}", at, at + 5e-6, after=f"0/put/1/{number - 1}" if number else None),
            made_span(f"0/put/1/{number}", at + 5e-6, at + 1e-5, pool="link", after=f"0/compute/-1/{number}"),
        ]
    line = [row for row in timeline.rows({"measured": spans}) if row["path_ms"] is not None]
    assert 100 < len(line) <= 2 * timeline.PIXELS + 2


def test_a_range_says_its_length_and_how_busy_each_row_is_inside_it() -> None:
    panels = {"measured": two_ranks(0.020), "simulated": None}
    busy = timeline.busy_lanes(panels)
    records = timeline.range_rows(busy, 0.008, 0.018)
    assert [(row["row"], row["share"]) for row in records] == [
        ("0|", "10 ms"), ("0|rank 0 computes", "20 %"), ("0|rank 0 link", "50 %"), ("0|rank 1 computes", "20 %"),
    ]  # fmt: skip
    assert (records[0]["from_ms"], records[0]["to_ms"]) == (8, 18)
    assert timeline.range_text(list(panels), busy, 0.008, 0.018) == (
        "From 8 ms to 18 ms: 10 ms · measured, busy: rank 0 computes 20 %, rank 0 link 50 %, rank 1 computes 20 %"
    )
    assert all("0 %" in row["share"] for row in timeline.range_rows(busy, 0.009, 0.009)[1:])


def test_a_range_is_drawn_over_the_rows_of_the_live_chart() -> None:
    panels = {"measured": two_ranks(0.020)}
    datasets = {
        timeline.DATASET: timeline.rows(panels),
        timeline.RANGE: timeline.range_rows(timeline.busy_lanes(panels), 0.0, 0.010),
    }
    drawn = svg(timeline.live(), datasets)
    assert 'aria-label="Measured range: 10 ms"' in drawn
    assert 'aria-label="rank 0 computes: busy 100 % of the range"' in drawn
    assert drawn.count(">rank 1 computes<") == 1, "the range adds no row"


# Where two timelines part: a point per step, and sentences.


def test_a_point_is_how_much_later_a_step_ended_than_simulated() -> None:
    records = parting.rows(two_ranks(0.024), two_ranks(0.020))
    points = {row["step"]: (row["at_ms"], row["later_ms"], row["label"]) for row in records if row["step"]}
    assert points == {
        "0/compute/-1/0": (10, 0, None),
        "0/put/1/0": (15, 0, None),
        "1/reduce/-1/0": (24, 4, parting.THE_FIRST),
    }
    assert (records[0]["least_ms"], records[0]["whole_ms"]) == (0.4, 24)


def test_sentences_name_the_first_step_that_parts_and_what_it_waited_for() -> None:
    late = [made_span("0/put/1/0", 0.010, 0.0165, pool="link"), *two_ranks(0.024)[::2]]
    assert parting.sentences(late, two_ranks(0.020), "recorded") == [
        "The first step that parts: rank 0 sends to rank 1, number 0. It ends at 16.5 ms, 1.5 ms later than simulated.",
        "It waited for no step.",
        "Differences of less than 400 µs (2 % of the time) do not count.",
    ]
    assert parting.sentences(two_ranks(0.024), two_ranks(0.020))[1] == (
        "It waited for: rank 0 sends to rank 1, number 0, which ended as simulated."
    )
    assert parting.sentences(two_ranks(0.020), two_ranks(0.020)) == [
        "No step parts: all ends agree within 400 µs (2 % of the time)."
    ]
    other = [made_span("0/compute/-1/7", 0.0, 0.1)]
    assert parting.sentences(other, two_ranks(0.020))[-1] == "Steps without a counterpart: 1 measured, 3 simulated."
    assert parting.rows(other, two_ranks(0.020)) == []


def test_thousands_of_steps_are_thinned_out_and_the_first_that_parts_stays() -> None:
    times = [(number * 1e-5, (number + 1) * 1e-5) for number in range(9000)]
    late = computes(*times[:7000], *[(start, stop + 0.01) for start, stop in times[7000:]])
    points = [row for row in parting.rows(late, computes(*times)) if row["step"]]
    assert 1000 < len(points) <= parting.POINTS_MOST + 2
    assert [row["step"] for row in points if row["label"]] == ["0/compute/-1/7000"]


# Spans become bars: thin neighbours merge, wide ones stay, gaps say what they wait for.


def computes(*times: tuple[float, float]) -> list[Span]:
    return [made_span(f"0/compute/-1/{number}", start, stop) for number, (start, stop) in enumerate(times)]


def test_neighbours_below_one_pixel_become_one_bar_that_knows_how_busy_it_is() -> None:
    (bar,) = merged(computes((0.0, 0.4), (0.5, 0.9), (1.0, 1.2)), pixel_s=0.5)
    assert (bar.start_s, bar.stop_s, bar.count) == (0.0, 1.2, 3)
    assert bar.share == pytest.approx(1.0 / 1.2)
    assert bar_text(bar).startswith(
        "3 short steps, busy 83% of the time: rank 0 computes, number 0, to rank 0 computes"
    )


def test_a_span_of_a_pixel_or_more_stays_by_itself() -> None:
    bars = merged(computes((0.0, 0.1), (0.1, 2.0), (2.0, 2.1), (2.1, 2.2)), pixel_s=0.5)
    assert [(bar.start_s, bar.stop_s, bar.count) for bar in bars] == [(0.0, 0.1, 1), (0.1, 2.0, 1), (2.0, 2.2, 2)]


def test_thin_spans_with_a_pixel_between_them_do_not_merge() -> None:
    assert len(merged(computes((0.0, 0.1), (0.7, 0.8)), pixel_s=0.5)) == 2


@pytest.mark.parametrize("other", ["1/compute/-1/0", "0/reduce/-1/0"])
def test_ranks_and_kinds_never_merge(other: str) -> None:
    assert len(merged([made_span("0/compute/-1/0", 0.0, 0.1), made_span(other, 0.1, 0.2)], pixel_s=1.0)) == 2


def test_pools_never_merge() -> None:
    spans = [made_span("0/put/1/0", 0.0, 0.1), made_span("0/put/1/0", 0.1, 0.2, pool="link")]
    assert len(merged(spans, pixel_s=1.0)) == 2


def test_streams_never_merge_and_wait_for_themselves() -> None:
    one = made_span("0/compute/-1/0", 0.0, 1.0)
    other = made_span("0/compute/-1/1", 3.0, 4.0, stream=1, after="1/put/0/0")
    assert len(merged([one, other], pixel_s=10.0)) == 2
    (wait,) = waits([one, other], least_s=0.5)
    assert (wait.stream, wait.start_s, wait.stop_s) == (1, 0.0, 3.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 2)), max_size=40), st.floats(0.001, 3))
def test_merging_loses_no_step_and_reaches_as_far(times: list[tuple[float, float]], pixel_s: float) -> None:
    spans = computes(*[(start, start + length) for start, length in times])
    bars = merged(spans, pixel_s)
    assert sum(bar.count for bar in bars) == len(spans)
    assert max((bar.stop_s for bar in bars), default=0) == max((span.stop_s for span in spans), default=0)
    assert all(0 <= bar.share <= 1 for bar in bars)


def test_a_row_of_thousands_is_coarsened_until_it_can_be_drawn() -> None:
    spans = computes(*[(number * 1.0, number + 0.9) for number in range(5000)])
    bars = at_most(spans, pixel_s=0.01, most=200)
    assert 0 < len(bars) <= 200
    assert sum(bar.count for bar in bars) == 5000


def test_a_gap_before_a_step_that_waited_is_a_wait() -> None:
    spans = [made_span("0/compute/-1/0", 0.0, 1.0), made_span("0/reduce/-1/0", 3.0, 4.0, after="1/put/0/0")]
    (wait,) = waits(spans, least_s=0.5)
    assert (wait.kind, wait.start_s, wait.stop_s, wait.waited_for) == ("wait", 1.0, 3.0, "1/put/0/0")


def test_a_gap_that_nobody_explains_is_not_called_a_wait() -> None:
    assert waits(computes((0.0, 1.0), (3.0, 4.0)), least_s=0.5) == []


def test_a_short_gap_and_a_gap_on_the_link_are_no_waits() -> None:
    short = [made_span("0/compute/-1/0", 0.0, 1.0), made_span("0/compute/-1/1", 1.1, 2.0, after="1/put/0/0")]
    link = [made_span("0/put/1/0", 5.0, 6.0, pool="link", after="0/compute/-1/0")]
    assert waits([*short, *link], least_s=0.5) == []


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0/compute/-1/3", "rank 0 computes, number 3"),
        ("0/put/1/2", "rank 0 sends to rank 1, number 2"),
        ("1/reduce/-1/5", "rank 1 sums its contributions, number 5"),
        ("1/copy/0/5", "rank 1 copies out of staging what came from rank 0, number 5"),
        ("1/collective/-1/0", "rank 1 calls the library's collective, number 0"),
    ],
)
def test_an_address_is_said_in_words(address: str, words: str) -> None:
    assert step_text(address) == words
