"""The chart of samples: one dot each, and the slowest rank's median in words, found by the page."""

from kernels.outcome import Sample
from tests.charts.made import svg
from workbench.charts import samples


def some(rank: int, *milliseconds: float) -> list[Sample]:
    return [Sample("k", rank, index, time / 1000, 0.0) for index, time in enumerate(milliseconds)]


def test_a_sample_is_a_small_record_in_milliseconds() -> None:
    (record,) = samples.rows(some(1, 61.25), scheme="fused")
    assert (record["rank"], record["index"], record["time_ms"], record["scheme"]) == (1, 0, 61.25, "fused")


def test_rows_of_the_store_and_samples_give_the_same_records() -> None:
    assert samples.rows([{"rank": 1, "index": 0, "seconds": 0.06}]) == samples.rows(some(1, 60))


def test_the_slowest_ranks_median_is_named_not_the_slowest_sample() -> None:
    drawn = svg(samples.chart([*some(0, 50, 51, 900), *some(1, 60, 61, 62)], "fused"))
    assert "slowest: rank 1, median 61 ms" in drawn


def test_rows_that_arrive_later_are_counted_in() -> None:
    rows = samples.rows([*some(0, 50, 51, 52), *some(1, 10, 11, 12), *some(1, 80, 81, 82, 83)])
    assert "slowest: rank 1, median 80 ms" in svg(samples.live(), {samples.DATASET: rows})
