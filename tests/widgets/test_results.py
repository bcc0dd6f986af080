"""What a person reads while a run goes on: how much, how fast, how long still, and what failed and why."""

import time
from typing import Any

import pytest

from tests.widgets.conftest import row
from workbench.sitting import Progress
from workbench.widgets.planned import Plan
from workbench.widgets.results import Count, Results, rate
from workbench.widgets.session import News


def news(done: int = 0, total: int = 4, **more: Any) -> News:
    progress = Progress(total=total, done=done, failed=more.pop("failed", 0), started_at=time.monotonic() - 10)
    return News(**{"run": "r", "rows": (), "samples": (), "progress": progress, "ended": False, **more})


@pytest.fixture
def results() -> Results:
    made = Results()
    made.begin(Plan(schedules={"fused": 4}, trials=7, samples=0, seconds=1.0))
    return made


def test_progress_says_how_much_how_fast_and_how_long_still(results: Results) -> None:
    results.add(news(done=2))
    assert "2 of 4 schedules" in results.words.value
    assert "one in 5.0 s" in results.words.value
    assert "about 10 s left" in results.words.value
    assert results.bar.value == 0.5


def test_of_a_single_schedule_the_samples_are_counted(results: Results) -> None:
    results.begin(Plan(schedules={"fused": 1}, trials=4, samples=20, seconds=1.0))
    results.add(news(total=1, samples=[{}] * 5))
    assert results.bar.value == 0.25
    assert "about 30 s left" in results.words.value


def test_the_end_is_said(results: Results) -> None:
    results.add(news(done=4, ended=True, rows=[row()]))
    assert "4 of 4 schedules" in results.words.value
    assert "done after 10 s" in results.words.value
    assert results.bar.value == 1.0


def test_a_stopped_run_says_what_it_has_and_counts_nothing_as_failed(results: Results) -> None:
    cancelled = row(key="b", outcome="failure", stage="cancelled", message="Cancelled.", time_s=None)
    results.add(news(done=2, failed=1, ended=True, stopped=True, rows=[row(), cancelled]))
    assert "1 of 4 schedules" in results.words.value
    assert "stopped" in results.words.value
    assert "failed" not in results.words.value
    assert "Cancelled." not in results.table.value


def test_a_failure_is_in_the_table_with_its_sentence(results: Results) -> None:
    failed = row(key="b", outcome="failure", stage="hang", message="rank 1 said nothing for 30 s", time_s=None)
    results.add(news(done=2, failed=1, ended=True, rows=[row(), failed]))
    assert "1 failed" in results.words.value
    assert "rank 1 said nothing for 30 s" in results.table.value
    assert results.bar.bar_style == "warning"


def test_what_a_sweep_passes_over_is_counted_and_each_reason_said_once(results: Results) -> None:
    refused = [row(key=str(n), outcome="failure", stage="refused", message="a < b", time_s=None) for n in range(3)]
    results.add(news(done=5, total=7, failed=3, rows=[row(), *refused], ended=True))
    assert "2 of 4 schedules, 3 combinations refused, done" in results.words.value
    assert results.table.value.count("a &lt; b") == 1
    assert "3 of them" in results.table.value
    assert results.failures == []


def test_markup_in_a_sentence_is_text(results: Results) -> None:
    failed = row(outcome="failure", stage="wrong", message="<script>alert(1)</script>", time_s=None)
    results.add(news(done=1, failed=1, ended=True, rows=[failed]))
    assert "<script>" not in results.table.value


def test_what_was_known_before_is_counted(results: Results) -> None:
    known = row(source="recorded", origin="earlier")
    baseline = row(key="s", scheme="sequential", axes={}, source="recorded", origin="earlier")
    results.add(news(done=1, rows=[known, baseline]))
    assert "1 known from before" in results.words.value


def test_the_table_keeps_the_newest_schedules_of_a_long_run(results: Results) -> None:
    rows = [row(key=str(n), axes={"tile": "32x64x64", "slice_tiles": n}) for n in range(500)]
    results.add(news(done=500, ended=True, rows=rows))
    assert 50 < results.table.value.count("<tr") < 70


@pytest.mark.parametrize(("count", "seconds", "words"), [
    (0, 5, ""), (1, 4, "one in 4.0 s"), (20, 4, "5.0 per second"),
])  # fmt: skip
def test_a_rate_is_a_number_that_one_can_picture(count: int, seconds: float, words: str) -> None:
    assert rate(Count(count, 20, seconds)) == words
