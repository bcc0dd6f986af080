"""What GPU ranks run and what they refuse; kernels are put together once, compiled once and kept."""

import copy
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from triton.runtime.errors import OutOfResources

from kernels.backends.triton import backend, device, launch
from kernels.backends.triton.backend import TritonBackend
from kernels.backends.triton.kernels import gemm_receive
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.limits import walk
from kernels.backends.triton.refusals import refusal
from kernels.fabric import parse
from kernels.machine import load
from kernels.operators import OPERATORS, problem
from kernels.schedule import Refusal, Schedule, Tile, tile
from kernels.schemes import axes, expand, fused
from kernels.schemes.library import executed_schedule
from tests.kernels.backends.triton.compile_sm90 import kernels_of, key_of
from tests.kernels.backends.triton.conftest import gpu_trial

# What GPU ranks run and what they refuse, and what the computation of a sequential schedule is put together from.

H200 = Path(__file__).parents[4] / "data" / "machines" / "h200_nvl8.toml"
GEMM = {"m": 8192, "n": 4096, "k": 4096}
LOOKUPS = {"tables_per_rank": 4, "rows": 1000, "dim": 128, "batch": 256, "pooling": 32}


OVERLAPPED = ("all_gather_gemm", "gemm_reduce_scatter")


def sequential(operator: str, **axes: Any) -> Any:
    return gpu_trial(operator, GEMM, world=4, dtype="bfloat16", scheme="sequential", **axes)


@pytest.mark.parametrize("operator", OVERLAPPED)
def test_torch_s_overlapped_operators_have_the_plan_of_a_decomposed_schedule(operator: str) -> None:
    trial = sequential(operator, collective="overlapped")
    assert refusal(trial, shares_heap=True) is None
    plan, decomposed = (expand(trial.problem, one) for one in (trial.schedule, executed_schedule(trial.schedule)))
    assert (plan.schedule, decomposed.schedule.scheme) == (trial.schedule, "decomposed")
    assert plan.wire_bytes(0) == decomposed.wire_bytes(0) == OPERATORS[operator].wire_bytes(trial.problem)
    assert (plan.pool == decomposed.pool).all()


@pytest.mark.parametrize("operator", [name for name in OPERATORS if name.startswith("gem") or "all_gather" in name])
def test_only_two_operators_are_overlapped_by_torch(operator: str) -> None:
    offered = dict(axes_of(operator))["collective"]
    assert ("overlapped" in offered) == (operator in OVERLAPPED)


def axes_of(operator: str) -> list[tuple[str, tuple[Any, ...]]]:
    shape = {"n": 4096, "k": 4096, "tokens": 1} if operator.startswith("gemv") else GEMM
    asked = problem(operator, shape, world=4, dtype="bfloat16")
    return [(axis.name, axis.values) for axis in axes(asked, "sequential", load(H200), parse("nvlink"))]


def test_their_parts_and_our_kernel_in_them_are_refused_with_what_would_do() -> None:
    trial = sequential("all_gather_gemm", collective="overlapped")
    assert str(refusal(trial.of_part("compute"), shares_heap=True)).endswith("Accepted: whole; or another collective.")
    with pytest.raises(Refusal, match=r"does not go with collective = overlapped.*Accepted: kernel = library"):
        sequential("all_gather_gemm", collective="overlapped", kernel="ours")


def test_only_gemms_are_decomposed_on_gpus() -> None:
    trial = gpu_trial("all_gather_gemm", GEMM, world=4, dtype="bfloat16", scheme="decomposed")
    assert refusal(trial, shares_heap=True) is None
    vector = {"n": 4096, "k": 4096, "tokens": 1}
    trial = gpu_trial("gemv_all_reduce", vector, world=4, dtype="bfloat16", scheme="decomposed")
    assert str(refusal(trial, shares_heap=True)).endswith("Accepted: sequential, concurrent, fused.")


@pytest.mark.parametrize(("operator", "collective"), [
    ("gemm_all_to_all", "library"), ("gemm_reduce_scatter", "direct"), ("gemm_all_reduce", "two_shot"),
    ("all_gather_gemm", "copy_engine"), ("all_to_all_gemm", "library"),
])  # fmt: skip
def test_our_kernel_computes_what_the_plan_says_in_its_order(operator: str, collective: str) -> None:
    """As the fused kernel does alone with the axes that it has by default: every tile once, columns first."""
    trial = sequential(operator, collective=collective, kernel="ours", tile="128x256x64")
    plan = expand(trial.problem, trial.schedule)
    as_fused = expand(trial.problem, fused.alone(trial.problem, "128x256x64"))
    for mine, its in zip(plan.tiles, as_fused.tiles, strict=True):
        assert all((getattr(mine, each.name) == getattr(its, each.name)).all() for each in fields(mine))
    tiles = plan.tiles[0]
    assert len(set(zip(tiles.chunk, tiles.row_start, tiles.col_start, strict=True))) == len(tiles)
    assert (tiles.col_start[:2] == 0).all()
    usual = gpu_trial(operator, GEMM, world=4, dtype="bfloat16", tile="128x256x64").schedule
    asked = dict(fused.alone(trial.problem, "128x256x64").axes)
    for name in ("store", "num_warps", "num_stages", "grid", "group_rows", "slice_tiles"):
        assert asked.get(name, usual.get(name)) == usual.get(name)


@pytest.mark.parametrize("slice_tiles", [4, 32])
@pytest.mark.parametrize("tile_order", ["rotated", "remote_first", "natural"])
@pytest.mark.parametrize("operator", ["all_gather_gemm", "all_to_all_gemm"])
def test_rows_leave_as_the_plan_says_in_the_order_in_which_their_peer_computes(
    operator: str, tile_order: str, slice_tiles: int
) -> None:
    """Slices that peers need at the same turn leave one after the other, the next rank's first where chunks rotate."""
    trial = gpu_trial(operator, GEMM, world=4, dtype="bfloat16", tile_order=tile_order, slice_tiles=slice_tiles)
    plan, rank = expand(trial.problem, trial.schedule), 1
    around = [2, 3, 0] if tile_order == "rotated" else [0, 2, 3]
    puts = gemm_receive.put_table(plan, rank).tolist()
    assert len({tuple(put) for put in puts}) == len(puts) == 3 * len({row for _, row, _ in puts})

    def turn(peer: int, row: int, _: int) -> tuple[int, int]:
        tiles = plan.tiles[peer]
        return int(((tiles.chunk == rank) & (tiles.row_start >= row)).argmax()), around.index(peer)

    assert [turn(*put) for put in puts] == sorted(turn(*put) for put in puts)


def test_a_shape_or_a_tile_that_only_cublas_takes_is_refused_to_our_kernel_alone() -> None:
    odd = gpu_trial("gemm_all_to_all", {**GEMM, "n": 4090}, world=4, dtype="bfloat16", scheme="sequential")
    ours = replace(odd, schedule=Schedule("sequential", (*odd.schedule.axes, ("kernel", "ours"))))
    assert refusal(odd, shares_heap=True) is None
    assert refusal(ours.of_part("communication"), shares_heap=True) is None
    for part in ("whole", "compute"):
        sentence = str(refusal(ours.of_part(part), shares_heap=True))
        assert sentence.startswith("kernel = ours cannot be: n = 4090 does not run")
        assert sentence.endswith("Or kernel = library.")
    cut = sequential("gemm_all_to_all", kernel="ours", tile="96x256x64")
    assert str(refusal(cut, shares_heap=True)).startswith("kernel = ours cannot be: tile = 96x256x64 ")


def test_copy_engines_are_not_asked_for_rows_that_lie_apart() -> None:
    def asked(collective: str) -> Any:
        return gpu_trial("embedding_all_to_all", LOOKUPS, world=4, dtype="float32", scheme="sequential",
                         collective=collective)  # fmt: skip

    assert refusal(asked("direct"), shares_heap=True) is None
    with pytest.raises(Refusal, match=r"Accepted: library, library_tuned, direct\."):
        asked("copy_engine")


@pytest.mark.parametrize(("operator", "shape", "tile", "says"), [
    ("gemv_all_reduce", {"n": 1024, "k": 1024, "tokens": 1}, "16x1x8", "the last at least 16"),
    ("embedding_all_to_all", LOOKUPS, "1x96x8", "neither whole vectors"),
])  # fmt: skip
def test_a_tile_that_no_kernel_walks_is_refused_before_it_is_put_together(
    operator: str, shape: dict[str, int], tile: str, says: str
) -> None:
    trial = gpu_trial(operator, shape, world=2, dtype="bfloat16", tile=tile)
    assert says in str(refusal(trial, shares_heap=True))


@pytest.mark.parametrize(("dtype", "dim", "unroll"), [("float32", 512, 8), ("float32", 1000, 4), ("float32", 4096, 1),
                                                      ("bfloat16", 1024, 8), ("bfloat16", 2048, 4)])  # fmt: skip
def test_wide_vectors_are_looked_up_by_default_fewer_at_once(dtype: str, dim: int, unroll: int) -> None:
    trial = gpu_trial("embedding_all_to_all", LOOKUPS | {"dim": dim}, world=4, dtype=dtype)
    assert walk(trial.problem, tile(trial.schedule["tile"])).unroll == unroll


def test_more_than_a_warp_has_registers_for_is_refused_with_what_would_do() -> None:
    asked = gpu_trial("embedding_all_to_all", LOOKUPS | {"dim": 8192}, world=4, dtype="float32").problem
    with pytest.raises(Refusal, match=r"128 > 32\. Accepted: fewer lookups at once, such as 1x4096x1\."):
        walk(asked, Tile(1, 4096, 4))
    with pytest.raises(Refusal, match=r"64 > 32\. Accepted: at most 4096 elements of a vector\."):
        walk(asked, Tile(1, 8192, 1))


def test_a_kernel_without_room_on_an_sm_is_refused_with_both_numbers() -> None:
    """A Refusal concerns its trial alone; Triton's own error ended the list, under the name of another trial."""

    class Compiled:
        def _init_handles(self) -> None:
            raise OutOfResources(262276, 232448, "shared memory")

    class Function:
        __name__ = "gemm_send"

        def warmup(self, *_: Any, **__: Any) -> Compiled:
            return Compiled()

    kernel = LaunchableKernel(function=Function(), arguments=(), constants={}, items=1)
    with pytest.raises(Refusal, match=r"needs 262276 bytes of shared memory.*262276 > 232448"):
        kernel.argument_launcher()


# Kernels are compiled once: for every rank, for every deadline, for the next list of trials; the oldest ones go.

KEPT_GEMM = {"m": 2048, "n": 1024, "k": 512}
TRIALS = {
    "gemm_all_to_all": KEPT_GEMM, "gemm_all_reduce": KEPT_GEMM, "all_gather_gemm": KEPT_GEMM,
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


def test_no_address_is_in_the_key_of_a_compiled_kernel() -> None:
    """Else no process would find what another one compiled in Triton's cache of files."""
    assert " at 0x" not in repr(device.HOST_NS_AFTER_A_NAP)
    assert device.HOST_NS_AFTER_A_NAP() > 0


def test_a_kernel_that_waits_is_launched_again() -> None:
    """Triton keeps copies of the globals of a kernel, compares them at every launch, and refuses what has changed."""
    copied = copy.deepcopy(device.HOST_NS_AFTER_A_NAP)
    assert bool(copied == device.HOST_NS_AFTER_A_NAP)
    assert not bool(copied != device.HOST_NS_AFTER_A_NAP)
