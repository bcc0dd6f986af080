"""A fit finds the rules again by which raw results were made, says where each value is from, and leaves the rest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels.fabric import parse
from kernels.machine import Machine, load, toml
from kernels.operators import OPERATORS, problem
from kernels.outcome import Measurement
from kernels.schedule import Schedule
from kernels.schemes import COMPARED, schedule
from kernels.trial import Trial, protocol
from tests.simulator import probed
from tests.simulator.probed import raw
from tests.simulator.test_grid import TOLERANCE
from tests.simulator.trials import ask, legal, trial
from workbench import machines
from workbench.machines.calibrate_gpu import fitted, held_out, problem_text, ratios, with_spread
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import predict
from workbench.simulator.price.collectives import measured_seconds
from workbench.simulator.price.rates import work_seconds

NVLINK = parse("nvlink")


@pytest.fixture(scope="module")
def shipped() -> Machine:
    """Datasheet values only, whatever is shipped: of these a fit has to find nothing."""
    found = machines.shipped_machine("h200_nvl4")
    provenance = {key: source.replace("calibrated:", "assumed:") for key, source in found.provenance.items()}
    costs = replace(found.costs, launch_seconds=2e-6, step_seconds=5e-7, tile_seconds=1e-6, signal_seconds=5e-7,
                    barrier_seconds=5e-6, copy_engine_seconds=5e-6, cold_seconds=0.0,
                    library_tile_seconds=0.0)  # fmt: skip
    found = replace(found, device=replace(found.device, load_bytes_per_second=0.0), fitted_to=())
    return replace(found, rates=(), collectives=(), costs=costs, provenance=provenance, calibrated=None, spread=None)


@pytest.fixture(scope="module")
def machine(shipped: Machine) -> Machine:
    return fitted(raw(shipped, 4), shipped)


def test_fixed_costs_and_speeds_are_found_again(machine: Machine) -> None:
    costs, link = machine.costs, machine.dimensions[0]
    assert costs.launch_seconds == probed.NODE
    assert costs.tile_seconds == pytest.approx(probed.TILE, rel=0.01)
    assert costs.barrier_seconds == pytest.approx(probed.HANDSHAKE)
    assert costs.copy_engine_seconds == pytest.approx(probed.COPY_LAUNCH)
    assert link.latency_seconds + costs.signal_seconds == pytest.approx(probed.SIGNAL)
    assert machine.device.memory_bytes_per_second == pytest.approx(probed.READ)
    assert link.bandwidth_bytes_per_second == pytest.approx(probed.COPY_ENGINE)
    assert work_seconds(machine, "copy", "float16", 1e8) == pytest.approx(1e8 / probed.COPY, rel=0.01)


def test_puts_are_as_fast_as_their_way_and_the_sms_that_send(machine: Machine) -> None:
    assert work_seconds(machine, "put_tma", "any", 1e7, 132) == pytest.approx(1e7 / probed.PUT)
    assert work_seconds(machine, "put_tma", "any", 1e7, 8) == pytest.approx(1e7 / (8 * probed.ONE_SM))
    assert work_seconds(machine, "put_copy_engine", "any", 1e9) == pytest.approx(1e9 / probed.COPY_ENGINE)


def test_collectives_are_read_from_the_table_of_their_world(machine: Machine) -> None:
    wire = (1 << 20) * 0.75
    assert measured_seconds(machine, "all_to_all", 4, wire) == pytest.approx(probed.nccl_seconds(wire))
    between = measured_seconds(machine, "all_reduce", 4, 1e7)
    assert between is not None
    assert 1e-5 < between < probed.nccl_seconds(1e8)
    largest = (1 << 28) * 0.75
    beyond = measured_seconds(machine, "all_to_all", 4, 10 * largest)
    assert beyond == pytest.approx(10 * probed.nccl_seconds(largest))
    assert measured_seconds(machine, "all_to_all", 2, wire) is None


def test_what_was_measured_is_estimated_as_it_was(machine: Machine, shipped: Machine) -> None:
    """Every row of computation, through play; the point that several rows share is their mean."""
    checked_rows = 0
    for row in raw(shipped, 4)["rows"]:
        if "operator" not in row or "seconds" not in row or row.get("waves") == 1:
            continue
        of = problem(row["operator"], row["shape"], dtype=row["dtype"], world=4)
        scheme = "fused" if row["by"] == "ours" else "sequential"
        asked = Trial(
            problem=of, schedule=schedule(of, scheme, {}, machine, NVLINK), backend="triton", machine=machine.name,
            fabric=NVLINK, protocol=protocol("quick"), part="compute",
        )  # fmt: skip
        assert predict(asked, machine).time_s == pytest.approx(row["seconds"], rel=0.05), row
        checked_rows += 1
    assert checked_rows == 9


def test_every_value_says_where_it_is_from(machine: Machine, shipped: Machine, tmp_path: Path) -> None:
    assert machine.provenance_of("costs.launch_seconds").startswith("calibrated: 4 x NVIDIA H200, 2026-11-22")
    assert machine.provenance_of("rate.put_tma.any").startswith("calibrated")
    assert machine.provenance_of("collective").startswith("calibrated")
    assert machine.provenance_of("device.l2_bytes") == shipped.provenance_of("device.l2_bytes")
    assert machine.provenance_of("costs.send_blocks").startswith("assumed")
    assert machine.calibrated == "2026-11-22T10:00:00+00:00 on somewhere"
    path = tmp_path / "h200_nvl4.toml"
    path.write_text(toml(machine))
    assert replace(load(path), digest="") == machine
    assert any(value.key.startswith("collective.all_to_all.4") for value in machines.machine_values(machine))


def test_probes_that_are_missing_leave_what_was_there(shipped: Machine) -> None:
    part: dict[str, Any] = raw(shipped, 4)
    part["rows"] = [row for row in part["rows"] if row["probe"] == "read"]
    found = fitted(part, shipped)
    assert found.costs == replace(shipped.costs, cold_seconds=found.costs.cold_seconds)
    assert found.rates == ()
    assert found.device.memory_bytes_per_second > 0.9 * probed.READ
    for probe in {row["probe"] for row in raw(shipped, 4)["rows"]}:
        rest: dict[str, Any] = raw(shipped, 4)
        rest["rows"] = [row for row in rest["rows"] if row["probe"] != probe]
        fitted(rest, shipped)


def test_a_machine_lists_the_problems_that_it_was_fitted_to(machine: Machine, shipped: Machine) -> None:
    rows = [row for row in raw(shipped, 4)["rows"] if "operator" in row]
    problems = {problem(row["operator"], row["shape"], dtype=row["dtype"], world=4): row for row in rows}
    told = {of for of, row in problems.items() if "waves" in row or not held_out(of)}
    assert len(told) < len(problems)
    assert set(machine.fitted_to) == set(map(problem_text, told))
    assert any("gemm_all_to_all m=" in each and each.endswith("bfloat16 on 4 ranks") for each in machine.fitted_to)


def test_raw_results_of_other_gpus_or_of_nothing_are_refused(shipped: Machine) -> None:
    with pytest.raises(ValueError, match="they are of machine 'h100_nvl8'"):
        fitted({**raw(shipped, 4), "machine": "h100_nvl8"}, shipped)
    with pytest.raises(ValueError, match="hold 0 measurements"):
        fitted({**raw(shipped, 4), "rows": []}, shipped)


def test_the_spread_is_that_of_measured_over_estimated_times(machine: Machine) -> None:
    of = problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}, dtype="bfloat16", world=4)
    chosen = schedule(of, "fused", {}, machine, NVLINK)
    asked = trial(of, chosen, machine, NVLINK)
    estimated = predict(asked, machine).time_s
    told = [
        Measurement(trial=asked, samples=((estimated * ratio,),) * 4, source="recorded", correct=True,
                    max_relative_error=0.0)
        for ratio in (0.9, 1.0, 1.1)
    ]  # fmt: skip
    found = with_spread(machine, list(ratios(machine, told)), "by hand")
    assert found.spread is not None
    assert 0.9 < found.spread[0] < 1 < found.spread[1] < 1.1
    assert "3 recorded trials" in found.provenance_of("spread")
    assert with_spread(machine, list(ratios(machine, told[:1])), "by hand") == machine


def test_two_recordings_that_differ_much_spread_between_them_and_an_illegal_one_is_left_out(machine: Machine) -> None:
    of = problem("gemm_all_to_all", {"m": 8192, "n": 4096, "k": 1792}, dtype="bfloat16", world=4)
    asked = trial(of, schedule(of, "fused", {}, machine, NVLINK), machine, NVLINK)
    illegal = replace(asked, schedule=Schedule("fused", (("tile", "128x256x64"), ("no_such_axis", 1))))
    estimated = predict(asked, machine).time_s
    told = [
        Measurement(trial=of_one, samples=((estimated * ratio,),) * 4, source="recorded", correct=True,
                    max_relative_error=0.0)
        for of_one, ratio in ((asked, 1.0), (asked, 4.0), (illegal, 9.0))
    ]  # fmt: skip
    found = with_spread(machine, list(ratios(machine, told)), "by hand")
    assert found.spread is not None
    assert found.spread == pytest.approx((1.3, 3.7))
    assert "2 recorded trials" in found.provenance_of("spread")


@pytest.mark.parametrize("scheme", COMPARED)
@pytest.mark.parametrize("operator", OPERATORS)
def test_the_closed_form_agrees_with_play_on_measured_gpus(operator: str, scheme: str, machine: Machine) -> None:
    asked = problem(operator, dict(ask(operator, 4, scale=2).shape), dtype="bfloat16", world=4)
    for chosen in legal(asked, scheme, machine, NVLINK, pairs=False):
        played = predict(trial(asked, chosen, machine, NVLINK), machine, with_spans=False).time_s
        error = times(asked, scheme, dict(chosen.axes), machine, NVLINK)[0] / played - 1
        assert abs(error) <= TOLERANCE, f"{error:+.1%} {chosen}"


def test_blocks_that_send_are_columns_too(machine: Machine) -> None:
    asked = problem("all_gather_gemm", {"m": 8192, "n": 1024, "k": 4096}, dtype="bfloat16", world=4)
    columns = {"comm_sms": [0, 4, 8, 16]}
    found = times(asked, "fused", columns, machine, NVLINK)
    for seconds, blocks in zip(found, columns["comm_sms"], strict=True):
        chosen = schedule(asked, "fused", {"comm_sms": blocks}, machine, NVLINK)
        played = predict(trial(asked, chosen, machine, NVLINK), machine).time_s
        assert seconds == pytest.approx(played, rel=TOLERANCE)
    assert found[1] > found[2] > found[3]


@pytest.mark.parametrize("name", [name for name in machines.names() if "nvl" in name or "mesh" in name])
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_shipped_machine_of_gpus_estimates_every_operator(name: str, operator: str) -> None:
    shipped = machines.shipped_machine(name)
    shape = {"m": 4096, "n": 4096, "k": 1024}
    if operator == "gemv_all_reduce":
        shape = {"n": 4096, "k": 4096, "tokens": 2}
    if operator == "embedding_all_to_all":
        shape = {"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 4096, "pooling": 16}
    of = problem(operator, shape, dtype="bfloat16", world=2)
    for scheme in ("sequential", "fused"):
        chosen = schedule(of, scheme, {}, shipped, NVLINK)
        assert 1e-6 < predict(trial(of, chosen, shipped, NVLINK), shipped).time_s < 1e-2
