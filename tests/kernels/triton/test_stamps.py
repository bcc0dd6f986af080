"""What kernels write of every tile, interpreted on CPU ranks: each moment once, and in order."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.backends.triton import timeline
from kernels.backends.triton.kernels.gemv import ReductionShares
from kernels.backends.triton.kernels.sync import COMPUTED, PROCESSOR, SENT, STARTED, WAITED
from kernels.plan import Kind, Plan
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.triton.conftest import InterpretedGang, gpu_trial, in_shots

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


def covers(plan: Plan, rank: int, words: Words) -> None:
    """Every step of the plan that the kernel takes is seen, in time."""
    spans = timeline.of_kernel(plan, rank, timeline.Stamps.read(words, int(words[:, 0][words[:, 0] > 0].min()), 1e-9))
    taken = {plan.address(step) for step in plan.steps_of(rank)}
    assert [span.step for span in spans] == [step for step in map(plan.address, plan.steps_of(rank)) if step in taken]
    assert all(0 <= span.start_s <= span.stop_s for span in spans)
    assert all(len(span.tiles) > 0 for span in spans if span.kind == "compute")


@pytest.mark.parametrize("flights", [1, 2])
@pytest.mark.parametrize(
    "shape", [{"n": 76, "k": 152, "tokens": 1}, {"n": 76, "k": 152, "tokens": 3}, {"n": 8704, "k": 16, "tokens": 8}]
)
def test_gemv_tiles_and_then_the_shares_of_packets(
    gangs: dict[int, InterpretedGang], shape: dict[str, Any], flights: int
) -> None:
    tile = "256x8x16" if shape["tokens"] == 8 else f"16x{1 << (shape['tokens'] - 1).bit_length()}x32"
    trial = in_shots(gpu_trial("gemv_all_reduce", shape, world=2, dtype="float16", tile=tile), flights)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        tiles = len(plan.tiles[rank])
        assert len(words) == tiles + ReductionShares.of(trial.problem, trial.schedule).count
        in_order(words[:tiles], UNWAITED)
        in_order(words[tiles:], ALL)
        covers(plan, rank, words)


@pytest.mark.parametrize("tile", ["4x24x4", "4x8x2"])
def test_tiles_of_pooled_vectors(gangs: dict[int, InterpretedGang], tile: str) -> None:
    lookups = {"tables_per_rank": 3, "rows": 50, "dim": 24, "batch": 10, "pooling": 5}
    trial = gpu_trial("embedding_all_to_all", lookups, world=2, dtype="float32", tile=tile)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        assert len(words) == len(plan.tiles[rank])
        in_order(words, UNWAITED)
        covers(plan, rank, words)


GEMM = {"m": 136, "n": 80, "k": 64}
"""Sizes that no tile divides."""


@pytest.mark.parametrize("store", ["tma", "registers"])
@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce"])
def test_gemm_tiles_and_the_sums_of_own_ones(gangs: dict[int, InterpretedGang], operator: str, store: str) -> None:
    trial = gpu_trial(operator, GEMM, world=2, dtype="float16", tile="32x32x32", store=store)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial)):
        tiles = len(plan.tiles[rank])
        own = plan.tiles[rank].chunk == rank
        in_order(words[:tiles], UNWAITED)
        covers(plan, rank, words)
        if operator == "gemm_all_to_all":
            assert not words[tiles:].any()
            continue
        in_order(words[tiles:][own], ALL)
        assert not words[tiles:][~own].any()
        # a sum is made between its tile's computation and its end
        assert (words[:tiles][own, COMPUTED.value] < words[tiles:][own, STARTED.value]).all()


@pytest.mark.parametrize("store", ["tma", "registers"])
@pytest.mark.parametrize("comm_sms", [0, 16])
def test_gemm_tiles_that_wait_and_the_puts_of_their_rows(
    gangs: dict[int, InterpretedGang], comm_sms: int, store: str
) -> None:
    """One program pushes all and then computes all, or the first of three pushes and helps with the last tiles."""
    axes = {"tile": "32x32x32", "slice_tiles": 3, "comm_sms": comm_sms, "store": store}
    trial = gpu_trial("all_to_all_gemm", GEMM, world=2, dtype="float16", **axes)
    plan = expand(trial.problem, trial.schedule)
    for rank, words in enumerate(stamped(gangs[2], trial, 3 if comm_sms else 1)):
        tiles = len(plan.tiles[rank])
        puts = int(((plan.rank == rank) & (plan.kind == Kind.PUT)).sum())
        for each in words[:tiles]:  # tickets may come in between
            in_order(each[None, :], ALL)
        for each in words[tiles : tiles + puts]:  # one pusher; a put is signalled when the next one has begun
            in_order(each[None, :], (STARTED.value, SENT.value))
        assert (np.diff(words[tiles : tiles + puts, SENT.value]) > 0).all()
        assert not words[tiles + puts :].any()
        covers(plan, rank, words)
