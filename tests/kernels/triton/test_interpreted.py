"""The kernels that GPUs run, interpreted on CPU ranks: right on poisoned outputs, call after call."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from tests.kernels.triton.conftest import InterpretedGang, gpu_trial, in_shots

CALLS = 3
GEMM = {"m": 136, "n": 80, "k": 64}
"""Sizes that no tile divides."""


STORES, WORLDS = ("tma", "registers"), (2, 4)


def every_second(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Half of all combinations: those of all axes but one are all there."""
    places = (place for place in product(*(range(len(axis)) for axis in axes)) if sum(place) % 2 == 0)
    return [tuple(axis[number] for axis, number in zip(axes, place, strict=True)) for place in places]


def passed(answers: list[dict[str, Any]], calls: int = CALLS) -> None:
    assert all("failure" not in answer for answer in answers), answers
    assert all(answer["error_of_bound"] <= 1 for answer in answers), answers
    assert all(answer["epoch"] == calls for answer in answers), answers


@pytest.mark.parametrize(
    ("operator", "store", "world"),
    every_second(("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce"), STORES, WORLDS),
)
def test_gemm_tiles_reach_their_owners(
    gangs: dict[int, InterpretedGang], operator: str, store: str, world: int
) -> None:
    trial = gpu_trial(operator, GEMM, world=world, dtype="float16", tile="32x32x32", store=store)
    passed(gangs[world].call(trial, CALLS))


PACKETS = [
    (76, 1, "16x1x32", "float16"),
    (64, 1, "8x1x32", "float32"),
    (76, 3, "16x4x64", "float32"),
    (76, 5, "16x2x32", "float16"),
]
"""Rows, tokens, tile, dtype."""


@pytest.mark.parametrize(("sizes", "world", "shots"), every_second(PACKETS, WORLDS, (1, 2)))
def test_packets_of_every_rank_are_summed(
    gangs: dict[int, InterpretedGang], sizes: tuple[int, int, str, str], world: int, shots: int
) -> None:
    """By everybody, or by the owner of their rows, who sends the sums to all."""
    n, tokens, tile, dtype = sizes
    trial = gpu_trial("gemv_all_reduce", {"n": n, "k": 2 * n, "tokens": tokens}, world=world, dtype=dtype, tile=tile)
    passed(gangs[world].call(in_shots(trial, shots), CALLS))


@pytest.mark.parametrize(("shots", "world", "calls"), [(1, 4, 2), (2, 2, CALLS)])
def test_large_outputs_fly_once_or_twice(gangs: dict[int, InterpretedGang], shots: int, world: int, calls: int) -> None:
    """More than 64 Ki values: two shots, as long as a schedule does not say one; tiles of 256 rows cover them exactly.

    In one shot they are more than a share for each of the programs that are resident.
    """
    shape = {"n": 8704, "k": 16, "tokens": 8}
    trial = gpu_trial("gemv_all_reduce", shape, world=world, dtype="float16", tile="256x8x16")
    passed(gangs[world].call(in_shots(trial, shots), calls), calls)


@pytest.mark.parametrize(
    ("operator", "tile_order", "store", "world"),
    every_second(("all_gather_gemm", "all_to_all_gemm"), ("rotated", "natural"), STORES, WORLDS),
)
def test_gemm_tiles_wait_for_their_rows(
    gangs: dict[int, InterpretedGang], operator: str, tile_order: str, store: str, world: int
) -> None:
    axes = {"tile": "32x32x32", "slice_tiles": 3, "tile_order": tile_order}
    passed(gangs[world].call(gpu_trial(operator, GEMM, world=world, dtype="float16", store=store, **axes), CALLS))


@pytest.mark.parametrize("collective", ["library", "two_shot"])
@pytest.mark.parametrize(("operator", "shape", "tile"), [
    ("gemm_all_reduce", GEMM, "32x32x32"), ("gemv_all_reduce", {"n": 76, "k": 152, "tokens": 3}, "16x4x64"),
])  # fmt: skip
def test_our_kernel_computes_alone_where_the_collective_reads(
    gangs: dict[int, InterpretedGang], operator: str, shape: dict[str, int], tile: str, collective: str
) -> None:
    """In the library's buffer, and in symmetric memory."""
    trial = gpu_trial(operator, shape, world=2, dtype="float16", scheme="sequential", tile=tile, kernel="ours",
                      collective=collective).of_part("compute")  # fmt: skip
    answers = gangs[2].call(trial, CALLS)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


LOOKUPS = {"tables_per_rank": 3, "rows": 50, "dim": 24, "pooling": 5}


@pytest.mark.parametrize(
    ("tile", "dtype", "world"),
    [("4x24x4", "float32", 2), ("4x24x4", "float16", 4), ("4x8x8", "float32", 2), ("2x48x8", "float16", 2)],
)
def test_pooled_vectors_reach_the_owners_of_their_samples(
    gangs: dict[int, InterpretedGang], tile: str, dtype: str, world: int
) -> None:
    """Tiles of one table's vectors, of a third of them, and of two tables' out of three; an owner has five samples."""
    trial = gpu_trial("embedding_all_to_all", {**LOOKUPS, "batch": 5 * world}, world=world, dtype=dtype, tile=tile)
    passed(gangs[world].call(trial, CALLS))


def test_pooled_vectors_of_even_sizes_need_no_mask(gangs: dict[int, InterpretedGang]) -> None:
    even = {"tables_per_rank": 2, "rows": 50, "dim": 32, "batch": 32, "pooling": 4, "indices": "power_law"}
    trial = gpu_trial("embedding_all_to_all", even, world=2, dtype="float32", tile="4x32x2")
    passed(gangs[2].call(trial, CALLS))


@pytest.mark.parametrize("store", STORES)
def test_programs_that_have_pushed_help_with_the_last_tiles(gangs: dict[int, InterpretedGang], store: str) -> None:
    axes = {"tile": "32x32x32", "slice_tiles": 3, "comm_sms": 16}
    trial = gpu_trial("all_to_all_gemm", GEMM, world=4, dtype="float16", store=store, **axes)
    passed(gangs[4].call(trial, CALLS, programs=3))  # the first pushes and helps, the others compute
