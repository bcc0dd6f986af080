"""A tile pays a fixed cost that resident blocks share; equal tiles fill a rectangle, cut ones its edges."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.machine import Machine
from kernels.operators import problem
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
