"""Cache hints stand in the PTX of the kernel that offers them, change no result, and are offered nowhere else."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kernels.operators import OPERATORS
from kernels.schedule import Schedule
from kernels.schemes import hints, reads
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


@pytest.mark.parametrize("hint", [name for name in hints.EVICTION if name != hints.NORMAL])
def test_rows_are_loaded_as_they_are_asked_to_be(hint: str) -> None:
    plain, hinted = counted(lookups()), counted(lookups(load_hint=hint))
    said = ROWS.format(f".L1::{hint}.L2::cache_hint")
    assert hinted[said] == plain[ROWS.format("")] > 0
    assert hinted[ROWS.format("")] == plain[said] == 0


@pytest.mark.parametrize("hint", [name for name in hints.MODIFIER if name != hints.NORMAL])
def test_sums_are_stored_as_they_are_asked_to_be(hint: str) -> None:
    plain, hinted = counted(lookups()), counted(lookups(store_hint=hint))
    said = SUMS.format(f".{hint}")
    assert hinted[said] == plain[SUMS.format("")] > 0
    assert hinted[SUMS.format("")] == plain[said] == 0


def test_hints_change_no_result(gangs: dict[int, InterpretedGang]) -> None:
    passed(gangs[2].call(lookups(SMALL, world=2, load_hint="evict_last", store_hint="cs"), CALLS))


def test_keys_that_were_stored_before_hints_mean_none() -> None:
    trial = lookups()
    assert not {hints.LOAD, hints.STORE} & dict(trial.schedule.axes).keys()
    named = Schedule("fused", (*trial.schedule.axes, (hints.LOAD, hints.NORMAL), (hints.STORE, hints.NORMAL)))
    assert replace(trial, schedule=named).key == trial.key
    assert lookups(load_hint="evict_last").key != trial.key
    rest = reads.all_axes(trial.problem, trial.schedule, "triton")
    assert (rest[hints.LOAD], rest[hints.STORE]) == (hints.NORMAL, hints.NORMAL)


def test_only_lookups_have_them() -> None:
    """A GEMM's operands come by bulk copies; of a GEMV Triton drops the policy, since it loads ahead."""
    having = {name for name in OPERATORS if {hints.LOAD, hints.STORE} & reads.later(name, "fused", "triton")}
    assert having == {name for name, each in OPERATORS.items() if each.work == "gather"}
    assert not {hints.LOAD, hints.STORE} & reads.later("embedding_all_to_all", "fused", "cpu")
