"""Times of one call per graph are shown beside those of many calls, and never compared with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels.outcome import Measurement
from kernels.trial import ONE_CALL_NOTE, PROTOCOLS
from tests.widgets.test_cells import ASKED
from tests.workbench.test_off_estimates import rows as off_rows
from tests.workbench.test_tuned import SHAPE
from workbench.analysis import accuracy
from workbench.analysis.accuracy import wrong_estimates
from workbench.analysis.winners import known
from workbench.charts.labels import problem_titles
from workbench.cli.output import TerminalLine, facts, notes
from workbench.machines import calibrate_gpu, shipped_machine
from workbench.reports.cases import cases
from workbench.reports.methods import cautions
from workbench.results import metrics, recordings
from workbench.results.recordings import Recorded
from workbench.results.rows import by_problem
from workbench.results.runs import timed
from workbench.widgets.chart_panels import same_problem

RECORDING = "h200_nvl4_gemm"
ONCE = PROTOCOLS["latency"]


def once(entry: Recorded, seconds: float) -> Recorded:
    """The same trial, timed one call per graph: *seconds* more."""
    measured = entry.measurement
    slower = tuple(tuple(one + seconds for one in mine) for mine in measured.samples)
    return replace(
        entry, measurement=replace(measured, trial=replace(measured.trial, protocol=ONCE), samples=slower)
    )  # fmt: skip


@pytest.fixture(scope="module")
def both() -> list[Recorded]:
    """One problem's trials of a recording, each timed both ways in one block."""
    entries = [one for one in recordings.recordings(RECORDING) if dict(one.measurement.trial.problem.shape) == SHAPE]
    return [*entries, *(once(one, 1e-3) for one in entries)]


@pytest.fixture
def rows(both: list[Recorded]) -> list[dict[str, Any]]:
    machine = shipped_machine("h200_nvl4")
    return metrics.fill([metrics.row_of(one.measurement, "run", machine) for one in both])


def test_a_protocol_is_part_of_the_key(both: list[Recorded]) -> None:
    keys = [one.measurement.trial.key for one in both]
    assert len(set(keys)) == len(keys)


def test_no_ratio_floor_or_share_is_formed_across_protocols(rows: list[dict[str, Any]]) -> None:
    many, alone = by_problem(rows).values()
    assert {row["protocol"] for row in alone} == {"latency"}
    for mine in (many, alone):
        sequential = [row["time_s"] for row in mine if row["scheme"] == "sequential" and row["part"] == "whole"]
        computed = [row["time_s"] for row in mine if row["part"] == "compute"]
        assert sequential
        assert computed
        assert {row["sequential_s"] for row in mine} == {min(sequential)}
        assert all(row["compute_s"] in computed for row in mine if row["compute_s"])


def test_each_is_a_case_of_its_own_that_says_how_it_was_timed(rows: list[dict[str, Any]]) -> None:
    assert len(cases(rows)) == 2
    titles = problem_titles({key: mine[0] for key, mine in by_problem(rows).items()})
    assert [": one call per graph" in title for title in titles.values()] == [False, True]
    assert facts(rows[-1])["protocol"] == "protocol latency: one call per graph"
    assert "one call" not in facts({**rows[-1], "backend": "cpu"})["protocol"]


def test_runs_have_no_schedule_in_common_where_one_timed_calls_alone(rows: list[dict[str, Any]]) -> None:
    many, alone = by_problem(rows).values()
    assert not set(timed(many)) & set(timed(alone))
    assert set(timed(many)) == set(timed([{**row, "protocol": "thorough"} for row in many]))


def test_winners_are_found_among_those_of_one_way_of_timing(
    both: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "shipped", lambda: {RECORDING: both})
    for one_call in (False, True):
        mine = known("gemm_all_to_all", one_call=one_call)
        assert mine
        assert {each.trial.protocol.name == "latency" for each in mine} == {one_call}


def test_estimates_are_of_calls_in_a_row_and_one_call_is_no_evidence_against_them(
    both: list[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong_estimates(off_rows(*[2.0] * 9, protocol="default", backend="triton"))
    assert not wrong_estimates(off_rows(*[2.0] * 9, protocol="latency", backend="triton"))
    assert wrong_estimates(off_rows(*[2.0] * 9, protocol="latency", backend="cpu")), "CPU ranks have no graphs"
    reading: Callable[[str], list[Recorded]] = lambda name: both  # noqa: E731
    monkeypatch.setattr(recordings, "recordings", reading)
    found, summary = accuracy.validate_recordings([RECORDING], shipped_machine("h200_nvl4"))
    assert summary["count"] == len(found) == len(both) // 2
    monkeypatch.setattr(calibrate_gpu, "held_out", lambda of: False)
    fitted: list[Measurement] = calibrate_gpu.fittable_measurements("h200_nvl4", [RECORDING])
    assert {one.trial.protocol.name for one in fitted} == {both[0].measurement.trial.protocol.name}


def test_whoever_sees_estimates_beside_it_is_told_what_they_are_of(rows: list[dict[str, Any]]) -> None:
    alone = [row for row in rows if row["protocol"] == "latency"]
    guess = {**alone[0], "source": "estimated", "outcome": "estimate", "calibrated": True, "low_s": 0.0, "high_s": 1.0}
    assert ONE_CALL_NOTE in notes([TerminalLine(alone[0], guess)])
    assert ONE_CALL_NOTE in " ".join(cautions({}, [*alone, guess]))
    assert ONE_CALL_NOTE not in notes([TerminalLine(alone[0], None)])
    many = [{**row, "protocol": "device"} for row in (alone[0], guess)]
    assert ONE_CALL_NOTE not in " ".join(cautions({}, many))


def test_a_landscape_shows_the_times_of_the_protocol_that_the_form_asks_for() -> None:
    row = {"operator": ASKED.operator, "shape": dict(ASKED.shape), "dtype": "float32", "world": 2,
           "fabric": ASKED.fabric, "backend": "triton", "source": "measured"}  # fmt: skip
    many, alone = {**row, "protocol": "device"}, {**row, "protocol": "device_latency"}
    assert [same_problem(ASKED)(each) for each in (many, alone)] == [True, False]
    latency = replace(ASKED, protocol="latency")
    assert [same_problem(latency)(each) for each in (many, alone)] == [False, True]
    assert same_problem(latency)({**alone, "source": "estimated", "protocol": None})
