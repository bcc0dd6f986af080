"""A launch is paid once: before a kernel that does everything, or with each step that the host launches."""

import pytest

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import problem
from kernels.plan import Kind
from kernels.schemes import expand, schedule
from workbench.simulator.price.rates import step_overhead
from workbench.simulator.price.steps import step_costs

NVLINK = Fabric(kind="nvlink")


@pytest.mark.parametrize(("scheme", "launches"), [("fused", 0), ("decomposed", 1)])
def test_steps_of_one_kernel_are_not_launched(gpu_pod: Machine, scheme: str, launches: int) -> None:
    of = problem("gemm_reduce_scatter", {"m": 256, "n": 512, "k": 1024}, world=2)
    plan = expand(of, schedule(of, scheme, {"tile": "64x128x64"}, gpu_pod, NVLINK))
    costs, sums = step_costs(plan, gpu_pod, NVLINK), plan.kind == Kind.REDUCE
    assert step_overhead(gpu_pod, one_kernel=not launches) == pytest.approx(1e-6 + launches * 3e-6)
    bytes_s = plan.num_bytes[sums] / 4e12
    assert (costs.issue[sums] - bytes_s).tolist() == pytest.approx([1e-6 + launches * 3e-6] * int(sums.sum()))
    assert costs.start_seconds == pytest.approx(5e-6 + (1 - launches) * 3e-6)


def test_a_rank_alone_has_nothing_to_communicate_and_launches_nothing_for_it(gpu_pod: Machine) -> None:
    of = problem("gemm_all_to_all", {"m": 256, "n": 512, "k": 1024}, world=1)
    for scheme in ("sequential", "fused"):
        plan = expand(of, schedule(of, scheme, {}, gpu_pod, NVLINK))
        assert step_costs(plan.part("communication"), gpu_pod, NVLINK).start_seconds == 0
        assert step_costs(plan.part("compute"), gpu_pod, NVLINK).start_seconds == 3e-6


def test_packets_need_no_meeting_and_no_signal(gpu_pod: Machine) -> None:
    of = problem("gemv_all_reduce", {"n": 4096, "k": 4096, "tokens": 2}, world=2, dtype="bfloat16")
    plan = expand(of, schedule(of, "fused", {}, gpu_pod, NVLINK))
    costs, puts = step_costs(plan, gpu_pod, NVLINK), plan.kind == Kind.PUT
    assert costs.start_seconds == pytest.approx(3e-6)
    assert costs.delay[puts].tolist() == pytest.approx([2e-6] * int(puts.sum()))
