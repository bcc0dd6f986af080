"""Computations that are drawn run on GPUs, are the same in every process, and lie on both sides of what is held out."""

import pytest

from kernels.backends.triton import refusals
from tests.gpu import alone
from workbench.machines.calibrate_gpu import held_out


@pytest.mark.parametrize("seed", alone.SEEDS)
def test_drawn_computations_run_on_gpus_and_half_of_each_operator_is_held_out(seed: int) -> None:
    sittings = alone.trials(seed)
    assert sittings == alone.trials(seed), "the seed decides"
    trials = [one for sitting in sittings for one in sitting]
    assert len({one.key for one in trials}) == len(trials) == sum(count * each for count, each in alone.EACH.values())
    for one in trials:
        assert one.part == "compute"
        assert refusals.refusal(one, shares_heap=True) is None, one
    for name in alone.EACH:
        sides = [held_out(one.problem) for one in trials if one.problem.operator == name]
        assert min(sides.count(True), sides.count(False)) >= 0.3 * len(sides)
