"""Two streams of one GPU: what computation and collective take from each other, in the limits that are known."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import problem
from kernels.plan import Kind, Pool
from kernels.problem import Problem
from kernels.schemes import expand, schedule
from tests.simulator.test_play import DEALER_SMS, Grid, played
from workbench.machines import machine
from workbench.simulator.play import play, spans
from workbench.simulator.price.costs import StepCosts
from workbench.simulator.price.rates import copy_seconds
from workbench.simulator.price.shared import Computation, crossing_seconds, of_ours
from workbench.simulator.price.steps import step_costs

LINK = Fabric(kind="nvlink")
H200 = machine("h200_nvl2")
QUIET = replace(H200, costs=replace(H200.costs, computing_beside=1.0, sending_beside=1.0))
"""The same GPUs, if streams on SMs of their own took nothing from each other."""
COUNT = 8


def ask(operator: str = "gemm_all_reduce", m: int = 8192, n: int = 4096, k: int = 4096) -> Problem:
    return problem(operator, {"m": m, "n": n, "k": k}, dtype="bfloat16", world=2)


def seconds(
    asked: Problem, scheme: str = "concurrent", part: str = "whole", on: Machine = H200, **axes: int | str
) -> float:
    """Of one problem."""
    count = {"micro_batches": COUNT} if scheme == "concurrent" else {}
    plan = expand(asked, schedule(asked, scheme, {**count, **axes}, on, LINK)).part(part)
    return play(plan, step_costs(plan, on, LINK)).time_s / (COUNT if count else 1)


def costs(asked: Problem, on: Machine = H200, **axes: int | str) -> StepCosts:
    plan = expand(asked, schedule(asked, "concurrent", axes, on, LINK))
    return step_costs(plan, on, LINK)


@pytest.mark.parametrize("comm_sms", [0, 4, 8, 16, 32])
def test_our_grid_takes_exactly_the_waves_of_the_sms_that_it_has(comm_sms: int) -> None:
    asked = ask()
    tiles, left = 8192 // 128 * 4096 // 256, DEALER_SMS - comm_sms
    alone = seconds(asked, part="compute", kernel="ours", tile="128x256x64", comm_sms=comm_sms)
    of_wave = seconds(ask(m=128, n=256 * 2), part="compute", kernel="ours", tile="128x256x64")
    launch = H200.costs.launch_seconds
    assert (alone - launch) / (of_wave - launch) == pytest.approx(-(-tiles // left), rel=1e-6)


@pytest.mark.parametrize("comm_sms", [8, 16, 32])
@pytest.mark.parametrize("operator", ["gemm_all_reduce", "gemm_all_to_all", "all_gather_gemm", "all_to_all_gemm"])
def test_sms_set_aside_leave_the_longer_part_and_once_the_shorter(operator: str, comm_sms: int) -> None:
    """Both have all SMs that they want, so that 8 problems are a pipeline of two stages, and once another stream."""
    asked = ask(operator)
    parts = [seconds(asked, part=part, on=QUIET, comm_sms=comm_sms) for part in ("compute", "communication")]
    whole = seconds(asked, on=QUIET, comm_sms=comm_sms)
    assert whole == pytest.approx(max(parts) + min(parts) / COUNT, abs=crossing_seconds(H200) / COUNT)


@pytest.mark.parametrize("comm_sms", [8, 32])
@pytest.mark.parametrize("operator", ["gemm_all_reduce", "gemm_all_to_all"])
def test_streams_slow_each_other_on_sms_of_their_own_by_what_the_machine_says(operator: str, comm_sms: int) -> None:
    asked = ask(operator)
    ratio = seconds(asked, comm_sms=comm_sms) / seconds(asked, on=QUIET, comm_sms=comm_sms)
    assert 1.01 < ratio < max(H200.costs.computing_beside, H200.costs.sending_beside)


@pytest.mark.parametrize("operator", ["gemm_all_reduce", "gemm_all_to_all"])
def test_a_collective_begins_with_the_second_computation_behind_it(operator: str) -> None:
    """The next one is on all SMs before the collective is ready, whatever the priority, and leaves none before."""
    asked = ask(operator)
    for priority in ("normal", "high"):
        plan = expand(asked, schedule(asked, "concurrent", {"comm_priority": priority}, H200, LINK))
        done = play(plan, step_costs(plan, H200, LINK))
        here = plan.rank == 0
        computed, moved = (np.flatnonzero(here & (plan.kind == kind)) for kind in (Kind.COMPUTE, Kind.COLLECTIVE))
        last_tiles = (done.issued - done.start)[computed[1]] / 8
        assert done.issued[computed[1]] - last_tiles * 1.01 <= done.start[moved[0]] <= done.issued[computed[1]]


@pytest.mark.parametrize("kernel", ["library", "ours"])
def test_copy_engines_take_sms_for_the_own_share_alone(kernel: str) -> None:
    """CUDA copies inside a GPU by a kernel, of half the result on two ranks: as long as it is, nobody computes."""
    asked, axes = ask("gemm_all_to_all"), {"collective": "copy_engine", "kernel": kernel}
    compute, moved = (seconds(asked, part=part, on=QUIET, **axes) for part in ("compute", "communication"))
    copied = float(copy_seconds(H200, "bfloat16", 8192 * 4096 * 2 / 2))
    assert copied > 0.03 * compute
    whole = seconds(asked, on=QUIET, **axes)
    assert whole == pytest.approx(compute + copied + moved / COUNT, abs=2 * crossing_seconds(H200) / COUNT)


@pytest.mark.parametrize("priority", ["normal", "high"])
@pytest.mark.parametrize("k", [512, 4096, 16384])
def test_no_mode_is_faster_than_its_longer_part_or_slower_than_its_parts_in_a_row(k: int, priority: str) -> None:
    asked = ask(k=k)
    compute, moved = (seconds(asked, "sequential", part) for part in ("compute", "communication"))
    assert max(compute, moved) <= seconds(asked, comm_priority=priority) <= (compute + moved) * (1 + 1e-9)


def test_a_library_call_holds_its_blocks_and_an_own_put_a_block_of_each_sm() -> None:
    asked = ask("gemm_all_to_all")
    for collective, comm_sms, held in (
        ("library", 0, 32),
        ("library", 16, 16),
        ("direct", 0, DEALER_SMS),
        ("direct", 8, 8),
    ):
        of_steps = costs(asked, collective=collective, comm_sms=comm_sms).grids
        assert of_steps is not None
        assert set(of_steps.blocks.tolist()) - {0} == {DEALER_SMS - comm_sms, held}


def test_a_shot_is_one_kernel_that_keeps_its_sms_from_the_first_put_to_the_last() -> None:
    """Behind a GEMM that leaves its SMs one by one its 24 blocks lie on 12 of them."""
    asked = ask()
    for part in ("whole", "communication"):
        plan = expand(asked, schedule(asked, "concurrent", {"collective": "two_shot"}, H200, LINK)).part(part)
        of_steps = step_costs(plan, H200, LINK)
        assert of_steps.grids is not None
        moves = of_steps.grids.blocks > 0 if part == "communication" else (plan.kind == Kind.PUT) & (
            of_steps.grids.blocks > 0)  # fmt: skip
        assert moves.sum() == 2 * 4, "one of each rank and problem"
        assert set(of_steps.grids.blocks[moves].tolist()) == {24}
        assert of_steps.issue[~moves & (plan.kind != Kind.COMPUTE)].max() == 0
    alone = seconds(asked, part="communication", collective="two_shot")
    assert alone == pytest.approx(seconds(asked, "sequential", "communication", collective="two_shot"), rel=0.02)


def test_no_block_of_the_library_runs_beside_our_computation() -> None:
    """Its 17 warps of 96 registers need more than one block of 64 x 128 with 8 warps leaves an H200's SM."""
    asked = ask("gemm_all_to_all")
    for resident in (1, 2):
        chosen = schedule(asked, "concurrent", {"kernel": "ours", "tile": "64x128x64", "resident_blocks": resident},
                          H200, LINK)  # fmt: skip
        plan = expand(asked, chosen)
        of_steps = step_costs(plan, H200, LINK)
        assert set(of_steps.pool[plan.kind == Kind.COLLECTIVE].tolist()) == {Pool.COMPUTE}
        assert of_steps.grids is not None
        assert set(of_steps.grids.resident[plan.kind == Kind.COMPUTE].tolist()) == {resident}


TRIAL = (
    ((8192, 4096, 2048), 280.4, 384), ((8192, 4096, 4096), 532.3, 874), ((16384, 8192, 512), 300.6, 440),
)  # fmt: skip
"""Microseconds of our GEMM with tiles of 64 x 128 alone on an H200: two blocks on an SM, and one (2026-11-23)."""


@pytest.mark.parametrize(("sizes", "two", "one"), TRIAL)
def test_our_gemm_is_slower_with_one_block_on_an_sm_than_with_two(sizes: tuple[int, int, int], two: float,
                                                                 one: float) -> None:  # fmt: skip
    asked = ask("gemm_all_to_all", *sizes)
    for resident, measured in ((2, two), (1, one)):
        axes = {"kernel": "ours", "tile": "64x128x64", "resident_blocks": resident}
        assert seconds(asked, part="compute", **axes) * 1e6 == pytest.approx(measured, rel=0.17)


@pytest.mark.parametrize("size", ["64x64x64", "64x128x64", "128x128x64", "128x256x64"])
def test_our_gemm_takes_about_as_long_in_a_sequential_schedule(size: str) -> None:
    """Streams know its loads alone; a kernel by itself waits for its slots and for shared memory, too."""
    asked, axes = ask("gemm_all_to_all", k=1792), {"kernel": "ours", "tile": size}
    alone = [seconds(asked, scheme, "compute", **axes) for scheme in ("sequential", "concurrent")]
    assert alone[0] == pytest.approx(alone[1], rel=0.3)


def test_one_problem_and_other_schemes_share_out_nothing() -> None:
    asked = ask()
    for scheme in ("sequential", "decomposed"):
        plan = expand(asked, schedule(asked, scheme, {}, H200, LINK))
        assert step_costs(plan, H200, LINK).grids is None


def test_spans_name_the_problem_and_stand_where_measured_ones_do() -> None:
    asked = ask("gemm_all_to_all")
    for collective, pool in (("library", "library"), ("direct", "link")):
        plan = expand(asked, schedule(asked, "concurrent", {"collective": collective}, H200, LINK))
        of_steps = step_costs(plan, H200, LINK)
        drawn = spans(plan, play(plan, of_steps), of_steps)
        assert {span.micro_batch for span in drawn} == set(range(4))
        assert {span.pool for span in drawn if span.stream == 2} == {pool}


PROTOTYPE = ((433, 366, 351, 258), (838, 695, 661, 477), (699, 557, 532, 475))
"""Microseconds per problem on two H200s (cuBLAS and NCCL): sequential, two streams, with priority, the longer part."""


def test_the_prototypes_times_are_plausible() -> None:
    """Of six times none is further off than 15 %, and half of them within 10 %. Nothing was fitted to them.

    What a GEMM and an all-reduce take alone is given.
    """
    errors = []
    for sequential, *modes, longer in PROTOTYPE:
        for priority, measured in enumerate(modes):
            estimated = _pipelined(sequential - longer, longer, priority, problems=16)
            errors.append(estimated / measured - 1)
    assert np.abs(errors).max() < 0.15
    assert np.median(np.abs(errors)) < 0.10


def _pipelined(compute: float, moved: float, priority: int, problems: int) -> float:
    """A problem's time where a GEMM's 132 blocks share 8 rounds of tiles, and a collective has 24, in microseconds."""
    order = [("c", 0), *(each for i in range(1, problems) for each in (("c", i), ("x", i - 1))), ("x", problems - 1)]
    made: list[Grid] = []
    for kind, number in order:
        if kind == "c":
            made.append(Grid(DEALER_SMS, 8 * DEALER_SMS, compute / 8, is_pooled=True))
            continue
        made.append(Grid(0, 0, 4.0, 4 + number, after=(_place(order, number),)))  # until another stream sees it
        made.append(Grid(24, 24, moved, 2, priority, (len(made) - 1,)))
    return played(*made, gap=1.0).time_s / problems


def _place(order: list[tuple[str, int]], number: int) -> int:
    """Of computation *number* among the grids: each collective before it has two."""
    before = order[: order.index(("c", number))]
    return sum(1 if kind == "c" else 2 for kind, _ in before)


def test_a_call_on_few_sms_is_as_much_slower_as_the_sweep_of_channels_says() -> None:
    """8 channels take 420 us where NCCL takes 139, 16 take 228 (67 MB, all-to-all)."""
    asked = ask("gemm_all_to_all")
    alone = {count: seconds(asked, part="communication", comm_sms=count) for count in (0, 4, 8, 16, 32)}
    assert alone[4] == pytest.approx(2 * alone[8], rel=0.02)
    assert alone[8] == pytest.approx(3 * alone[0], rel=0.1)
    assert alone[16] == pytest.approx(1.65 * alone[0], rel=0.1)
    assert alone[32] == pytest.approx(alone[0], rel=0.02)
    unknown = replace(H200, rates=tuple(rate for rate in H200.rates if not rate.work.startswith("put")))
    held = [costs(asked, unknown, comm_sms=count).grids for count in (4, 8)]
    assert held[0] is not None
    assert held[1] is not None
    assert held[0].tile_seconds.max() >= held[1].tile_seconds.max() / 1.1


def test_a_call_of_nccl_with_24_sms_has_the_16_channels_that_it_gets() -> None:
    """Its sends and receives have a power of two."""
    asked = ask("gemm_all_to_all", m=16384, n=5120, k=960)
    calls = [seconds(asked, part="communication", collective="library", comm_sms=count) for count in (16, 24, 32)]
    assert calls[0] == pytest.approx(calls[1])
    assert calls[2] < 0.9 * calls[1]


def test_sms_that_send_alone_are_as_fast_as_our_stores() -> None:
    """What computes beside them slows them, and is what contention loss is of."""
    asked = ask("gemm_all_to_all", n=7168, k=2048)
    pieces = {"pieces": 1, "engine": "sm", "comm_sms": 32}
    alone, whole = (seconds(asked, "decomposed", part=part, **pieces) for part in ("communication", "whole"))
    quiet = seconds(asked, "decomposed", part="communication", on=QUIET, **pieces)
    assert alone == pytest.approx(quiet)
    assert seconds(asked, "decomposed", on=QUIET, **pieces) < whole


def test_our_grid_beside_others_has_as_many_blocks_on_each_sm_that_it_has() -> None:
    """200 tiles where 128 SMs hold two blocks each: a GPU deals one block to each SM first, so 128 are launched."""
    one = Computation(sizes=ask(), tile=(64, 128), num_tiles=200, resident=2, in_flight=0, seconds=1.0, comm_sms=4)
    assert of_ours(H200, one).blocks == 128
    assert of_ours(H200, replace(one, comm_sms=0)).blocks == 200
    assert of_ours(H200, replace(one, num_tiles=256)).blocks == 256
