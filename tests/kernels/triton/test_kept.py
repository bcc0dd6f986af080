"""Kernels are compiled once: for every rank, for every deadline, for the next list of trials; the oldest ones go."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernels.backends.triton import backend, launch
from kernels.backends.triton.backend import TritonBackend
from kernels.schedule import Refusal
from tests.kernels.triton.compile_sm90 import kernels_of, key_of
from tests.kernels.triton.conftest import gpu_trial

GEMM = {"m": 2048, "n": 1024, "k": 512}
TRIALS = {
    "gemm_all_to_all": GEMM, "gemm_all_reduce": GEMM, "all_gather_gemm": GEMM,
    "gemv_all_reduce": {"n": 8192, "k": 8192, "tokens": 1},
    "embedding_all_to_all": {"tables_per_rank": 4, "rows": 1000, "dim": 256, "batch": 256, "pooling": 32},
}  # fmt: skip


def keys(operator: str, part: str, **more: Any) -> list[str]:
    trial = gpu_trial(operator, TRIALS[operator], world=4, dtype="bfloat16").of_part(part)
    return [key_of(kernel) for kernel in kernels_of(trial, **more)]


@pytest.mark.parametrize("part", ["whole", "compute"])
@pytest.mark.parametrize("operator", TRIALS)
def test_a_kernel_is_the_same_for_every_rank_and_deadline(operator: str, part: str) -> None:
    """A deadline that 16 does not divide once made another kernel: a list that took longer was compiled anew."""
    first = keys(operator, part, rank=0, limit_s=24.0)
    assert len(set(first)) == (2 if part == "whole" else 1), "the form that is timed, and the one that is watched"
    for rank, limit_s in ((0, 12.000000001), (1, 12.000000001), (3, 24.0)):
        assert keys(operator, part, rank=rank, limit_s=limit_s) == first


class Device:
    """A rank's backend, as far as it compiles."""

    def __init__(self, rank: int, world: int, log: list[Any]) -> None:
        self.seat = SimpleNamespace(rank=rank, world=world)
        self._group = SimpleNamespace(barrier=lambda: log.append("met"))

    def compile(self, trials: list[Any], say: Any) -> None:
        one: Any = self
        TritonBackend._compile(one, trials, lambda number: trials[number], one, say)


@pytest.mark.parametrize(("rank", "order"), [(0, "abcd"), (1, "cdab")])
def test_ranks_begin_elsewhere_and_meet_after_each_compilation(
    rank: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []

    def of_trial(context: Any, operands: Any, part: str) -> list[Any]:
        if context.name == "b":
            raise Refusal("too large")
        return [SimpleNamespace(compiled=lambda: log.append(context.name))]

    monkeypatch.setattr(backend, "runner", lambda trial: SimpleNamespace(kernels=of_trial))
    trials = [SimpleNamespace(name=name, part="whole") for name in "abcd"]
    Device(rank, 2, log).compile(trials, lambda trial, number: log.append((trial.name, number)))
    expected: list[Any] = []
    for number, name in enumerate(order):
        expected += [(name, number), *([name] if name != "b" else []), "met"]
    assert log == expected


def test_the_kernels_that_were_used_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_used", type(launch._used)())
    compiled = [SimpleNamespace(module=None, name=number) for number in range(4)]
    function = SimpleNamespace(device_caches={0: ({str(one.name): one for one in compiled}, {})})
    for number in (0, 1, 2, 3, 0):
        launch.use(function, compiled[number])
    assert launch.forget_oldest(2) == 2
    assert sorted(function.device_caches[0][0]) == ["0", "3"]
    assert launch.forget_oldest(2) == 0
