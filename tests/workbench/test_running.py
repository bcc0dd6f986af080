"""From its first sample on a trial shows its running median, with an interval that narrows, until its outcome comes."""

import random
from collections.abc import Callable
from math import comb
from typing import Any

import pytest

from kernels.outcome import Failure, Measurement
from kernels.trial import Trial
from workbench.charts import layers
from workbench.results import metrics
from workbench.results import running as medians
from workbench.results.running import RunningMedians


def sample(key: str, index: int, rank: int, seconds: float, block: str | None = "r.1") -> dict[str, Any]:
    return {"key": key, "index": index, "rank": rank, "seconds": seconds, "block": block}


@pytest.fixture
def timed(make_trial: Callable[..., Trial]) -> tuple[RunningMedians, Trial]:
    running, trial = RunningMedians(), make_trial("fused")
    running.know([trial])
    return running, trial


def test_an_iteration_counts_when_all_ranks_have_told_it_and_the_slowest_decides(
    timed: tuple[RunningMedians, Trial],
) -> None:
    running, trial = timed
    running.add_samples([sample(trial.key, 0, 0, 1e-3)])
    assert running.rows() == []
    running.add_samples([sample(trial.key, 0, 1, 2e-3)])
    (row,) = running.rows()
    assert (row["time_s"], row["low_s"], row["samples"], row["due"]) == (2e-3, None, 1, 5)
    running.add_samples([sample(trial.key, 1, rank, 4e-3) for rank in (1, 0)])
    (row,) = running.rows()
    assert (row["time_s"], row["low_s"], row["high_s"]) == (3e-3, 2e-3, 4e-3)
    (drawn,) = layers.rows([row], {trial.key: 7}, "slice_tiles")
    assert (drawn["place"], drawn["scheme"], drawn["source"]) == (7, "fused", "running, 2 of 5 samples")
    assert drawn["value"] == trial.schedule["slice_tiles"]


def test_the_outcome_takes_its_place_in_its_own_block(
    timed: tuple[RunningMedians, Trial], measure: Callable[..., Measurement]
) -> None:
    running, trial = timed
    running.add_samples(sample(trial.key, 0, rank, 1e-3, block) for rank in (0, 1) for block in ("r.1", "r.2"))
    running.add_rows([{**metrics.row_of(measure(trial)), "block": "r.1"}])
    (row,) = running.rows()
    assert row["block"] == "r.2", "the baseline is timed in every block"
    running.add_rows([{**metrics.row_of(measure(trial)), "block": "r.2"}])
    running.add_samples([sample(trial.key, 1, rank, 1e-3, "r.2") for rank in (0, 1)])
    assert running.rows() == []


def test_what_was_stopped_stays_as_far_as_it_came(make_trial: Callable[..., Trial]) -> None:
    trial, running = make_trial("fused"), RunningMedians()
    cancelled = Failure(trial=trial, stage="cancelled", message="Stopped.", block="r.1")
    running.add_rows([metrics.row_of(cancelled)])
    running.add_samples(sample(trial.key, index, rank, 1e-3) for index in range(3) for rank in (0, 1))
    (row,) = running.rows(stopped=True)
    assert layers.progress_text(row) == "stopped after 3 of 5 samples"


def test_the_interval_of_a_median_narrows_and_holds_it_as_often_as_it_says() -> None:
    assert medians.median_interval([1.0]) is None
    assert medians.median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert medians.median_interval([float(n) for n in range(1, 16)]) == (4.0, 12.0)
    for count in (6, 15, 50, 200):
        low, high = medians.median_interval([float(n) for n in range(1, count + 1)])
        inside = sum(comb(count, heads) for heads in range(int(low), int(high))) / 2**count
        tighter = sum(comb(count, heads) for heads in range(int(low) + 1, int(high) - 1)) / 2**count
        assert tighter < medians.MEDIAN_CONFIDENCE <= inside
    drawn = random.Random(0)
    width = {}
    for count in (10, 40, 160):
        values = [drawn.gauss(1.0, 0.1) for _ in range(count)]
        low, high = medians.median_interval(values)
        width[count] = high - low
    assert width[10] > width[40] > width[160]


@pytest.mark.parametrize("seen", [True, False])
def test_what_was_broken_off_leaves_no_mark_once_it_ran_again(
    timed: tuple[RunningMedians, Trial], measure: Callable[..., Measurement], seen: bool
) -> None:
    running, trial = timed
    running.add_samples(sample(trial.key, 0, rank, 1e-3, "r.1") for rank in (0, 1))
    assert [row["block"] for row in running.rows()] == ["r.1"]
    if seen:
        running.add_samples(sample(trial.key, 0, rank, 1e-3, "r.2") for rank in (0, 1))
        assert [row["block"] for row in running.rows()] == ["r.2"]
    running.add_rows([{**metrics.row_of(measure(trial)), "block": "r.2"}])
    assert running.rows() == []
