"""A fit finds the rules again by which raw results of GPUs were made: costs, loads, carried links and NCCL."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.cpu_use import HostUse
from kernels.fabric import Fabric, parse
from kernels.machine import Collective, Machine, load, toml
from kernels.operators import OPERATORS, problem
from kernels.outcome import Measurement
from kernels.schedule import Refusal, Schedule
from kernels.schemes import COMPARED, schedule
from kernels.trial import Trial, protocol
from tests.machines import probed
from tests.machines.probed import raw
from tests.simulator.test_closed_form import TOLERANCE
from tests.simulator.trials import ask, legal, trial
from workbench import machines
from workbench.analysis.accuracy import validate_recordings
from workbench.cli.app import app
from workbench.machines import calibrate_gpu
from workbench.machines.calibrate_gpu import (
    PER_DEVICE,
    WHOLLY_HELD_OUT,
    carried,
    fitted,
    held_out,
    problem_text,
    ratios,
    with_loads,
    with_spread,
    with_tuned,
)
from workbench.simulator.closed_form.grid import times
from workbench.simulator.predict import predict
from workbench.simulator.price.collectives import measured_seconds
from workbench.simulator.price.rates import work_seconds

# A fit finds the rules again by which raw results were made, says where each value is from, and leaves the rest.

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
            problem=of, schedule=schedule(of, scheme, row.get("axes", {}), machine, NVLINK), backend="triton",
            machine=machine.name, fabric=NVLINK, protocol=protocol("quick"), part="compute",
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


@pytest.mark.slow(keeps=8)
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


# The speed of loads is found again from kernels that wait for them, and from none that is held out.

LINK = Fabric(kind="nvlink")
SPEED = 1.2e11


@pytest.fixture(scope="module")
def unknown() -> Machine:
    machine = machines.shipped_machine("h200_nvl2")
    device = replace(machine.device, load_bytes_per_second=0.0, load_latency_seconds=0.0)
    return replace(machine, device=device, fitted_to=("what was there",))


def measured(machine: Machine, operator: str, tile: str, shape: Mapping[str, int]) -> Measurement:
    """Computation alone, exactly as *machine* estimates it."""
    asked = problem(operator, shape, dtype="bfloat16", world=2)
    one = Trial(problem=asked, schedule=schedule(asked, "fused", {"tile": tile}, machine, LINK), backend="triton",
                machine=machine.name, fabric=LINK, protocol=protocol("quick"), part="compute")  # fmt: skip
    samples = ((predict(one, machine).time_s,),) * 2
    return Measurement(trial=one, samples=samples, source="recorded", correct=True, max_relative_error=0.0)


def test_the_speed_is_found_again(unknown: Machine) -> None:
    known = replace(unknown, device=replace(unknown.device, load_bytes_per_second=SPEED))
    few, many = {"m": 128, "n": 14336, "k": 4096}, {"m": 8192, "n": 8192, "k": 4096}
    told = [measured(known, "gemm_all_reduce", "64x128x64", few), measured(known, "all_to_all_gemm", "64x256x64", few),
            measured(known, "gemm_all_to_all", "128x256x64", many)]  # fmt: skip
    found = with_loads(unknown, told)
    assert found.device.load_bytes_per_second == pytest.approx(SPEED, rel=0.02)
    assert len(found.fitted_to) == 3  # what computes for long enough tells nothing of loads
    assert "2 recorded kernels" in found.provenance_of("device.load_bytes_per_second")


def test_what_is_held_out_is_not_fitted_to(unknown: Machine) -> None:
    known = replace(unknown, device=replace(unknown.device, load_bytes_per_second=SPEED))
    told = [measured(known, name, "64x128x64", {"m": 128, "n": 8192, "k": 7168}) for name in WHOLLY_HELD_OUT]
    assert told
    assert with_loads(unknown, told) == unknown


# What two GPUs were measured to cost holds for more of the same kind; their links are measured or assumed.

MEASURED = "h200_nvl2"
MORE = ("h200_nvl4", "h200_nvl8", "h200_ib")
"""Machines of the same GPUs."""
OF_FOUR = ("h200_nvl4_gemm", "h200_nvl4_gemv_and_embedding", "h200_nvl4_receiving_gemm")


@pytest.fixture(scope="module")
def two() -> Machine:
    return machines.shipped_machine(MEASURED)


@pytest.mark.parametrize("name", MORE)
def test_shipped_machines_of_the_same_gpus_say_what_two_of_them_were_measured_to_cost(name: str, two: Machine) -> None:
    """Where two were calibrated anew: `workbench calibrate --machine NAME --devices-of h200_nvl2` for each of these."""
    onto = machines.shipped_machine(name)
    assert carried(two, onto) == replace(onto, digest="")
    assert {key for key in PER_DEVICE if onto.provenance_of(key).startswith("calibrated")} == {
        key for key in PER_DEVICE if two.provenance_of(key).startswith("calibrated")
    }


def test_devices_are_carried_over_and_the_link_only_when_asked(two: Machine) -> None:
    eight = machines.shipped_machine("h200_nvl8")
    bare = replace(eight, costs=replace(eight.costs, launch_seconds=1.0), rates=())
    found, linked = carried(two, bare), carried(two, bare, puts=True)
    assert found.costs.launch_seconds == two.costs.launch_seconds
    assert found.device.memory_bytes_per_second == two.device.memory_bytes_per_second
    assert found.dimensions[0].count == 8
    assert found.provenance_of("costs.launch_seconds").endswith("carried over from h200_nvl2")
    bandwidth = "dimension.0.bandwidth_bytes_per_second"
    assert found.dimensions[0].bandwidth_bytes_per_second == eight.dimensions[0].bandwidth_bytes_per_second
    assert found.provenance_of(bandwidth).startswith("datasheet")
    assert linked.dimensions[0].bandwidth_bytes_per_second == two.dimensions[0].bandwidth_bytes_per_second
    assert linked.provenance_of(bandwidth).startswith("calibrated")
    assert found.collectives == eight.collectives
    with pytest.raises(ValueError, match="says nothing about the other"):
        carried(two, machines.shipped_machine("a100_nvl8"))


def test_puts_are_assumed_to_be_as_fast_behind_a_switch_and_nowhere_else(two: Machine) -> None:
    eight = machines.shipped_machine("h200_nvl8")
    ring = replace(eight, dimensions=(replace(eight.dimensions[0], topology="ring"),))
    two_levels = replace(eight, dimensions=(replace(eight.dimensions[0], count=4),
                                            replace(eight.dimensions[0], count=2)))  # fmt: skip
    puts = [rate for rate in two.rates if rate.work.startswith("put_")]
    assert puts
    assert [rate for rate in carried(two, eight).rates if rate.work.startswith("put_")] == puts
    for onto in (ring, two_levels):
        assert not [rate for rate in carried(two, onto).rates if rate.work.startswith("put_")]
    assert carried(two, eight).provenance_of("rate.put_tma.any").startswith("assumed: each GPU has links of its own")
    assert carried(two, eight, puts=True).provenance_of("rate.put_tma.any").startswith("calibrated")


def test_a_fused_kernel_that_waits_for_its_wire_is_no_faster_than_puts_were() -> None:
    """With 8 GPUs as with 2: the datasheet's 450 GB/s made it a sixth too fast."""
    asked = problem("gemm_all_to_all", {"m": 8192, "n": 7168, "k": 512}, dtype="bfloat16", world=8)
    for name in ("h200_nvl8", "h200_ib"):
        machine = machines.shipped_machine(name)
        whole = trial(asked, schedule(asked, "fused", {}, machine, NVLINK), machine, NVLINK)
        leaves = 8192 * 7168 * 2 * 7 / 8
        assert predict(whole, machine, with_spans=False).time_s > leaves / 370e9
        unknown = replace(machine, rates=tuple(rate for rate in machine.rates if not rate.work.startswith("put_")))
        assert predict(whole, unknown, with_spans=False).time_s < leaves / 370e9


def test_on_four_gpus_neither_fused_nor_sequential_schedules_are_favoured_over_their_own_computation() -> None:
    """What that took on the same kernels stands beside them in their block; those kernels are older than estimates."""
    rows, _ = validate_recordings(OF_FOUR)
    alone = defaultdict(list)
    for row in rows:
        if row["part"] == "compute":
            alone[row["operator"], str(row["shape"]), row["block"] or row["run"], row["scheme"]].append(row)
    short: dict[str, list[float]] = {"fused": [], "sequential": []}
    for row in rows:
        computed = alone[row["operator"], str(row["shape"]), row["block"] or row["run"], row["scheme"]]
        same = [one for one in computed if one["axes"] == row["axes"]] or computed
        if row["part"] == "whole" and same:
            estimated, measured = (row[time_s] / same[0][time_s] for time_s in ("estimated_s", "measured_s"))
            short[row["scheme"]].append(estimated / measured - 1)
    assert min(map(len, short.values())) > 50
    fused, sequential = (median(errors) for errors in short.values())
    assert abs(fused - sequential) < 0.03
    assert max(abs(fused), abs(sequential)) < 0.1


# `library_tuned` has a curve of its own: the default's, times what the sweep's fastest setting takes of it.

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
def nccl_machine() -> Machine:
    """Two GPUs whose NCCL was timed at three sizes."""
    points = tuple(
        Collective("all_gather", 2, size, seconds) for size, seconds in ((100, 1e-6), (1e4, 2e-6), (1e6, 9e-6))
    )
    return replace(machines.shipped_machine("h200_nvl2"), collectives=points)


def test_a_point_is_the_default_s_time_the_share_that_the_best_setting_takes(nccl_machine: Machine) -> None:
    found = with_tuned(nccl_machine, SWEEP)
    made = {one.num_bytes: one.seconds for one in found.collectives if one.name == "library_tuned_all_gather"}
    shares = {100: 0.5, 1000: 0.5, 10_000: 0.7, 100_000: 0.9, 1e6: 0.9}
    assert list(made) == list(shares)
    for size, share in shares.items():
        default = measured_seconds(nccl_machine, "all_gather", 2, size)
        assert default is not None
        assert made[size] == pytest.approx(share * float(default))
    assert [one for one in found.collectives if one.name == "all_gather"] == list(nccl_machine.collectives)
    assert "in a sweep" in found.provenance_of("collective.library_tuned_all_gather.2.100")


def test_a_second_sweep_replaces_the_first_and_the_file_says_it_all(nccl_machine: Machine, tmp_path: Path) -> None:
    once = with_tuned(nccl_machine, SWEEP)
    assert with_tuned(once, SWEEP).collectives == once.collectives
    path = tmp_path / f"{nccl_machine.name}.toml"
    path.write_text(toml(once))
    assert load(path).collectives == once.collectives


def test_a_sweep_of_other_worlds_or_of_nothing_is_refused(nccl_machine: Machine) -> None:
    for rows, says in (([{**one, "world": 4} for one in SWEEP[:2]], "settings of 4 GPUs"), ([], "settings of no GPUs")):
        with pytest.raises(ValueError, match=says):
            with_tuned(nccl_machine, rows)


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
    for ours, theirs in zip(again.collectives, shipped.collectives, strict=True):
        # another processor may change the last bit of a sum
        assert replace(ours, seconds=0.0) == replace(theirs, seconds=0.0)
        assert ours.seconds == pytest.approx(theirs.seconds, rel=1e-12)
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


# GPUs are probed on a quiet host: others that use its cores are named first, and in the file if somebody insists.


def test_gpus_of_a_busy_host_are_not_probed_unless_somebody_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_with_gpus: Callable[..., None]
) -> None:
    probed: list[str] = []
    monkeypatch.setattr(calibrate_gpu, "READ_SECONDS", 0.0)
    monkeypatch.setattr(calibrate_gpu, "probe", lambda machine, seconds, raw: probed.append(machine.name))
    monkeypatch.setattr(calibrate_gpu, "fit", lambda raw, against: replace(
        machines.shipped_machine("h100_nvl8"), calibrated="2026-11-01T10:00:00+00:00 on here"
    ))  # fmt: skip
    monkeypatch.setattr(machines, "runs_directory", lambda: tmp_path)
    use = HostUse("this host", 16.0, 4.0, {"other programs": 4.0})
    monkeypatch.setattr(calibrate_gpu.HostReading, "use", lambda reading: use)
    host_with_gpus(2)
    with pytest.raises(Refusal, match="2 < 8"):  # quiet or not
        calibrate_gpu.calibrate_here("h100_nvl8", 1.0)
    host_with_gpus(8)
    with pytest.raises(machines.BusyComputer, match=r"Others use 4\.0 of 16 cores \(other programs 4\.0\); up to 10 %"):
        calibrate_gpu.calibrate_here("h100_nvl8", 1.0)
    assert probed == []
    fitted, path = calibrate_gpu.calibrate_here("h100_nvl8", 1.0, busy=True)
    assert probed == ["h100_nvl8"]
    assert str(fitted.calibrated).endswith("on here, on a busy computer: 4.0 of 16 cores (other programs 4.0)")
    assert load(path).calibrated == fitted.calibrated


def test_a_reading_of_this_host_leaves_out_this_process_and_its_children() -> None:
    reading = calibrate_gpu.HostReading()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        pass
    use = reading.use()
    assert 0 <= use.others_cores <= use.cores
    assert set(use.whom) <= {"other programs", "another gang", "the lab's page", "other virtual machines"}
    burnt = replace(reading.first, gang_s=reading.first.gang_s + 0.5)  # as if it had not been subtracted
    assert calibrate_gpu.HostReading(burnt).use().others_cores > use.others_cores or use.share == 1.0
