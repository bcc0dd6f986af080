"""What tests of GPUs ask for by name is there: without a GPU nobody would see that a name is another."""

import ast
import importlib
from pathlib import Path

import pytest

from kernels.trial import Trial
from tests.gpu.test_kernels import WAYS, trials

GPU = Path(__file__).parents[2] / "gpu"
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
