"""The page says when estimates are off and fits the machine; what was predicted before a run does not change."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kernels.machine import toml
from kernels.units import seconds_text
from tests.widgets.conftest import FakeLab, eventually, row, run
from tests.widgets.test_explorer import MakeExplorer, sweep
from workbench import machines
from workbench.experiment import calibration
from workbench.experiment.run import RESOLVING
from workbench.machines import calibrated_path, shipped_machine
from workbench.simulator.predict import compute_alone_seconds
from workbench.widgets.cluster_watch import CalibrationNotice
from workbench.widgets.controls import HIDDEN, SHOWN
from workbench.widgets.explorer_page import Explorer


@pytest.fixture(autouse=True)
def _machines_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.machines.runs_directory", lambda: tmp_path / "runs")


def fits(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrating writes a file at once whose steps take long."""

    def calibrate(*_: object, name: str, **__: object) -> None:
        path = calibrated_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(toml(shipped_machine(name)).replace("step_seconds = ", "step_seconds = 1"))

    monkeypatch.setattr("workbench.widgets.cluster_watch.calibrate", calibrate)


@pytest.mark.slow
def test_a_sweep_that_is_slower_than_estimated_offers_to_calibrate(
    explorer: Explorer, lab: FakeLab, monkeypatch: pytest.MonkeyPatch, make_explorer: MakeExplorer
) -> None:
    assert explorer.calibrating.button.layout.display == HIDDEN
    lab.seconds = lambda trial: 0.5 if trial.part == "whole" else 1e-4
    sweep(explorer)
    run(explorer)
    assert "measured times lie outside" in explorer.calibrating.text.value
    assert explorer.calibrating.button.layout.display == SHOWN
    before = explorer.shown.estimate
    fits(explorer, monkeypatch)
    digest = machines.machine("laptop_cpu").digest
    explorer.calibrating.button.click()
    assert eventually(lambda: "is calibrated" in explorer.calibrating.text.value)
    assert machines.machine("laptop_cpu").digest != digest
    assert explorer.shown.row is not None  # the form shows a schedule that was measured
    assert explorer.shown.estimate is not None
    assert before is not None
    assert (explorer.shown.estimate.time_s, explorer.shown.estimate.digest) == (before.time_s, digest)
    later = make_explorer()
    assert "was calibrated since" in later.calibrating.text.value
    assert later.calibrating.button.layout.display == HIDDEN


@pytest.mark.slow
def test_what_cannot_be_calibrated_says_why(explorer: Explorer, lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.seconds = lambda trial: 0.5 if trial.part == "whole" else 1e-4
    sweep(explorer)
    run(explorer)

    def refuse(*_: object, **__: object) -> None:
        raise ValueError("The calibration cannot be written. Accepted: a folder that you may write.")

    monkeypatch.setattr("workbench.widgets.cluster_watch.calibrate", refuse)
    explorer.calibrating.button.click()
    assert eventually(lambda: "cannot be written" in explorer.calibrating.text.value)


def test_a_page_that_goes_while_it_calibrates_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store is closed next."""
    over, done = threading.Event(), list[str]()
    monkeypatch.setattr("workbench.widgets.cluster_watch.calibrate", lambda *_, **__: over.wait(100))
    made = CalibrationNotice(FakeLab, lambda: done.append("done"))  # type: ignore[arg-type, return-value]
    digest = machines.machine("laptop_cpu").digest
    timed = [row(key=str(number), time_s=9.0) for number in range(5)]
    made.show([*timed, *(row(key=each["key"], source="estimated", machine_digest=digest) for each in timed)])
    made.button.click()
    made.close()
    over.set()
    assert eventually(lambda: "workbench calibrate" not in {thread.name for thread in threading.enumerate()})
    assert done == []
    assert "is calibrated" not in made.text.value


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, make_explorer: MakeExplorer) -> Explorer:
    """A page that looks for news all the time, on which nothing has run."""
    monkeypatch.setattr("workbench.widgets.cluster_watch.LOOK_SECONDS", 0.02)
    made = make_explorer()
    made.form.problem.preset.value = "tiny"
    return made


def write_fitted(seconds: str = "1") -> None:
    path = calibrated_path("laptop_cpu")
    path.parent.mkdir(parents=True, exist_ok=True)
    fitted = replace(shipped_machine("laptop_cpu"), calibrated="2026-11-01T10:00:00+00:00 on here, quick")
    path.write_text(toml(fitted).replace("step_seconds = ", f"step_seconds = {seconds}"))


def test_a_lab_s_calibration_that_waits_or_fails_is_on_the_page_with_a_button_before_any_run(
    watched: Explorer, lab: FakeLab
) -> None:
    drawn = threading.Event()
    lab.failures["sequential"] = ("lost", None)

    @contextmanager
    def connect() -> Iterator[FakeLab]:
        yield lab

    said: list[str] = []
    with calibration.in_background(connect, said.append, lambda seconds, stop: drawn.wait(100)):  # type: ignore[arg-type]
        assert eventually(lambda: "is not calibrated yet" in watched.calibrating.lab.value)
        assert watched.calibrating.button.layout.display == SHOWN
        drawn.set()
        assert eventually(lambda: "Not calibrated: The calibration could not" in watched.calibrating.lab.value)
        assert watched.calibrating.button.layout.display == SHOWN
        assert len(said) == 1
    assert eventually(lambda: watched.calibrating.lab.value == ""), "that lab has ended"
    assert watched.calibrating.button.layout.display == HIDDEN


@pytest.mark.slow
def test_a_page_redraws_itself_when_the_machine_is_calibrated_elsewhere(watched: Explorer) -> None:
    before = watched.shown.estimate
    assert before is not None
    assert not before.calibrated
    assert "not calibrated" in watched.page.headline.value
    write_fitted()
    assert eventually(lambda: "as its calibration was checked" in watched.page.headline.value)
    assert "The estimates on this page are of it now" in watched.calibrating.lab.value
    assert "calibrated 2026-11-01" in watched.calibrating.lab.value
    assert watched.shown.estimate is not None
    assert watched.shown.estimate.time_s > before.time_s
    assert watched.shown.estimate.digest == machines.machine("laptop_cpu").digest != before.digest
    assert "not calibrated" not in watched.page.headline.value


@pytest.mark.slow
def test_what_was_measured_stays_when_estimates_become_those_of_a_new_calibration(watched: Explorer) -> None:
    assert eventually(lambda: not watched.page.run.disabled)
    run(watched)
    rows, before = list(watched.panels.rows), watched.shown.estimate
    assert watched.shown.row is not None
    assert before is not None
    write_fitted()
    assert eventually(lambda: "What was measured stays" in watched.calibrating.lab.value)
    watched.refresh()  # once the watcher's own drawing is over
    assert list(watched.panels.rows) == rows
    assert watched.shown.row is not None
    assert watched.shown.estimate is not None
    assert watched.shown.estimate.time_s == before.time_s, "the estimate from before the measurement"
    run(watched)
    assert watched.calibrating.lab.value == ""


def test_the_ratio_says_what_is_drawn_where_the_link_was_set_by_another_computation(
    explorer: Explorer, lab: FakeLab
) -> None:
    """The link keeps its speed from its first measurement; a calibration changes the estimate of the computation."""
    machine, problem = machines.machine("laptop_cpu"), explorer.form.question.problem()
    ranks = lab.gang(problem.world, "cpu")
    assert explorer.shown.estimate is not None
    assert ranks is not None
    assert explorer.form.drawn_ratio.value == "", "the link follows from the estimate"
    alone_s = compute_alone_seconds(problem, machine, explorer.shown.estimate.trial.fabric)
    explorer.store.keep_compute_seconds(machine.name, problem, ranks.hardware, 1.8 * alone_s, "a run")
    explorer.refresh()
    said = explorer.form.drawn_ratio.value
    assert "Timelines show 1.8: " in said
    assert f"wire {seconds_text(1.8 * alone_s)}, compute {seconds_text(alone_s)}." in said
    explorer.form.ratio.value = 0.5
    assert "Timelines show 0.9: " in explorer.form.drawn_ratio.value
    explorer.store.keep_compute_seconds(machine.name, problem, ranks.hardware, alone_s, "a run", again=True)
    explorer.refresh()
    assert explorer.form.drawn_ratio.value == ""


@pytest.mark.slow
def test_the_ratio_of_a_measured_schedule_is_of_the_measured_computation(explorer: Explorer, lab: FakeLab) -> None:
    lab.seconds = lambda trial: 2e-3 if trial.protocol.name == RESOLVING.name else 1e-3
    assert eventually(lambda: not explorer.page.run.disabled)
    run(explorer)
    assert explorer.shown.row is not None
    said = re.sub("<[^>]*>", "", explorer.form.drawn_ratio.value)
    assert "Timelines show 2 measured and " in said
    assert " estimated: wire 2 ms, compute 1 ms and " in said
    assert "The link keeps the speed of its first measurement here" in said


def test_the_ratio_says_that_the_estimate_is_another_one_where_the_measured_computation_is_as_asked(
    explorer: Explorer, lab: FakeLab
) -> None:
    """“1.0” was above a simulated timeline whose wire took three times as long as its computation."""
    lab.seconds = lambda trial: 1e-3
    assert eventually(lambda: not explorer.page.run.disabled)
    run(explorer)
    said = explorer.form.drawn_ratio.value
    assert "Timelines show 1 measured and " in said
    assert "The link follows the measured computation, and its estimate is another one." in said
    assert "Measure again" not in said


@pytest.mark.slow
def test_a_busy_computer_is_refused_on_the_page_and_can_be_insisted_on(
    explorer: Explorer, lab: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.seconds = lambda trial: 0.5 if trial.part == "whole" else 1e-4
    sweep(explorer)
    run(explorer)
    asked = list[str]()

    def calibrate(*_: object, busy: str, **__: object) -> None:
        asked.append(busy)
        if busy == calibration.REFUSE:
            raise machines.BusyComputer("laptop_cpu", "Others use 1.6 of 2 cores")
        write_fitted()

    monkeypatch.setattr("workbench.widgets.cluster_watch.calibrate", calibrate)
    button = explorer.calibrating.button
    button.click()
    assert eventually(lambda: button.layout.display == SHOWN and button.description == "Calibrate anyway")
    assert "Others use 1.6 of 2 cores; up to 10 % of the cores is accepted." in explorer.calibrating.text.value
    button.click()
    assert eventually(lambda: "is calibrated" in explorer.calibrating.text.value)
    assert asked == [calibration.REFUSE, calibration.INSIST]
    assert button.description == "Calibrate"
