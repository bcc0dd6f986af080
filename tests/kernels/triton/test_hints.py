"""Cache hints stand in the PTX of the kernel that offers them, change no result, and are offered nowhere else."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axis_rules
from kernels.trial import Trial
from tests.kernels.triton.compile_sm90 import compile_kernel
from tests.kernels.triton.conftest import InterpretedGang, gpu_trial
from tests.kernels.triton.test_interpreted import CALLS, passed

EVEN = {"tables_per_rank": 4, "rows": 1000, "dim": 256, "batch": 256, "pooling": 32}
SMALL = {"tables_per_rank": 1, "rows": 8, "dim": 8, "batch": 4, "pooling": 2}
ROWS = "ld.global{}.v4.b32"
SUMS = "st.global{}.v4.b32"


def lookups(shape: dict[str, int] = EVEN, world: int = 4, **axes: Any) -> Trial:
    return gpu_trial("embedding_all_to_all", shape, world=world, dtype="bfloat16", **axes)


def counted(trial: Trial) -> Counter[str]:
    """The instructions of its PTX by their name."""
    return Counter(word for line in compile_kernel(trial).ptx.splitlines() for word in line.split() if "." in word)


def test_without_hints_rows_and_sums_say_nothing() -> None:
    plain = counted(lookups())
    assert plain[ROWS.format("")] > 0
    assert plain[SUMS.format("")] > 0
    assert not [name for name in plain if "evict_last" in name]


@pytest.mark.parametrize("hint", [name for name in axis_rules.EVICTION if name != axis_rules.NO_HINT])
def test_rows_are_loaded_as_they_are_asked_to_be(hint: str) -> None:
    plain, hinted = counted(lookups()), counted(lookups(load_hint=hint))
    said = ROWS.format(f".L1::{hint}.L2::cache_hint")
    assert hinted[said] == plain[ROWS.format("")] > 0
    assert hinted[ROWS.format("")] == plain[said] == 0


@pytest.mark.parametrize("hint", [name for name in axis_rules.MODIFIER if name != axis_rules.NO_HINT])
def test_sums_are_stored_as_they_are_asked_to_be(hint: str) -> None:
    plain, hinted = counted(lookups()), counted(lookups(store_hint=hint))
    said = SUMS.format(f".{hint}")
    assert hinted[said] == plain[SUMS.format("")] > 0
    assert hinted[SUMS.format("")] == plain[said] == 0


def test_hints_change_no_result(gangs: dict[int, InterpretedGang]) -> None:
    passed(gangs[2].call(lookups(SMALL, world=2, load_hint="evict_last", store_hint="cs"), CALLS))


def test_keys_that_were_stored_before_hints_mean_none() -> None:
    trial = lookups()
    assert not {axis_rules.LOAD, axis_rules.STORE} & dict(trial.schedule.axes).keys()
    named = Schedule(
        "fused",
        (*trial.schedule.axes, (axis_rules.LOAD, axis_rules.NO_HINT), (axis_rules.STORE, axis_rules.NO_HINT)),
    )
    assert replace(trial, schedule=named).key == trial.key
    assert lookups(load_hint="evict_last").key != trial.key
    rest = axis_rules.all_axes(trial.problem, trial.schedule, "triton")
    assert (rest[axis_rules.LOAD], rest[axis_rules.STORE]) == (axis_rules.NO_HINT, axis_rules.NO_HINT)


@pytest.mark.parametrize("operator", ["gemm_all_to_all", "gemm_reduce_scatter"])
@pytest.mark.parametrize("hint", ["cs", "wt"])
def test_tiles_that_threads_store_are_stored_as_they_are_asked_to_be(operator: str, hint: str) -> None:
    shape = {"m": 8192, "n": 4096, "k": 4096}
    plain, hinted = (counted(gpu_trial(operator, shape, world=4, dtype="bfloat16", store="registers", **axes))
                     for axes in ({}, {axis_rules.STORE: hint}))  # fmt: skip
    said = SUMS.format(f".{hint}")
    assert hinted[said] > 0
    assert plain[said] == 0
    assert plain[SUMS.format("")] == hinted[said] + hinted[SUMS.format("")]


def test_a_bulk_copy_takes_no_hint() -> None:
    """Who asks for one and does not say how tiles leave has them stored by threads; who says tma is refused."""
    shape = {"m": 8192, "n": 4096, "k": 4096}
    trial = gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16", **{axis_rules.STORE: "cs"})
    assert trial.schedule["store"] == "registers"
    with pytest.raises(Refusal, match=r"the bulk copy engine takes no hint, .* unless store = registers"):
        gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16", store="tma", **{axis_rules.STORE: "cs"})
    usual = gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16")
    by_threads = gpu_trial("gemm_all_to_all", shape, world=4, dtype="bfloat16", store="registers")
    assert axis_rules.STORE not in axis_rules.all_axes(usual.problem, usual.schedule, "triton")
    assert (
        axis_rules.all_axes(by_threads.problem, by_threads.schedule, "triton")[axis_rules.STORE] == axis_rules.NO_HINT
    )


def test_only_kernels_that_read_them_have_them() -> None:
    """Operands of a GEMM come by bulk copies; of a GEMV Triton drops the policy, since it loads ahead."""
    having = {hint: {name for name in OPERATORS if hint in axis_rules.added_axes(name, "fused", "triton")}
              for hint in (axis_rules.LOAD, axis_rules.STORE)}  # fmt: skip
    lookups_of = {name for name, each in OPERATORS.items() if each.work == "gather"}
    sending = {name for name, each in OPERATORS.items() if each.work == "gemm" and each.flow is not Flow.RECEIVE}
    assert having == {axis_rules.LOAD: lookups_of, axis_rules.STORE: lookups_of | sending}
    assert not {axis_rules.LOAD, axis_rules.STORE} & axis_rules.added_axes("embedding_all_to_all", "fused", "cpu")
