"""A tile pays a fixed cost that resident blocks share; equal tiles fill a rectangle, cut ones its edges."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.machine import Machine, Rate
from kernels.operators import OPERATORS, problem
from workbench.machines import machine
from workbench.simulator.price import tiles
from workbench.simulator.price.tiles import Tiling

GEMM = problem("gemm_all_to_all", {"m": 256, "n": 512, "k": 1024}, world=2)


def test_blocks_that_share_an_sm_share_what_a_tile_costs_beside_its_work(gpu_pod: Machine) -> None:
    assert tiles.fixed_seconds(gpu_pod, "gemm") == 1e-6
    assert tiles.fixed_seconds(gpu_pod, "gemv") == pytest.approx(1e-6 / 6)
    alone = replace(gpu_pod, device=replace(gpu_pod.device, resident_blocks={}))
    assert tiles.fixed_seconds(alone, "gemv") == 1e-6


def test_a_gpu_fills_a_rectangle_in_waves_of_whole_tiles(gpu_pod: Machine) -> None:
    """3 x 5 tiles on 4 slots are 4 waves, cut tiles counted as whole ones."""
    one = tiles.tile_seconds(gpu_pod, GEMM, 64, 128, 1024)
    seconds = tiles.rectangles_seconds(gpu_pod, GEMM, Tiling(64, 128, 4), 1, (130, 513, 1024))
    assert seconds == pytest.approx(4 * one)


def test_a_cpu_rank_computes_whole_tiles_and_what_is_cut_at_the_edges(laptop: Machine) -> None:
    sides = (130, np.array([300]), 1024)
    parts = [(64, 128, 4), (64, 44, 2), (2, 128, 2), (2, 44, 1)]
    expected = sum(count * float(tiles.tile_seconds(laptop, GEMM, m, n, 1024)) for m, n, count in parts)
    seconds = tiles.rectangles_seconds(laptop, GEMM, Tiling(64, 128, 1), 3, sides)
    assert seconds.tolist() == pytest.approx([3 * expected])


def loading(machine: Machine, speed: float) -> Machine:
    return replace(machine, device=replace(machine.device, load_bytes_per_second=speed))


def test_small_tiles_wait_for_their_operands_and_large_ones_compute(gpu_pod: Machine) -> None:
    """Of 64 x 64 one SM loads 128 rows for each k, of 128 x 256 384: three times as much, for eight times the FLOP."""
    slow = loading(gpu_pod, 1e11)
    for m, n, waits in ((64, 64, True), (256, 256, False)):
        load = float(tiles.load_seconds(slow, GEMM, m, n, 1024)[()])
        assert load == pytest.approx(1e-6 + (m + n) * 1024 * GEMM.itemsize / 1e11)
        sides = (1024, 1024, 1024)
        seconds, without = (tiles.rectangles_seconds(machine, GEMM, Tiling(m, n, 132), 1, sides).max()
                            for machine in (slow, gpu_pod))  # fmt: skip
        assert (seconds > 1.2 * without) == waits


def test_sms_that_wait_for_loads_wait_for_memory_as_well(gpu_pod: Machine) -> None:
    assert tiles.in_waves_seconds(2, 3.0, 0.0, 5.0) == 6
    assert tiles.in_waves_seconds(2, 3.0, 2.0, 5.0) == 9
    assert tiles.in_waves_seconds(2, 3.0, 0.0, 7.0) == 7


def test_cold_memory_begins_late(gpu_pod: Machine) -> None:
    cold = replace(gpu_pod, costs=replace(gpu_pod.costs, cold_seconds=2e-6))
    warm = tiles.kernel_memory_seconds(gpu_pod, GEMM)
    assert tiles.kernel_memory_seconds(cold, GEMM) - warm == pytest.approx(2e-6)


def test_a_stream_is_as_its_curve_says_and_beyond_it_at_the_memorys_speed(gpu_pod: Machine) -> None:
    asked = [problem("gemv_all_reduce", {"n": n, "k": 4096, "tokens": 4}, world=2) for n in (1024, 2048, 4096)]
    flops = [2.0 * each["n"] * 2048 * 4 for each in asked]
    curve = tuple(Rate("own_gemv", "float32", of, speed, 4) for of, speed in zip(flops, (1e12, 1.5e12), strict=False))
    machine = replace(gpu_pod, rates=curve)
    small, large, beyond = (float(tiles.kernel_memory_seconds(machine, each)) for each in asked)
    assert small == pytest.approx(flops[0] / 1e12)
    assert large == pytest.approx(flops[1] / 1.5e12)
    num_bytes = OPERATORS["gemv_all_reduce"].memory_bytes(asked[2])
    assert beyond - large == pytest.approx(num_bytes / 2 / 4e12)
    assert tiles.tile_seconds(machine, asked[0], 16, 4, 2048) == tiles.fixed_seconds(machine, "gemv")


def test_skewed_lookups_have_a_curve_of_their_own_where_it_was_measured(gpu_pod: Machine) -> None:
    shape = {"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 4096, "pooling": 16}
    even, skewed = (problem("embedding_all_to_all", {**shape, "indices": how}, world=2) for how in
                    ("uniform", "power_law"))  # fmt: skip
    rates = (Rate("gather", "float32", 1e6, 1e12), Rate("gather_power_law", "float32", 1e6, 2e12))
    both, one = replace(gpu_pod, rates=rates), replace(gpu_pod, rates=rates[:1])
    times = [float(tiles.tile_seconds(machine, of, 1, 128, 16)) - tiles.fixed_seconds(machine, "gather")
             for machine, of in ((both, even), (both, skewed), (one, skewed))]  # fmt: skip
    assert times[0] == pytest.approx(2 * times[1])
    assert times[0] == times[2]


def test_a_piece_of_the_contraction_reads_the_sums_that_it_adds_to() -> None:
    """Two halves of a contraction that memory bounds take one more read of the result each than their operands say."""
    h200 = machine("h200_nvl2")
    sizes = problem("all_gather_gemm", {"m": 8192, "n": 8192, "k": 128}, dtype="bfloat16", world=2)
    half, whole = (tiles.library_piece_seconds(h200, sizes, (8192, 8192, k), 132).item() for k in (64, 128))
    results = 8192 * 8192 * sizes.itemsize / h200.device.memory_bytes_per_second
    operands = 2 * 8192 * 64 * sizes.itemsize / h200.device.memory_bytes_per_second
    assert half - whole == pytest.approx(results - operands, rel=1e-6)
