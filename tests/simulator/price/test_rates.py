"""A speed curve is straight in the logarithms between its points, flat outside, and absent replaced by a peak."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.machine import Machine
from workbench.simulator.price.rates import has_curve, work_seconds


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
