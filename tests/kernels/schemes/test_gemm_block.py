"""The default block of a GEMM alone: which shapes get a fitted tile, and which keep sides that are powers of two."""

import numpy as np
import pytest

from kernels import fitted
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schedule import tile
from kernels.schemes import gemm_block, schedule
from tests.kernels.backends.triton.conftest import H200, ROOT, load
from workbench.simulator.closed_form.grid import times


def gemm(m: int, n: int, k: int, world: int = 1, dtype: str = "bfloat16", operator: str = "gemm_all_to_all") -> Problem:
    return problem(operator, {"m": m, "n": n, "k": k}, dtype=dtype, world=world)


def default(of: Problem, machine: Machine = H200) -> str:
    return str(schedule(of, "fused", {}, machine, parse("nvlink"))["tile"])


@pytest.mark.parametrize(("sides", "size"), [
    ((4096, 768, 4096), "128x192x64"), ((1024, 2944, 4480), "128x192x64"), ((3072, 1024, 5632), "192x128x64"),
    ((263, 8064, 9984), "136x128x64"), ((4096, 1152, 3200), "144x128x64"), ((1897, 1792, 2944), "216x128x64"),
    ((4895, 1408, 4480), "208x128x64"), ((91, 7296, 12032), "96x64x64"), ((80, 13056, 7040), "80x128x64"),
    ((2048, 768, 15360), "64x192x64"), ((888, 1920, 13696), "112x128x64"), ((4881, 2048, 6016), "152x256x64"),
    ((1024, 4608, 7424), "152x256x64"), ((8192, 896, 3072), "224x128x64"), ((8192, 3200, 5120), "256x160x64"),
    ((2048, 12928, 4480), "256x160x64"), ((1024, 5632, 14464), "176x128x64"),
])  # fmt: skip
def test_shapes_that_won_by_a_fitted_tile_on_an_h200_get_it(sides: tuple[int, int, int], size: str) -> None:
    assert default(gemm(*sides)) == size


@pytest.mark.parametrize("sides", [
    (4096, 4096, 4096), (2048, 2048, 8192), (512, 8192, 7168),  # level with cuBLAS
    (8192, 4096, 1792), (16384, 2304, 2816),  # fitted tiles took 2 to 3 % longer
    (498, 2304, 1280),  # 10 us: too short to have been tried
    (128, 7168, 8192), (128, 1024, 13184),
])  # fmt: skip
def test_other_shapes_keep_sides_that_are_powers_of_two(sides: tuple[int, int, int]) -> None:
    assert not fitted.is_fitted(tile(default(gemm(*sides))))


def test_nobody_else_gets_one() -> None:
    wins = (264, 8064, 9984)
    a100 = load(ROOT / "data" / "machines" / "a100_nvl8.toml")
    assert fitted.is_fitted(tile(default(gemm(*wins))))
    assert not fitted.is_fitted(tile(default(gemm(*wins), a100)))
    for world in (2, 4):
        for operator in ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce"):
            assert not fitted.is_fitted(tile(default(gemm(*wins, world=world, operator=operator)))), operator
    assert not fitted.is_fitted(tile(default(gemm(*wins, operator="gemm_reduce_scatter"))))


def test_a_fitted_tile_brings_its_warps_and_stages() -> None:
    by = schedule(gemm(91, 7296, 12032), "fused", {}, H200, parse("nvlink"))
    assert (by["num_warps"], by["num_stages"]) == (4, 8)
    by = schedule(gemm(512, 8192, 7168), "fused", {"tile": "136x256x64"}, H200, parse("nvlink"))
    assert (by["num_warps"], by["num_stages"]) == (8, 4)


def test_the_rule_weighs_a_fitted_tile_for_each_number_of_waves() -> None:
    of = gemm(1536, 6144, 4096)
    sizes = gemm_block.tiles_of_waves(of, H200.device.slots)
    assert {str(size) for size in sizes} >= {"128x192x64", "256x160x64", "144x256x64"}
    assert len(sizes) == len(set(sizes)) > 3
    assert set(sizes) < {block.tile for block in gemm_block.candidates(of, H200)}
    assert all(fitted.trouble(size) is None for size in sizes)
    assert not any(fitted.sides(size).is_slow for size in sizes)


def test_a_cut_has_to_gain_microseconds_too() -> None:
    """By 2.2 us, 6 % of the sum, 64x4096x14336 was cut, and took 4 % longer."""
    by = schedule(gemm(64, 4096, 14336), "fused", {}, H200, parse("nvlink"))
    assert by["split_k"] == 1


def test_who_names_an_axis_that_fitted_tiles_lack_gets_another_tile() -> None:
    of = gemm(1024, 4608, 7424)
    by = schedule(of, "fused", {"split_k": 3}, H200, parse("nvlink"))
    assert (by["tile"], by["grid"], by["num_stages"]) == ("128x256x64", 132, 3)
    assert not fitted.is_fitted(tile(schedule(of, "fused", {"grid": 264}, H200, parse("nvlink"))["tile"]))


@pytest.mark.parametrize(("operator", "sides", "size"), [
    ("gemm_all_to_all", (256, 2048, 13184), "64x64x128"), ("gemm_reduce_scatter", (4096, 2688, 13184), "128x256x64"),
])  # fmt: skip
def test_tiles_that_end_with_the_rows_of_a_rank_are_not_those_of_a_cut(
    operator: str, sides: tuple[int, int, int], size: str
) -> None:
    by = schedule(gemm(*sides, world=2, operator=operator), "fused", {}, H200, parse("nvlink"))
    assert (by["tile"], by["grid"]) == (size, 0)


@pytest.mark.parametrize("sides", [(888, 1920, 13696), (80, 13056, 7040), (263, 8064, 9984), (4096, 4096, 4096)])
def test_the_closed_form_prices_a_default_tile_and_refuses_what_its_kernel_lacks(sides: tuple[int, int, int]) -> None:
    of, link = gemm(*sides), parse("nvlink")
    by = dict(schedule(of, "fused", {}, H200, link).axes)
    assert np.isfinite(times(of, "fused", {name: [value] for name, value in by.items()}, H200, link)[0])
    threads = times(of, "fused", {name: [value] for name, value in (by | {"store": "registers"}).items()}, H200, link)
    assert np.isnan(threads[0]) == fitted.is_fitted(tile(by["tile"]))
