"""Collectives of our own between two meetings: right on interpreted ranks, call after call, and in their PTX."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch

from kernels.backends.triton import collectives
from kernels.backends.triton.collectives import FEW, MANY, CopyBlock, layout, put_kernel, sum_kernel
from kernels.backends.triton.schemes.sequential import Sequential
from tests.kernels.backends.triton.compile_sm90 import Compiled, context_of, warmed_up
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial
from tests.kernels.backends.triton.ptx import Kernel, every_rule

CALLS = 3
GEMM = {"m": 136, "n": 80, "k": 64}
"""Shares that no block divides."""
LOOKUPS = {"tables_per_rank": 3, "rows": 50, "dim": 24, "batch": 12, "pooling": 5}
GEMMS = ("gemm_all_to_all", "gemm_reduce_scatter", "all_gather_gemm", "all_to_all_gemm")


@pytest.mark.slow(keeps=2)
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
def compiled(operator: str, which: str, block: CopyBlock, architecture: int = 90) -> Compiled:
    """`put_rows` or `sum_shares` at a size that a model has."""
    shape = {"m": 8192, "n": 4096, "k": 4096}
    trial = gpu_trial(operator, shape, world=4, dtype="bfloat16", scheme="sequential", collective="direct")
    context = context_of(trial)
    kernel = (
        put_kernel(context, layout(context, context.local), block, meets=which == "meets") if which != "sum"
        else sum_kernel(context, context.of(context.rank, "stage"), block)
    )  # fmt: skip
    options = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages, "launch_cooperative_grid": True}
    return warmed_up(kernel.function, kernel.arguments, dict(kernel.constants) | options, architecture)


@pytest.mark.parametrize("which", ["put", "meets"])
@pytest.mark.parametrize(("operator", "block"), [
    ("gemm_all_to_all", MANY), ("gemm_reduce_scatter", MANY), ("gemm_all_to_all", FEW),
])  # fmt: skip
def test_shares_leave_sixteen_bytes_at_once(operator: str, block: CopyBlock, which: str) -> None:
    made = compiled(operator, which, block)
    kernel = Kernel(made.ptx, made.arguments)
    assert every_rule(kernel) == []
    assert [each for each in kernel.instructions if each.is_store and "target_at" in kernel.words(each)]


@pytest.mark.parametrize("block", [MANY, FEW])
def test_sums_are_read_and_written_sixteen_bytes_at_once(block: CopyBlock) -> None:
    made = compiled("gemm_reduce_scatter", "sum", block)
    kernel = Kernel(made.ptx, made.arguments)
    assert every_rule(kernel) == []
    touched = [each for each in kernel.instructions if each.is_store or each.name.startswith("ld.global")]
    assert touched
    assert {each.bits for each in touched} == {128}


class Lane:
    """A stream: torch makes a new one of the next of a pool, in turn."""

    pool = 32
    made = 0

    def __init__(self, device: Any = None) -> None:
        self.number = Lane.made % Lane.pool
        Lane.made += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lane) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]

    def wait_stream(self, other: "Lane") -> None:
        assert other != self


@pytest.mark.parametrize("turn", range(5))
def test_copies_of_all_operands_share_a_few_streams_of_which_none_is_the_callers(
    monkeypatch: pytest.MonkeyPatch, turn: int
) -> None:
    """The pool has come round to the stream on which calls run, which is current when they are captured, not before."""
    world, sets = 4, 64
    trial = gpu_trial("gemm_all_to_all", GEMM, world=world, dtype="float16", scheme="sequential",
                      collective="copy_engine")  # fmt: skip
    current: list[Lane] = []
    used: list[int] = []

    @contextmanager
    def on(stream: Lane) -> Iterator[None]:
        used.append(stream.number)
        yield

    monkeypatch.setattr(torch.cuda, "Stream", Lane)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current[0])
    monkeypatch.setattr(collectives, "between_barriers", lambda context, push, mode: push)
    first, second = torch.empty(GEMM["m"], GEMM["k"]), torch.empty(GEMM["k"], GEMM["n"])
    monkeypatch.setattr(Lane, "made", 0)
    one = Sequential(context_of(trial), [{"a": first, "b": second}] * sets, None)
    calls = [one.collective(number) for number in range(sets)]
    assert Lane.made == world + 1
    Lane.made = turn + Lane.pool  # the backend's own stream, dealt one of the same
    current.append(Lane())
    for call in (calls[0], calls[-1]):
        used.clear()
        call()
        assert len(set(used)) == len(used) == world
        assert current[0].number not in used
