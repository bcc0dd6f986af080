"""What two GPUs were measured to cost holds for more of the same kind; their links are measured or assumed."""

from collections import defaultdict
from dataclasses import replace
from statistics import median

import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.schemes import schedule
from tests.simulator.trials import trial
from workbench import machines
from workbench.analysis.accuracy import validate_recordings
from workbench.machines.calibrate_gpu import PER_DEVICE, carried
from workbench.simulator.predict import predict

NVLINK = parse("nvlink")
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
