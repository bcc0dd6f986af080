"""The page says when estimates are off and fits the machine; what was predicted before a run does not change."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kernels.machine import toml
from tests.widgets.conftest import FakeLab, eventually, row, run
from tests.widgets.test_explorer import MakeExplorer, sweep
from workbench import machines
from workbench.machines import calibrated_path, shipped_machine
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
