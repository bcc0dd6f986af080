"""`library_tuned` has a curve of its own: the default's, times what the sweep's fastest setting takes of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernels.fabric import parse
from kernels.machine import Collective, Machine, load, toml
from kernels.operators import OPERATORS, problem
from kernels.schemes import schedule
from tests.simulator.trials import trial
from workbench import machines
from workbench.cli.app import app
from workbench.machines import calibrate_gpu
from workbench.machines.calibrate_gpu import with_tuned
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import predict
from workbench.simulator.price.collectives import measured_seconds

PROBES = Path(__file__).parents[2] / "data" / "probes"
LAYERS = {
    "gemm_all_to_all": {"m": 16384, "n": 4096, "k": 3584},
    "all_gather_gemm": {"m": 8192, "n": 7168, "k": 8192},
    "gemm_reduce_scatter": {"m": 2048, "n": 8192, "k": 7168},
    "gemm_all_reduce": {"m": 2048, "n": 8192, "k": 7168},
}


def row(setting: str, size: int, median_us: float, **more: Any) -> dict[str, Any]:
    told = {"collective": "all_gather", "bytes": size, "captured": True, "world": 2}
    return {"setting": setting, "median_us": median_us, **told, **more}


SWEEP = [
    row("default", 2000, 20.0), row("windows", 2000, 10.0), row("protocol LL", 2000, 1.0),
    row("windows", 2000, 1.0, captured=False),
    row("default", 200_000, 40.0), row("32 channels", 200_000, 36.0), {"setting": "default", "log": []},
]  # fmt: skip


@pytest.fixture
def machine() -> Machine:
    """Two GPUs whose NCCL was timed at three sizes."""
    points = tuple(
        Collective("all_gather", 2, size, seconds) for size, seconds in ((100, 1e-6), (1e4, 2e-6), (1e6, 9e-6))
    )
    return replace(machines.shipped_machine("h200_nvl2"), collectives=points)


def test_a_point_is_the_default_s_time_the_share_that_the_best_setting_takes(machine: Machine) -> None:
    found = with_tuned(machine, SWEEP)
    made = {one.num_bytes: one.seconds for one in found.collectives if one.name == "library_tuned_all_gather"}
    shares = {100: 0.5, 1000: 0.5, 10_000: 0.7, 100_000: 0.9, 1e6: 0.9}
    assert list(made) == list(shares)
    for size, share in shares.items():
        default = measured_seconds(machine, "all_gather", 2, size)
        assert default is not None
        assert made[size] == pytest.approx(share * float(default))
    assert [one for one in found.collectives if one.name == "all_gather"] == list(machine.collectives)
    assert "in a sweep" in found.provenance_of("collective.library_tuned_all_gather.2.100")


def test_a_second_sweep_replaces_the_first_and_the_file_says_it_all(machine: Machine, tmp_path: Path) -> None:
    once = with_tuned(machine, SWEEP)
    assert with_tuned(once, SWEEP).collectives == once.collectives
    path = tmp_path / f"{machine.name}.toml"
    path.write_text(toml(once))
    assert load(path).collectives == once.collectives


def test_a_sweep_of_other_worlds_or_of_nothing_is_refused(machine: Machine) -> None:
    for rows, says in (([{**one, "world": 4} for one in SWEEP[:2]], "settings of 4 GPUs"), ([], "settings of no GPUs")):
        with pytest.raises(ValueError, match=says):
            with_tuned(machine, rows)


@pytest.mark.parametrize("operator", LAYERS)
def test_play_and_closed_form_take_the_curve_of_the_schedule(operator: str) -> None:
    machine, fabric = machines.shipped_machine("h200_nvl2"), parse("nvlink")
    of = problem(operator, LAYERS[operator], dtype="bfloat16", world=2)
    played = {}
    for name in ("library", "library_tuned"):
        chosen = schedule(of, "sequential", {"collective": name}, machine, fabric)
        played[name] = predict(trial(of, chosen, machine, fabric), machine, with_spans=False).time_s
        assert times(of, "sequential", dict(chosen.axes), machine, fabric)[0] == pytest.approx(played[name])
    wire = OPERATORS[operator].wire_bytes(of)
    curves = [
        measured_seconds(machine, OPERATORS[operator].collective, 2, wire, by) for by in ("library", "library_tuned")
    ]
    assert curves[0] is not None
    assert curves[1] is not None
    assert played["library"] - played["library_tuned"] == pytest.approx(float(curves[0] - curves[1]))
    assert played["library_tuned"] < played["library"]


def test_the_shipped_machine_is_fitted_to_the_committed_sweep() -> None:
    again = calibrate_gpu.fit(PROBES / "h200_nvl2.json", sweep=PROBES / "h200_nvl2_nccl.jsonl")
    shipped = machines.shipped_machine("h200_nvl2")
    assert again.collectives == shipped.collectives
    assert {key: source for key, source in again.provenance.items() if key.startswith("collective")} == {
        key: source for key, source in shipped.provenance.items() if key.startswith("collective")
    }


def test_a_sweep_alone_or_one_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "sweep.jsonl"
    broken.write_text(json.dumps([1]) + "\n")
    for words, says in (
        (["--nccl", str(broken)], "needs --probes"),
        (["--nccl", str(broken), "--probes", str(PROBES / "h200_nvl2.json")], "cannot be read as a sweep"),
    ):
        found = CliRunner().invoke(app, ["calibrate", *words, "--machine", "h200_nvl2", "--json"])
        assert isinstance(found.exception, ValueError)
        assert says in str(found.exception)
