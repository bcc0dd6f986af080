"""Tiles that span ranks and leave for their owners: interpreted by processes, as steps of a Plan, and as compiled."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.backends.triton.kernels import gemm_scattered
from kernels.operators import OPERATORS
from kernels.plan import Kind
from kernels.schedule import Refusal
from kernels.schemes import axis_rules, expand
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import kernels_of, warmed_up
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial
from tests.kernels.backends.triton.ptx import Kernel, every_rule
from tests.kernels.backends.triton.spanning import EVEN, RAGGED, assert_right, spanning, spans_by_rank

SUMMED = ("gemm_reduce_scatter", "gemm_all_reduce")
SENT = (*SUMMED, "gemm_all_to_all")
CUT = {"tile": "64x32x32", "split_k": 2, "grid": 8}
"""Three tiles, whose units are six of eight programs."""


def counted(operator: str, shape: dict[str, int], world: int = 2, **axes: Any) -> Trial:
    """A trial whose parts of sums are counted by signals, and do not leave in packets, as few bytes do by default."""
    store = {"store": "registers"} if OPERATORS[operator].reduces else {}
    return spanning(operator, shape, world, **store, **axes)


@pytest.mark.slow(keeps=4)
@pytest.mark.parametrize("operator", SENT)
@pytest.mark.parametrize(("world", "shape", "axes"), [
    (2, EVEN, {"tile": "64x32x32"}),  # each tile has rows of both
    (2, RAGGED, {}),  # a chunk of 20 rows: the second tile begins inside the second chunk's rows
    (4, RAGGED, {"tile": "16x32x16"}),  # chunks of 10 rows in tiles of 16
    (4, EVEN, {"tile": "16x16x16", "grid": 8}),  # 24 tiles, more than programs
    (2, EVEN, {"tile": "32x64x32", "split_k": 2, "grid": 8}),  # four tiles, all cut, each added by two programs
    (4, RAGGED, {"tile": "16x32x16", "split_k": 2, "grid": 8}),  # nine tiles in waves of eight: one is cut
])  # fmt: skip
def test_they_are_right_on_interpreted_ranks(
    gangs: dict[int, InterpretedGang], operator: str, world: int, shape: dict[str, int], axes: dict[str, Any]
) -> None:
    assert_right(gangs, counted(operator, shape, world, **axes))


@pytest.mark.parametrize(("operator", "world", "axes"), [
    ("gemm_reduce_scatter", 2, {}), ("gemm_all_reduce", 2, {}), ("gemm_all_reduce", 4, {}), ("gemm_all_to_all", 2, {}),
    ("gemm_all_reduce", 4, CUT), ("gemm_all_to_all", 2, CUT),
])  # fmt: skip
def test_every_step_of_the_plan_has_a_span(
    gangs: dict[int, InterpretedGang], operator: str, world: int, axes: dict[str, Any]
) -> None:
    of = counted(operator, EVEN, world, **axes)
    for spans in spans_by_rank(gangs, of):
        sums = [span for span in spans.values() if span.kind == "reduce"]
        computes = [span for span in spans.values() if span.kind == "compute"]
        assert bool(sums) == OPERATORS[operator].reduces
        assert max(span.stop_s for span in sums or spans.values()) >= max(span.stop_s for span in computes)


# The Plan, and what cannot be.


@pytest.mark.parametrize("operator", SUMMED)
@pytest.mark.parametrize(("world", "shape"), [(2, EVEN), (4, RAGGED)])
def test_each_rank_sums_the_parts_of_all_for_every_row_that_it_owns(
    operator: str, world: int, shape: dict[str, int]
) -> None:
    of = counted(operator, shape, world, tile="16x32x32")
    plan, one_shot = expand(of.problem, of.schedule), axis_rules.spans_in_one_shot(of.problem)
    elements = shape["m"] * shape["n"] // (1 if one_shot else world)
    for rank in range(world):
        sums = [int(step) for step in plan.steps_of(rank) if plan.kind[step] == Kind.REDUCE]
        assert plan.num_bytes[sums].sum() == elements * of.problem.itemsize * (world + 1)
        for step in sums:
            brought = plan.waits_for(step)
            assert sorted(plan.rank[brought].tolist()) == list(range(world))
            assert all(plan.kind[each] == (Kind.COMPUTE if plan.rank[each] == rank else Kind.PUT) for each in brought)
        assert plan.tiles[rank].areas().sum() == shape["m"] * shape["n"]
    sent = plan.num_bytes[plan.kind == Kind.PUT].sum() // world
    assert sent == OPERATORS[operator].wire_bytes(of.problem), "as many bytes as the operator has to send"


def test_all_programs_share_the_sums_of_a_rank() -> None:
    """Rank 1 of four owns rows 10 to 20 in two rows of tiles. It adds four rows from 8, 12 and 16 on."""
    of = counted("gemm_reduce_scatter", RAGGED, 4, tile="16x32x16")
    plan = expand(of.problem, of.schedule)
    tiles = plan.tiles[1]
    numbers, of_tile = gemm_scattered.sums_of(plan, 1, np.arange(len(tiles)))
    assert sorted(numbers.tolist()) == list(range(9)), "three rows of sums in three columns"
    for number, tile in zip(numbers.tolist(), of_tile.tolist(), strict=True):
        assert tiles.col_start[tile] == number // 3 * 32
        assert tiles.row_start[tile] == (0 if number % 3 < 2 else 16)


@pytest.mark.parametrize(("axes", "sentence"), [
    ({"slice_tiles": 4}, "slice_tiles = 4 changes nothing"),
    ({"store": "tma"}, "store = tma changes nothing .* threads store each tile's rows"),
    ({"split_k": 2, "grid": 0}, "split_k = 2 does not go with grid = 0"),
    ({"split_k": 2, "grid": 8}, "split_k = 2 makes 12 units of the 6 tiles .* 12 > 8"),
    ({"split_k": 9}, "split_k = 9 is too many: .* has 4 steps, and 9 > 4"),
    ({"split_k": 2, "tile_order": "rotated"}, "split_k = 2 changes nothing .* only tile_order = spanning cuts"),
])  # fmt: skip
def test_what_does_not_go_with_them_is_refused(axes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refusal, match=sentence):
        spanning("gemm_reduce_scatter", EVEN, **axes)


@pytest.mark.parametrize(("operator", "most"), [("gemm_reduce_scatter", 512), ("gemm_all_reduce", 256)])
def test_few_rows_take_them_by_default_and_many_are_refused(operator: str, most: int) -> None:
    few = {"m": most, "n": 8192, "k": 7168}
    assert axis_rules.spans_ranks(gpu_trial(operator, few, world=2, dtype="bfloat16").schedule)
    assert gpu_trial(operator, few, world=2, dtype="bfloat16", group_rows=4).schedule["tile_order"] == "rotated"
    many = {**few, "m": 2 * most}
    assert gpu_trial(operator, many, world=2, dtype="bfloat16").schedule["tile_order"] == "rotated"
    with pytest.raises(Refusal, match=r"each would have 16\.8 MB: more than 8\.39 MB"):
        gpu_trial(operator, many, world=2, dtype="bfloat16", tile_order=axis_rules.SPANNING)


@pytest.mark.parametrize("operator", SENT)
def test_few_columns_and_a_long_contraction_are_cut_by_default(operator: str) -> None:
    by = {columns: gpu_trial(operator, {"m": 64, "n": columns, "k": 8192}, world=2, dtype="bfloat16").schedule
          for columns in (2048, 8192)}  # fmt: skip
    assert (by[2048]["split_k"], by[2048]["grid"]) == (4, 132), "32 tiles of 64 columns for 132 SMs"
    assert (by[8192].get("split_k", 1), by[8192]["grid"]) == (1, 0)


def test_results_that_nobody_adds_take_them_where_a_rank_has_few_rows() -> None:
    orders = {
        world: gpu_trial("gemm_all_to_all", {"m": 128, "n": 4096, "k": 4096}, world=world, dtype="bfloat16")
        .schedule["tile_order"] for world in (2, 4, 8)
    }  # fmt: skip
    assert orders == {2: axis_rules.INTERLEAVED, 4: axis_rules.SPANNING, 8: axis_rules.SPANNING}, "64, 32 and 16 rows"


def test_all_ranks_of_an_all_reduce_of_two_have_the_same_bits(gangs: dict[int, InterpretedGang]) -> None:
    of = counted("gemm_all_reduce", RAGGED)
    first, second = (answer["bits"] for answer in gangs[2].call(of, calls=1))
    assert first == second


# What a GPU gets.


@pytest.mark.parametrize(("operator", "signals"), [("gemm_reduce_scatter", 2), ("gemm_all_reduce", 2)])
def test_it_spills_nothing_and_stores_sixteen_bytes_at_once(operator: str, signals: int, tmp_path: Path) -> None:
    of = gpu_trial(operator, {"m": 128, "n": 8192, "k": 7168}, world=2, dtype="bfloat16",
                   tile_order=axis_rules.SPANNING)  # fmt: skip
    one = kernels_of(of, rank=0)[0]
    options = {"num_warps": one.num_warps, "num_stages": one.num_stages, "launch_cooperative_grid": True}
    compiled = warmed_up(one.function, one.arguments, dict(one.constants) | options)
    assert compiled.local_bytes(tmp_path) == 0
    assert every_rule(Kernel(compiled.ptx, compiled.arguments)) == []
    assert "st.global.v4.b32" in compiled.ptx
    assert not re.search(r"st\.global\.b16|st\.global\.b32 ", compiled.ptx.replace("st.global.b32 [ %rd", "")), "rows"
    released = r"red\.global\.sys\.release|atom\.global\.sys\.release|atom\.release\.sys|red\.release\.sys"
    assert len(re.findall(released, compiled.ptx)) == signals, "late and last tiles, each for all owners"
