"""What kernels write of every tile, interpreted on CPU ranks: each moment once, and in order."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.backends.triton.gemv import shares
from kernels.backends.triton.kernels.stamp import COMPUTED, PROCESSOR, SENT, STARTED, WAITED
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.triton.conftest import InterpretedGang, gpu_trial

ALL = (STARTED.value, WAITED.value, COMPUTED.value, SENT.value)
UNWAITED = (STARTED.value, COMPUTED.value, SENT.value)
"""Of tiles that wait for nobody."""

Words = NDArray[np.int64]


def stamped(gang: InterpretedGang, trial: Trial, programs: int = 1) -> list[Words]:
    """int64 [records, WORDS] by rank, of the second call; the result was right with stamps, too."""
    answers = gang.call(trial, 2, programs, stamped=True)
    assert all(answer.get("error_of_bound", 2.0) <= 1 for answer in answers), answers
    return [np.array(answer["stamps"]) for answer in answers]


def in_order(words: Words, which: tuple[int, ...]) -> None:
    """One program has written *which* moments of each of *words*, one after the other, and no others."""
    moments = words[:, list(which)].ravel()
    assert (moments > 0).all()
    assert (np.diff(moments) > 0).all()
    assert not np.delete(words[:, : PROCESSOR.value], list(which), axis=1).any()


@pytest.mark.parametrize(
    "shape", [{"n": 76, "k": 152, "tokens": 1}, {"n": 76, "k": 152, "tokens": 3}, {"n": 8704, "k": 64, "tokens": 8}]
)
def test_gemv_tiles_and_then_the_shares_of_packets(gangs: dict[int, InterpretedGang], shape: dict[str, Any]) -> None:
    tile = "256x8x64" if shape["tokens"] == 8 else f"16x{1 << (shape['tokens'] - 1).bit_length()}x32"
    trial = gpu_trial("gemv_all_reduce", shape, world=2, dtype="float16", tile=tile)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        tiles = len(plan.tiles[rank])
        assert len(words) == tiles + shares(trial.problem)
        in_order(words[:tiles], UNWAITED)
        in_order(words[tiles:], ALL)
