"""Tiles that leave by SMs that only send: interpreted by a process for each program, as stamps, and as compiled."""

from typing import Any

import pytest

from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial

CALLS = 3
RAGGED = {"m": 136, "n": 80, "k": 64}
"""Sizes that no tile divides."""


def relayed(operator: str, shape: dict[str, int], world: int = 2, dtype: str = "float16", **axes: Any) -> Trial:
    chosen = {"tile": "32x32x32", "store": "tma", "tile_order": "rotated", "comm_sms": 4} | axes
    return gpu_trial(operator, shape, world=world, dtype=dtype, **chosen)


def right(answers: list[dict[str, Any]], calls: int = CALLS) -> None:
    assert all("failure" not in answer for answer in answers), answers
    assert all(answer["error_of_bound"] <= 1 for answer in answers), answers
    assert all(answer["epoch"] == calls for answer in answers), answers


@pytest.mark.parametrize(("operator", "world", "programs"), [
    ("gemm_all_to_all", 2, 3), ("gemm_all_to_all", 4, 5), ("gemm_all_to_all", 2, 1),
    ("gemm_reduce_scatter", 2, 3), ("gemm_reduce_scatter", 2, 5),
    ("gemm_all_reduce", 2, 3), ("gemm_all_reduce", 2, 5),
])  # fmt: skip
def test_they_reach_their_owners(
    gangs: dict[int, InterpretedGang], operator: str, world: int, programs: int
) -> None:
    right(gangs[world].call(relayed(operator, RAGGED, world), CALLS, programs))
