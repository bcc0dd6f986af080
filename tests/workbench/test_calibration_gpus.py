"""`workbench calibrate` for GPUs: raw results become a machine that is preferred, and recordings say how good it is."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster import hosts
from kernels.machine import load
from kernels.schedule import Refusal
from tests.simulator.probed import raw
from workbench import machines
from workbench.analysis.accuracy import by_kind, validate_recordings
from workbench.cli.app import app
from workbench.machines import calibrate_gpu
from workbench.machines.calibrate_gpu import held_out
from workbench.results import recordings

RECORDING = "h200_nvl4_gemm"


@pytest.fixture
def raw_file(tmp_path: Path) -> Path:
    path = tmp_path / "raw.json"
    path.write_text(json.dumps(raw(machines.shipped_machine("h200_nvl4"), 4)))
    return path


def asked(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["calibrate", *words])
    return found.exit_code, found.stdout


def test_raw_results_become_a_machine_checked_against_recordings(raw_file: Path, tmp_path: Path) -> None:
    to = tmp_path / "h200_nvl4.toml"
    code, told = asked("--probes", str(raw_file), "--recording", RECORDING, "--to", str(to), "--json")
    assert code == 0
    summary = json.loads(told)["summary"]
    assert summary["machine"] == "h200_nvl4"
    assert load(to).spread == tuple(summary["spread"])
    fitting = [one for one in recordings.recordings(RECORDING) if not held_out(one.measurement.trial.problem)]
    assert 0 < len(fitting) < 119
    assert f"{len(fitting)} recorded trials" in load(to).provenance_of("spread")


def test_a_fit_lies_beside_the_runs_and_is_preferred_from_then_on(raw_file: Path) -> None:
    code, told = asked("--probes", str(raw_file))
    assert code == 0
    assert str(machines.calibrated_path("h200_nvl4")) not in told  # people read it on standard error
    assert machines.machine("h200_nvl4").calibrated == "2026-11-22T10:00:00+00:00 on somewhere"
    code, _ = asked("--machine", "h200_nvl8", "--devices-of", "h200_nvl4")
    assert code == 0
    assert machines.machine("h200_nvl8").calibrated == (
        "2026-11-22T10:00:00+00:00 on somewhere, each device of h200_nvl4"
    )


def test_what_was_carried_over_is_shown_with_its_units(tmp_path: Path) -> None:
    code, told = asked("--machine", "h200_nvl8", "--devices-of", "h200_nvl2", "--to", str(tmp_path / "eight.toml"))
    assert code == 0
    assert re.search(r"70 GB/s +device.loads_in_flight.49152", told)
    assert re.search(r"1.9 µs +costs.library_tile_seconds", told)
    assert "put_tma" not in told, "puts are assumed, and only what was measured is shown"


def test_a_host_without_the_gpus_names_the_command_for_one_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "visible_gpus", tuple)
    with pytest.raises(Refusal, match="It has 2 GPUs, but this host has 0: 0 < 2") as told:
        calibrate_gpu.probe(machines.shipped_machine("h200_nvl2"), 1.0, Path("nowhere.json"))
    module = re.search(r"python3 -m ([\w.]+) data/machines/h200_nvl2.toml", str(told.value))
    assert module
    assert (Path(__file__).parents[2] / module[1].replace(".", "/") / "__main__.py").exists()


def test_what_is_no_raw_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "raw.json"
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"cannot be read as raw results of probes"):
            calibrate_gpu.fit(path)


def test_recordings_are_compared_by_operator_and_scheme() -> None:
    rows, summary = validate_recordings([RECORDING])
    assert summary["count"] == len(rows) == 119
    kinds = by_kind(rows)
    assert sum(kind["count"] for kind in kinds) == 119
    assert all(kind["lowest"] <= kind["ratio"] <= kind["highest"] for kind in kinds)
    assert {"library", "copy_engine", ""} <= {kind["collective"] for kind in kinds}
    other, _ = validate_recordings([RECORDING], machines.shipped_machine("h100_nvl8"))
    assert {row["estimated_s"] for row in other} != {row["estimated_s"] for row in rows}


def test_validate_prints_a_line_for_each_kind() -> None:
    found = CliRunner().invoke(app, ["validate", "--recording", RECORDING])
    assert found.exit_code == 0
    assert re.search(r" 3  sequential library, communication, GEMM -> reduce-scatter\n", found.stdout)
