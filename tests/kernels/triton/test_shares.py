"""Collectives of our own between two meetings: right on interpreted ranks, call after call, and in their PTX."""

from functools import cache

import pytest

from kernels.backends.triton.shares import layout, put_kernel, sum_kernel
from tests.kernels.triton.compile_sm90 import Compiled, context_of, warmed_up
from tests.kernels.triton.conftest import InterpretedGang, gpu_trial
from tests.kernels.triton.ptx import Kernel, order, scopes, widths

CALLS = 3
GEMM = {"m": 136, "n": 80, "k": 64}
"""Shares that no block divides."""
LOOKUPS = {"tables_per_rank": 3, "rows": 50, "dim": 24, "batch": 12, "pooling": 5}
GEMMS = ("gemm_all_to_all", "gemm_reduce_scatter", "all_gather_gemm", "all_to_all_gemm")


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(("operator", "axes"), [
    *((name, {}) for name in (*GEMMS, "embedding_all_to_all")),
    *((name, {"kernel": "ours", "tile": "32x32x32"}) for name in GEMMS),
])  # fmt: skip
def test_shares_reach_their_owners(
    gangs: dict[int, InterpretedGang], operator: str, axes: dict[str, str], world: int
) -> None:
    shape, dtype = (GEMM, "float16") if operator in GEMMS else (LOOKUPS, "float32")
    trial = gpu_trial(operator, shape, world=world, dtype=dtype, scheme="sequential", collective="direct", **axes)
    answers = gangs[world].call(trial, CALLS)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


@cache
def compiled(operator: str, which: str) -> Compiled:
    """`put_rows` or `sum_shares` at a size that a model has."""
    shape = {"m": 8192, "n": 4096, "k": 4096}
    trial = gpu_trial(operator, shape, world=4, dtype="bfloat16", scheme="sequential", collective="direct")
    context = context_of(trial)
    kernel = (
        put_kernel(context, layout(context, context.local)) if which == "put"
        else sum_kernel(context, context.of(context.rank, "stage"))
    )  # fmt: skip
    options = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages, "launch_cooperative_grid": True}
    return warmed_up(kernel.function, kernel.arguments, dict(kernel.constants) | options)


@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter"])
def test_shares_leave_sixteen_bytes_at_once(operator: str) -> None:
    kernel = Kernel(compiled(operator, "put").ptx, compiled(operator, "put").arguments)
    assert [*order(kernel), *scopes(kernel), *widths(kernel)] == []
    assert [each for each in kernel.instructions if each.is_store and "target_at" in kernel.words(each)]


def test_sums_are_read_and_written_sixteen_bytes_at_once() -> None:
    found = compiled("gemm_reduce_scatter", "sum")
    kernel = Kernel(found.ptx, found.arguments)
    touched = [each for each in kernel.instructions if each.is_store or each.name.startswith("ld.global")]
    assert touched
    assert {each.bits for each in touched} == {128}
