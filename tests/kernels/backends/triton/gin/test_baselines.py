"""What stands beside puts between hosts in a block, by torch's NCCL, is made from this rank's memory alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.backends.triton.gin.context import NetworkContext
from kernels.backends.triton.memory import Context, OutOfReachError, shared_bytes
from kernels.backends.triton.schemes import decomposed, runner, sequential
from kernels.fabric import parse
from kernels.operators import OPERATORS
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import LIMIT_S, RANK, UnbackedHeap, unwritten, warmed_up
from tests.kernels.backends.triton.conftest import gpu_trial

WORLD = 4
SHAPES = {
    "embedding_all_to_all": ({"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 256, "pooling": 8}, "float32"),
    "gemm_all_to_all": ({"m": 1024, "n": 1024, "k": 512}, "bfloat16"),
    "all_gather_gemm": ({"m": 1024, "n": 1024, "k": 512}, "bfloat16"),
}
GEMMS = tuple(name for name in SHAPES if OPERATORS[name].work == "gemm")


class OwnMemory(UnbackedHeap):
    """A heap as a window is: no other rank's memory has an address."""

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        assert rank == RANK, f"rank {RANK} addresses the memory of rank {rank}"
        return super().tensor(rank, offset, shape, dtype)


def between(operator: str, scheme: str, part: str = "whole", **axes: Any) -> Trial:
    shape, dtype = SHAPES[operator]
    trial = gpu_trial(operator, shape, world=WORLD, dtype=dtype, scheme=scheme, **axes)
    return replace(trial, fabric=parse("network"), part=part)


def context_of(trial: Trial) -> NetworkContext:
    plan = expand(trial.problem, trial.schedule)
    context = NetworkContext(OwnMemory(), plan, RANK, torch.device("cpu"), start=shared_bytes(plan), limit_s=LIMIT_S)
    context.architecture = 90
    return context


def by_library(operator: str, **axes: Any) -> Trial:
    return between(operator, "sequential", collective="library", **axes)


@pytest.mark.parametrize("operator", list(SHAPES))
def test_the_librarys_collective_has_tensors_of_the_operators_sizes(operator: str) -> None:
    trial = by_library(operator)
    context = context_of(trial)
    halves = sequential.Sequential(context, [unwritten(trial.problem)], None)
    extent = OPERATORS[operator].extent(trial.problem)
    assert context.half_rows is None, "nothing lands in halves"
    if context.receives:
        assert halves.here("operand").shape == (extent.rows, extent.contraction)
    else:
        assert halves.here("out").shape == OPERATORS[operator].local(trial.problem)["output"]


@pytest.mark.parametrize("operator", list(SHAPES))
@pytest.mark.parametrize("part", ["whole", "compute", "communication"])
@pytest.mark.parametrize("kernel", ["library", "ours"])
def test_kernels_of_baselines_address_no_other_host(operator: str, part: str, kernel: str) -> None:
    if OPERATORS[operator].work != "gemm" and kernel == "ours":
        pytest.skip("a lookup has one kernel")
    trial = replace(by_library(operator, **({"kernel": kernel} if operator in GEMMS else {})), part=part)
    for each in runner(trial).kernels(context_of(trial), unwritten(trial.problem), part):
        warmed_up(each.function, each.arguments, dict(each.constants) | dict(each.options))


class OutOfReach(UnbackedHeap):
    """The heap of a rank whose peers are on other hosts, where nothing puts."""

    def tensor(self, rank: int, offset: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        if rank != RANK:
            raise OutOfReachError(RANK, rank)
        return super().tensor(rank, offset, shape, dtype)


@pytest.mark.parametrize("operator", list(SHAPES))
def test_a_computation_alone_needs_no_address_of_another_host(operator: str) -> None:
    trial = replace(by_library(operator, **({"kernel": "ours"} if operator in GEMMS else {})), part="compute")
    plan = expand(trial.problem, trial.schedule)
    context = Context(OutOfReach(), plan, RANK, torch.device("cpu"), start=shared_bytes(plan), limit_s=LIMIT_S)
    context.architecture = 90
    assert runner(trial).kernels(context, unwritten(trial.problem), "compute")
    here = [bool(address) for address in context.addresses("credits").tolist()]
    assert not any(at for rank, at in enumerate(here) if rank != RANK), "a kernel that read one would fault at once"
    with pytest.raises(OutOfReachError, match=f"Rank {RANK} has no address of the memory of rank {RANK + 1}"):
        context.of(RANK + 1, "credits")


@pytest.mark.parametrize("operator", list(SHAPES))
def test_the_computation_alone_of_what_puts_addresses_no_other_host(operator: str) -> None:
    trial = between(operator, "fused", "compute", transport="gin")
    (kernel,) = runner(trial).kernels(context_of(trial), unwritten(trial.problem), "compute")
    warmed_up(kernel.function, kernel.arguments, dict(kernel.constants) | dict(kernel.options))


@pytest.mark.parametrize("operator", GEMMS)
def test_pieces_of_the_library_have_one_place(operator: str) -> None:
    trial = between(operator, "decomposed", engine="library", pieces=2)
    context = context_of(trial)
    decomposed.kernels(context, unwritten(trial.problem), "whole")
    assert context.half_rows is None
    if context.receives:
        assert context.of(RANK, "operand").shape == (1024, 512)


def test_rows_that_are_put_land_in_halves() -> None:
    context = context_of(between("all_gather_gemm", "fused", transport="gin"))
    assert context.half_rows == 1024
    assert context.of(RANK, "operand").shape == (2 * 1024, 512)
