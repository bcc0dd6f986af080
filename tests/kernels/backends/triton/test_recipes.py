"""The table of what GPUs run leads to modules and kernels, and one compilation is what Triton compiles once."""

import inspect
from importlib import import_module
from itertools import product
from typing import Any

import pytest

from kernels.backends.triton.recipes import KERNELS, TABLE, compilations, of, schemes
from kernels.backends.triton.schemes import SchemeModule
from kernels.operators import OPERATORS, problem
from kernels.schedule import Refusal
from kernels.schemes import SCHEMES
from kernels.schemes.library import OVERLAPPED
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import kernels_of, key_of
from tests.kernels.backends.triton.conftest import gpu_trial, in_shots
from tests.kernels.backends.triton.pieces import SPLITS

# The table of what GPUs run: every row leads to a module that runs it, and every computation and flow has a kernel.

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


# What is counted as one compilation is what Triton compiles once.

LOOKUPS = {"tables_per_rank": 4, "rows": 1000, "dim": 256, "batch": 256, "pooling": 32}
SHAPES = [{"m": m, "n": n, "k": 256} for m, n in ((1024, 512), (2048, 512), (1024, 560))]
TILES = ("64x128x64", "128x128x64")
GEMM_AXES = {"tile": TILES, "store": ("tma", "registers"), "tile_order": ("rotated", "natural")}
SPACES: dict[str, tuple[list[dict[str, int]], dict[str, tuple[Any, ...]]]] = {
    "gemm_all_to_all": (SHAPES, GEMM_AXES),
    "gemm_reduce_scatter": (SHAPES[:2], {"num_stages": (2, 3), "grid": (0, 132)}),
    "gemm_all_reduce": (SHAPES[:1], {"tile": TILES, "num_warps": (4, 8)}),
    "all_gather_gemm": (SHAPES[1:], {"tile": TILES, "slice_tiles": (4, 8, 16), "comm_sms": (4, 16)}),
    "all_to_all_gemm": (SHAPES[:1], {"tile": TILES, "slice_tiles": (4, 32), "comm_sms": (0, 8, 16)}),
    "gemv_all_reduce": ([{"n": 8192, "k": 8192, "tokens": tokens} for tokens in (1, 8)], {"num_warps": (4, 8)}),
    "embedding_all_to_all": ([LOOKUPS, LOOKUPS | {"batch": 512}], {"tile": ("1x256x4", "4x256x8"), "grid": (0, 132)}),
}  # fmt: skip


def trials(operator: str, dtype: str = "bfloat16") -> list[Trial]:
    shapes, axes = SPACES[operator]
    found = []
    for shape, values in product(shapes, product(*axes.values())):
        try:
            whole = gpu_trial(operator, shape, world=4, dtype=dtype, **dict(zip(axes, values, strict=True)))
        except Refusal:
            continue
        forms = [in_shots(whole, shots) for shots in (1, 2)] if operator == "gemv_all_reduce" else [whole]
        found += [each for form in forms for each in (form, form.of_part("compute"))]
    base = gpu_trial(operator, shapes[0], world=4, dtype=dtype, scheme="sequential")
    chosen = {} if "tables_per_rank" in shapes[0] else {"kernel": "ours"}
    beside = gpu_trial(operator, shapes[0], world=4, dtype=dtype, scheme="concurrent", **chosen)
    every = [each for one in (base, beside) for each in map(one.of_part, ("whole", "compute", "communication"))]
    return [*found, *every]


@pytest.mark.parametrize("operator", SPACES)
def test_equal_compilations_are_those_that_triton_has_one_key_for(operator: str) -> None:
    pairs = set()
    for trial in trials(operator):
        kernels = kernels_of(trial)
        counted = compilations(trial)
        assert len(counted) == len(kernels), trial.schedule
        pairs |= set(zip(counted, map(key_of, kernels), strict=True))
    assert len({counted for counted, _ in pairs}) == len({key for _, key in pairs}) == len(pairs) > 1


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize("operator", ["all_gather_gemm", "gemm_all_to_all", "gemm_reduce_scatter"])
def test_one_launch_of_pieces_is_compiled_as_often_as_it_is_counted(operator: str) -> None:
    pairs = set()
    axes = {"split": SPLITS[operator][:2], "steps": ("local_first", "uniform"), "pieces": (1, 2, 4), "world": (2, 4)}
    for shape, values in product(({"m": 4096, "n": 512, "k": 512}, {"m": 4096, "n": 2000, "k": 512}),
                                 product(*axes.values())):  # fmt: skip
        try:
            whole = gpu_trial(operator, shape, dtype="bfloat16", scheme="decomposed", launches="one", tile="128x128x64",
                              **dict(zip(axes, values, strict=True)))  # fmt: skip
        except Refusal:
            continue
        for trial in (whole, whole.of_part("compute")):
            (kernel,), (counted,) = kernels_of(trial, rank=1), compilations(trial)
            pairs.add((counted, key_of(kernel)))
    assert len({counted for counted, _ in pairs}) == len({key for _, key in pairs}) == len(pairs) > 1


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", ["gemm_all_reduce", "gemm_reduce_scatter", "gemm_all_to_all"])
def test_a_kernel_with_sms_that_only_send_is_compiled_once_for_any_number_of_them(operator: str) -> None:
    pairs = set()
    axes = {"tile": TILES, "tile_order": ("rotated", "remote_first"), "comm_sms": (4, 16), "num_stages": (2, 3)}
    for shape, values in product(SHAPES, product(*axes.values())):
        whole = gpu_trial(operator, shape, world=2, dtype="bfloat16", **dict(zip(axes, values, strict=True)))
        for trial in (whole, whole.of_part("compute")):
            (kernel, *stamped), (counted, *others) = kernels_of(trial, rank=1), compilations(trial)
            assert len(stamped) == len(others) == (trial is whole)
            pairs.add((counted, key_of(kernel)))
    assert len({counted for counted, _ in pairs}) == len({key for _, key in pairs}) == len(pairs)
    assert {counted.family for counted, _ in pairs} == {"relay", "send"}, "alone it sends nothing"


def test_cpu_ranks_compile_nothing_of_a_trial(make_trial: Any) -> None:
    assert compilations(make_trial(problem("gemm_all_to_all", {"m": 64, "n": 32, "k": 16}, world=2), "fused")) == ()
