"""Kernels that put between hosts: interpreted on ranks of 2 and 4 hosts, compiled for sm_90 with nothing unresolved."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.backends.triton import recipes
from kernels.backends.triton.gin import wheel
from kernels.backends.triton.gin.context import NetworkContext, extern_libraries
from kernels.backends.triton.gin.transport import meet
from kernels.backends.triton.memory import shared_bytes
from kernels.backends.triton.schemes import fused
from kernels.schedule import Refusal, Schedule
from kernels.schemes import expand
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import (
    LIMIT_S,
    RANK,
    Compiled,
    UnbackedHeap,
    context_of,
    unwritten,
    warmed_up,
)
from tests.kernels.backends.triton.conftest import InterpretedGang, gpu_trial

LOOKUPS = {"tables_per_rank": 2, "rows": 12, "dim": 24, "pooling": 3}
CALLS = 3


def by_network(operator: str, shape: dict[str, int], **named: Any) -> Trial:
    """A trial whose ranks are on a host each."""
    return gpu_trial(operator, shape, transport="gin", **named)


def lookups(world: int, *, dtype: str = "float32", shape: dict[str, int] = LOOKUPS, **axes: Any) -> Trial:
    shape = {"batch": 5 * world, **shape}
    return by_network("embedding_all_to_all", shape, world=world, dtype=dtype, **axes)


# Interpreted ranks.

CASES = [
    (2, {"tile": "4x24x4", "slice_tiles": 2}),  # a slice of four rows, then one of a single row
    (2, {"tile": "2x48x4", "slice_tiles": 1, "dtype": "float16"}),
    (4, {"tile": "4x8x4", "slice_tiles": 6}),
]


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize(("world", "axes"), CASES)
def test_slices_reach_the_owners_of_their_rows(
    gangs: dict[int, InterpretedGang], world: int, axes: dict[str, Any]
) -> None:
    answers = gangs[world].call(lookups(world, **axes), CALLS)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers
    assert all(answer["epoch"] == CALLS for answer in answers), answers


GEMMS = ("gemm_all_to_all", "all_gather_gemm")
"""Operators with a courier."""


@pytest.mark.slow(keeps=2)
@pytest.mark.parametrize(
    ("world", "operator"), [(2, "gemm_all_to_all"), (2, "all_gather_gemm"), (4, "all_gather_gemm")]
)
def test_a_courier_carries_the_slices_of_a_gemm(gangs: dict[int, InterpretedGang], world: int, operator: str) -> None:
    """Each chunk has two slices of 16 rows and one of 8; no tile divides the columns."""
    shape, axes = {"m": 40 * world, "n": 80, "k": 64}, {"tile": "16x32x32", "slice_tiles": 3}
    answers = gangs[world].call(by_network(operator, shape, world=world, dtype="float16", **axes), CALLS)
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers


def test_a_rank_whose_peer_makes_no_call_ends_by_the_deadline_with_the_sentence(
    gangs: dict[int, InterpretedGang],
) -> None:
    alone, peer = gangs[2].call(lookups(2, tile="4x48x4", slice_tiles=2), 1, way="one more")
    sentence = r"^Rank 0 waited 2 s for slice 0 of rank 1 by the network: the counter was 0 instead of 1, in call "
    assert re.search(sentence, alone["alone"] or "nothing was said"), alone
    assert peer["alone"] is None


# Compiled for sm_90, with the bitcode of the wheel.


@pytest.fixture(scope="module")
def libraries() -> dict[str, str]:
    if (reason := wheel.lacking()) is not None:
        pytest.skip(reason)
    return extern_libraries()


def unresolved(compiled: Compiled) -> list[str]:
    """Functions that nothing linked defines; Triton's shared memory is declared, too."""
    return [line for line in compiled.ptx.splitlines() if line.startswith(".extern") and "global_smem" not in line]


def context_between_hosts(trial: Trial) -> NetworkContext:
    """Of rank 2, over memory that nobody shares."""
    plan = expand(trial.problem, trial.schedule)
    start = shared_bytes(plan)
    context = NetworkContext(UnbackedHeap(), plan, RANK, torch.device("cpu"), start=start, limit_s=LIMIT_S)
    context.architecture = 90
    return context


def linked(trial: Trial, libraries: dict[str, str]) -> list[Compiled]:
    """What rank 2 compiles for *trial*: one kernel, or a GEMM and its courier."""
    context = context_between_hosts(trial)
    context.libraries = libraries
    kernels = fused.kernels(context, unwritten(trial.problem), "whole")
    assert len(kernels) == len(set(recipes.compilations(trial))), "what a forecast counts"
    return [warmed_up(each.function, each.arguments, dict(each.constants) | dict(each.options)) for each in kernels]


EVEN = {"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 256, "pooling": 32}


def test_the_lookup_links_and_leaves_nothing_unresolved(libraries: dict[str, str], tmp_path: Path) -> None:
    trial = lookups(4, shape=EVEN, tile="4x512x8", slice_tiles=4)
    (compiled,) = linked(trial, libraries)
    assert not unresolved(compiled)
    assert "bar.red.or.pred" in compiled.ptx, "every thread learns whether a wait is over"
    assert "ld.global.cg" in compiled.ptx, "what landed is read past the L1"
    assert compiled.registers(tmp_path) <= 128, "an SM holds 16 warps of it"


@pytest.mark.parametrize("operator", GEMMS)
def test_a_gemm_links_nothing_and_its_courier_everything(
    libraries: dict[str, str], operator: str, tmp_path: Path
) -> None:
    axes = {"tile": "128x128x64", "slice_tiles": 8}
    shape = {"m": 1024, "n": 1024, "k": 512}
    gemm, courier = linked(by_network(operator, shape, world=4, dtype="bfloat16", **axes), libraries)
    assert not unresolved(gemm)
    assert not unresolved(courier)
    assert "wgmma" in gemm.ptx
    assert "wgmma" not in courier.ptx
    assert gemm.local_bytes(tmp_path) == 0, "it has the registers that it needs"
    assert "%clock64" not in gemm.ptx
    assert "%clock64" in courier.ptx, "NCCL's waits read it"


@pytest.mark.parametrize(
    ("axis", "value", "attribute"),
    [
        ("num_warps", 4, "num_warps"),
        ("num_stages", 2, "num_stages"),
        ("grid", 132, "grid"),
        ("store", "registers", "TMA"),
    ],
)
def test_a_gemm_with_a_courier_is_launched_as_its_schedule_says(axis: str, value: Any, attribute: str) -> None:
    shape = {"m": 1024, "n": 1024, "k": 512}
    launches = []
    for axes in ({"num_warps": 8, "num_stages": 3}, {"num_warps": 8, "num_stages": 3, axis: value}):
        trial = by_network("gemm_all_to_all", shape, world=4, dtype="bfloat16", tile="128x128x64", **axes)
        context = context_between_hosts(trial)
        gemm, courier = fused.kernels(context, unwritten(trial.problem), "whole")
        assert gemm.spared == courier.grid == 8
        launches.append(getattr(gemm, attribute, None) or gemm.constants.get(attribute))
    assert launches[0] != launches[1]


@pytest.mark.parametrize("grid", [1, 8])
def test_a_grid_that_the_courier_would_use_up_is_refused(grid: int) -> None:
    """0 would mean as many blocks as fit. The GPU of this machine offers 132 blocks; a small one offers fewer."""
    shape = {"m": 1024, "n": 1024, "k": 512}
    trial = by_network("gemm_all_to_all", shape, world=4, dtype="bfloat16", tile="128x128x64", grid=132)
    context, small = context_between_hosts(trial), {"grid": grid}
    axes = tuple((name, small.get(name, value)) for name, value in trial.schedule.axes)
    context.plan = replace(context.plan, schedule=Schedule(trial.schedule.scheme, axes))
    with pytest.raises(Refusal, match=rf"grid = {grid} is too small .* takes 8 of its blocks: {grid} <= 8\. Accepted"):
        fused.kernels(context, unwritten(trial.problem), "whole")


def test_the_barrier_of_hosts_links(libraries: dict[str, str]) -> None:
    words, stamp = torch.zeros(6, dtype=torch.int32), torch.zeros(1, dtype=torch.int64)
    arguments = 1 << 40, 1 << 41, 5, 0, 256, stamp, words, 10**9, stamp, 1
    compiled = warmed_up(meet, arguments, {"WORLD": 4, "BYTES": 16, "num_warps": 1, "extern_libs": libraries})
    assert not unresolved(compiled)


def test_what_only_shares_a_host_links_nothing() -> None:
    """Kernels of one host need no second NCCL, and are what they were."""
    trial = gpu_trial("embedding_all_to_all", EVEN, world=4, dtype="float32", tile="4x512x8")
    made = fused.kernel(context_of(trial), unwritten(trial.problem))
    assert made.libraries is None
    assert "extern_libs" not in made.options
