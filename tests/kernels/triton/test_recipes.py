"""The table of what GPUs run: every row leads to a module that runs it, and every computation and flow has a kernel."""

import inspect
from importlib import import_module

import pytest

from kernels.backends.triton.recipes import KERNELS, TABLE, of, schemes
from kernels.backends.triton.schemes import SchemeModule
from kernels.operators import OPERATORS
from kernels.schemes import SCHEMES
from kernels.schemes.library import OVERLAPPED
from tests.kernels.triton.conftest import gpu_trial

ROWS = [(scheme, *flow) for scheme, flows in TABLE.items() for flow in flows]


def parameters(function: object) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("scheme", "work", "flow"), ROWS)
def test_a_row_names_a_module_with_kernels_calls_and_those_that_are_watched(scheme: str, work: str, flow: str) -> None:
    module = import_module(TABLE[scheme][work, flow].module)
    for name in ("kernels", "calls"):
        assert parameters(getattr(module, name)) == parameters(getattr(SchemeModule, name))
    assert module.watched is None or parameters(module.watched) == ["context", "timed"]


def test_every_operator_has_a_kernel_that_stands_with_its_launcher() -> None:
    assert {(operator.work, operator.flow) for operator in OPERATORS.values()} == KERNELS.keys()
    for one in KERNELS.values():
        module = import_module(one.module)
        assert parameters(module.kernel) == ["context", "operands", "alone"]
        jitted = [name for name, value in vars(module).items() if type(value).__name__ == "JITFunction"]
        assert jitted, f"{one.module} holds no kernel"


def test_only_schemes_of_the_house_and_a_collective_of_its_own_have_a_line() -> None:
    assert set(TABLE) - set(SCHEMES) == {OVERLAPPED}


def test_a_collective_that_is_a_scheme_of_its_own_has_its_own_recipe() -> None:
    shape = {"m": 8192, "n": 4096, "k": 4096}
    trials = [gpu_trial("all_gather_gemm", shape, world=4, dtype="bfloat16", scheme="sequential", collective=name)
              for name in ("library", OVERLAPPED)]  # fmt: skip
    modules = [recipe.module for trial in trials if (recipe := of(trial.problem, trial.schedule))]
    assert [name.rpartition(".")[2] for name in modules] == ["sequential", "overlapped"]
    assert schemes(trials[0].problem) == ("sequential", "concurrent", "decomposed", "fused")
    lookup = gpu_trial("gemv_all_reduce", {"n": 4096, "k": 4096, "tokens": 1}, world=4, dtype="bfloat16")
    assert schemes(lookup.problem) == ("sequential", "concurrent", "fused")
