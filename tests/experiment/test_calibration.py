"""Calibrating writes a whole machine file beside the runs, or none; the lab does it quickly and in the background."""

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.cpu_use import HostUse
from cluster.process import process_start
from kernels.machine import toml
from workbench import cli, machines, resources
from workbench.cli import measuring
from workbench.experiment import calibration
from workbench.machines.calibrate_cpu import QUICK_SECONDS, FittedMachine
from workbench.simulator.predict import predict


@pytest.fixture
def slow_computer(fake_cluster: Any) -> Any:
    """Computes and copies half as fast as the shipped file says."""
    shipped = machines.shipped_machine(machines.LAPTOP)
    device, link = shipped.device, shipped.dimensions[0]
    peaks = {dtype: peak / 2 for dtype, peak in device.matrix_flops_per_second.items()}
    slow = replace(device, matrix_flops_per_second=peaks, memory_bytes_per_second=device.memory_bytes_per_second / 2)
    half = replace(link, bandwidth_bytes_per_second=link.bandwidth_bytes_per_second / 2)
    machine = replace(shipped, device=slow, dimensions=(half,))
    fake_cluster.seconds = lambda trial: predict(trial, machine, with_spans=False).time_s
    return fake_cluster


@pytest.fixture
def busy_computer(slow_computer: Any) -> Any:
    """Was busy with something else before its check."""
    usual = slow_computer.seconds
    slow_computer.seconds = lambda trial: (
        usual(trial) * (0.7 if trial.part == "whole" and trial.problem["m"] == 512 else 1)
    )
    return slow_computer


def test_a_calibration_whose_check_is_off_is_not_kept(busy_computer: Any) -> None:
    with pytest.raises(calibration.UnsoundFit, match=r"took 0\.\d\d times .* and 0\.85 to 1\.15 is accepted") as raised:
        calibration.calibrate(busy_computer, 0.0)
    assert "stays not calibrated" in str(raised.value)
    assert not calibration.is_calibrated_here()
    assert not machines.calibrated_path(machines.LAPTOP).exists()


def test_a_better_calibration_outlives_a_worse_one(slow_computer: Any, request: pytest.FixtureRequest) -> None:
    before, path = calibration.calibrate(slow_computer, 0.0)
    text = path.read_text()
    with pytest.raises(calibration.UnsoundFit, match=r"took 0\.70 times") as raised:
        calibration.calibrate(request.getfixturevalue("busy_computer"), 0.0)
    assert f"stays as calibrated {before.calibrated}, whose check took 1.00 to 1.00 times" in str(raised.value)
    assert path.read_text() == text
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_was_measured_is_preferred_from_then_on(slow_computer: Any) -> None:
    assert not calibration.is_calibrated_here()
    found, path = calibration.calibrate(slow_computer, QUICK_SECONDS)
    assert calibration.is_calibrated_here()
    assert machines.machine(machines.LAPTOP) == found
    assert found.calibrated is not None
    assert found.calibrated.endswith(", quick")
    assert path == machines.calibrated_path(machines.LAPTOP)
    shipped = machines.shipped_machine(machines.LAPTOP)
    assert shipped.calibrated is None
    assert found.device.matrix_flops_per_second["float32"] < shipped.device.matrix_flops_per_second["float32"]


def test_a_damaged_machine_stops_no_calibration_and_is_kept_beside_the_new_one(slow_computer: Any) -> None:
    damaged = machines.calibrated_path(machines.LAPTOP)
    damaged.parent.mkdir(parents=True)
    damaged.write_text('name = "laptop_cpu" # edited by hand [')
    resources.begin()
    assert not calibration.is_calibrated_here()
    assert len(resources.messages()) == 1
    _, path = calibration.calibrate(slow_computer, QUICK_SECONDS)
    assert resources.messages() == ()
    assert calibration.is_calibrated_here()
    kept = path.with_name("laptop_cpu.toml.damaged")
    assert kept.read_text() == 'name = "laptop_cpu" # edited by hand ['
    assert sorted(path.parent.iterdir()) == [path, kept]
    assert "laptop_cpu.toml.damaged" not in machines.names()


def test_a_calibration_that_fails_leaves_no_file(slow_computer: Any) -> None:
    slow_computer.failures["fused"] = ("lost", 1)
    with pytest.raises(ValueError, match=r"could not measure .*: because of lost"):
        calibration.calibrate(slow_computer, QUICK_SECONDS)
    path = machines.calibrated_path(machines.LAPTOP)
    assert not path.parent.exists() or not list(path.parent.iterdir())


def test_a_folder_that_cannot_be_written_is_named(slow_computer: Any) -> None:
    folder = machines.calibrated_path(machines.LAPTOP).parent
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    with pytest.raises(ValueError, match=r"The calibration cannot be written to .*laptop_cpu\.toml"):
        calibration.calibrate(slow_computer, QUICK_SECONDS)


def test_the_background_calibrates_and_tells(slow_computer: Any) -> None:
    told: list[str] = []

    @contextmanager
    def connect() -> Iterator[Any]:
        yield slow_computer

    with calibration.in_background(connect, told.append) as thread:
        thread.join(60)
    assert [sentence.split(":")[0] for sentence in told] == ["Calibrated"]
    assert calibration.is_calibrated_here()


def test_the_background_waits_for_the_page_and_makes_room_for_whoever_measures(
    slow_computer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "LOOK_SECONDS", 0.001)
    shown, told = threading.Event(), list[str]()
    slow_computer.others = 3

    @contextmanager
    def connect() -> Iterator[Any]:
        yield slow_computer

    def wait(seconds: float, unwanted: threading.Event) -> bool:
        return shown.wait(seconds)

    with calibration.in_background(connect, told.append, wait) as thread:
        thread.join(0.2)
        assert (slow_computer.lists, slow_computer.others) == ([], 3), "it began before there was a page"
        shown.set()
        thread.join(60)
    assert slow_computer.others < 0, "nobody asked whether others measure"
    assert [sentence.split(":")[0] for sentence in told] == ["Calibrated"]


def test_a_run_that_begins_meanwhile_is_made_room_for(slow_computer: Any) -> None:
    with pytest.raises(calibration.CalibrationDisturbed):
        calibration.calibrate(slow_computer, QUICK_SECONDS, disturbed=lambda: len(slow_computer.lists) == 2)
    assert len(slow_computer.lists) == 2
    assert not calibration.is_calibrated_here()


def test_a_page_that_nobody_opens_is_named(slow_computer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "QUICK_SECONDS", 0.0)
    told: list[str] = []

    @contextmanager
    def connect() -> Iterator[Any]:
        yield slow_computer

    with calibration.in_background(connect, told.append, lambda seconds, unwanted: False) as thread:
        thread.join(60)
    assert told[0] == "The explorer was not opened within 300 s: this computer is calibrated meanwhile."
    assert calibration.is_calibrated_here()


def test_a_lab_whose_calibration_does_not_hold_tries_again_and_then_says_so(
    busy_computer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(calibration, "LOOK_SECONDS", 0.001)
    said: list[str] = []

    @contextmanager
    def connect() -> Iterator[Any]:
        yield busy_computer

    with calibration.in_background(connect, said.append) as thread:
        thread.join(60)
        state = calibration.lab_calibration()
    assert [sentence[:50] for sentence in said] == ["Not calibrated: The calibration of laptop_cpu does"]
    assert state is not None
    assert (state.state, state.message, state.machine) == (calibration.FAILED, said[0], "laptop_cpu")
    assert calibration.lab_calibration() is None, "the lab has ended"
    assert not calibration.is_calibrated_here()


def test_the_state_of_the_lab_s_calibration_is_there_for_the_page_until_it_is_done(
    slow_computer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "LOOK_SECONDS", 0.001)
    states: list[str | None] = []

    def look(*_: object) -> bool:
        known = calibration.lab_calibration()
        states.append(known and known.state)
        return True

    slow_computer.before = look

    @contextmanager
    def connect() -> Iterator[Any]:
        yield slow_computer

    with calibration.in_background(connect, lambda _: None, look) as thread:
        thread.join(60)
        look()
    assert states[0] == calibration.WAITING
    assert set(states[1:-1]) == {calibration.RUNNING}
    assert states[-1] is None


def test_the_state_of_a_lab_that_was_killed_is_none() -> None:
    file = machines.calibrated_path("lab").with_suffix(".state")
    file.parent.mkdir(parents=True)
    state = {"state": "waiting", "message": "soon", "machine": "laptop_cpu", "pid": os.getpid()}
    file.write_text(json.dumps({**state, "started": process_start()}))
    assert calibration.lab_calibration() is not None
    file.write_text(json.dumps({**state, "started": "another process of that number"}))
    assert calibration.lab_calibration() is None


def test_a_lab_that_cannot_calibrate_says_why_and_goes_on(slow_computer: Any) -> None:
    told: list[str] = []

    @contextmanager
    def connect() -> Iterator[Any]:
        yield slow_computer

    slow_computer.failures["sequential"] = ("lost", None)
    with calibration.in_background(connect, told.append) as thread:
        thread.join(60)
    assert len(told) == 1
    assert told[0].startswith("Not calibrated: The calibration could not measure sequential")
    assert not calibration.is_calibrated_here()


def test_the_command_prints_what_it_found(
    slow_computer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    connected: Callable[..., Any] = contextmanager(lambda address, num_ranks, backend, **_: iter([slow_computer]))
    monkeypatch.setattr(measuring, "connected", connected)
    assert cli.status(["calibrate", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"[µm]s +costs\.barrier_seconds +timed on 2 ranks", out)
    assert re.search(r"rate\.gemm +\d+ +", out)
    assert "laptop_cpu is calibrated: " in err
    assert str(tmp_path) in err


def test_the_command_fails_when_the_check_is_off(
    busy_computer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connected: Callable[..., Any] = contextmanager(lambda address, num_ranks, backend, **_: iter([busy_computer]))
    monkeypatch.setattr(measuring, "connected", connected)
    monkeypatch.setattr("workbench.machines.calibrate_cpu.QUICK_SECONDS", 0.0)
    assert cli.status(["calibrate", "--quick", "--json"]) == 1
    out, err = capsys.readouterr()
    failed = json.loads(out)
    assert (failed["outcome"], failed["stage"], failed["message"]) == ("failure", "lost", err.strip())
    assert "0.85 to 1.15 is accepted" in err


def test_the_command_brings_the_calibration_before_back_and_says_which(
    slow_computer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before, path = calibration.calibrate(slow_computer, QUICK_SECONDS)
    text = path.read_text()
    slow_computer.seconds = lambda trial, usual=slow_computer.seconds: 1.01 * usual(trial)
    calibration.calibrate(slow_computer, QUICK_SECONDS)
    assert path.read_text() != text
    assert cli.status(["calibrate", "--undo"]) == 0
    assert f"laptop_cpu is as it was before: calibrated {before.calibrated}." in capsys.readouterr().err
    assert path.read_text() == text
    assert cli.status(["calibrate", "--undo", "--quick"]) == 2
    assert cli.status(["calibrate", "--undo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["calibrated"] is None
    assert cli.status(["calibrate", "--undo"]) == 2
    assert "--undo has nothing to bring back for laptop_cpu" in capsys.readouterr().err


# A busy computer: the calibration is refused or postponed, or insisted on, and then the file says so.

BUSY = (HostUse("here", 2.0, 1.6, {"other programs": 1.5, "the lab's page": 0.1}),)
USED = "1.6 of 2 cores (other programs 1.5, the lab's page 0.1)"


@pytest.fixture
def loaded_computer(slow_computer: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Others use most of its cores before anything is measured."""
    monkeypatch.setattr(calibration, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(calibration, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(calibration, "BUSY_SECONDS", 0.001)
    monkeypatch.setattr(
        measuring, "connected", contextmanager(lambda address, num_ranks, backend, **_: iter([slow_computer]))
    )
    slow_computer.uses = BUSY
    return slow_computer


def test_the_command_refuses_a_busy_computer_and_names_who_uses_it(
    loaded_computer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.status(["calibrate", "--quick"]) == 1
    err = capsys.readouterr().err
    assert f"laptop_cpu cannot be calibrated on a busy computer. Others use {USED}; up to 10 % of the cores" in err
    assert "`workbench calibrate --busy`" in err
    assert loaded_computer.lists == [], "it was measured"
    assert not machines.calibrated_path(machines.LAPTOP).exists()


def test_a_calibration_that_is_insisted_on_says_so_in_its_file_and_wherever_it_is_listed(
    loaded_computer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.status(["calibrate", "--quick", "--busy"]) == 0
    assert f"on a busy computer: {USED}" in capsys.readouterr().err
    text = f", quick, on a busy computer: {USED}"
    known = machines.machine(machines.LAPTOP)
    assert known.calibrated is not None
    assert known.calibrated.endswith(text)
    assert calibration.is_calibrated_here()
    assert cli.status(["machines", "--json"]) == 0
    assert f"{text}" in capsys.readouterr().out


def test_a_load_that_ends_soon_delays_the_calibration_only(slow_computer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LOOK_SECONDS", 0.001)
    readings = iter([(), BUSY, BUSY, slow_computer.uses])
    slow_computer.core_use = lambda: next(readings)
    calibration.calibrate(slow_computer, QUICK_SECONDS)
    assert calibration.is_calibrated_here()


def test_a_lab_waits_until_the_computer_is_quiet_and_says_for_whom(loaded_computer: Any) -> None:
    said, states = list[str](), list[Any]()

    def core_use() -> tuple[HostUse, ...]:
        states.append(calibration.lab_calibration())
        busy = replace(BUSY[0], others_cores=1.6 + 0.1 * (len(states) // 2))  # no two tries read the same
        return (busy if len(states) < 7 else HostUse("here", 2.0, 0.1),)

    loaded_computer.core_use = core_use

    @contextmanager
    def connect() -> Iterator[Any]:
        yield loaded_computer

    with calibration.in_background(connect, said.append) as thread:
        thread.join(60)
    assert {state.state for state in states} == {calibration.WAITING}, "it is called running once it measures"
    assert len({state.message for state in states}) > 2, "the page has the newest reading"
    waits = "laptop_cpu is not calibrated yet: the lab waits until this computer is quiet. Others use "
    assert said[0].startswith(waits)
    assert said[0].endswith("up to 10 % of the cores is accepted.")
    assert USED in said[0]
    assert len(said) == 2, "a person is told once that it waits"
    assert said[1].startswith("Calibrated: ")


def test_a_lab_keeps_no_fit_that_others_disturbed(loaded_computer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded_computer.uses = (HostUse("here", 2.0, 0.0),)
    text = toml(replace(machines.shipped_machine("laptop_cpu"), calibrated="2026-11-01T10:00:00+00:00 on here"))
    disturbed = FittedMachine(
        text=text, ratio=1.0, distrusted={"costs.tile_seconds": "1.2 of 2 cores, mostly other programs"}
    )
    monkeypatch.setattr(calibration, "fit", lambda *_: disturbed)
    with pytest.raises(machines.BusyComputer, match=r"Others used the cores meanwhile: 1\.2 of 2 cores, mostly other"):
        calibration.calibrate(loaded_computer, busy=calibration.POSTPONE)
    assert not machines.calibrated_path(machines.LAPTOP).exists()
    calibration.calibrate(loaded_computer)
    assert machines.calibrated_path(machines.LAPTOP).read_text() == text


def test_no_fit_is_kept_whose_check_others_disturbed_unless_somebody_insists(
    loaded_computer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_computer.uses = (HostUse("here", 2.0, 0.0),)
    text = toml(replace(machines.shipped_machine("laptop_cpu"), calibrated="2026-11-01T10:00:00+00:00 on here"))
    disturbed = FittedMachine(text=text, ratio=1.0, distrusted={"spread": "1.2 of 2 cores, mostly other programs"})
    monkeypatch.setattr(calibration, "fit", lambda *_: disturbed)
    with pytest.raises(machines.BusyComputer, match=r"Others used the cores meanwhile: 1\.2 of 2 cores"):
        calibration.calibrate(loaded_computer)
    assert not machines.calibrated_path(machines.LAPTOP).exists()
    calibration.calibrate(loaded_computer, busy=calibration.INSIST)
    assert machines.calibrated_path(machines.LAPTOP).read_text() == text


def test_the_first_reading_of_a_busy_computer_is_waited_for(loaded_computer: Any) -> None:
    """Workers that have just started there report late: until then nobody knows that it is busy."""
    readings = iter([(), (), (), BUSY])
    loaded_computer.core_use = lambda: next(readings)
    with pytest.raises(machines.BusyComputer, match=r"Others use 1\.6 of 2 cores"):
        calibration.calibrate(loaded_computer)
    assert loaded_computer.lists == []
