"""Nothing is fitted to what is held out, and `workbench calibrate` makes a machine of raw results of GPUs."""

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster import hosts
from kernels.machine import load
from kernels.operators import OPERATORS, problem
from kernels.problem import Problem
from kernels.schedule import Refusal
from tests.machines.probed import raw
from workbench import machines
from workbench.analysis.accuracy import by_kind, errors, validate_recordings, whole_trials
from workbench.cli.app import app
from workbench.machines import calibrate_gpu
from workbench.machines.calibrate_gpu import WHOLLY_HELD_OUT, computation, fitted, held_out, is_drawn, problem_text
from workbench.results import recordings

# Nothing is fitted to what is held out; the draw is by a committed seed, and each operator has both sides.

MACHINES = ("h200_nvl2", "h200_nvl4", "h200_nvl8", "h200_ib")
RAW = Path(__file__).parents[2] / "data" / "probes" / "h200_nvl2.json"
MEDIAN, P90, WEIGHTED, OF_A_HELD_OUT_OPERATOR = 0.08, 0.20, 0.08, 0.12
"""The most that errors of held-out trials may be."""
INSIDE, HALF_WIDTH = (0.75, 0.90), 0.12
CHOSEN_FROM = ("h200_nvl2_embedding", "h200_nvl2_gemm", "h200_nvl2_gemv", "h200_nvl2_layers", "h200_nvl2_ways")
"""What had been recorded when the seed was chosen. What comes later is drawn by it, and says nothing of the choice."""


@cache
def probed() -> dict[str, Any]:
    return dict(json.loads(RAW.read_text()))


def of_row(row: dict[str, Any]) -> Problem:
    return problem(row["operator"], row["shape"], dtype=row["dtype"], world=probed()["world"])


def in_calls() -> list[dict[str, Any]]:
    """Probes of the operators' own sizes."""
    return [row for row in probed()["rows"] if "operator" in row and "waves" not in row]


@cache
def recorded(names: tuple[str, ...] = tuple(recordings.paths())) -> frozenset[Problem]:
    trials = (one.measurement.trial for name in names for one in recordings.recordings(name))
    return frozenset(trial.problem for trial in trials if trial.machine in MACHINES and not trial.is_one_call)


def sides() -> dict[tuple[str, str], set[str]]:
    """Computations by who timed them and operator; those of an operator that is held out whole are not drawn."""
    known: dict[tuple[str, str], set[str]] = defaultdict(set)
    for of in recorded(CHOSEN_FROM):
        known["recorded", of.operator].add(computation(of))
    for row in in_calls():
        known["probed", row["operator"]].add(computation(of_row(row)))
    return {key: names for key, names in known.items() if key[1] not in WHOLLY_HELD_OUT}


def fits(seed: int) -> bool:
    shares = [sum(is_drawn(name, seed) for name in names) / len(names) for names in sides().values()]
    return all(calibrate_gpu.MIN_SHARE <= share <= 1 - calibrate_gpu.MIN_SHARE for share in shares)


def test_the_seed_is_the_first_that_gives_every_operator_both_sides() -> None:
    assert {operator for who, operator in sides() if who == "recorded"} | set(WHOLLY_HELD_OUT) == set(OPERATORS)
    assert [seed for seed in range(calibrate_gpu.SEED + 1) if fits(seed)] == [calibrate_gpu.SEED]


def test_four_tenths_of_the_recorded_problems_are_held_out() -> None:
    assert sum(map(held_out, recorded())) >= calibrate_gpu.MIN_SHARE * len(recorded())


def test_operators_dtypes_and_ranks_that_share_a_computation_are_on_one_side() -> None:
    sizes = {"m": 128, "n": 8192, "k": 7168}
    both = {held_out(problem(name, sizes, dtype=dtype, world=world)) for name in ("gemm_all_reduce", "gemm_all_to_all")
            for dtype in ("bfloat16", "float32") for world in (2, 4)}  # fmt: skip
    assert len(both) == 1
    two, four = ({"n": 8192, "k": 2048 * world, "tokens": 4} for world in (2, 4))
    assert computation(problem("gemv_all_reduce", two, dtype="bfloat16", world=2)) == computation(
        problem("gemv_all_reduce", four, dtype="bfloat16", world=4)
    )


@pytest.mark.parametrize("name", MACHINES)
def test_no_held_out_row_is_among_those_that_a_machine_is_fitted_to(name: str) -> None:
    told = {problem_text(of): of for of in [*recorded(), *map(of_row, in_calls())]}
    fitted_to = machines.shipped_machine(name).fitted_to
    known = [told[text] for text in fitted_to if text in told]
    assert known, "recorded or probed problems are listed as they are here"
    assert not [text for text in fitted_to if text in told and held_out(told[text])]
    drawn = {computation(of) for of in recorded() if held_out(of) and of.operator not in WHOLLY_HELD_OUT}
    assert drawn.isdisjoint(map(computation, known))


def test_what_is_held_out_changes_nothing_of_a_fit() -> None:
    machine = machines.shipped_machine("h200_nvl2")
    rows = [{**row, "seconds": 3 * row["seconds"]} if row in in_calls() and held_out(of_row(row)) else row
            for row in probed()["rows"]]  # fmt: skip
    assert rows != probed()["rows"]
    before = fitted(probed(), machine)
    assert fitted({**probed(), "rows": rows}, machine) == before
    assert before.rates == fitted(probed(), before).rates
    but = computation(of_row(next(row for row in in_calls() if not held_out(of_row(row)))))
    assert {problem_text(of_row(row)) for row in in_calls() if computation(of_row(row)) == but}.isdisjoint(
        fitted(probed(), machine, but).fitted_to
    )


@pytest.mark.slow
def test_estimates_of_held_out_trials_reach_their_marks_and_beat_a_roofline() -> None:
    names = [name for name in recordings.paths() if name.startswith("h200_nvl2")]
    rows, summary = validate_recordings(names)
    held = [row for row in whole_trials(rows) if row["held_out"]]
    assert {row["scheme"] for row in held} == {row["scheme"] for row in whole_trials(rows)}
    off = errors(held)
    assert summary["held_out"]["all"] == off
    assert off["median"] <= MEDIAN
    assert off["p90"] <= P90
    assert off["weighted"] <= WEIGHTED
    assert INSIDE[0] <= off["inside_interval"] <= INSIDE[1]
    assert off["half_width"] <= HALF_WIDTH
    for error in ("median", "p90", "weighted"):
        assert off[error] < off[f"trivial_{error}"] / 2
    for operator in WHOLLY_HELD_OUT:
        its_own = [row for row in held if row["operator"] == operator]
        assert errors(its_own)["median"] <= OF_A_HELD_OUT_OPERATOR


# `workbench calibrate` for GPUs: raw results become a machine that is preferred, and recordings say how good it is.

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
        calibrate_gpu.refuse_without_gpus(machines.shipped_machine("h200_nvl2"))
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
