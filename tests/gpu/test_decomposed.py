"""Decomposed calls on real GPUs: every legal schedule is right, also under stress, and nobody waits for a dead rank."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from kernels.backends.base import Seat
from kernels.backends.triton.backend import TritonBackend
from kernels.outcome import Measurement, Outcome
from kernels.protocol import Protocol
from kernels.trial import Trial
from tests.gpu import gang
from tests.kernels.triton.pieces import ENGINES, SPLITS, legal

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SHAPE = {"m": 2048, "n": 512, "k": 1024}
WORLDS = [world for world in (2, 4, 8) if world <= torch.cuda.device_count()]
CALLS, TILE = 1000, "128x128x64"
MANY = 10
"""Schedules that one sitting prepares together."""
ONCE = Protocol(name="once", warmups=0, repeats=1, cold_l2=False, calls_per_graph=4)


def sittings(operator: str, world: int) -> list[gang.Sitting]:
    """All legal schedules of *operator* in four pieces, and shard by shard; what is simplest comes first."""
    trials = [trial for pieces in (4, 1)
              for trial in legal(operator, world, ENGINES, SHAPE, pieces=pieces, tile=TILE, dtype="bfloat16")
              if pieces > 1 or trial.schedule["split"] == "rows"]  # fmt: skip
    trials.sort(key=lambda trial: (trial.schedule["launches"] == "one", ENGINES.index(str(trial.schedule["engine"]))))
    listed = [replace(trial, protocol=ONCE).to_json() for trial in trials]
    return [listed[begin : begin + MANY] for begin in range(0, len(listed), MANY)]


def wrong(answers: list[Any]) -> list[str]:
    """What broke, failed, or came to a wrong result, in words."""
    return [one if isinstance(one, str) else f"{one[0].trial.schedule}: {words(one[0])}" for one in answers
            if isinstance(one, str) or not (isinstance(one[0], Measurement) and one[0].correct)]  # fmt: skip


def words(outcome: Outcome) -> str:
    return "wrong" if isinstance(outcome, Measurement) else str(getattr(outcome, "message", outcome))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("operator", SPLITS)
def test_every_legal_schedule_is_right(operator: str, world: int) -> None:
    asked_for = sittings(operator, world)
    answers = list(gang.run(asked_for, world, 200.0))
    assert not (broken := wrong(answers)), "\n".join(broken)
    assert len(answers) == sum(map(len, asked_for))


def stressed_schedules(world: int) -> list[dict[str, Any]]:
    """Of each operator one by each engine and number of launches: with all differences that the protocol knows."""
    chosen = {
        (trial.problem.operator, trial.schedule["engine"], trial.schedule["launches"]): trial.to_json()
        for operator in SPLITS
        for trial in legal(operator, world, ENGINES, SHAPE, pieces=4, tile=TILE, dtype="bfloat16")
    }
    return list(chosen.values())


@pytest.mark.parametrize("world", WORLDS)
def test_a_thousand_calls_with_slow_ranks_and_noise_between_are_right(world: int) -> None:
    trials = stressed_schedules(world)
    answers = gang.stressed(trials, world, CALLS, 300.0)
    assert {number: len(each) for number, each in answers.items()} == dict.fromkeys(range(len(trials)), world)
    for number, each in answers.items():
        assert all(answer.get("wrong") == 0 and not answer["failure"] for answer in each), (trials[number], each)


def leave(seat: Seat, entry: dict[str, Any], *, after: int) -> dict[str, Any]:
    """The last rank dies when it has enqueued *after* calls; what the others then say, and how soon."""
    trial = Trial.from_json(entry)
    backend = TritonBackend(seat)
    (prepared,) = backend.prepare([trial])
    prepared.calls.each[0]()
    torch.cuda.synchronize()
    backend.barrier()
    if seat.rank == seat.world - 1:
        for _ in range(after):
            prepared.calls.each[0]()
        torch.cuda.synchronize()
        os._exit(1)
    start = time.monotonic()
    for _ in range(2 * after):
        prepared.calls.each[0]()
    torch.cuda.synchronize()
    return {"seconds": time.monotonic() - start, "failure": prepared.context.failure()}


@pytest.mark.parametrize("launches", ["per_piece", "one"])
@pytest.mark.parametrize("operator", ["all_gather_gemm", "gemm_all_reduce"])
def test_nobody_waits_for_a_dead_rank_longer_than_a_deadline(operator: str, launches: str) -> None:
    (trial, *_) = [one for one in legal(operator, 2, ("copy_engine",), SHAPE, pieces=4, tile=TILE, dtype="bfloat16")
                   if one.schedule["launches"] == launches]  # fmt: skip
    answers = gang.answered(partial(leave, after=5), [trial.to_json()], 2, 60.0)
    (said,) = answers[0]
    assert "waited" in (said["failure"] or ""), said
    assert said["seconds"] < gang.DEADLINE_S, said
