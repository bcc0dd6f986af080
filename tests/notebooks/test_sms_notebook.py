"""What lesson 9 reads out of its charts and tables is true of the Plan, of the residency rule and of the machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels.occupancy import (
    NCCL,
    SHOT,
    BlockResources,
    blocks_alongside,
    gemm_block,
    limits_of,
    padding,
    resident_blocks,
)
from kernels.operators import problem
from kernels.outcome import Span
from kernels.schedule import tile
from workbench.lesson import Lesson, lesson
from workbench.machines import shipped_machine

HOPPER, AMPERE = (limits_of(shipped_machine(name)) for name in ("h200_nvl2", "a40_pcie4"))
SMALL = gemm_block(tile("64x128x32"), itemsize=2, stages=2, warps=8)


@pytest.fixture(scope="module")
def experts() -> Lesson:
    ladder = lesson("gemm_all_to_all", preset="laptop_ladder")
    sizes = {"m": 512, "n": 1024, "k": 1024}
    return replace(ladder, problem=problem("gemm_all_to_all", sizes, world=2)).linked("emulated:wire_to_compute=1")


def spans_of(experts: Lesson, priority: str, kind: str, pool: str) -> list[Span]:
    axes = {"tile": "128x256x1024", "micro_batches": 4, "comm_priority": priority}
    spans = experts.estimate("concurrent", **axes).spans
    return sorted((each for each in spans if (each.rank, each.kind, each.pool) == (0, kind, pool)),
                  key=lambda span: span.start_s)  # fmt: skip


def test_with_priority_a_put_goes_before_the_next_computation_and_without_behind_it(experts: Lesson) -> None:
    for priority, before in (("high", 1), ("normal", 2)):
        computed = spans_of(experts, priority, "compute", "compute")
        first_put = spans_of(experts, priority, "put", "compute")[0]
        done = [each for each in computed if each.stop_s <= first_put.start_s + 1e-9]
        assert len(computed) == 4
        assert len(done) == before, priority
    last = {priority: spans_of(experts, priority, "put", "link")[-1].stop_s for priority in ("high", "normal")}
    assert last["high"] < last["normal"]


def test_on_two_gpus_a_collective_waits_for_an_sm_unless_some_are_set_aside() -> None:
    here = lesson("gemm_all_reduce", preset="llama3_70b_attention_8192", machine="h200_nvl2", world=2)
    sizes = problem("gemm_all_reduce", {"m": 4096, "n": 8192, "k": 2240}, dtype="bfloat16", world=2)
    layer, left = replace(here, problem=sizes), {"micro_batches": 8, "comm_priority": "normal"}

    def of(kind: str, **axes: int | str) -> list[Span]:
        spans = layer.estimate("concurrent", **{**left, **axes}).spans
        return sorted((each for each in spans if each.rank == 0 and each.kind == kind), key=lambda span: span.start_s)

    waits, shared = {}, {"comm_priority": "high", "comm_sms": 16}
    for name, axes in (("streams", {}), ("set aside", shared)):
        waits[name] = of("collective", **axes)[0].start_s
        ends = [each.stop_s for each in of("compute", **axes)]
        assert waits[name] == pytest.approx(ends[1 if name == "streams" else 0], rel=0.03), name
    assert of("compute", **shared)[0].stop_s > of("compute")[0].stop_s
    time_s = {name: layer.estimate("concurrent", **{**left, **axes}).time_s for name, axes in {
        "streams": {}, "set aside": shared, "ours": {"kernel": "ours", "tile": "64x128x64"},
        "shaped": {"kernel": "ours", "tile": "64x128x64", "resident_blocks": 1},
    }.items()}  # fmt: skip
    assert time_s["set aside"] > time_s["streams"], "NCCL is slower on 16 SMs than on its 24"
    assert time_s["shaped"] > time_s["ours"], "NCCL finds no room, and the GEMM is slower"


def held(block: BlockResources) -> int:
    return resident_blocks(HOPPER, block.shared_bytes, block.registers, block.threads)


def test_a_block_of_nccl_fits_beside_nothing_and_one_of_two_shot_beside_two_small_blocks() -> None:
    assert 16 * HOPPER.partitions * HOPPER.registers_of(NCCL) == 15 * HOPPER.registers
    assert [blocks_alongside(HOPPER, SMALL, count, NCCL) for count in (1, 2)] == [0, 0]
    assert 2 * HOPPER.partitions * HOPPER.registers_of(SHOT) == HOPPER.registers
    assert [blocks_alongside(HOPPER, SMALL, count, SHOT) for count in (1, 2, 3)] == [1, 1, 0]
    assert padding(AMPERE, SMALL, 1).fewest < padding(HOPPER, SMALL, 1).fewest


@pytest.mark.parametrize(("size", "count", "fits_beside", "fits_beside_one"), [
    ("64x64x64", 3, False, True), ("64x128x64", 2, True, True), ("128x128x64", 1, True, True),
    ("128x256x64", 1, False, False),
])  # fmt: skip
def test_the_tile_decides_whether_padding_can_let_a_block_in(size: str, count: int, fits_beside: bool,
                                                             fits_beside_one: bool) -> None:  # fmt: skip
    block = gemm_block(tile(size), itemsize=2, stages=3, warps=8)
    assert held(block) == count
    assert (blocks_alongside(HOPPER, block, count, SHOT) > 0) is fits_beside
    padded = replace(block, shared_bytes=block.shared_bytes + padding(HOPPER, block, 1).fewest)
    assert (blocks_alongside(HOPPER, padded, 1, SHOT) > 0) is fits_beside_one
    assert blocks_alongside(HOPPER, padded, 1, NCCL) == 0
