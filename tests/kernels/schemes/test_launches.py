"""Every step belongs to one launch of its rank: one kernel, a few in order, or one for each step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernels.fabric import Fabric
from kernels.machine import Machine, load
from kernels.operators import problem
from kernels.plan import ANY_STREAM, EVERYTHING, Kind, Plan, Pool
from kernels.schemes import expand, schedule

GEMM = {"m": 2048, "n": 512, "k": 256}
NVLINK = Fabric(kind="nvlink")


@pytest.fixture(scope="module")
def h200() -> Machine:
    return load(Path(__file__).parents[3] / "data/machines/h200_nvl8.toml")


def planned(machine: Machine, operator: str, scheme: str, **axes: str | int) -> Plan:
    asked = problem(operator, GEMM, world=4, dtype="bfloat16")
    return expand(asked, schedule(asked, scheme, axes, machine, NVLINK))


def of_rank(plan: Plan, rank: int) -> list[tuple[str, set[Kind]]]:
    """The launches of *rank* in order: name and the kinds of their steps."""
    numbers = np.flatnonzero(plan.launches.rank == rank)
    return [(plan.launches.name[n], {Kind(kind) for kind in plan.kind[plan.launch == n]}) for n in numbers.tolist()]


def test_a_fused_schedule_is_one_kernel_on_each_rank_with_its_grid(h200: Machine) -> None:
    plan = planned(h200, "gemm_reduce_scatter", "fused", grid=132, tile_order="rotated")
    assert plan.launches.name == ("gemm_send",) * 4
    assert plan.launches.grid.tolist() == [132] * 4
    assert planned(h200, "gemm_reduce_scatter", "fused").launches.name == ("gemm_scattered",) * 4
    assert (plan.launch == plan.rank).all()


def test_blocks_that_only_send_are_a_share_of_the_slots_and_who_computes_has_the_rest(h200: Machine) -> None:
    plan = planned(h200, "all_gather_gemm", "fused", comm_sms=16)
    puts = plan.kind == Kind.PUT
    assert set(plan.pool) == {Pool.COMPUTE}
    assert (set(plan.share[puts]), set(plan.share[~puts])) == ({16}, {EVERYTHING})
    assert set(planned(h200, "all_gather_gemm", "fused", comm_sms=0).share) == {EVERYTHING}


@pytest.mark.parametrize(
    ("operator", "collective", "expected"),
    [
        ("gemm_all_to_all", "direct", [("compute", {Kind.COMPUTE}), ("put_rows", {Kind.PUT})]),
        (
            "gemm_all_to_all",
            "library",
            [("compute", {Kind.COMPUTE}), ("all_to_all", {Kind.COLLECTIVE}), ("unpack", {Kind.COPY})],
        ),
        (
            "all_gather_gemm",
            "library",
            [("all_gather", {Kind.COLLECTIVE}), ("unpack", {Kind.COPY}), ("compute", {Kind.COMPUTE})],
        ),
        ("all_gather_gemm", "copy_engine", [("copy_rows", {Kind.PUT}), ("compute", {Kind.COMPUTE})]),
        (
            "gemm_all_reduce",
            "two_shot",
            [("compute", {Kind.COMPUTE}), ("two_shot_all_reduce", {Kind.PUT, Kind.REDUCE})],
        ),
    ],
)
def test_a_sequential_schedule_launches_in_the_order_of_the_flow(
    h200: Machine, operator: str, collective: str, expected: list[tuple[str, set[Kind]]]
) -> None:
    plan = planned(h200, operator, "sequential", collective=collective)
    assert [of_rank(plan, rank) for rank in range(4)] == [expected] * 4
    assert set(plan.launches.stream) == {0}


def launches_of(plan: Plan, rank: int) -> list[tuple[str, int, int, int]]:
    """The launches of *rank* in order: name, stream, priority and how many steps each has."""
    numbers = np.flatnonzero(plan.launches.rank == rank).tolist()
    streams, priorities = plan.launches.stream.tolist(), plan.launches.priority.tolist()
    return [(plan.launches.name[n], streams[n], priorities[n], int((plan.launch == n).sum())) for n in numbers]


def test_pieces_of_a_gpu_are_computed_on_two_streams_in_turns_and_copied_on_one_for_each_peer(h200: Machine) -> None:
    plan = planned(h200, "all_gather_gemm", "decomposed", engine="copy_engine", pieces=2)
    computes = [("compute", turn % 2, 0, 1) for turn in range(3)]  # the first is all own rows
    assert launches_of(plan, 1) == [*(("copy_rows", 2 + peer, 0, 1) for _ in range(2) for peer in (2, 3, 0)), *computes]
    puts = plan.kind == Kind.PUT
    assert (set(plan.pool[puts]), set(plan.share[puts])) == ({Pool.COPY_ENGINE}, {1})


def test_one_launch_computes_all_pieces_on_one_stream(h200: Machine) -> None:
    received = planned(h200, "all_gather_gemm", "decomposed", launches="one", pieces=2, steps="uniform")
    assert launches_of(received, 0)[-1] == ("gemm_receive", 0, 0, 4)
    sent = planned(h200, "gemm_reduce_scatter", "decomposed", launches="one", pieces=2)
    assert launches_of(sent, 0)[0] == ("gemm_send", 0, 0, 4)
    assert {name for name, *_ in launches_of(sent, 0)} == {"gemm_send", "copy_rows"}


def test_sms_that_only_send_have_a_stream_with_priority(h200: Machine) -> None:
    received = planned(h200, "all_gather_gemm", "decomposed", engine="sm", comm_sms=8, pieces=2)
    assert launches_of(received, 0)[0] == ("put_rows", 2, 1, 6)
    sent = planned(h200, "gemm_all_to_all", "decomposed", engine="sm", comm_sms=8, pieces=2)
    assert launches_of(sent, 0)[3:] == [("put_rows", 2, 1, 1)] * 6
    for plan in (received, sent):
        puts = plan.kind == Kind.PUT
        assert (set(plan.pool), set(plan.share[puts]), set(plan.share[~puts])) == ({Pool.COMPUTE}, {8}, {EVERYTHING})


def test_the_library_has_a_stream_of_its_own_and_unpacks_there(h200: Machine) -> None:
    plan = planned(h200, "gemm_reduce_scatter", "decomposed", engine="library", pieces=2)
    assert launches_of(plan, 0) == [("compute", 0, 0, 1), ("compute", 1, 0, 1),
                                    *[("reduce_scatter", 2, 1, 1), ("unpack", 2, 1, 1)] * 2]  # fmt: skip


@pytest.mark.parametrize("operator", ["gemm_reduce_scatter", "gemm_all_reduce"])
def test_two_gpus_compute_own_pieces_onto_what_arrived_and_more_of_them_sum_apart(h200: Machine, operator: str) -> None:
    for world, launches, added in ((2, "per_piece", True), (4, "per_piece", False), (4, "one", True)):
        asked = problem(operator, GEMM, world=world, dtype="bfloat16")
        plan = expand(asked, schedule(asked, "decomposed", {"launches": launches, "pieces": 2}, h200, NVLINK))
        assert (Kind.REDUCE in plan.kind) is not added
        own = [step for step in plan.steps_of(0) if plan.kind[step] == Kind.COMPUTE][-2:]
        needed = [[plan.address(n) for n in plan.waits_for(step)] for step in own]
        expected = [[f"{peer}/put/0/{piece}" for peer in range(1, world)] for piece in range(2)]
        assert needed == (expected if added else [[], []])
    apart = planned(h200, operator, "decomposed", steps="uniform", pieces=2)
    assert "reduce" in {name for name, *_ in launches_of(apart, 0)}, "own rows share a step with what a peer waits for"


def test_a_cpu_rank_launches_pieces_one_by_one_on_any_stream(cpu_machine: Machine) -> None:
    asked, link = problem("all_gather_gemm", GEMM, world=4), Fabric(kind="shared_memory")
    plan = expand(asked, schedule(asked, "decomposed", {"pieces": 4}, cpu_machine, link))
    assert (plan.launches.rank[plan.launch] == plan.rank).all()
    assert [plan.launches.name[launch] for launch in plan.launch] == [Kind(kind).word for kind in plan.kind]
    assert set(plan.launches.stream) == {ANY_STREAM}
    assert not plan.stream.any()


def test_a_part_keeps_the_launches_of_its_steps(h200: Machine) -> None:
    plan = planned(h200, "gemm_all_to_all", "sequential", collective="library")
    computes = plan.part("compute")
    assert {computes.launches.name[launch] for launch in computes.launch} == {"compute"}


def test_a_step_has_the_stream_of_its_launch_and_the_first_where_that_has_none(h200: Machine) -> None:
    plan = planned(h200, "gemm_all_to_all", "sequential")
    last = plan.launch == plan.launch.max()
    streams = plan.launches.stream.copy()
    streams[plan.launch[last]] = 2
    assert replace(plan, launches=replace(plan.launches, stream=streams)).stream.tolist() == (2 * last).tolist()


@pytest.mark.parametrize("order", ["rotated", "natural", "remote_first"])
@pytest.mark.parametrize("world", [2, 3, 4, 8])
def test_a_gpu_s_rows_leave_in_the_order_in_which_peers_compute_them(h200: Machine, order: str, world: int) -> None:
    asked = problem("all_gather_gemm", {"m": 768 * world, "n": 512, "k": 256}, world=world)
    values = {"tile": "128x128x64", "slice_tiles": 8, "tile_order": order}
    plan = expand(asked, schedule(asked, "fused", values, h200, NVLINK))
    for rank in range(world):
        puts = np.flatnonzero((plan.rank == rank) & (plan.kind == Kind.PUT))
        first_used = [
            int(np.flatnonzero((tiles.chunk == rank) & (tiles.row_start >= plan.row_start[put]))[0])
            for put in puts
            for tiles in [plan.tiles[plan.peer[put]]]
        ]
        assert len(puts) == 3 * (world - 1)
        assert first_used == sorted(first_used)
