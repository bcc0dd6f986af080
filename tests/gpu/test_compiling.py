"""On GPUs the second grant of the same trials compiles nothing, and every compilation is reported before."""

from __future__ import annotations

import pytest

from tests.gpu import gang
from tests.gpu.compiling import twice
from tests.gpu.test_kernels import WORLDS, trials

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


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
