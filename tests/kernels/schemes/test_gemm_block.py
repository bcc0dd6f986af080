"""The default block of a GEMM alone: which shapes get a fitted tile, and which keep sides that are powers of two."""

import pytest

from kernels import fitted
from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schedule import tile
from kernels.schemes import gemm_block, schedule
from tests.kernels.backends.triton.conftest import H200, ROOT, load


def gemm(m: int, n: int, k: int, world: int = 1, dtype: str = "bfloat16", operator: str = "gemm_all_to_all") -> Problem:
    return problem(operator, {"m": m, "n": n, "k": k}, dtype=dtype, world=world)


def default(of: Problem, machine: Machine = H200) -> str:
    return str(schedule(of, "fused", {}, machine, parse("nvlink"))["tile"])


@pytest.mark.parametrize(("sides", "size"), [
    ((4096, 768, 4096), "128x192x64"), ((1024, 2944, 4480), "128x192x64"), ((3072, 1024, 5632), "192x128x64"),
    ((263, 8064, 9984), "136x128x64"), ((4096, 1152, 3200), "160x256x64"), ((1897, 1792, 2944), "216x128x64"),
    ((4895, 1408, 4480), "208x128x64"), ((91, 7296, 12032), "96x64x64"), ((80, 13056, 7040), "80x128x64"),
])  # fmt: skip
def test_shapes_that_won_by_a_fitted_tile_on_an_h200_get_it(sides: tuple[int, int, int], size: str) -> None:
    assert default(gemm(*sides)) == size


@pytest.mark.parametrize("sides", [
    (2048, 768, 15360),  # tiles of 96 rows lost
    (4096, 4096, 4096), (2048, 2048, 8192), (512, 8192, 7168),  # level with cuBLAS
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


def test_the_rule_weighs_fitted_tiles_of_one_to_three_waves() -> None:
    of = gemm(1536, 6144, 4096)
    sizes = gemm_block.tiles_of_waves(of, H200.device.slots)
    assert str(sizes[0]) == "128x192x64"
    assert len(sizes) == len(set(sizes)) > 3
    assert set(sizes) < {block.tile for block in gemm_block.candidates(of, H200)}
    assert all(fitted.trouble(size) is None for size in sizes)


def test_a_cut_has_to_gain_microseconds_too() -> None:
    """By 2.2 us, 6 % of the sum, 64x4096x14336 was cut, and took 4 % longer."""
    by = schedule(gemm(64, 4096, 14336), "fused", {}, H200, parse("nvlink"))
    assert by["split_k"] == 1
