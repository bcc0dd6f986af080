"""A report is compared with the run or row that a person names, in its table and on its first page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels.operators import problem
from kernels.trial import PROTOCOLS
from workbench.reports.run_report import stored_report
from workbench.reports.side_by_side import stored_runs
from workbench.results.store import Store

SECONDS = {"sequential": 0.1, "decomposed": 0.09, "fused": 0.08}
MeasureIt = Callable[[Any], Any]


def texts(notebook: Any) -> str:
    outputs = [output.data.get("text/markdown", "") for cell in notebook.cells for output in cell.get("outputs", ())]
    return "\n".join([*(cell.source for cell in notebook.cells), *outputs]).replace("\\", "")


@pytest.fixture
def measured(fake_cluster: Any, measure_it: MeasureIt, make_experiment: Callable[..., Any]) -> Callable[..., str]:
    """measured(factor): the id of a run whose times are SECONDS times *factor*."""

    def make(factor: float = 1.0, **more: Any) -> str:
        fake_cluster.seconds = lambda trial: factor * SECONDS[trial.schedule.scheme]
        return str(measure_it(replace(make_experiment(fresh=True, protocol=PROTOCOLS["default"]), **more)).run)

    return make


def key_of(store: Store, run: str, scheme: str) -> str:
    return next(str(row["key"]) for row in store.rows(run)
                if row["scheme"] == scheme and row["part"] == "whole" and row["source"] == "measured")  # fmt: skip


def test_a_row_of_the_same_run_is_the_baseline_of_its_table_and_of_its_first_page(
    store: Store, measured: Callable[..., str]
) -> None:
    run = measured()
    text = texts(stored_report(store, run, baseline=f"{run}/{key_of(store, run, 'decomposed')}"))
    assert f"**Baseline:** decomposed, 90 ms measured, run {run}. The fastest, fused, is 10 ms (11 %) faster" in text
    assert "Difference to the baseline, 90 ms" in text
    assert "-11 % (-10 ms, faster)" in text
    assert "| baseline |" in text
    assert "+11 % (+10 ms, slower)" in text
    assert "Difference to the baseline" not in texts(stored_report(store, run))


@pytest.mark.slow
def test_a_run_names_its_best_schedule_and_two_runs_have_shares_and_no_verdict(
    store: Store, measured: Callable[..., str]
) -> None:
    first, second = measured(), measured(2.0)
    text = texts(stored_report(store, second, baseline=first))
    assert (
        f"**Baseline:** fused, 80 ms measured, run {first}. The fastest, fused, takes as long as the baseline" in text
    )
    assert "not compared: timed in two blocks, not in turns, 0.80x against 0.80x of sequential" in text
    both = texts(stored_runs(store, [first, second], baseline=first))
    assert "It is the fastest." in both
    assert both.count("**Baseline:**") == 2


def test_a_row_as_the_explorer_names_it_is_a_baseline(store: Store, measured: Callable[..., str]) -> None:
    run = measured()
    row = next(row for row in store.rows(run) if row["scheme"] == "fused" and row["part"] == "whole"
               and row["source"] == "measured")  # fmt: skip
    text = texts(stored_report(store, run, baseline=f"{run}/{row['key']}/{row['block']}/measured"))
    assert f"**Baseline:** fused, 80 ms measured, run {run}. It is the fastest." in text


@pytest.mark.parametrize(("name", "sentence"), [
    ("nowhere", r"There is no run 'nowhere'\. Accepted: last"),
    ("last/nothing", r"last/nothing is no baseline: in run last the keys of 0 schedules begin with 'nothing'"),
    ("last/", r"the keys of \d+ schedules begin with ''"),
    ("/fused {}//estimated", r"is no baseline of a report: it is an estimate of 0 runs"),
])  # fmt: skip
def test_a_name_of_nothing_is_one_sentence(
    store: Store, measured: Callable[..., str], name: str, sentence: str
) -> None:
    run = measured()
    with pytest.raises(ValueError, match=sentence):
        stored_report(store, run, baseline=name)


def test_a_run_of_another_problem_and_one_without_times_are_no_baselines(
    store: Store, measured: Callable[..., str], fake_cluster: Any
) -> None:
    run = measured()
    other = measured(problems=(problem("gemm_all_to_all", {"m": 512, "n": 128, "k": 64}, world=2),))
    with pytest.raises(
        ValueError, match=r"it is of GEMM -> all-to-all, m = 512.*and the report of .*m = 256.*Accepted"
    ):
        stored_report(store, run, baseline=other)
    fake_cluster.failures = dict.fromkeys(SECONDS, ("hang", 0))
    failed = measured()
    row = next(row for row in store.rows(failed) if row["stage"] == "hang" and row["part"] == "whole")
    with pytest.raises(ValueError, match=r"cannot be the baseline: it has no time, it is a failure \(hang\)"):
        stored_report(store, run, baseline=f"{failed}/{row['key']}/{row['block'] or ''}/{row['source']}")
