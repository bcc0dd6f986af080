"""SMs that push rows are away from computing for as long as the rows are on the wire, and take tiles afterwards."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.fabric import Fabric
from kernels.machine import Machine, Rate
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind
from kernels.schemes import expand, schedule
from workbench.simulator.price.networks import away
from workbench.simulator.price.steps import compute_seconds

NVLINK = Fabric(kind="nvlink")
GATHER = problem("all_gather_gemm", {"m": 8192, "n": 8192, "k": 4096}, world=2, dtype="bfloat16")


def test_they_are_away_while_their_bytes_leave(gpu_pod: Machine) -> None:
    leaves_s = OPERATORS["all_gather_gemm"].wire_bytes(GATHER) / 4e11
    assert away(gpu_pod, GATHER, NVLINK, {}, 4 * leaves_s) == pytest.approx(0.25)
    assert away(gpu_pod, GATHER, NVLINK, {}, leaves_s / 2) == 1


def test_a_put_by_fewer_sms_takes_as_long_as_it_was_measured(gpu_pod: Machine) -> None:
    one_host = replace(gpu_pod, dimensions=gpu_pod.dimensions[:1], rates=(
        Rate("put_tma", "any", 1e6, 1e11, 8), Rate("put_tma", "any", 1e6, 4e11, 32)))  # fmt: skip
    shares = away(one_host, GATHER, NVLINK, {"store": "tma", "comm_sms": np.array([8, 32])}, 1.0)
    assert shares[0] == pytest.approx(4 * shares[1])


def test_a_call_of_one_wave_keeps_one_wave_when_sms_push(gpu_pod: Machine) -> None:
    """128 tiles on 132 SMs, of which 16 push for a moment: no second wave, as there was none on H200s."""
    of = problem("all_gather_gemm", {"m": 2048, "n": 2048, "k": 8192}, world=2, dtype="bfloat16")
    times = []
    for pushing in (0, 4):
        values = {"tile": "128x256x64", "comm_sms": pushing}
        plan = expand(of, schedule(of, "fused", values, gpu_pod, NVLINK))
        times.append(compute_seconds(plan, gpu_pod, NVLINK)[(plan.rank == 0) & (plan.kind == Kind.COMPUTE)].sum())
    assert times[1] == pytest.approx(times[0])


def test_a_wave_is_paid_by_the_rows_that_complete_it(gpu_pod: Machine) -> None:
    """Tiles of one wave begin together, but it ends a whole tile after the last rows came: nothing is hidden."""
    of = problem("all_gather_gemm", {"m": 2048, "n": 2048, "k": 8192}, world=2, dtype="bfloat16")
    plan = expand(of, schedule(of, "fused", {"tile": "128x256x64", "slice_tiles": 1024}, gpu_pod, NVLINK))
    seconds = compute_seconds(plan, gpu_pod, NVLINK)[(plan.rank == 0) & (plan.kind == Kind.COMPUTE)]
    assert seconds[0] == 0
    assert seconds[-1] > 0
