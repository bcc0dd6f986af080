"""Which run is the last, and which is none any more: decided when the store is read."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from kernels.outcome import Estimate, Failure, Measurement
from kernels.trial import Trial
from workbench.results import metrics
from workbench.results.runs import summaries
from workbench.results.store import Store


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
