"""The speed of loads is found again from kernels that wait for them, and from none that is held out."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import problem
from kernels.outcome import Measurement
from kernels.schemes import schedule
from kernels.trial import Trial, protocol
from workbench import machines
from workbench.machines.calibrate_gpu import WHOLLY_HELD_OUT, with_loads
from workbench.simulator.predict import predict

NVLINK = Fabric(kind="nvlink")
SPEED = 1.2e11


@pytest.fixture(scope="module")
def unknown() -> Machine:
    machine = machines.shipped_machine("h200_nvl2")
    device = replace(machine.device, load_bytes_per_second=0.0, load_latency_seconds=0.0)
    return replace(machine, device=device, fitted_to=("what was there",))


def measured(machine: Machine, operator: str, tile: str, shape: Mapping[str, int]) -> Measurement:
    """Computation alone, exactly as *machine* estimates it."""
    asked = problem(operator, shape, dtype="bfloat16", world=2)
    one = Trial(problem=asked, schedule=schedule(asked, "fused", {"tile": tile}, machine, NVLINK), backend="triton",
                machine=machine.name, fabric=NVLINK, protocol=protocol("quick"), part="compute")  # fmt: skip
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
