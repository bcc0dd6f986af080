"""What surrounds the kernels of a gang: NCCL's windows end with their group, and every graph of a trial is verified."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.backends.triton import backend as triton_backend
from kernels.backends.triton import nccl
from kernels.backends.triton.backend import TritonTrial
from tests.kernels.triton.conftest import gpu_trial

MANY_SETS = 3


class Windows:
    """A group's tuned buffers, which may only be given back while the group is there."""

    def __init__(self) -> None:
        self.forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


def test_windows_are_given_back_to_their_own_group_and_dropped_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    group, windows = object(), Windows()
    monkeypatch.setattr(nccl, "_made", (group, windows))
    nccl.forget(group)
    assert windows.forgotten == 1
    nccl.forget(object())  # of the next gang: the group before has been destroyed
    assert windows.forgotten == 1
    assert nccl._made is None


class Replayed:
    """As a graph would be: what it plays, it plays when asked for its seconds."""

    def __init__(self, context: Any, calls: Any, stream: Any, *, captured: bool) -> None:
        self.calls = calls

    def seconds(self) -> float:
        for call in self.calls:
            call()
        return 1e-3


@pytest.mark.parametrize("writer", range(MANY_SETS))
def test_a_result_is_written_anew_by_the_graphs_whichever_set_of_operands_it_is_of(
    monkeypatch: pytest.MonkeyPatch, writer: int
) -> None:
    monkeypatch.setattr(triton_backend, "Replay", Replayed)
    result = SimpleNamespace(value=0.0)
    result.fill_ = lambda value: setattr(result, "value", value)
    each = [lambda number=number: setattr(result, "value", 1.0) if number == writer else None
            for number in range(MANY_SETS)]  # fmt: skip
    gang = SimpleNamespace(barrier=lambda: 0.0, exchange=lambda values: [list(values)], stream=None)
    asked = gpu_trial("gemm_all_to_all", {"m": 512, "n": 256, "k": 64}, world=2, dtype="bfloat16")
    asked = replace(asked, protocol=replace(asked.protocol, calls_per_graph=1))
    context: Any = SimpleNamespace(failure=lambda: None)
    one = TritonTrial(gang, asked, SimpleNamespace(each=each, result=result), context)  # type: ignore[arg-type]
    one.poison()
    one.run()
    assert result.value == 1.0
