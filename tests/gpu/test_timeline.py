"""Timelines of real GPUs: the Plan's steps, in order, inside the time that was measured, on one clock for all ranks."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kernels.backends.base import LONGEST_COMPILATION_SECONDS
from kernels.outcome import Measurement, Span
from kernels.plan import Kind, Plan
from kernels.schemes import expand
from tests.gpu import gang
from tests.gpu.stamps import BROKEN_S, broken
from tests.gpu.test_kernels import WORLDS, trials, trials_here

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BEGUN_S = 5e-6
"""One call after a meeting waits for the kernel's launch, which calls in a row do not."""
MET_S = 2e-6
"""How exactly the ranks' clocks are laid on each other: they leave the meeting within the flight of a signal."""


def measured(world: int, way: str) -> list[Measurement]:
    told = list(gang.run([[trial] for trial in trials_here(world, way)], world, 240.0))
    assert [one for one in told if isinstance(one, str)] == []
    found = [outcome for outcome, _ in told]
    assert all(isinstance(one, Measurement) for one in found), found
    assert [one.unseen for one in found if one.unseen] == []
    return found


def planned(plan: Plan, *kinds: Kind) -> set[str]:
    return {plan.address(step) for step in range(len(plan)) if plan.kind[step] in kinds}


def check_order(one: Measurement) -> None:
    limit_s = 1.5 * one.time_s + BEGUN_S
    for span in one.spans:
        assert 0 <= span.start_s <= span.stop_s, (span.step, span.start_s, span.stop_s)
        # ranks that share a GPU have times that say nothing: a slice may end in a call, or not
        assert span.stop_s <= limit_s or one.trial.fabric.shares_gpu, (span.step, span.stop_s, one.time_s)
        assert 0 < span.tick_s < 2e-6
        for tile in span.tiles:
            moments = (tile.start_s, tile.waited_s, tile.computed_s, tile.sent_s)
            assert all(before <= after for before, after in pairwise(moments)), (span.step, tile)


def check_waits(one: Measurement) -> None:
    """Nobody goes on before what it waited for has begun, whoever's clock says so.

    Ranks that share a GPU leave their meeting a slice apart: only what happened on one rank has one clock.
    """
    known = {span.step: span for span in one.spans}
    waited = [(span, known[span.waited_for]) for span in one.spans if span.waited_for in known]
    assert waited or one.trial.world == 1
    for span, last in waited:
        same_clock = span.rank == last.rank or not one.trial.fabric.shares_gpu
        assert span.stop_s >= last.start_s - MET_S or not same_clock, (span.step, last.step)


@pytest.mark.parametrize("world", WORLDS)
def test_fused_kernels_show_every_step_that_they_take(world: int) -> None:
    for one in measured(world, "fused"):
        plan = expand(one.trial.problem, one.trial.schedule)
        steps = planned(plan, Kind.COMPUTE, Kind.PUT, Kind.REDUCE, Kind.COPY)  # its own shard, where tiles span ranks
        assert {span.step for span in one.spans} == steps, one.trial.problem
        assert len(one.spans) == len(steps)
        tiles = [tile for span in one.spans for tile in span.tiles]
        assert {span.rank for span in one.spans if span.tiles} == set(range(world))
        assert len({tile.processor for tile in tiles}) > 1
        check_order(one)
        check_waits(one)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", ["library", "direct", "copy_engine"])
def test_sequential_calls_show_their_halves(way: str, world: int) -> None:
    for one in measured(world, way):
        plan = expand(one.trial.problem, one.trial.schedule)
        assert {span.step for span in one.spans} == planned(plan, Kind.COMPUTE, Kind.PUT, Kind.COLLECTIVE)
        check_order(one)
        for rank in range(world):
            first, second = sorted({(span.start_s, span.stop_s) for span in one.spans if span.rank == rank})
            assert first[1] == second[0]
            assert {kinds(one.spans, rank, at) for at in (first, second)} == {("compute",), moved(one.spans, rank)}


def kinds(spans: tuple[Span, ...], rank: int, at: tuple[float, float]) -> tuple[str, ...]:
    return tuple(sorted({span.kind for span in spans if span.rank == rank and (span.start_s, span.stop_s) == at}))


def moved(spans: tuple[Span, ...], rank: int) -> tuple[str, ...]:
    return tuple(sorted({span.kind for span in spans if span.rank == rank and span.kind != "compute"}))


@pytest.mark.skipif(not WORLDS, reason="needs a GPU")
def test_a_rank_that_fails_when_it_is_to_be_seen_hangs_nobody() -> None:
    world = WORLDS[0]
    found = gang.answered(broken, trials(world, "fused")[:1], world, 120.0)[0]
    assert len(found) == world
    assert all(answer["timed"] and answer["said"] for answer in found), found
    assert all(answer["after_s"] < 4 * BROKEN_S for answer in found), found


@pytest.mark.skipif(not WORLDS, reason="needs a GPU")
def test_a_rank_that_fails_where_others_wait_in_nccl_does_not_wait_for_ever_and_keeps_what_it_timed() -> None:
    """Only the first rank is sure to answer; the gang ends the others."""
    limit_s = LONGEST_COMPILATION_SECONDS + 4 * BROKEN_S
    found = gang.answered(broken, trials(WORLDS[0], "library")[:1], WORLDS[0], limit_s + 60.0)[0]
    (first,) = [answer for answer in found if answer.get("rank") == 0]
    assert first["timed"]
    assert first["said"]
    assert first["after_s"] < limit_s
