"""Which run is the last, and which is none any more: decided when the store is read."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from kernels.outcome import Failure, Measurement
from kernels.trial import Trial
from workbench import metrics
from workbench.store import Store


def test_last_is_the_newest_run_in_which_something_was_found(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]
) -> None:
    full, failed, empty = (store.begin_run({}, {}) for _ in range(3))
    with pytest.raises(ValueError, match="Run 'last' was asked for"):
        store.run()
    found = measure(make_trial())
    store.add_outcome(full, found, metrics.row_of(found, full), fingerprint="f")
    refused = Failure(trial=make_trial(), stage="refused", message="no")
    store.add_outcome(failed, refused, metrics.row_of(refused, failed), fingerprint="f")
    assert store.run()["id"] == full
    assert store.run(empty)["id"] == empty


def test_a_run_whose_process_is_gone_is_lost(store: Store) -> None:
    """Of other hosts nothing is known, and what has ended has ended."""
    mine, theirs, ended, elsewhere = (store.begin_run({}, {"host": "here"}) for _ in range(4))
    store.end_run(ended)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(timeout=30)
    for run, fact, value in ((theirs, "pid", gone.pid), (ended, "pid", gone.pid), (elsewhere, "host", "there")):
        with store._database.write() as connection:
            connection.execute("UPDATE runs SET provenance = json_set(provenance, ?, ?) WHERE id = ?",
                               (f"$.process.{fact}", value, run))  # fmt: skip
    status = {run["id"]: run["status"] for run in store.runs()}
    assert [status[run] for run in (mine, theirs, ended, elsewhere)] == ["running", "lost", "finished", "running"]
    assert store.run(mine)["provenance"] == {"host": "here"}
