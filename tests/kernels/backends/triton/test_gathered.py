"""Tiles that span the rows of all ranks: interpreted by several processes, as steps of a Plan, and as compiled."""

from dataclasses import replace
from typing import Any

import pytest

from kernels.schemes import axis_rules
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import H200, InterpretedGang, gpu_trial
from tests.kernels.backends.triton.interpreted_main import ONE_MORE, WRAPS

SMALL = replace(H200, device=replace(H200.device, slots=8))
EVEN, RAGGED = {"m": 64, "n": 96, "k": 128}, {"m": 40, "n": 72, "k": 136}
OPERATORS = ("all_gather_gemm", "all_to_all_gemm")


def trial(operator: str, shape: dict[str, int], world: int = 2, **axes: Any) -> Trial:
    of = {"tile": "32x32x32", "tile_order": axis_rules.SPANNING, "num_warps": 4, "num_stages": 2}
    return gpu_trial(operator, shape, world=world, dtype="float16", machine=SMALL, **{**of, **axes})


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
    for said in gangs[world].call(trial(operator, shape, world, **axes), calls=5):
        assert said.get("failure") is None
        assert said["error_of_bound"] < 1
        assert said["epoch"] == 5


def test_their_counters_and_halves_wrap(gangs: dict[int, InterpretedGang]) -> None:
    for said in gangs[2].call(trial("all_gather_gemm", RAGGED, tile="64x32x32", split_k=2, grid=8), way=WRAPS):
        assert said.get("failure") is None
        assert said["error_of_bound"] < 1


def test_a_rank_alone_says_whose_rows_it_waited_for(gangs: dict[int, InterpretedGang]) -> None:
    said = gangs[2].call(trial("all_gather_gemm", EVEN), calls=2, way=ONE_MORE)
    assert "operand rows, slice 1" in said[0]["alone"]
