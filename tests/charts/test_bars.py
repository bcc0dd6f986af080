"""Spans become bars: thin neighbours merge, wide ones stay, gaps say what they wait for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.outcome import Span
from tests.charts.made import made_span
from workbench.charts.timeline import at_most, bar_text, merged, step_text, waits


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
