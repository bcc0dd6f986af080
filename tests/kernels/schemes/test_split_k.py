"""Cut tiles: each range is computed once, no program waits for a later one, and what cannot be cut is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import problem
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule, tile
from kernels.schemes import expand, gemm_block, schedule, split_k
from kernels.schemes.axis_rules import WHOLE
from workbench.machines import machine

H200 = machine("h200_nvl2")
SMALL = replace(H200, device=replace(H200.device, slots=8))
"""Eight programs: tables that a person can follow."""


def gemm(m: int, n: int, k: int, *, world: int = 1) -> Problem:
    return problem("gemm_all_to_all", {"m": m, "n": n, "k": k}, dtype="bfloat16", world=world)


def chosen(of: Problem, on: Machine = SMALL, **axes: int | str) -> Schedule:
    return schedule(of, "fused", axes, on, parse("nvlink"))


@given(rows=st.integers(1, 9), across=st.integers(1, 9), steps=st.integers(1, 90), ragged=st.integers(0, 15),
       parts=st.sampled_from(split_k.VALUES), programs=st.integers(1, 40))  # fmt: skip
def test_every_range_is_computed_once_and_added_once(
    rows: int, across: int, steps: int, ragged: int, parts: int, programs: int
) -> None:
    of = gemm(16 * rows, 32 * across, 16 * steps - 8 * (ragged % 2))
    of_grid = Schedule("fused", (("tile", "16x32x16"), ("num_warps", 1), ("grid", programs), ("split_k", parts)))
    if split_k.refusal(of, of_grid) is not None or parts == WHOLE:
        return
    cut = split_k.of(of, of_grid)
    assert cut is not None
    assert cut.count == rows * across % programs
    assert len(cut.tile) == parts * cut.count <= programs
    for number in range(cut.count):
        here = cut.tile == number
        start, stop = cut.k_start[here], cut.k_stop[here]
        assert start[0] == 0
        assert stop[-1] == of["k"]
        assert (start[1:] == stop[:-1]).all(), "units follow each other in the contraction"
        assert (start < stop).all()
        adds = cut.add_tile == number
        left, right = cut.col_start[adds], cut.col_stop[adds]
        assert left[0] == 0
        assert right[-1] == 32
        assert (left[1:] == right[:-1]).all()
        assert (left < right).all()
    assert cut.add_program.max() < programs
    assert (np.diff(cut.add_program) > 0).all(), "a program adds columns of one tile"
    assert split_k.table_refusal(cut) is None
    assert (cut.k_stop - cut.k_start).max() <= 16 * split_k.most_steps(cut.count, steps, programs, parts)


def test_a_table_that_waits_for_a_later_program_is_refused() -> None:
    cut = split_k.of(gemm(64, 64, 256), chosen(gemm(64, 64, 256), tile="32x32x16", split_k=2, grid=8))
    assert cut is not None
    assert split_k.table_refusal(cut) is None
    early = replace(cut, add_program=cut.add_program - 1)
    assert split_k.table_refusal(early) == (
        "This table of units does not end: program 0 adds tile 0 and would wait for program 1: 1 > 0. Accepted: tables "
        "whose programs wait for themselves and lower ones."
    )


@pytest.mark.parametrize(("of", "axes", "sentence"), [
    (gemm(64, 64, 256), {"split_k": 2, "grid": 0}, "does not go with grid = 0"),
    (gemm(128, 64, 256), {"split_k": 2, "grid": 8}, "cuts nothing: 8 tiles fill waves of 8 programs"),
    (gemm(32, 64, 32), {"split_k": 4, "grid": 8}, "has 2 steps, and 4 > 2"),
    (gemm(32, 64, 16), {"split_k": 2, "grid": 8}, "has 1 step, and 2 > 1"),
    (gemm(96, 64, 256), {"split_k": 2, "grid": 8}, "makes 12 units of the 6 tiles of the last wave"),
])  # fmt: skip
def test_what_cannot_be_cut_is_refused_with_both_numbers(
    of: Problem, axes: dict[str, int], sentence: str
) -> None:  # fmt: skip
    values = {"tile": "32x32x16", "num_warps": 4, **axes}
    assert sentence in str(split_k.refusal(of, Schedule("fused", tuple(values.items()))))


def test_tiles_that_end_with_the_rows_of_a_rank_are_whole() -> None:
    with pytest.raises(Refusal, match=r"split_k = 2 changes nothing .* only tile_order = spanning cuts"):
        chosen(gemm(64, 64, 256, world=2), tile="32x32x16", split_k=2, tile_order="interleaved")


def test_the_plan_has_the_ranges_and_one_step_that_adds_them() -> None:
    of = gemm(320, 64, 256)
    by = chosen(of, tile="32x32x16", split_k=2, grid=8)
    plan, cut = expand(of, by), split_k.of(of, by)
    assert cut is not None
    assert cut.count == 4
    units = np.flatnonzero((plan.k_stop - plan.k_start > 0) & (plan.k_stop - plan.k_start < 256))
    assert plan.tile_start[units].tolist() == [0, 1, 2, 3] * 2
    assert plan.k_start[units].tolist() == [0] * 4 + [128] * 4, "earlier ranges first"
    assert plan.share[units].tolist() == [1] * 8
    adds = np.flatnonzero(plan.adds_units)
    assert [plan.waits_for(step).tolist() for step in adds] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert plan.num_bytes[adds].tolist() == [32 * 32 * (2 * 4 + 2)] * 4
    whole = np.flatnonzero(plan.k_stop - plan.k_start == 256)
    assert plan.tile_start[whole].min() == 4
    assert plan.tile_stop[whole].max() == 20


def test_a_schedule_that_cuts_nothing_has_the_key_that_it_had() -> None:
    by = chosen(gemm(64, 64, 256), tile="32x32x16", split_k=1)
    assert "split_k" not in dict(by.axes)
    assert by["split_k"] == WHOLE


# The default.


@pytest.mark.parametrize(("sides", "is_cut"), [
    ((128, 1024, 13184), True),  # 16 tiles of 64x128
    ((2379, 9344, 14464), True),  # 703 tiles of 128x256: 5.3 waves
    ((4096, 4096, 4096), False),  # 512 tiles of 128x256 are 3.9 waves
    ((128, 7168, 8192), False),  # memory takes as long as one wave
])  # fmt: skip
def test_the_default_cuts_where_waves_are_far_from_whole(sides: tuple[int, int, int], is_cut: bool) -> None:
    by = chosen(gemm(*sides), H200)
    assert (by["split_k"] != WHOLE) == is_cut
    assert by["grid"] == (132 if is_cut else 0)


def test_a_tile_of_ones_own_has_the_split_and_the_grid_that_go_with_it() -> None:
    of = gemm(1024, 4608, 7424)
    assert chosen(of, H200, tile="128x128x64")["grid"] == 132
    assert chosen(of, H200, tile="128x128x64", split_k=1)["grid"] == 0
    assert chosen(of, H200, split_k=3)["grid"] == 132
    assert chosen(of, H200, grid=264)["split_k"] == WHOLE


def test_few_rows_of_a_rank_alone_fill_tiles_of_tensor_cores() -> None:
    assert tile(chosen(gemm(32, 3584, 3456), H200)["tile"]).m == 64
    blocks = gemm_block.candidates(gemm(32, 3584, 3456), H200)
    assert len(blocks) == len(set(blocks)) > 4
