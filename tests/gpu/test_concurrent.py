"""Concurrent calls on real GPUs: every legal schedule is right, under stress, too, and its controls are seen to act."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kernels.operators import OPERATORS
from kernels.schedule import Refusal
from kernels.trial import Protocol, Trial
from tests.gpu import controls, gang
from tests.gpu.test_decomposed import LEFT_S, leave, wrong
from tests.kernels.backends.triton.conftest import gpu_trial

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

GEMM = {"m": 2048, "n": 512, "k": 1024}
SHAPES = {"embedding_all_to_all": {"tables_per_rank": 4, "rows": 10_000, "dim": 128, "batch": 1024, "pooling": 16},
          "gemv_all_reduce": {"n": 4096, "k": 4096, "tokens": 1}}  # fmt: skip
TILES = {"gemm": {"tile": "64x128x64"}}
"""Small enough for two blocks on an SM."""
COLLECTIVES = ("library", "library_tuned", "direct", "copy_engine", "one_shot", "two_shot")
COMPUTED: tuple[dict[str, Any], ...] = ({"kernel": "library"}, {"kernel": "ours"},
                                        {"kernel": "ours", "resident_blocks": 1})  # fmt: skip
SHARED: tuple[dict[str, Any], ...] = ({"comm_priority": "normal"}, {"comm_sms": 8}, {"comm_sms": 32})
ONCE = Protocol(name="once", warmups=0, repeats=1, cold_l2=False, calls_per_graph=4)
CALLS, MANY, MICRO_BATCHES = 1000, 8, 3
WORLDS = gang.worlds()
CONTROLLED = {"m": controls.SIDE, "n": controls.SIDE, "k": controls.SIDE}


def legal(operator: str, world: int) -> list[Trial]:
    """All that nobody refuses of the values above; a lookup has no `kernel`."""
    trials, work = {}, OPERATORS[operator].work
    for collective, computed, shared in itertools.product(COLLECTIVES, COMPUTED, SHARED):
        axes = {"collective": collective, "micro_batches": MICRO_BATCHES, **computed, **shared, **TILES.get(work, {})}
        if work == "gather":
            del axes["kernel"]
        dtype = "float32" if work == "gather" else "bfloat16"
        try:
            trial = gpu_trial(
                operator, SHAPES.get(operator, GEMM), world=world, dtype=dtype, scheme="concurrent", **axes
            )
        except Refusal:
            continue
        if gang.runs(trial.to_json(), world):
            trials[trial.key] = replace(trial, protocol=ONCE)
    return list(trials.values())


def sittings(operator: str, world: int) -> list[gang.Sitting]:
    listed = [trial.to_json() for trial in legal(operator, world)]
    return [listed[begin : begin + MANY] for begin in range(0, len(listed), MANY)]


def stressed(world: int) -> list[dict[str, Any]]:
    """Of each operator one by each collective, by our kernel where it has both, with the most controls at once."""
    chosen = {(trial.problem.operator, trial.schedule["collective"]): trial.to_json()
              for operator in OPERATORS for trial in legal(operator, world)}  # fmt: skip
    return list(chosen.values())


def controlled(tile: str = "128x256x64", **axes: Any) -> dict[str, Any]:
    """A trial of one rank whose kernel the controls are tried on."""
    trial = gpu_trial("gemm_all_to_all", CONTROLLED, world=1, dtype="bfloat16", scheme="concurrent", micro_batches=2,
                      kernel="ours", tile=tile, **axes)  # fmt: skip
    return replace(trial, protocol=ONCE).to_json()


def measured(name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """What a rank alone says of the control *name*."""
    (told,) = gang.answered(partial(controls.every, names=[name]), [entry], 1, 120.0)[0]
    assert "error" not in told[name], told[name]["error"]
    found: dict[str, Any] = told[name]
    return found


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_legal_schedule_is_right(operator: str, world: int) -> None:
    asked_for = sittings(operator, world)
    answers = list(gang.run(asked_for, world, 300.0))
    assert not (broken := wrong(answers)), "\n".join(broken)
    assert len(answers) == sum(map(len, asked_for))


@pytest.mark.parametrize("world", WORLDS)
def test_what_was_asked_for_is_in_the_graphs(world: int) -> None:
    """Priorities, NCCL's blocks and our grids as the driver names them; cuBLAS's are told below."""
    asked = [trial for trial in legal("gemm_all_to_all", world) if trial.schedule["kernel"] == "ours"]
    listed = [trial.to_json() for trial in asked]
    for outcome, _ in gang.run([listed[at : at + MANY] for at in range(0, len(listed), MANY)], world, 200.0):
        said = outcome.facts["controls"]
        for told in said if isinstance(said, list) else [said]:  # by rank where they differ
            assert told["unmet"] == [], (str(outcome.trial.schedule), told)
            assert told["compute"], told


@pytest.mark.parametrize("world", WORLDS)
def test_a_thousand_calls_with_slow_ranks_and_noise_between_are_right(world: int) -> None:
    trials = stressed(world)
    answers = gang.stressed(trials, world, CALLS, 400.0)
    assert {number: len(each) for number, each in answers.items()} == dict.fromkeys(range(len(trials)), world)
    for number, each in answers.items():
        assert all(answer.get("wrong") == 0 and not answer["failure"] for answer in each), (trials[number], each)


@pytest.mark.skipif(not WORLDS, reason="one of two ranks leaves, and there is no GPU for them")
@pytest.mark.parametrize("kernel", ["library", "ours"])
@pytest.mark.parametrize("operator", ["all_gather_gemm", "gemm_reduce_scatter"])
def test_nobody_waits_for_a_dead_rank_longer_than_a_deadline(operator: str, kernel: str) -> None:
    trial = gpu_trial(operator, GEMM, world=2, dtype="bfloat16", scheme="concurrent", collective="direct",
                      kernel=kernel, **TILES["gemm"])  # fmt: skip
    answers = gang.answered(partial(leave, how="killed"), [trial.to_json()], 2, 60.0, leaving=1)
    (said,) = answers[0]
    assert "waited" in (said["failure"] or ""), said
    assert said["seconds"] < LEFT_S, said


@pytest.mark.parametrize("tile", ["128x256x64", "64x128x64", "64x64x64"])
def test_an_sm_holds_as_many_blocks_as_the_formula_says(tile: str) -> None:
    told = measured("residency", controlled(tile))
    assert told["rows"]
    for row in told["rows"]:
        assert row["formula"] == row["driver"] == row["stamps"], told
    assert told["as_compiled"] == told["rows"][0]["formula"]


def test_a_priority_goes_first_but_interrupts_nobody() -> None:
    told = measured("priorities", controlled())
    assert told["range"][1] < 0
    high, normal = told["high"], told["normal"]
    assert high["waited_ns"] < 3 * told["tile_ns"], told
    assert high["waited_ns"] + high["ready_ns"] < high["kernel_ns"] / 2, told
    assert normal["waited_ns"] + normal["ready_ns"] > 0.8 * normal["kernel_ns"], told


def test_a_share_of_sms_is_free_beside_our_kernel() -> None:
    """Beside cuBLAS, too, if its kernel is persistent: that is told, since cuBLAS takes its target for a hint."""
    rows = measured("shares", controlled())["rows"]
    for row in rows:
        if row["who"] == "ours":
            assert row["free"] == row["comm_sms"], rows
        elif row["comm_sms"]:
            print(row)
