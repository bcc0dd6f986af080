"""Kernels on real GPUs: right for every operator, under stress, and compiled once. `pytest -m gpu tests/gpu`."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.outcome import Measurement
from kernels.schemes import library
from kernels.schemes.axis_rules import SPANNING
from tests.gpu import gang, wrapping
from tests.gpu.stress import twice, wrapped
from tests.gpu.wrapping import GEMM, LARGE, SHAPES
from tests.kernels.backends.triton.conftest import gpu_trial

# Kernels on real GPUs: right for every operator, and right call after call under stress. `pytest -m gpu tests/gpu`.

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

OPERATORS = (
    "gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce", "all_gather_gemm", "all_to_all_gemm",
    "gemv_all_reduce", "embedding_all_to_all",
)  # fmt: skip
WORLDS = gang.worlds()
CALLS = 1000
FEW_TILES = {"m": 64, "n": 2048, "k": 8192}
"""32 tiles for 132 SMs."""


REDUCED = ("gemm_all_reduce", "gemv_all_reduce")
MOVED = tuple(name for name in OPERATORS if name not in REDUCED)
LOOKUP = "embedding_all_to_all"
COLLECTIVES = {
    "library": OPERATORS, "library_tuned": OPERATORS, "direct": MOVED, "one_shot": REDUCED, "two_shot": REDUCED,
    "copy_engine": tuple(name for name in MOVED if name != LOOKUP),
}  # fmt: skip
WAYS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "fused": ("fused", {}, OPERATORS),
    **{name: ("sequential", {"collective": name}, operators) for name, operators in COLLECTIVES.items()},
    **{f"{name}, our kernel": ("sequential", {"collective": name, "kernel": "ours"},
                               tuple(operator for operator in operators if operator != LOOKUP))
       for name, operators in COLLECTIVES.items()},
    "overlapped": ("sequential", {"collective": library.OVERLAPPED}, library.OVERLAPPED_OPERATORS),
}  # fmt: skip
"""Scheme, axes, and the operators that have them."""


def trials(world: int, way: str) -> list[dict[str, Any]]:
    """One of each operator."""
    scheme, axes, names = WAYS[way]
    return [
        gpu_trial(name, SHAPES.get(name, GEMM), world=world, dtype="bfloat16", scheme=scheme, **axes).to_json()
        for name in names
    ]


def trials_here(world: int, way: str) -> list[dict[str, Any]]:
    """Those that ranks of this host run; skips the test where there are none."""
    every = [trial for trial in trials(world, way) if gang.runs(trial, world)]
    if not every:
        pytest.skip(gang.needs_links(world))
    return every


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("way", WAYS)
def test_every_operator_is_right(way: str, world: int) -> None:
    told = list(gang.run([[trial] for trial in trials_here(world, way)], world, 240.0))
    assert [one for one in told if isinstance(one, str)] == []
    found = [outcome for outcome, _ in told]
    assert all(isinstance(one, Measurement) and one.correct for one in found), found
    assert len(found) == len(WAYS[way][2])


@pytest.mark.parametrize("world", WORLDS)
def test_a_thousand_calls_are_right_whose_tiles_leave_by_sms_that_only_send(world: int) -> None:
    names = wrapping.relaying(world)
    asked = [gpu_trial(name, LARGE, world=world, dtype="bfloat16", **wrapping.RELAYED).to_json() for name in names]
    found = gang.stressed(asked, world, CALLS, 400.0)
    assert {number: len(answers) for number, answers in found.items()} == dict.fromkeys(range(len(names)), world)
    assert all(answer["wrong"] == 0 and not answer["failure"] for answers in found.values() for answer in answers), (
        found
    )


@pytest.mark.parametrize("world", WORLDS)
def test_a_thousand_calls_are_right_whose_tiles_are_cut(world: int) -> None:
    names = [name for name in OPERATORS if name not in (LOOKUP, "gemv_all_reduce")]
    cut = [gpu_trial(name, FEW_TILES, world=world, dtype="bfloat16", tile_order=SPANNING) for name in names]
    assert {trial.schedule["split_k"] for trial in cut} == {4}
    answers = gang.stressed([trial.to_json() for trial in cut], world, CALLS, 400.0)
    assert {number: len(ranks) for number, ranks in answers.items()} == dict.fromkeys(range(len(names)), world)
    assert [each for ranks in answers.values() for each in ranks if each["wrong"] or each["failure"]] == []


@pytest.mark.parametrize("world", WORLDS)
def test_a_thousand_calls_with_slow_ranks_and_noise_between_are_right(world: int) -> None:
    found = gang.stressed(trials(world, "fused"), world, CALLS, 400.0)
    assert {number: len(answers) for number, answers in found.items()} == dict.fromkeys(range(len(OPERATORS)), world)
    assert all(answer["wrong"] == 0 and not answer["failure"] for answers in found.values() for answer in answers), (
        found
    )


@pytest.mark.parametrize("world", WORLDS)
def test_results_stay_right_where_numbers_of_calls_wrap(world: int) -> None:
    asked = [trial for trial in wrapping.trials(world) if gang.runs(trial, world)]
    found = gang.answered(wrapped, asked, world, 400.0)
    assert {number: len(answers) for number, answers in found.items()} == dict.fromkeys(range(len(asked)), world), found
    assert [answer for answers in found.values() for answer in answers if not wrapping.is_right(answer)] == []
    risen = {amount for answers in found.values() for answer in answers for amount in answer["rises"]}
    assert risen >= {1, world - 1, 16} | ({4} if world == 2 else set()), "tiles that are summed, and pushers"


# On GPUs the second grant of the same trials compiles nothing, and every compilation is reported before.


@pytest.mark.parametrize("world", WORLDS)
def test_a_second_list_of_the_same_trials_compiles_nothing(world: int) -> None:
    asked = trials(world, "fused")
    found = gang.answered(twice, asked, world, 400.0)
    assert {number: len(ranks) for number, ranks in found.items()} == dict.fromkeys(range(len(asked)), world), found
    # later trials may find their kernels compiled by those before them
    assert all(answer["lists"][0]["kernels"] >= 2 for answer in found[0]), "the form that is timed, and the one watched"
    for answer in (one for ranks in found.values() for one in ranks):
        first, second = answer["lists"]
        assert second["kernels"] == 0
        assert first["reports"] == second["reports"] == [(1, 1)]
        assert first["results"] == second["results"] == 1
