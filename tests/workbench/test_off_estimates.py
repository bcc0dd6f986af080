"""Estimates say when they are off; a prediction is frozen where its measurement begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels.hardware import source_print
from kernels.machine import Machine
from tests.workbench.conftest import MakeExperiment
from tests.workbench.test_run import MANY
from workbench.analysis.accuracy import MIN_OUTSIDE, wrong_estimates, wrong_estimates_today
from workbench.experiment.run import Run, run
from workbench.experiment.sources import FromCluster
from workbench.reports.methods import cautions
from workbench.results.store import Store

Row = dict[str, Any]


def pair(number: int, ratio: float, **changes: Any) -> list[Row]:
    """The estimate of one trial, then its measurement, *ratio* times as long."""
    same = {"key": str(number), "machine": "laptop_cpu", "backend": "cpu", "operator": "gemm_all_to_all", **changes}
    guess = {**same, "source": "estimated", "time_s": 1e-3, "low_s": 0.9e-3, "high_s": 1.2e-3}
    return [guess, {"source": "measured", **same, "time_s": ratio * 1e-3, "low_s": 0.0, "high_s": 1.0}]


def rows(*ratios: float, **changes: Any) -> list[Row]:
    return [row for number, ratio in enumerate(ratios) for row in pair(number, ratio, **changes)]


def test_five_outside_of_their_interval_are_told_with_their_median() -> None:
    (found,) = wrong_estimates(rows(1.0, 1.1, 1.5, 1.6, 1.7, 1.8, 0.5))
    assert (found.outside, found.count, found.ratio) == (5, 7, 1.6)
    assert str(found) == (
        "The estimates of GEMM -> all-to-all on laptop_cpu are off: 5 of 7 measured times lie outside their "
        "estimate's interval, and took 1.60x the estimate (median)."
    )
    assert found.advice == "`workbench calibrate` fits the machine."
    assert wrong_estimates(rows(1.0, 1.1, 1.5, 1.6, 1.7, 1.8)) == []


def test_what_is_known_or_on_another_machine_or_of_another_operator_is_no_evidence() -> None:
    assert wrong_estimates(rows(*[2.0] * 9, source="recorded")) == []
    mixed = [*rows(*[2.0] * 4), *rows(*[2.0] * 4, machine="h200_nvl2", key="other")]
    assert wrong_estimates(mixed) == []
    again = [row for _ in range(9) for row in pair(1, 2.0)]
    assert wrong_estimates(again) == []  # one trial in nine blocks
    (of_gpus,) = wrong_estimates(rows(*[2.0] * MIN_OUTSIDE, machine="h200_nvl2", backend="triton"))
    assert of_gpus.advice == "`workbench calibrate --machine h200_nvl2` fits the machine."


def test_a_report_says_it_above_its_numbers() -> None:
    assert any("5 of 5 measured times" in sentence for sentence in cautions({}, rows(*[2.0] * 5)))
    assert not any("measured times" in sentence for sentence in cautions({}, rows(*[1.0] * 9)))


def test_validation_judges_today_s_estimates() -> None:
    today = [{"machine": "laptop_cpu", "backend": "cpu", "operator": "gemm_all_to_all", "measured_s": 3e-3,
              "estimated_s": 1e-3, "low_s": 0.9e-3, "high_s": 1.1e-3, "source_print": source_print("cpu")}
             for _ in range(5)]  # fmt: skip
    assert [(each.outside, each.count, each.ratio) for each in wrong_estimates_today(today)] == [(5, 5, 3.0)]
    assert wrong_estimates_today([{**row, "source_print": "of other kernels"} for row in today]) == []


@pytest.fixture
def sit(store: Store, fake_cluster: Any) -> Callable[..., Run]:
    def make(experiment: Any, machine: Machine) -> Run:
        sitting = run(experiment, store, FromCluster(fake_cluster), machine)
        for _ in sitting:
            pass
        return sitting

    return make


def test_a_run_whose_ranks_are_slow_says_so(
    store: Store, fake_cluster: Any, make_experiment: MakeExperiment, sit: Callable[..., Run], machine: Machine
) -> None:
    fake_cluster.seconds = lambda trial: 0.5
    (found,) = wrong_estimates(store.rows(sit(make_experiment(MANY), machine).run))
    assert found.outside == found.count > MIN_OUTSIDE
    assert found.ratio > 3


def test_a_known_time_keeps_the_estimate_that_was_made_before_it(
    store: Store, make_experiment: MakeExperiment, sit: Callable[..., Run], machine: Machine
) -> None:
    first = sit(make_experiment(), machine)
    costs = replace(machine.costs, step_seconds=1.0)
    calibrated = replace(machine, costs=costs, digest="fedcba987654", calibrated="today", spread=(0.9, 1.1))
    again = sit(make_experiment(), calibrated)

    def guesses(sitting: Run) -> dict[str, Any]:
        return {row["key"]: (row["time_s"], row["low_s"], row["high_s"], row["machine_digest"], row["calibrated"])
                for row in store.rows(sitting.run) if row["source"] == "estimated"}  # fmt: skip

    assert guesses(again) == guesses(first)
    assert {row["source"] for row in store.rows(again.run)} == {"estimated", "recorded"}
    fresh = sit(make_experiment(fresh=True), calibrated)
    assert {guess[3] for guess in guesses(fresh).values()} == {"fedcba987654"}
    key = next(iter(guesses(first)))
    before = store.estimate(first.run, key)
    assert before is not None
    assert (before.time_s, before.digest) == (guesses(first)[key][0], machine.digest)
    assert store.estimate(first.run, "nothing") is None
