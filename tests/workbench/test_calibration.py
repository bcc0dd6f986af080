"""Calibrating writes a whole machine file beside the runs, or none; the lab does it quickly and in the background."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from workbench import calibration, cli, cli_measure, machines
from workbench.simulator.calibrate import QUICK_SECONDS
from workbench.simulator.predict import predict


@pytest.fixture
def slow_computer(fake_cluster: Any) -> Any:
    """Takes twice what the shipped file estimates."""
    shipped = machines.shipped_machine(machines.LAPTOP)
    fake_cluster.seconds = lambda trial: 2 * predict(trial, shipped, with_spans=False).time_s
    return fake_cluster


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


def test_a_calibration_that_fails_leaves_no_file(slow_computer: Any) -> None:
    slow_computer.failures["fused"] = ("lost", 1)
    with pytest.raises(ValueError, match="could not measure it: because of lost"):
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


def test_a_lab_that_cannot_calibrate_says_why_and_goes_on(slow_computer: Any) -> None:
    told: list[str] = []

    @contextmanager
    def connect() -> Iterator[Any]:
        yield slow_computer

    slow_computer.failures["sequential"] = ("lost", None)
    with calibration.in_background(connect, told.append) as thread:
        thread.join(60)
    assert len(told) == 1
    assert told[0].startswith("Not calibrated: Calibration asked for sequential")
    assert not calibration.is_calibrated_here()


def test_the_command_prints_what_it_found(
    slow_computer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    connected: Callable[..., Any] = contextmanager(lambda address, num_ranks: iter([slow_computer]))
    monkeypatch.setattr(cli_measure, "connected", connected)
    assert cli.status(["calibrate", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert "rate.gemm.float32" in out
    assert "laptop_cpu is calibrated: " in err
    assert str(tmp_path) in err
