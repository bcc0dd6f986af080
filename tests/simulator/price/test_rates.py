"""A speed curve is straight in the logarithms between its points, and a launch is paid once."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import problem
from kernels.plan import Kind
from kernels.schemes import expand, schedule
from workbench.simulator.price.rates import has_curve, step_overhead, work_seconds
from workbench.simulator.price.steps import step_costs

# A speed curve is straight in the logarithms between its points, flat outside, and absent replaced by a peak.


def test_a_point_of_the_curve_is_met_exactly(laptop: Machine) -> None:
    assert work_seconds(laptop, "gemm", "float32", 1e8, 128) == pytest.approx(1e8 / 1e11)
    assert work_seconds(laptop, "gemm", "float32", 1e6, 32) == pytest.approx(1e6 / 4e10)


def test_between_points_speed_is_the_geometric_mean(laptop: Machine) -> None:
    assert work_seconds(laptop, "gemm", "float32", 1e7, 128) == pytest.approx(1e7 / np.sqrt(5e10 * 1e11))
    assert work_seconds(laptop, "gemm", "float32", 1e8, 64) == pytest.approx(1e8 / np.sqrt(8e10 * 1e11))


@pytest.mark.parametrize(("size", "width", "speed"), [(1, 1, 4e10), (1e12, 1, 8e10), (1e12, 4096, 1e11)])
def test_outside_its_points_the_curve_is_flat(laptop: Machine, size: float, width: float, speed: float) -> None:
    assert work_seconds(laptop, "gemm", "float32", size, width) == pytest.approx(size / speed)


def test_columns_of_sizes_and_widths_are_taken_one_by_one(laptop: Machine) -> None:
    sizes, widths = np.array([1e6, 1e8, 1e7]), np.array([32, 128, 50])
    together = work_seconds(laptop, "gemm", "float32", sizes, widths)
    alone = [float(work_seconds(laptop, "gemm", "float32", s, w)) for s, w in zip(sizes, widths, strict=True)]
    assert together.tolist() == pytest.approx(alone)


def test_a_curve_of_one_width_is_meant_for_all(laptop: Machine) -> None:
    assert work_seconds(laptop, "copy", "float32", 1e5, 999) == pytest.approx(1e5 / 1e10)


def test_without_a_curve_the_peak_counts(gpu_pod: Machine, laptop: Machine) -> None:
    assert not has_curve(gpu_pod, "gemm", "bfloat16")
    assert work_seconds(gpu_pod, "gemm", "bfloat16", 9e14) == pytest.approx(1.0)
    assert work_seconds(gpu_pod, "gemm", "float16", 4e14) == pytest.approx(1.0)
    assert work_seconds(gpu_pod, "copy", "bfloat16", 4e12) == pytest.approx(1.0)
    assert work_seconds(replace(laptop, rates=()), "gather", "float32", 1e10) == pytest.approx(1.0)


# A launch is paid once: before a kernel that does everything, or with each step that the host launches.

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
