"""Every step's seconds by hand: tiles in waves, copies at their rate, messages on links, launches where they happen."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.fabric import Fabric, parse
from kernels.machine import Machine, Rate
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind, Plan, Pool
from kernels.schemes import expand, schedule
from workbench.simulator.play import play
from workbench.simulator.price import tiles
from workbench.simulator.price.rates import work_seconds
from workbench.simulator.price.steps import compute_seconds, step_costs

LINK = parse("emulated:bandwidth_bytes_per_second=1e9,latency_seconds=1e-3,message_seconds=1e-4")
NVLINK = Fabric(kind="nvlink")
GEMM = problem("gemm_all_to_all", {"m": 256, "n": 512, "k": 1024}, world=2)


def plan_of(machine: Machine, scheme: str, fabric: Fabric = LINK, **values: int | str) -> Plan:
    values = {"tile": "64x128x1024", **values}
    return expand(GEMM, schedule(GEMM, scheme, values, machine, fabric))


def test_a_cpu_rank_computes_its_tiles_one_after_the_other(laptop: Machine) -> None:
    plan = plan_of(laptop, "sequential")
    one = 8e-6 + float(work_seconds(laptop, "gemm", "float32", 2 * 64 * 128 * 1024, 64))
    assert compute_seconds(plan, laptop, LINK)[plan.kind == Kind.COMPUTE].tolist() == pytest.approx([16 * one] * 2)


def test_a_gpu_computes_its_tiles_in_waves(gpu_pod: Machine) -> None:
    """16 tiles on 10 slots are two waves, on 16 slots one."""
    one = 1e-6 + 2 * 64 * 128 * 1024 / (4e14 / 132)
    for slots, waves in ((10, 2), (16, 1)):
        small = replace(gpu_pod, device=replace(gpu_pod.device, slots=slots))
        plan = plan_of(small, "sequential", NVLINK)
        expected = waves * (1e-6 + (one - 1e-6) * slots / 132)
        assert compute_seconds(plan, small, NVLINK)[plan.kind == Kind.COMPUTE].tolist() == pytest.approx([expected] * 2)


def test_the_slices_of_one_kernel_add_up_to_its_waves(gpu_pod: Machine) -> None:
    few = replace(gpu_pod, device=replace(gpu_pod.device, slots=6))
    plan = plan_of(few, "fused", NVLINK, slice_tiles=2)
    computes = (plan.kind == Kind.COMPUTE) & (plan.rank == 0)
    seconds = compute_seconds(plan, few, NVLINK)[computes]
    wave = seconds.max()
    assert seconds.sum() == pytest.approx(3 * wave)
    assert seconds.tolist() == pytest.approx([wave, 0, 0, wave, 0, 0, wave, 0])


def test_a_launch_of_few_blocks_computes_as_many_tiles_at_once(gpu_pod: Machine) -> None:
    """16 tiles are one wave of a grid that fills the GPU, and four of a grid of 4 blocks, as the launch says."""
    plan = plan_of(gpu_pod, "fused", NVLINK)
    few = replace(plan, launches=replace(plan.launches, grid=np.full_like(plan.launches.grid, 4)))
    one, four = (compute_seconds(each, gpu_pod, NVLINK)[plan.rank == 0].sum() for each in (plan, few))
    assert four == pytest.approx(4 * one)


def test_the_pieces_of_a_contraction_cost_their_share(laptop: Machine) -> None:
    asked = problem("all_gather_gemm", {"m": 256, "n": 512, "k": 1024}, world=2)
    flat = replace(laptop, rates=(), costs=replace(laptop.costs, tile_seconds=0.0), device=replace(
        laptop.device, memory_bytes_per_second=1e15))  # fmt: skip
    whole, cut = (
        expand(asked, schedule(asked, "decomposed", {"split": "contraction", "pieces": pieces}, flat, LINK))
        for pieces in (1, 4)
    )
    assert compute_seconds(cut, flat, LINK).sum() == pytest.approx(compute_seconds(whole, flat, LINK).sum())
    assert len(cut.part("compute")) == 4 * len(whole.part("compute"))


def test_without_a_curve_memory_bounds_a_step(laptop: Machine) -> None:
    starved = replace(laptop, rates=(), device=replace(laptop.device, memory_bytes_per_second=1e6))
    plan = plan_of(starved, "sequential")
    num_bytes = OPERATORS["gemm_all_to_all"].memory_bytes(GEMM)
    assert compute_seconds(plan, starved, LINK).max() == pytest.approx(num_bytes / 1e6)


def test_a_put_is_a_copy_by_the_rank_then_a_message_on_its_link(laptop: Machine) -> None:
    plan = plan_of(laptop, "sequential")
    costs, put = step_costs(plan, laptop, LINK), int(np.flatnonzero(plan.kind == Kind.PUT)[0])
    sent = 128 * 512 * 4
    assert costs.pool[put] == Pool.COMPUTE
    assert costs.issue[put] == pytest.approx(20e-6 + float(work_seconds(laptop, "copy", "float32", 2 * sent)))
    assert costs.transit[put] == pytest.approx(sent / 1e9 + 1e-4)
    assert costs.delay[put] == pytest.approx(1e-3 + 50e-6)


def test_what_is_in_place_is_only_signalled(laptop: Machine) -> None:
    plan = plan_of(laptop, "fused", write="zero_copy")
    costs = step_costs(plan, laptop, LINK)
    assert set(costs.issue[plan.kind == Kind.PUT]) == {20e-6}
    staged = plan_of(laptop, "fused", write="staged")
    assert step_costs(staged, laptop, LINK).issue[staged.kind == Kind.PUT].min() > 20e-6


def test_a_copy_engine_is_a_pool_of_its_own(gpu_pod: Machine) -> None:
    plan = plan_of(gpu_pod, "decomposed", NVLINK, engine="copy_engine")
    costs, puts = step_costs(plan, gpu_pod, NVLINK), plan.kind == Kind.PUT
    assert set(costs.pool[puts]) == {Pool.COPY_ENGINE}
    assert (costs.issue - costs.transit)[puts].tolist() == pytest.approx([4e-6] * int(puts.sum()))
    assert (costs.overlap[puts] == costs.transit[puts]).all(), "an engine holds on to its bytes until they have left"
    assert not costs.overlap[~puts].any()


def test_copies_of_one_stream_follow_each_other_and_those_to_other_peers_go_beside_them(gpu_pod: Machine) -> None:
    """Each holds its engine for its launch and its bytes: 2 pieces are 2 of both, however many peers there are."""
    for world in (2, 4):
        of = problem("all_gather_gemm", {"m": 1024 * world, "n": 512, "k": 1024}, world=world)
        plan = expand(of, schedule(of, "decomposed", {"pieces": 2}, gpu_pod, NVLINK)).part("communication")
        costs = step_costs(plan, gpu_pod, NVLINK)
        played, transit = play(plan, costs), costs.transit[0]
        stream = (plan.rank == 0) & (plan.peer == 1)
        ends = costs.start_seconds + np.array([1, 2]) * (4e-6 + transit)
        assert played.issued[stream].tolist() == pytest.approx(ends.tolist())
        assert played.left[stream][0] == pytest.approx(ends[0] if world == 2 else costs.start_seconds + 4e-6 + transit)


def test_pieces_on_a_gpu_take_whole_waves_of_the_library(gpu_pod: Machine) -> None:
    """Of 7 waves two halves take 4 each, and half a wave takes half of one."""
    slots, k = gpu_pod.device.slots, 1024
    rate = Rate("library_gemm", "float32", 1e9, 4e13)
    measured = replace(gpu_pod, rates=(*gpu_pod.rates, rate))
    tall = problem("all_gather_gemm", {"m": 128 * 14, "n": 256 * slots // 2, "k": k}, world=2)
    whole = float(work_seconds(measured, "library_gemm", "float32", 2 * tall["m"] * tall["n"] * k))
    for rows, waves in ((7, 4), (6, 3), (2, 1), (1, 0.5)):
        sides = (128 * rows, tall["n"], k)
        assert float(tiles.library_piece_seconds(measured, tall, sides, slots)) == pytest.approx(whole * waves / 7)


def test_one_launch_waits_for_rows_program_by_program(gpu_pod: Machine) -> None:
    """Peers' rows that take half a wave cost one wave, and not the wave in which they begin as well."""
    slots = gpu_pod.device.slots
    of = problem("all_gather_gemm", {"m": 128 * 2 * (slots // 2 + 2), "n": 256, "k": 1024}, world=2)
    axes = {"pieces": 1, "launches": "one", "tile": "128x256x64"}
    plan = expand(of, schedule(of, "decomposed", axes, gpu_pod, NVLINK))
    own, peers = compute_seconds(plan, gpu_pod, NVLINK)[np.flatnonzero(plan.kind == Kind.COMPUTE)][:2]
    assert own + peers == pytest.approx(2 * peers), "two waves, of which the last is computed when the rows are here"


def test_a_gpu_s_piece_costs_a_call_of_the_library_where_calls_were_measured(gpu_pod: Machine) -> None:
    speeds = [Rate("library_gemm", "float32", size, per_second) for size, per_second in ((1e8, 1e13), (1e9, 4e13))]
    measured = replace(gpu_pod, rates=(*gpu_pod.rates, *speeds))
    plan = expand(GEMM, schedule(GEMM, "decomposed", {"pieces": 2}, measured, NVLINK))
    steps = np.flatnonzero(plan.kind == Kind.COMPUTE)
    shard, piece = (float(work_seconds(measured, "library_gemm", "float32", 2 * m * 512 * 1024)) for m in (128, 64))
    assert compute_seconds(plan, measured, NVLINK)[steps].tolist() == pytest.approx([piece, piece, shard] * 2)
    sending = expand(
        GEMM, schedule(GEMM, "decomposed", {"pieces": 2, "engine": "sm", "comm_sms": 32}, measured, NVLINK)
    )
    steps = np.flatnonzero(sending.kind == Kind.COMPUTE)
    slower = [each * 132 / 100 for each in (piece, piece, shard)]
    assert compute_seconds(sending, measured, NVLINK)[steps].tolist() == pytest.approx(slower * 2)


def test_the_pieces_of_one_launch_add_up_to_its_waves_and_only_the_first_one_is_launched(gpu_pod: Machine) -> None:
    few = replace(gpu_pod, device=replace(gpu_pod.device, slots=6))
    plan = plan_of(few, "decomposed", NVLINK, launches="one", pieces=2)
    whole = plan_of(few, "fused", NVLINK)
    mine, its = (each.steps_of(0)[each.kind[each.steps_of(0)] == Kind.COMPUTE] for each in (plan, whole))
    assert compute_seconds(plan, few, NVLINK)[mine].sum() == pytest.approx(
        compute_seconds(whole, few, NVLINK)[its].sum()
    )
    beside = (step_costs(plan, few, NVLINK).issue - compute_seconds(plan, few, NVLINK))[mine]
    assert beside.tolist() == pytest.approx([4e-6, 1e-6, 1e-6, 1e-6])


def test_a_kernel_that_waits_inside_its_tiles_keeps_only_one_wave_waiting(gpu_pod: Machine) -> None:
    """16 tiles of a rank on 4 slots: the last range of the contraction has its share of a wave, and three more."""
    of = problem("all_gather_gemm", {"m": 512, "n": 512, "k": 1024}, world=2)
    few = replace(gpu_pod, device=replace(gpu_pod.device, slots=4, memory_bytes_per_second=1e15))
    values: dict[str, int | str] = {"tile": "64x128x64", "launches": "one", "split": "contraction", "pieces": 4}
    plan = expand(of, schedule(of, "decomposed", values, few, NVLINK))
    seconds = compute_seconds(plan, few, NVLINK)[plan.steps_of(0)[plan.kind[plan.steps_of(0)] == Kind.COMPUTE]]
    wave = float(tiles.tile_seconds(few, of, 64, 128, 1024))
    assert seconds.tolist() == pytest.approx([wave / 4, wave / 4, wave / 4, 3.25 * wave] * 2)


def test_sms_that_send_are_missing_where_tiles_are_computed(gpu_pod: Machine) -> None:
    assert tiles.slots(gpu_pod, engine="copy_engine") == 132
    assert tiles.slots(gpu_pod, engine="sm") == tiles.slots(gpu_pod, engine="library") == 116
    assert tiles.slots(gpu_pod, grid=264, comm_sms=8) == 124
    assert tiles.slots(gpu_pod, grid=np.array([0, 64]), comm_sms=np.array([0, 100])).tolist() == [132, 1]


def test_only_what_the_host_launches_pays_for_a_launch(gpu_pod: Machine) -> None:
    fused, sequential = (plan_of(gpu_pod, scheme, NVLINK) for scheme in ("fused", "sequential"))
    assert step_costs(fused, gpu_pod, NVLINK).start_seconds == pytest.approx(5e-6 + 3e-6)
    assert step_costs(sequential, gpu_pod, NVLINK).start_seconds == 0  # the library's time holds its own meeting
    own = plan_of(gpu_pod, "sequential", NVLINK, collective="direct")
    assert step_costs(own, gpu_pod, NVLINK).start_seconds == pytest.approx(2 * (5e-6 + 3e-6))  # and they meet again
    assert step_costs(own.part("compute"), gpu_pod, NVLINK).start_seconds == 0
    bare = replace(gpu_pod, costs=replace(gpu_pod.costs, launch_seconds=0.0))
    launched = [step_costs(sequential, machine, NVLINK).issue for machine in (gpu_pod, bare)]
    computes = sequential.kind == Kind.COMPUTE
    assert (launched[0] - launched[1])[computes].tolist() == pytest.approx([3e-6] * 2)


def test_a_collective_moves_its_bytes_at_the_librarys_share(gpu_pod: Machine) -> None:
    plan = plan_of(gpu_pod, "sequential", NVLINK, collective="library")
    costs, calls = step_costs(plan, gpu_pod, NVLINK), plan.kind == Kind.COLLECTIVE
    sent = 128 * 512 * 4
    seconds = 15e-6 + sent * (3 / 4e11 / 3) / 0.85
    assert costs.issue[calls].tolist() == pytest.approx([seconds] * 2)
    assert (costs.link[calls] == -1).all()


def test_a_library_that_communicates_takes_no_sms_from_computation_alone(gpu_pod: Machine) -> None:
    """It takes 16 while it runs: 1,280 tiles are 12 waves of 116 SMs then, and 10 waves of all 132 without it."""
    gemm = problem("gemm_all_to_all", {"m": 8192, "n": 5120, "k": 512}, world=2)
    axes = {"engine": "library", "pieces": 1, "tile": "128x256x64"}
    plan = expand(gemm, schedule(gemm, "decomposed", axes, gpu_pod, NVLINK))
    whole, alone = (
        compute_seconds(part, gpu_pod, NVLINK)[part.kind == Kind.COMPUTE] for part in (plan, plan.part("compute"))
    )
    assert whole.sum() / alone.sum() == pytest.approx(12 / 10)
