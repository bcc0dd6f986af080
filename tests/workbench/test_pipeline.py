"""What a pipeline floor is computed from: the first slice of a Plan, and a put rate that was measured or is absent."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.fabric import parse
from kernels.operators import problem
from kernels.plan import Kind
from kernels.schemes import expand, schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.machines import shipped_machine
from workbench.results import metrics

GEMM = {"m": 8192, "n": 4096, "k": 1792}
RECEIVING = {"m": 2048, "n": 7168, "k": 8192}


def trial(
    operator: str, shape: dict[str, Any], machine: str = "h200_nvl2", scheme: str = "fused", **axes: Any
) -> Trial:
    place, fabric = shipped_machine(machine), parse("nvlink" if "h200" in machine else "emulated")
    asked = problem(operator, shape, world=2, dtype="bfloat16")
    return Trial(problem=asked, schedule=schedule(asked, scheme, axes, place, fabric), backend=place.backend,
                 machine=machine, fabric=fabric, protocol=PROTOCOLS["default"])  # fmt: skip


def share(asked: Trial) -> float | None:
    return metrics.first_slice_share(asked, shipped_machine(asked.machine))


def test_a_gpu_sends_each_tile_so_that_its_first_slice_is_one_wave_of_them() -> None:
    tiles = (8192 // 128) * (4096 // 256)
    for axes in ({}, {"slice_tiles": 4}, {"tile_order": "rotated"}):
        assert share(trial("gemm_all_to_all", GEMM, **axes)) == 1 / -(-tiles // 132) == 1 / 8


def test_where_operands_come_in_the_last_slice_is_computed_when_the_wire_has_ended() -> None:
    asked = trial("all_gather_gemm", RECEIVING)
    plan = expand(asked.problem, asked.schedule)
    tiles, last = len(plan.tiles[0]), metrics.last_tiles(plan)
    assert last is not None
    assert 0 < last < tiles
    assert share(asked) == metrics.waves(last, 132) / metrics.waves(tiles, 132)
    whole_shard = trial("all_gather_gemm", RECEIVING, slice_tiles=tiles // 2)
    assert share(whole_shard) == metrics.waves(tiles // 2, 132) / metrics.waves(tiles, 132)


@pytest.mark.parametrize(("order", "slices"), [("rotated", 1), ("natural", 5)])
def test_a_cpu_rank_sends_slices_and_the_last_to_begin_counts(order: str, slices: int) -> None:
    """In their natural order rank 0 computes its own half first, four slices, and only then what rank 1 needs."""
    sizes = {"m": 512, "n": 128, "k": 64}
    asked = trial("gemm_all_to_all", sizes, "laptop_cpu", tile_order=order, tile="64x64x64", slice_tiles=2)
    assert len(expand(asked.problem, asked.schedule).tiles[0]) == 16
    assert share(asked) == slices / 8


@pytest.mark.parametrize(
    ("operator", "sizes", "axes"),
    [
        ("gemm_all_to_all", {"m": 512, "n": 128, "k": 64}, {"tile_order": "natural", "slice_tiles": 3}),
        ("gemm_reduce_scatter", {"m": 512, "n": 128, "k": 64}, {"tile_order": "interleaved", "slice_tiles": 2}),
        ("all_gather_gemm", {"m": 512, "n": 128, "k": 64}, {"slice_tiles": 3}),
        ("all_gather_gemm", {"m": 512, "n": 128, "k": 64}, {"write": "staged"}),
    ],
)
def test_first_and_last_tiles_are_those_that_steps_say_one_by_one(
    operator: str, sizes: dict[str, Any], axes: dict[str, Any]
) -> None:
    of_laptop = trial(operator, sizes, "laptop_cpu", tile="32x64x64", **axes)
    plan = expand(of_laptop.problem, of_laptop.schedule)
    begun: dict[int, int] = {}
    waiting = []
    for step, kind in enumerate(plan.kind):
        needed = [each for each in plan.waits_for(step) if plan.kind[each] != kind]
        if kind == Kind.PUT and needed and plan.kind[needed[0]] == Kind.COMPUTE:
            begun.setdefault(int(plan.rank[step]), int(plan.tile_stop[needed[0]]))
        if kind == Kind.COMPUTE and needed:
            waiting.append(int(plan.tile_stop[step] - plan.tile_start[step]))
    assert begun or waiting
    assert metrics.first_tiles(plan) == (max(begun.values()) if begun else None)
    assert metrics.last_tiles(plan) == (waiting[-1] if waiting else None)


def test_sequential_schedules_have_no_slices_and_an_unknown_machine_no_slots() -> None:
    assert share(trial("gemm_all_to_all", GEMM, scheme="sequential")) is None
    assert metrics.first_slice_share(trial("gemm_all_to_all", GEMM), None) is None


def test_the_put_rate_is_the_calibrated_curve_of_the_way_that_bytes_leave() -> None:
    place = shipped_machine("h200_nvl2")
    by_tma, by_stores = (
        metrics.put_rate(trial("gemm_all_to_all", GEMM, store=way), place) for way in ("tma", "registers")
    )
    assert by_tma is not None
    assert by_stores is not None
    assert 300e9 < by_stores.bytes_per_second != by_tma.bytes_per_second < 450e9
    assert by_tma.source == place.provenance_of("rate.put_tma.any")
    assert by_stores.source.startswith("calibrated: 2 x NVIDIA H200")
    few = metrics.put_rate(trial("all_gather_gemm", RECEIVING, comm_sms=4), place)
    assert few is not None
    assert few.bytes_per_second < 0.5 * by_tma.bytes_per_second


@pytest.mark.parametrize("machine", ["h200_nvl4", "h200_nvl8"])
def test_where_puts_were_not_measured_there_is_no_rate(machine: str) -> None:
    assert metrics.put_rate(trial("gemm_all_to_all", GEMM, machine), shipped_machine(machine)) is None
    assert metrics.put_rate(trial("gemm_all_to_all", GEMM), None) is None


def test_an_emulated_link_carries_what_it_was_told_to() -> None:
    asked = trial("gemm_all_to_all", {"m": 512, "n": 128, "k": 64}, "laptop_cpu")
    place = shipped_machine("laptop_cpu")
    assert metrics.put_rate(asked, place) is None, "its bandwidth follows from a computation that was not timed yet"
    told = Trial(problem=asked.problem, schedule=asked.schedule, backend="cpu", machine=asked.machine,
                 fabric=asked.fabric.resolve(1e6, 1e-3, 2), protocol=asked.protocol)  # fmt: skip
    found = metrics.put_rate(told, place)
    assert found == metrics.PutRate(told.fabric.bandwidth_bytes_per_second or 0.0, metrics.EMULATED)
