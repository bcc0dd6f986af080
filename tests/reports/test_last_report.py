"""A report says what is new, gone, faster and slower since the last one of its problem; a first one says nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.reports.test_baseline import SECONDS, MeasureIt, texts
from workbench.experiment.space import Choice, Space
from workbench.reports.cases import cases
from workbench.reports.last_report import LastReports, changed_table, changes
from workbench.reports.run_report import remember, stored_report
from workbench.results.store import Store

HEADING = "What changed since the last report"


@pytest.fixture
def measured(fake_cluster: Any, measure_it: MeasureIt, make_experiment: Callable[..., Any]) -> Callable[..., str]:
    """measured(("sequential", "fused"), factor): a run of these schemes; fused takes its SECONDS times *factor*."""

    def make(schemes: tuple[str, ...] = tuple(SECONDS), factor: float = 1.0) -> str:
        fake_cluster.seconds = lambda trial: (
            SECONDS[trial.schedule.scheme] * (factor if trial.schedule.scheme == "fused" else 1.0)
        )
        return str(measure_it(replace(make_experiment(fresh=True), space=Space(tuple(map(Choice, schemes))))).run)

    return make


def test_the_first_report_of_a_problem_has_no_such_section(store: Store, measured: Callable[..., str]) -> None:
    run = measured()
    assert HEADING not in texts(stored_report(store, run))
    remember(store, run)
    assert HEADING not in texts(stored_report(store, run)), "a run is not compared with itself"


@pytest.mark.slow
def test_what_is_new_gone_and_timed_again_is_said_with_both_times(store: Store, measured: Callable[..., str]) -> None:
    first = measured(("sequential", "decomposed", "fused"))
    remember(store, first)
    text = texts(stored_report(store, measured(("sequential", "fused"), factor=0.5)))
    assert f"## {HEADING}" in text
    assert f"(run {first}): 1 gone, 2 timed again, 1 of them with less time." in text
    assert "Its best was fused, 80 ms; now it is the same, 40 ms." in text
    assert "Two runs take no turns, so that no difference between them says which is faster." in text
    assert "| fused | 80 ms | 40 ms | -50 % (not compared: shares of sequential" in text
    assert "| decomposed | 90 ms | – | gone |" in text
    other_way = texts(stored_report(store, measured(tuple(SECONDS))))
    assert "timed again" in other_way


def test_the_report_in_another_format_has_the_same_section(store: Store, measured: Callable[..., str]) -> None:
    """The page of a run is written first, and its PDF then: both compare with the run before."""
    remember(store, measured())
    second = measured(factor=2.0)
    texts_of = []
    for _ in range(2):
        texts_of.append(texts(stored_report(store, second)).partition(HEADING)[2])
        remember(store, second)
    assert texts_of[0]
    assert texts_of[0] == texts_of[1]


def test_one_measurement_that_two_runs_show_is_no_change(store: Store, measured: Callable[..., str]) -> None:
    run = measured()
    (case,) = cases(store.rows(run))
    record = LastReports(store.path)
    record.keep("an older run", {"torch": "2.11"}, [case])
    before = record.before(run, case)
    assert before is not None
    changed = changes(before, case, {"torch": "2.13"})
    assert changed_table(changed, case).rows == ()
    assert [(each.name, each.first, each.second) for each in changed.versions] == [("torch", "2.11", "2.13")]
    text = texts(stored_report(store, run))
    assert "no schedule changed. Its best was fused, 80 ms, and still is." in text
    assert f"torch 2.11 to {store.run(run)['provenance']['versions']['torch']}" in text


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"format": 7, "reports": {}}', '{"format": 1, "reports": {"p": [1]}}']
)
def test_a_damaged_record_is_no_record_and_is_replaced(store: Store, measured: Callable[..., str], damage: str) -> None:
    record = LastReports(store.path)
    record.path.write_text(damage)
    run = measured()
    assert HEADING not in texts(stored_report(store, run))
    remember(store, run)
    assert HEADING in texts(stored_report(store, measured(factor=2.0)))


def test_a_record_that_cannot_be_written_is_a_sentence_and_no_failure(
    store: Store, measured: Callable[..., str]
) -> None:
    run = measured()
    LastReports(store.path).path.mkdir()
    assert remember(store, run).startswith("The record of reports cannot be written to ")
    assert HEADING not in texts(stored_report(store, run))


def test_the_record_stays_small(store: Store, measured: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.reports.last_report.ROWS_MOST", 2)
    run = measured()
    (case,) = cases(store.rows(run))
    record = LastReports(store.path)
    for name in ("a", "b", "c"):
        record.keep(name, {}, [case])
    (entries,) = record._read().values()
    assert [entry["run"] for entry in entries] == ["c", "b"]
    assert [len(entry["rows"]) for entry in entries] == [2, 2]
    assert not [row for entry in entries for row in entry["rows"] if "rounds_s" in row]


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("damage", [
    lambda entry: entry.update(rows=[]),
    lambda entry: entry["rows"][0].pop("time_s"),
    lambda entry: entry["rows"][0].update(time_s=None),
])  # fmt: skip
def test_a_record_without_times_is_none(store: Store, measured: Callable[..., str], damage: Callable[..., Any]) -> None:
    remember(store, measured())
    path = LastReports(store.path).path
    known = json.loads(path.read_text())
    for entries in known["reports"].values():
        damage(entries[0])
    path.write_text(json.dumps(known))
    second = measured()
    assert HEADING not in texts(stored_report(store, second))
    remember(store, second)
    assert HEADING in texts(stored_report(store, measured()))
