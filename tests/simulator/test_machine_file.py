"""A machine that is written down and loaded again is the same machine."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernels.machine import Machine, load, toml
from workbench import machines


def reread(machine: Machine, folder: Path) -> Machine:
    path = folder / "written.toml"
    path.write_text(toml(machine))
    return replace(load(path), digest=machine.digest)


def test_the_tests_machines_survive_being_written(laptop: Machine, gpu_pod: Machine, tmp_path: Path) -> None:
    assert reread(laptop, tmp_path) == laptop
    assert reread(gpu_pod, tmp_path) == gpu_pod


@pytest.mark.parametrize("name", machines.names())
def test_every_shipped_machine_survives_being_written(name: str, tmp_path: Path) -> None:
    shipped = machines.shipped_machine(name)
    assert reread(shipped, tmp_path) == shipped


def test_what_calibration_adds_is_kept(laptop: Machine, tmp_path: Path) -> None:
    fitted = replace(laptop, calibrated='today "here", in Zürich', spread=(0.9, 1.25))
    assert reread(fitted, tmp_path) == fitted
