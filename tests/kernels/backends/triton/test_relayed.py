"""Tiles that leave by SMs that only send: interpreted by a process for each program, as stamps, and as compiled."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.backends.triton import timeline
from kernels.backends.triton.kernels.sync import COMPUTED, PROCESSOR, SENT, STARTED, WAITED
from kernels.operators import OPERATORS
from kernels.plan import Kind
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial

CALLS = 3
SENT_BY = ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce")
SUMMED = SENT_BY[1:]
RAGGED = {"m": 136, "n": 80, "k": 200}
"""Sizes that no tile divides. A tile takes longer to compute than to send: who does not wait for it is too early."""
SMALL = {"m": 128, "n": 64, "k": 32}
"""Four tiles for each of two owners: two waves of two programs, and one of the sums that are sent."""


def relayed(operator: str, shape: dict[str, int], world: int = 2, dtype: str = "float16", **axes: Any) -> Trial:
    chosen = {"tile": "32x32x16", "store": "tma", "tile_order": "rotated", "comm_sms": 4} | axes
    return gpu_trial(operator, shape, world=world, dtype=dtype, **chosen)


def passed(answers: list[dict[str, Any]], calls: int = CALLS) -> None:
    assert all("failure" not in answer for answer in answers), answers
    assert all(answer["error_of_bound"] <= 1 for answer in answers), answers
    assert all(answer["epoch"] == calls for answer in answers), answers


# Interpreted ranks, whose programs run side by side.


@pytest.mark.slow(keeps=3)
@pytest.mark.parametrize(("operator", "world", "shape", "programs"), [
    ("gemm_all_to_all", 2, RAGGED, 5), ("gemm_reduce_scatter", 2, RAGGED, 3), ("gemm_all_reduce", 2, RAGGED, 5),
    ("gemm_all_to_all", 4, RAGGED, 3), ("gemm_reduce_scatter", 2, RAGGED, 5), ("gemm_all_reduce", 2, RAGGED, 3),
    ("gemm_all_reduce", 2, SMALL, 9),  # five compute four own tiles: all sums leave by themselves
])  # fmt: skip
def test_they_reach_their_owners(
    gangs: dict[int, InterpretedGang], operator: str, world: int, shape: dict[str, int], programs: int
) -> None:
    """By one program that only sends, by two, or by four."""
    passed(gangs[world].call(relayed(operator, shape, world), CALLS, programs))


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(("operator", "dtype", "axes"), [
    ("gemm_all_reduce", "float32", {"tile": "64x128x32"}),  # a tile leaves in two pieces, the last one in half of one
    ("gemm_all_to_all", "float32", {"tile": "64x128x32", "tile_order": "remote_first"}),
    ("gemm_reduce_scatter", "float32", {"group_rows": 2, "comm_sms": 16}),
    ("gemm_all_to_all", "bfloat16", {"group_rows": 1}),  # the interpreter adds bits of bfloat16
])  # fmt: skip
def test_they_do_in_pieces_in_other_orders_and_of_other_types(
    gangs: dict[int, InterpretedGang], operator: str, dtype: str, axes: dict[str, Any]
) -> None:
    passed(gangs[2].call(relayed(operator, {"m": 176, "n": 304, "k": 64}, dtype=dtype, **axes), CALLS, programs=3))


def test_one_program_computes_all_and_then_sends_where_nobody_adds(gangs: dict[int, InterpretedGang]) -> None:
    passed(gangs[2].call(relayed("gemm_all_to_all", RAGGED), CALLS))


def test_both_ranks_of_an_all_reduce_have_the_same_bits(gangs: dict[int, InterpretedGang]) -> None:
    """Of sums that are sent from memory, and of those that leave with their last tiles."""
    first, second = (answer["bits"] for answer in gangs[2].call(relayed("gemm_all_reduce", RAGGED), 1, programs=3))
    assert first == second


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", SENT_BY)
def test_they_are_right_where_numbers_of_calls_wrap_and_a_peer_is_late(
    gangs: dict[int, InterpretedGang], operator: str
) -> None:
    answers = gangs[2].call(relayed(operator, SMALL), programs=3, stamped=True, way="wraps")
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers
    assert {amount for answer in answers for amount in answer["rises"]} == {1, 2}, "one sends and two compute"


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(("operator", "awaited"), [
    ("gemm_all_to_all", "permission to write into rank 1's buffers"),
    ("gemm_reduce_scatter", "(permission to write into rank 1's buffers|the piece that raises counter 0)"),
])  # fmt: skip
def test_a_rank_that_calls_alone_ends_by_the_deadline_with_the_sentence(
    gangs: dict[int, InterpretedGang], operator: str, awaited: str
) -> None:
    alone, peer = gangs[2].call(relayed(operator, SMALL), CALLS, programs=3, way="one more")
    said = alone["alone"] or "nothing was said"
    assert re.search(rf"^Rank 0 waited 2 s for {awaited}: the counter was {CALLS} instead of {CALLS + 1}", said)
    assert 2 <= alone["seconds"] < 100, "one deadline, however busy this computer is"
    assert (alone["epoch"], peer["epoch"]) == (CALLS + 1, CALLS)


# What they write of every tile.


def written(words: np.ndarray[Any, np.dtype[np.int64]], which: tuple[int, ...]) -> None:
    """Each record has *which* moments, one after the other, and no others."""
    moments = words[:, list(which)]
    assert (moments > 0).all()
    assert (np.diff(moments, axis=1) > 0).all()
    assert not np.delete(words[:, : PROCESSOR.value], list(which), axis=1).any()


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", SENT_BY)
def test_every_step_of_the_plan_is_seen_in_time(gangs: dict[int, InterpretedGang], operator: str) -> None:
    """A tile is computed by one program and sent by another one; a sum of the last wave leaves by who made it."""
    of = relayed(operator, RAGGED)
    plan, answers = expand(of.problem, of.schedule), gangs[2].call(of, 2, programs=3, stamped=True)
    passed(answers, 2)
    for rank, answer in enumerate(answers):
        words, tiles = np.array(answer["stamps"], dtype=np.int64), len(plan.tiles[rank])
        own = plan.tiles[rank].chunk == rank
        computed = (STARTED.value, COMPUTED.value)
        written(words[:tiles][~own], (*computed, SENT.value))
        written(words[:tiles][own], computed)
        sums = words[tiles:]
        assert not sums[~own].any()
        if OPERATORS[operator].reduces:
            leave = (SENT.value,) if operator == "gemm_all_reduce" else ()
            written(sums[own], (STARTED.value, WAITED.value, COMPUTED.value, *leave))
            assert (words[:tiles][own, COMPUTED.value] < sums[own, STARTED.value]).all()
        else:
            assert not sums.any()
        begin = int(words[words > 0].min())
        spans = timeline.of_kernel(plan, rank, timeline.Stamps.read(words, begin, 1e-9))
        assert [span.step for span in spans] == [plan.address(int(step)) for step in plan.steps_of(rank)]
        assert all(0 <= span.start_s <= span.stop_s for span in spans)
        assert all(span.tiles for span in spans if span.kind == "compute")
        kinds = [Kind(int(plan.kind[step])) for step in plan.steps_of(rank)]
        assert (Kind.REDUCE in kinds) == OPERATORS[operator].reduces
