"""Tiles that span the rows of all ranks: interpreted by several processes, as steps of a Plan, and as compiled."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.operators import problem
from kernels.plan import Kind
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axis_rules, base, expand, split_k
from tests.kernels.backends.triton.compile_sm90 import kernels_of, warmed_up
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial
from tests.kernels.backends.triton.spanning import EVEN, RAGGED, assert_right, spanning, spans_by_rank

OPERATORS = ("all_gather_gemm", "all_to_all_gemm")
LONG = {"m": 64, "n": 96, "k": 1160}
"""A contraction whose first 512 columns are pushed apart."""
LONGER = {"m": 64, "n": 96, "k": 4232}
"""One whose later columns come in two ranges: up to 1024, and the rest."""


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("world", "shape", "axes"), [
    (2, EVEN, {}),
    (2, EVEN, {"tile": "64x32x32", "split_k": 2, "grid": 8}),  # 3 tiles, cut for 8 programs
    (2, RAGGED, {"store": "registers"}),  # a chunk of 20 rows: threads push, and tiles end inside the other half
    (4, RAGGED, {"tile": "16x32x16", "split_k": 1}),
    (4, EVEN, {"tile": "32x32x16", "split_k": 2, "grid": 16}),
])  # fmt: skip
def test_they_are_right_on_interpreted_ranks(
    gangs: dict[int, InterpretedGang], operator: str, world: int, shape: dict[str, int], axes: dict[str, Any]
) -> None:
    assert_right(gangs, spanning(operator, shape, world, **axes))


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("world", "shape", "axes", "programs"), [
    (2, LONG, {"comm_sms": 4}, 5), (2, LONG, {"comm_sms": 4, "store": "registers"}, 3),  # at most half only push
    (4, LONG, {"comm_sms": 4, "tile": "32x32x64"}, 3), (2, LONG, {"comm_sms": 4}, 1),
    (2, LONGER, {"comm_sms": 4, "tile": "32x32x512"}, 3),  # a range is a step: who does not wait is too soon
    (4, LONGER, {"comm_sms": 4, "tile": "32x32x512", "store": "registers"}, 2),
])  # fmt: skip
def test_later_columns_come_by_programs_that_only_push(
    gangs: dict[int, InterpretedGang], operator: str, world: int, shape: dict[str, int], axes: dict[str, Any],
    programs: int,
) -> None:  # fmt: skip
    """A process for each program: those that compute wait for those that push."""
    assert_right(gangs, spanning(operator, shape, world, **axes), programs)


@pytest.mark.parametrize(("shape", "ranges"), [
    (LONG, [(0, 512), (512, 1160)]), (LONGER, [(0, 512), (512, 1024), (1024, 4232)]),
])  # fmt: skip
def test_a_range_of_columns_is_computed_while_the_next_one_comes(
    shape: dict[str, int], ranges: list[tuple[int, int]]
) -> None:
    of = spanning("all_gather_gemm", shape, comm_sms=4)
    plan = expand(of.problem, of.schedule)
    puts = np.flatnonzero(plan.kind == Kind.PUT)
    assert sorted({(int(plan.k_start[each]), int(plan.k_stop[each])) for each in puts}) == ranges
    for step in np.flatnonzero(plan.kind == Kind.COMPUTE).tolist():
        brought = plan.waits_for(step)
        moved = brought[np.isin(plan.kind[brought], (Kind.PUT, Kind.COPY))]
        assert (plan.k_start[moved] == plan.k_start[step]).all()
        assert len(brought) - len(moved) == (plan.k_start[step] > 0), "after its own columns before"


@pytest.mark.parametrize(("shape", "axes"), [
    (EVEN, {}), (EVEN, {"tile": "64x32x32", "split_k": 2, "grid": 8}), (LONG, {"comm_sms": 4}),
    (LONGER, {"comm_sms": 4, "tile": "32x32x256"}),
])  # fmt: skip
def test_every_step_of_the_plan_has_a_span(
    gangs: dict[int, InterpretedGang], shape: dict[str, int], axes: dict[str, Any]
) -> None:
    of = spanning("all_gather_gemm", shape, **axes)
    plan, begun = expand(of.problem, of.schedule), dict[str, float]()
    for rank, spans in enumerate(spans_by_rank(gangs, of)):
        begun |= {span.step: span.start_s for span in spans.values()}
        computes = [span for span in spans.values() if span.kind == "compute"]
        assert min(span.start_s for span in computes) >= max(spans[f"{rank}/put/{1 - rank}/0"].start_s,
                                                            spans[f"{rank}/copy/{rank}/0"].stop_s)  # fmt: skip
    for step in np.flatnonzero(plan.kind == Kind.COMPUTE).tolist():  # processes of a computer have one clock
        assert begun[plan.address(step)] > max(begun[plan.address(each)] for each in plan.waits_for(step).tolist())


# The Plan, and what cannot be.


@pytest.mark.parametrize("world", [2, 4])
def test_all_tiles_of_the_plan_wait_for_the_rows_of_all_ranks(world: int) -> None:
    of = spanning("all_to_all_gemm", EVEN, world, tile="32x32x32", split_k=1)
    plan = expand(of.problem, of.schedule)
    moved = [step for step in range(len(plan)) if plan.kind[step] in (Kind.PUT, Kind.COPY)]
    for step in np.flatnonzero(plan.kind == Kind.COMPUTE).tolist():
        brought = plan.waits_for(step).tolist()
        assert set(brought) <= set(moved)
        assert sorted(int(plan.rank[each]) for each in brought) == list(range(world)), "a source each, its own rows too"
        assert {int(plan.peer[each]) for each in brought} == {int(plan.rank[step])}
    whole = base.whole(of.problem)
    for tiles in plan.tiles:
        assert tiles.row_stop.max() == whole["m"]
        assert tiles.areas().sum() == whole["m"] * whole["n"]


def test_cut_tiles_are_those_of_a_rank_that_has_all_rows() -> None:
    of = spanning("all_gather_gemm", EVEN, tile="64x32x32", split_k=2, grid=8)
    cut, plan = split_k.of(of.problem, of.schedule), expand(of.problem, of.schedule)
    assert cut is not None
    assert (cut.count, cut.parts) == (3, 2)
    assert plan.adds_units.sum() == 2 * cut.count, "both ranks add"


@pytest.mark.parametrize(("axes", "sentence"), [
    ({"slice_tiles": 4}, "slice_tiles = 4 changes nothing .* every tile waits for the rows of all ranks"),
    ({"transport": "gin"}, "does not go with transport = gin"),
    ({"split_k": 3, "grid": 8}, "makes 18 units .*: 18 > 8"),
    ({"comm_sms": 4}, "comm_sms = 4 has nothing to push: .* k = 128 <= 512"),
    ({"comm_sms": 4, "tile": "32x32x256"}, "does not go with tile = 32x32x256: .* ends at 128, .* 128 % 256 != 0"),
    ({"comm_sms": 4, "tile": "64x32x32", "split_k": 2, "grid": 8},
     "comm_sms = 4 does not go with split_k = 2: the cut makes 6 units for 8 programs"),
    ({"comm_sms": 4, "tile": "64x32x32", "split_k": 2, "grid": 0}, "split_k = 2 does not go with grid = 0"),
])  # fmt: skip
def test_what_does_not_go_with_them_is_refused(axes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        spanning("all_gather_gemm", EVEN, **axes)


def test_many_rows_are_refused_with_both_numbers() -> None:
    with pytest.raises(Refusal, match=r"each would have 16\.8 MB: more than 8\.39 MB"):
        spanning("all_gather_gemm", {"m": 1024, "n": 1024, "k": 8192}, tile="128x128x64")


def test_few_rows_take_them_by_default_and_axes_of_other_orders_do_not() -> None:
    few = {"m": 128, "n": 7168, "k": 8192}
    usual = gpu_trial("all_gather_gemm", few, world=2, dtype="bfloat16").schedule
    assert axis_rules.spans_ranks(usual)
    assert usual.get("comm_sms") is None, "1 MB comes in"
    some = {**few, "m": 512}
    assert gpu_trial("all_gather_gemm", some, world=2, dtype="bfloat16").schedule["comm_sms"] == 16, "4.2 MB"
    without_room = gpu_trial("all_gather_gemm", {**some, "n": 8192}, world=2, dtype="bfloat16").schedule
    assert without_room.get("comm_sms") is None, "128 tiles leave four SMs of 132"
    by_slices = gpu_trial("all_gather_gemm", few, world=2, dtype="bfloat16", slice_tiles=8).schedule
    assert by_slices["tile_order"] == "rotated"
    many = gpu_trial("all_gather_gemm", {**few, "m": 2048}, world=2, dtype="bfloat16").schedule
    assert many["tile_order"] == "rotated"
    stored = Schedule("fused", (("tile", "64x256x64"), ("tile_order", "rotated")))
    of = problem("all_gather_gemm", few, world=2, dtype="bfloat16")
    assert base.tiled(of, stored) is of, "schedules of before are what they were"


# What a GPU gets.


@pytest.mark.parametrize(("axes", "signals"), [
    ({}, 1), ({"comm_sms": 16}, 3), ({"tile": "128x128x64", "split_k": 2, "grid": 132}, 1),
])  # fmt: skip
def test_it_spills_nothing_and_prefetches_weights(axes: dict[str, Any], signals: int, tmp_path: Path) -> None:
    of = gpu_trial("all_gather_gemm", {"m": 128, "n": 7168, "k": 8192}, world=2, dtype="bfloat16",
                   tile_order=axis_rules.SPANNING, **axes)  # fmt: skip
    one = kernels_of(of, rank=0)[0]
    options = {"num_warps": one.num_warps, "num_stages": one.num_stages, "launch_cooperative_grid": True}
    compiled = warmed_up(one.function, one.arguments, dict(one.constants) | options)
    assert compiled.local_bytes(tmp_path) == 0
    assert "prefetch.global.L2" in compiled.ptx
    assert len(re.findall(r"red\.global\.sys\.release|atom\.global\.sys\.release|atom\.release\.sys|red\.release\.sys",
                          compiled.ptx)) == signals  # fmt: skip
