"""What is asked of GPUs can be asked: ways by their names, and computations alone that a seed draws."""

import ast
import importlib
from pathlib import Path

import pytest

from kernels.backends.triton import refusals
from kernels.trial import Trial
from tests.gpu import alone
from tests.gpu.test_kernels import WAYS, trials
from workbench.machines.calibrate_gpu import held_out

# What tests of GPUs ask for by name is there: without a GPU nobody would see that a name is another.

GPU = Path(__file__).parent
TAKE_A_WAY = ("trials", "measured")
"""Functions of tests/gpu whose second argument is a name in WAYS."""


def called(path: Path) -> set[str]:
    """Names that *path* writes as second argument of those functions."""
    return {
        str(node.args[1].value) for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TAKE_A_WAY
        and len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    }  # fmt: skip


def parametrized(path: Path) -> set[str]:
    """Names that tests of *path* run with as `way`."""
    module = importlib.import_module(f"tests.gpu.{path.stem}")
    marks = [mark for each in vars(module).values() for mark in getattr(each, "pytestmark", []) if callable(each)]
    return {str(name) for mark in marks if mark.args and mark.args[0] == "way" for name in mark.args[1]}


def test_ways_of_tests_of_gpus_have_their_names() -> None:
    paths = sorted(GPU.glob("*.py"))
    by_call = set.union(*map(called, paths))
    by_mark = set.union(*(parametrized(path) for path in paths if path.stem.startswith("test_")))
    assert {"fused"} <= by_call
    assert {"library", "direct"} <= by_mark
    assert (by_call | by_mark) - set(WAYS) == set()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_makes_a_trial_of_each_of_its_operators(way: str) -> None:
    made = [Trial.from_json(entry) for entry in trials(2, way)]
    assert tuple(trial.problem.operator for trial in made) == WAYS[way][2]


# Computations that are drawn run on GPUs, are the same in every process, and lie on both sides of what is held out.


@pytest.mark.slow
def test_the_drawing_that_is_still_to_be_measured_is_fixed_and_runs() -> None:
    sittings, count = alone.committed(), sum(shapes * each for shapes, each in alone.EACH.values())
    drawn = [one for sitting in sittings for one in sitting]
    assert alone.NEXT_SEED not in alone.SEEDS
    assert len({one.key for one in drawn}) == len(drawn) == count
    assert {one.problem for one in drawn} == {one.problem for of in alone.trials(alone.NEXT_SEED) for one in of}
    assert not [one for one in drawn if refusals.refusal(one, shares_heap=True)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", alone.SEEDS[-1:])  # recordings hold what the others drew
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
