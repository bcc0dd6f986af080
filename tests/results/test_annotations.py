"""Notes, tags and deletion of runs: whoever changes a run last, nothing that another person said is lost."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.files import Failed
from kernels.hardware import Execution, Hardware
from kernels.outcome import Measurement, Sample
from kernels.trial import Trial
from workbench.results import annotations, metrics
from workbench.results.store import Store

RAN = Execution("source", "versions", Hardware(model="a processor", link="shared memory", cores=1.0))


@pytest.fixture
def keep(store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement]) -> Callable[[], str]:
    """keep(): the id of a new run with one measurement of the same trial, and its samples."""

    def make() -> str:
        run = store.begin_run({}, {})
        measured = replace(measure(make_trial("fused")), source_print=RAN.source_print,
                           versions_print=RAN.versions_print, hardware=RAN.hardware)  # fmt: skip
        samples = [
            Sample(measured.trial.key, rank, index, seconds, 1e9 + index)
            for rank, of_rank in enumerate(measured.samples)
            for index, seconds in enumerate(of_rank)
        ]
        store.add_outcome(run, measured, metrics.row_of(measured, run), samples=samples)
        store.end_run(run)
        return run

    return make


def test_two_processes_annotate_one_run_and_the_later_note_and_all_tags_stay(
    store: Store, keep: Callable[[], str]
) -> None:
    run = keep()
    with Store(store.path) as other:
        store.annotations.note(run, "  the first \n note ")
        assert other.run(run)["note"] == "the first note"
        other.annotations.note(run, "a later one")
        store.annotations.tag(run, ["paper", "#H200"])
        other.annotations.tag(run, ["night", "paper"], removed=["H200", "never there"])
    assert (store.run(run)["note"], store.run(run)["tags"]) == ("a later one", ["night", "paper"])
    assert [each["tags"] for each in store.runs()] == [["night", "paper"]]


@pytest.mark.parametrize(("tag", "fault"), [("", "it is empty"), ("a, b", "a comma"), ("x" * 41, "41 > 40 letters")])
def test_what_is_no_tag_is_refused_and_changes_nothing(
    store: Store, keep: Callable[[], str], tag: str, fault: str
) -> None:
    run = keep()
    with pytest.raises(ValueError, match=fault):
        store.annotations.tag(run, ["good", tag])
    with pytest.raises(ValueError, match=r"too many tags: 21 > 20"):
        store.annotations.tag(run, [f"tag {number}" for number in range(21)])
    with pytest.raises(ValueError, match=r"too long: 2,001 > 2,000"):
        store.annotations.note(run, "x" * 2001)
    with pytest.raises(ValueError, match=r"no run 'nothing' to change"):
        store.annotations.note("nothing", "x")
    assert (store.run(run)["note"], store.run(run)["tags"]) == ("", [])


def test_a_deleted_run_is_hidden_everywhere_and_its_times_are_not_known_until_undo(
    store: Store, keep: Callable[[], str]
) -> None:
    run = keep()
    trial = store.trials(run).popitem()[1]
    assert store.known_trials(trial.problem, RAN) == (trial,)
    store.annotations.note(run, "a note")
    store.annotations.delete(run)
    assert (store.runs(), store.num_runs(), store.measured_runs(), list(store.annotations.deleted())) == (
        [],
        0,
        [],
        [run],
    )
    assert store.known(trial.key, RAN) is None
    assert store.known_trials(trial.problem, RAN) == ()
    assert store.right_wholes(trial.problem.operator) == []
    with pytest.raises(ValueError, match="No run has a time yet"):
        store.run("last")
    with pytest.raises(ValueError, match=rf"was deleted on .* Accepted: `workbench runs --undo {run}`"):
        store.run(run)
    store.annotations.undo(run)
    assert (store.run("last")["id"], store.run(run)["note"]) == (run, "a note")
    assert store.known_trials(trial.problem, RAN) == (trial,)
    with pytest.raises(ValueError, match=r"not one of 0 deleted runs\. Accepted: nothing"):
        store.annotations.undo(run)


def test_a_run_that_goes_on_is_not_deleted(store: Store) -> None:
    run = store.begin_run({}, {})
    with pytest.raises(ValueError, match=r"still running\. Accepted: stop it first"):
        store.annotations.delete(run)
    store.end_run(run)
    store.annotations.delete(run)


def test_purging_removes_a_run_but_not_the_samples_that_another_run_shows(
    store: Store, keep: Callable[[], str]
) -> None:
    first, third = keep(), keep()
    key = next(iter(store.trials(first)))
    second = store.begin_run({}, {})
    known = store.known(key, RAN)
    assert known is not None
    store.add_outcome(second, known[0], metrics.row_of(known[0], second), origin=first)
    store.end_run(second)
    for run in (first, third):
        store.annotations.delete(run)
    assert store.annotations.purge(days=1) == [], "deleted today"
    assert sorted(store.annotations.purge()) == sorted([first, third])
    assert [run["id"] for run in store.runs()] == [second]
    assert len(store.recorded(second)[0][1]) == 10, "its samples are those of the first"
    with closing(sqlite3.connect(store.path)) as seen:
        assert seen.execute("SELECT DISTINCT run FROM samples").fetchall() == [(first,)]
        assert seen.execute("PRAGMA foreign_key_check").fetchall() == []
    store.annotations.delete(second)
    store.annotations.purge()
    with closing(sqlite3.connect(store.path)) as seen:
        assert seen.execute("SELECT count(*) FROM trials").fetchone() == (0,)


def test_the_next_run_removes_what_was_deleted_a_month_ago(
    store: Store, keep: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, now = keep(), time.time()
    store.annotations.delete(run)
    store.begin_run({}, {})
    assert list(store.annotations.deleted()) == [run]
    monkeypatch.setattr(annotations.time, "time", lambda: now + 31 * 86_400)
    store.begin_run({}, {})
    assert store.annotations.deleted() == {}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_goes_away_takes_no_note_silently(
    store: Store, keep: Callable[[], str], tmp_path: Path, replaced: bool
) -> None:
    run = keep()
    store.path.rename(tmp_path / "away.sqlite")
    if replaced:
        Store(store.path).close()
    with pytest.raises(Failed, match="was replaced by another" if replaced else "is not there any more"):
        store.annotations.note(run, "a note")
    if not replaced:
        assert [each["id"] for each in store.runs()] == [run], "it can still be read, as long as it is open"
