"""Decomposed calls on real GPUs: every legal schedule is right, under stress too, and ranks that leave hang nobody."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from kernels.backends.base import Seat
from kernels.backends.triton.backend import TritonBackend
from kernels.outcome import Measurement, Outcome
from kernels.trial import Protocol, Trial
from tests.gpu import gang
from tests.kernels.backends.triton.pieces import ENGINES, SPLITS, legal

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SHAPE = {"m": 2048, "n": 512, "k": 1024}
WORLDS = gang.worlds()
CALLS, TILE = 1000, "128x128x64"
MANY = 10
"""Schedules that one sitting prepares together."""
ONCE = Protocol(name="once", warmups=0, repeats=1, cold_l2=False, calls_per_graph=4)


def sittings(operator: str, world: int) -> list[gang.Sitting]:
    """All legal schedules of *operator* in four pieces, and shard by shard; what is simplest comes first."""
    trials = [trial for pieces in (4, 1)
              for trial in legal(operator, world, ENGINES, SHAPE, pieces=pieces, tile=TILE, dtype="bfloat16")
              if (pieces > 1 or trial.schedule["split"] == "rows") and gang.runs(trial.to_json(), world)]  # fmt: skip
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
    """Of each operator one by each engine and number of launches; one launch by each cut, whose loops differ."""
    chosen = {
        (
            trial.problem.operator,
            trial.schedule["engine"],
            trial.schedule["launches"],
            trial.schedule["launches"] == "one"
            and trial.schedule["engine"] == "copy_engine"
            and trial.schedule["split"],
        ): trial.to_json()
        for operator in SPLITS
        for trial in legal(operator, world, ENGINES, SHAPE, pieces=4, tile=TILE, dtype="bfloat16")
        if gang.runs(trial.to_json(), world)
    }
    return list(chosen.values())


@pytest.mark.parametrize("world", WORLDS)
def test_a_thousand_calls_with_slow_ranks_and_noise_between_are_right(world: int) -> None:
    trials = stressed_schedules(world)
    answers = gang.stressed(trials, world, CALLS, 300.0)
    assert {number: len(each) for number, each in answers.items()} == dict.fromkeys(range(len(trials)), world)
    for number, each in answers.items():
        assert all(answer.get("wrong") == 0 and not answer["failure"] for answer in each), (trials[number], each)


LEFT_S = 8.0
"""How long ranks wait for each other here, twice over: less than a gang listens after one of its ranks has ended."""
MOMENT_S = 0.004
"""After so long the last rank goes: it has begun some calls, and is in the middle of one."""
GOES = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
LEAVES = (
    ("all_gather_gemm", "per_piece", "killed"), ("gemm_all_reduce", "one", "killed"),
    ("all_gather_gemm", "one", "stopped"), ("gemm_all_reduce", "per_piece", "stopped"),
)  # fmt: skip


def leave(seat: Seat, entry: dict[str, Any], *, how: str) -> dict[str, Any]:
    """The last rank is gone in mid-call; what the others then say, and how soon."""
    trial = Trial.from_json(entry)
    backend = TritonBackend(replace(seat, deadline_s=LEFT_S))
    (prepared,) = backend.prepare([trial])
    for _ in range(3):
        prepared.calls.each[0]()
    torch.cuda.synchronize()
    backend.barrier()
    if seat.rank == seat.world - 1:
        threading.Timer(MOMENT_S, os.kill, (os.getpid(), GOES[how])).start()
    start = time.monotonic()
    for _ in range(CALLS):
        prepared.calls.each[0]()
    torch.cuda.synchronize()
    return {"seconds": time.monotonic() - start, "failure": prepared.context.failure()}


def left_behind(operator: str, launches: str, how: str) -> dict[str, Any]:
    """What the rank says that is left."""
    engine = "sm" if gang.shares_gpu(2) else "copy_engine"
    trial = next(one for one in legal(operator, 2, (engine,), SHAPE, pieces=4, tile=TILE, dtype="bfloat16")
                 if one.schedule["launches"] == launches and one.schedule["steps"] == "local_first")  # fmt: skip
    answers = gang.answered(partial(leave, how=how), [trial.to_json()], 2, 40.0, leaving=1)
    (said,) = answers.get(0, [{"failure": None, "error": "nobody answered"}])
    return said


@pytest.mark.skipif(not WORLDS, reason="one of two ranks leaves, and there is no GPU for them")
@pytest.mark.parametrize(("operator", "launches", "how"), LEAVES)
def test_nobody_waits_for_a_rank_that_left_longer_than_a_deadline(operator: str, launches: str, how: str) -> None:
    said = left_behind(operator, launches, how)
    assert "waited" in (said["failure"] or ""), said
    assert said["seconds"] < LEFT_S, said
