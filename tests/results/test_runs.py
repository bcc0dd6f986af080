"""Which run is the last, and the running median of each trial from its first sample on."""

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from math import comb
from typing import Any

import pytest

from kernels.outcome import Estimate, Failure, Measurement
from kernels.trial import Trial
from workbench.charts import layers
from workbench.results import metrics
from workbench.results import running as medians
from workbench.results.running import RunningMedians
from workbench.results.runs import summaries
from workbench.results.store import Store

# Which run is the last, and which is none any more: decided when the store is read.


def test_last_is_the_newest_run_in_which_something_was_found(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]
) -> None:
    full, failed, empty = (store.begin_run({}, {}) for _ in range(3))
    with pytest.raises(ValueError, match="No run has a time yet"):
        store.run()
    found = measure(make_trial())
    store.add_outcome(full, found, metrics.row_of(found, full))
    refused = Failure(trial=make_trial(), stage="refused", message="no")
    store.add_outcome(failed, refused, metrics.row_of(refused, failed))
    assert store.run()["id"] == full
    assert store.run(empty)["id"] == empty


def test_a_run_whose_process_is_gone_is_lost(store: Store) -> None:
    """Of other hosts nothing is known, and what has ended has ended."""
    mine, theirs, ended, elsewhere = (store.begin_run({}, {"host": "here"}) for _ in range(4))
    store.end_run(ended)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(timeout=100)
    for run, fact, value in ((theirs, "pid", gone.pid), (ended, "pid", gone.pid), (elsewhere, "host", "there")):
        with store._database.write() as connection:
            connection.execute("UPDATE runs SET provenance = json_set(provenance, ?, ?) WHERE id = ?",
                               (f"$.process.{fact}", value, run))  # fmt: skip
    status = {run["id"]: run["status"] for run in store.runs()}
    assert [status[run] for run in (mine, theirs, ended, elsewhere)] == ["running", "lost", "finished", "running"]
    assert store.run(mine)["provenance"] == {"host": "here"}


def test_a_run_says_its_fastest_of_each_problem(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]
) -> None:
    one, two, none = (store.begin_run({}, {}, title) for title in ("one", "two", "none"))
    fused = make_trial("fused")
    estimate = Estimate(trial=fused, time_s=1e-6, low_s=1e-6, high_s=1e-6, calibrated=True, predictor="p", digest="d")
    found = [measure(make_trial(), 3e-3), measure(fused, 2e-3), estimate, measure(make_trial("fused", "compute"), 1e-3)]
    for run, outcomes in ((one, found), (two, [*found, measure(make_trial(operator="gemm_all_reduce"), 1e-3)])):
        for outcome in outcomes:
            store.add_outcome(run, outcome, metrics.row_of(outcome, run))
    rows = {row["run"]: row for row in summaries(store, 10)}
    assert [rows[one][key] for key in ("schedules", "best_s", "source", "scheme", "operator", "world")] == [
        2, 2e-3, "measured", "fused", "gemm_all_to_all", 2]  # fmt: skip
    assert rows[one]["axes"] == dict(fused.schedule.axes)
    assert (rows[two]["schedules"], rows[two]["best_s"], rows[two]["operator"]) == (3, None, None)
    assert [(each["operator"], each["best_s"]) for each in rows[two]["problems"]] == [
        ("gemm_all_to_all", 2e-3), ("gemm_all_reduce", 1e-3)]  # fmt: skip
    assert (rows[none]["schedules"], rows[none]["problems"], rows[none]["title"]) == (0, [], "none")


def test_the_best_of_several_blocks_is_the_least_time_however_weak_a_baseline_was(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]
) -> None:
    run, fused, faster = store.begin_run({}, {}, "blocks"), make_trial("fused"), make_trial("decomposed")
    # 2.00x over a slow baseline is no better time than 1.11x over a fast one
    blocks = {"1": {make_trial(): 4e-3, fused: 2e-3}, "2": {make_trial(): 2e-3, faster: 1.8e-3}}
    for block, times in blocks.items():
        for trial, seconds in times.items():
            timed = replace(measure(trial, seconds), block=f"{run}.{block}")
            store.add_outcome(run, timed, metrics.row_of(timed, run))
    (summary,) = summaries(store, 10)
    assert (summary["best_s"], summary["scheme"]) == (1.8e-3, "decomposed")
    assert summary["schedules"] == 3


# From its first sample on a trial shows its running median, with an interval that narrows, until its outcome comes.


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
