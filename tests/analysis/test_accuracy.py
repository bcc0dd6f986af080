"""Errors of estimates by hand: intervals, bounds, the terms they are sums of, and when estimates are off."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernels.fabric import Fabric
from kernels.hardware import source_print
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.schemes import BASELINE, COMPARED
from tests.experiment.test_run import MANY
from tests.workbench.conftest import MakeExperiment
from workbench import cli, machines
from workbench.analysis import accuracy as bounds_file
from workbench.analysis.accuracy import (
    MIN_OUTSIDE,
    MIN_SPACE,
    accuracy,
    bounds,
    broken_bound_message,
    broken_bounds,
    coverage_text,
    spaces,
    speed_ups,
    table,
    terms,
    validate_recordings,
    wrong_estimates,
    wrong_estimates_today,
)
from workbench.cli.app import app
from workbench.cli.history import show_accuracy
from workbench.experiment.run import Run, run
from workbench.experiment.sources import FromCluster
from workbench.reports.methods import cautions
from workbench.results import recordings
from workbench.results.store import Store
from workbench.simulator.price.steps import trivial_seconds

# Errors, order, intervals and speed-ups of estimates, by hand; and bounds that they must keep.

NVLINK = Fabric(kind="nvlink")
FIRST = "h200_nvl2_gemv", "h200_nvl2_layers"
"""Recordings that had broken a bound."""


def row(measured: float, estimated: float, scheme: str = "fused", n: int = 1, **changed: Any) -> dict[str, Any]:
    return {
        "machine": "pod", "operator": "gemm_all_to_all", "scheme": scheme, "shape": {"n": n}, "dtype": "bfloat16",
        "world": 2, "fabric": "nvlink", "part": "whole", "block": "one", "run": "run", "held_out": False,
        "measured_s": measured, "estimated_s": estimated, "error": estimated / measured - 1, "low_s": 0.9 * estimated,
        "high_s": 1.1 * estimated, "trivial_s": measured / 2, **changed,
    }  # fmt: skip


def test_errors_of_a_kind_by_hand() -> None:
    rows = [row(1.0, 1.1), row(2.0, 1.8), row(10.0, 10.0, held_out=True), row(1.0, 9.0, part="compute")]
    (kind,) = accuracy(rows)
    assert (kind["machine"], kind["operator"], kind["scheme"]) == ("pod", "gemm_all_to_all", "fused")
    assert kind["count"] == 3
    assert kind["median"] == pytest.approx(0.1)
    assert kind["weighted"] == pytest.approx((0.1 + 0.2) / 13)
    assert kind["bias"] == 0
    assert kind["inside_interval"] == pytest.approx(1 / 3 * 2)
    assert kind["half_width"] == pytest.approx(0.1)
    assert kind["trivial_median"] == kind["trivial_p90"] == kind["trivial_weighted"] == 0.5


def test_order_is_that_of_schedules_of_one_problem() -> None:
    alike, other = [row(1, 10), row(2, 20), row(3, 30)], [row(1, 3, n=2), row(2, 2, n=2), row(3, 1, n=2)]
    assert accuracy(alike)[0]["rank_correlation"] == pytest.approx(1)
    assert accuracy(other)[0]["rank_correlation"] == pytest.approx(-1)
    assert accuracy(alike + other)[0]["rank_correlation"] == pytest.approx(0)
    assert accuracy([row(1, 1)])[0]["rank_correlation"] is None


def test_a_choice_is_good_that_is_within_5_percent_of_the_best() -> None:
    assert accuracy([row(1.0, 2), row(1.04, 1)])[0]["best_within_5_percent"] == 1
    assert accuracy([row(1.0, 2), row(1.06, 1)])[0]["best_within_5_percent"] == 0


def test_speed_ups_are_paired_inside_a_block() -> None:
    first = [row(4.0, 4.0, BASELINE), row(5.0, 4.0, BASELINE), row(2.0, 2.2)]
    second = [row(9.0, 9.0, BASELINE, block="two"), row(9.0, 9.0, block="three")]  # nothing to pair with
    (pair,) = speed_ups(first + second)
    assert (pair["scheme"], pair["pairs"]) == ("fused", 1)
    assert pair["median"] == pytest.approx(0.1)


def space(count: int, chosen: float, **changed: Any) -> list[dict[str, Any]]:
    """Schedules of which number 3 is the fastest; of those that are estimated to be fast, one takes *chosen*."""
    rows = [row(2.0 + i, 10.0 + i, axes={"grid": i}, **changed) for i in range(count)]
    return [*rows[:3], row(1.0, 99.0, axes={"grid": 3}), row(chosen, 1.0, axes={"grid": 4}), *rows[5:]]


def test_a_space_is_of_many_schedules_and_says_what_its_top_5_percent_hold() -> None:
    assert not spaces([*space(MIN_SPACE - 1, 1.0), row(1.0, 1.0, n=2, axes={})])
    again = [row(0.5, 1.0, axes={"grid": i}) for i in range(MIN_SPACE)] + space(1, 1.0)
    assert len(spaces(again)) == 1, "a schedule that was measured again is no other one"
    (good,), (bad,) = spaces(space(MIN_SPACE, 1.01)), spaces(space(MIN_SPACE, 1.02))
    assert (good["schedules"], good["top"], good["over_best"]) == (MIN_SPACE, 4, pytest.approx(1.01))
    assert good["within_1_percent"]
    assert bad["over_best"] == pytest.approx(1.02)
    assert not bad["within_1_percent"]


def test_spaces_that_were_measured_are_told() -> None:
    shown = CliRunner().invoke(app, ["validate", "--recording", "h200_nvl2_space_all_to_all_gemm"])
    assert "Of 85 schedules of all-to-all -> GEMM 4096x1664x8192 on h200_nvl2, the 5 that are" in shown.stdout


def test_what_is_beyond_its_bound_is_told_and_what_has_none_is_not(tmp_path: Path) -> None:
    path = tmp_path / "bounds.toml"
    path.write_text('[[bound]]\nmachine = "pod"\noperator = "gemm_all_to_all"\nscheme = "fused"\n'
                    "median = 0.05\np90 = 0.5\nweighted = 0.5\n")  # fmt: skip
    kinds = accuracy([row(1.0, 1.1), row(1.0, 1.1, BASELINE)])
    (one,) = broken_bounds(kinds, bounds(path))
    assert broken_bound_message(one) == "gemm_all_to_all fused on pod: median error 10 %, accepted 5 %"
    assert not list(broken_bounds(accuracy([row(1.0, 1.04)]), bounds(path)))
    path.write_text('[[bound]]\nmachine = "pod"\n')
    with pytest.raises(ValueError, match="cannot be read as bounds of errors of estimates: a bound has machine"):
        bounds(path)


def test_validate_ends_with_1_beyond_a_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["validate", "--recording", "h200_nvl2_ways", "--json"]
    assert cli.status(words) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert {kind["operator"] for kind in summary["whole"]["accuracy"]} == {"all_gather_gemm", "gemm_reduce_scatter"}
    assert {pair["scheme"] for pair in summary["whole"]["speed_ups"]} == {"decomposed", "fused"}
    tight = [{**{name: kind[name] for name in bounds_file.NAMES}, "median": 0.0, "p90": 1.0, "weighted": 1.0}
             for kind in summary["whole"]["accuracy"][:1]]  # fmt: skip
    monkeypatch.setattr("workbench.analysis.accuracy.bounds", lambda: tight)
    assert cli.status(words) == 1
    told = capsys.readouterr()
    assert len(json.loads(told.out)["summary"]["broken_bounds"]) == 1
    assert "median error" in told.err
    assert cli.status([*words, "--machine", "h200_nvl8"]) == 0, "bounds are of its own machine"
    assert not json.loads(capsys.readouterr().out)["summary"]["broken_bounds"]


def test_a_recording_without_trials_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "cut.jsonl"
    empty.write_text("\n")
    assert cli.status(["validate", "--recording", str(empty)]) == 2
    assert "has 0 recorded trials. Accepted: " in capsys.readouterr().err


def test_validate_shows_errors_beside_the_roofline_and_of_problems_that_nothing_was_fitted_to() -> None:
    shown = CliRunner().invoke(app, ["validate", "--recording", "h200_nvl2_ways"])
    assert shown.exit_code == 0
    assert "roofline" in shown.stdout
    assert re.search(r"\d pairs: the ratio\s+is\s+estimated", shown.stdout)
    assert "Furthest off, each schedule once:" in shown.stdout
    assert shown.stdout.startswith("30 trials: median error")
    with_parts = CliRunner().invoke(app, ["validate", "--recording", "laptop_overlap_2_ranks"])
    whole, parts = (int(re.search(pattern, with_parts.output)[1]) for pattern in  # type: ignore[index]
                    (r"\n +(\d+) .* all trials\n", r"trials, (\d+) of them a part timed alone: median"))  # fmt: skip
    assert with_parts.stdout.startswith(f"{whole + parts} trials, {parts} of them")


def test_one_problem_and_one_pair_are_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    timed = [row(2.0, 2.5, scheme=scheme) for scheme in (BASELINE, "fused")]
    show_accuracy({"whole": table(timed), "held_out": table([]), "spaces": []})
    out = capsys.readouterr().out
    assert "Errors of whole trials of 1 problem. None is held out. For comparison a roofline" in out
    assert "fused over sequential on pod, 1 pair: the ratio" in out


def test_every_bound_is_of_a_machine_and_an_operator_that_there_are() -> None:
    known = bounds()
    assert len(known) > 10
    assert {entry["machine"] for entry in known} <= set(machines.names())
    assert {entry["operator"] for entry in known} <= set(OPERATORS)


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("name", sorted(recordings.paths(), key=lambda name: name not in FIRST))
def test_no_shipped_recording_breaks_a_bound(name: str) -> None:
    """Two did when they had been recorded again: `validate` ended with 1, and nobody looked."""
    rows, _ = validate_recordings([name])
    broken = [broken_bound_message(one) for one in broken_bounds(accuracy(rows), bounds())]
    assert not broken


def test_the_trivial_estimate_is_a_roofline_and_the_wire() -> None:
    machine = machines.shipped_machine("h200_nvl2")
    of = problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 4096}, dtype="bfloat16", world=2)
    compute, wire = (trivial_seconds(of, "fused", part, machine, NVLINK) for part in ("compute", "communication"))
    assert compute == pytest.approx(2 * 8192 * 4096 * 4096 / machine.device.matrix_flops_per_second["bfloat16"])
    assert wire == pytest.approx(4096 * 4096 * 2 / machine.dimensions[0].bandwidth_bytes_per_second, rel=0.05)
    for scheme in COMPARED:
        both = compute + wire if scheme == BASELINE else max(compute, wire)
        assert trivial_seconds(of, scheme, "whole", machine, NVLINK) == pytest.approx(both)


def test_validate_writes_the_chart_and_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["validate", "--recording", "h200_nvl2_ways", "--output"]
    path = tmp_path / "errors.md"
    assert cli.status([*words, str(path)]) == 0
    text = path.read_text()
    assert "| all | held out |" in text
    assert "GEMM -> reduce-scatter, fused, h200_nvl2" in text
    assert [picture.suffix for picture in (tmp_path / "errors_files").iterdir()] == [".svg"]
    capsys.readouterr()
    assert cli.status([*words, str(tmp_path / "errors.txt")]) == 2
    assert "its ending is not one of html, pdf, md" in capsys.readouterr().err


# An error is a sum over terms, by hand; parts are of the same block and of the same schedule where it was timed.


def item(part: str, measured: float, estimated: float, scheme: str = "fused", **given: Any) -> dict[str, Any]:
    return {"block": "one", "part": part, "scheme": scheme, "axes": {"tile": "a"}, "measured_s": measured,
            "estimated_s": estimated, **given}  # fmt: skip


ROWS = [item("compute", 5.0, 6.0), item("compute", 4.0, 4.0, axes={"tile": "b"}), item("communication", 3.0, 2.0),
        item("compute", 1.0, 1.0, block="two")]  # fmt: skip


@pytest.mark.parametrize(("scheme", "least", "rest"), [("fused", (5.0, 6.0), (2.0, 1.5)),
                                                       ("sequential", (8.0, 8.0), (-1.0, -0.5))])  # fmt: skip
def test_terms_by_hand(scheme: str, least: tuple[float, float], rest: tuple[float, float]) -> None:
    whole = item("whole", 7.0, 7.5, scheme)
    compute, communication, must, left, itself = terms(ROWS, whole)
    assert (compute.measured_s, compute.estimated_s, compute.error_s) == (5.0, 6.0, 1.0)
    assert (communication.measured_s, communication.estimated_s) == (3.0, 2.0)
    assert (must.measured_s, must.estimated_s) == least
    assert (left.measured_s, left.estimated_s) == rest
    assert sum(term.error_s for term in (must, left) if term.adds) == itself.error_s == 0.5


def test_the_fastest_part_stands_for_one_that_was_not_timed() -> None:
    compute, *_ = terms(ROWS, item("whole", 7.0, 7.5, axes={"tile": "c"}))
    assert compute.measured_s == 4.0


def test_without_a_part_there_are_no_terms() -> None:
    with pytest.raises(ValueError, match="communication alone was not measured in block two, which has 1 trials"):
        terms(ROWS, item("whole", 7.0, 7.5, block="two"))


# Estimates say when they are off; a prediction is frozen where its measurement begins.

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


def test_as_many_outside_as_an_interval_leaves_out_are_chance() -> None:
    """It promises to hold 80 %: 5 of 25 outside are what it says, 15 of 25 are not."""
    assert wrong_estimates(rows(*[1.0] * 20, *[2.0] * 5)) == []
    assert [each.outside for each in wrong_estimates(rows(*[1.0] * 10, *[2.0] * 15))] == [15]


@pytest.mark.slow
def test_coverage_says_what_was_estimated_at_all_and_what_lies_inside() -> None:
    some, summary = validate_recordings(["h200_nvl2_gemv", "h200_nvl2_gemv_latency"])
    assert summary["asked"] == len(some) + sum(each["count"] for each in summary["without_estimate"]) > len(some)
    assert summary["estimated_share"] == pytest.approx(len(some) / summary["asked"])
    least, most = summary["inside_95"]
    assert least < summary["inside_interval"] < most
    assert "could be estimated at all" in coverage_text(summary)
    assert "80 % are promised" in coverage_text(summary)


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
