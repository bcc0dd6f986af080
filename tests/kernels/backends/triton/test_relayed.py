"""Tiles that leave by SMs that only send: interpreted by a process for each program, as stamps, and as compiled."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.backends.triton import launch, timeline
from kernels.backends.triton.kernels.sync import COMPUTED, PROCESSOR, SENT, STARTED, WAITED
from kernels.fabric import parse
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind
from kernels.schedule import Refusal, Schedule
from kernels.schemes import axes, axis_rules, expand, schedule
from kernels.trial import Trial
from tests.kernels.backends.triton.compile_sm90 import kernels_of
from tests.kernels.backends.triton.conftest import H200, InterpretedGang, gpu_trial
from workbench.machines import shipped_machine

CALLS, NVLINK = 3, parse("nvlink")
SENT_BY = ("gemm_all_to_all", "gemm_reduce_scatter", "gemm_all_reduce")
SUMMED = SENT_BY[1:]
RAGGED = {"m": 136, "n": 80, "k": 200}
"""Sizes that no tile divides. A tile takes longer to compute than to send: who does not wait for it is too early."""
SMALL = {"m": 128, "n": 64, "k": 32}
"""Four tiles for each of two owners: two waves of two programs, and one of the sums that are sent."""


def relayed(operator: str, shape: dict[str, int], world: int = 2, dtype: str = "float16", **axes: Any) -> Trial:
    chosen = {"tile": "32x32x16", "store": "tma", "tile_order": "rotated", "comm_sms": 4} | axes
    return gpu_trial(operator, shape, world=world, dtype=dtype, **chosen)


def passed(answers: list[dict[str, Any]], calls: int = CALLS) -> None:
    assert all("failure" not in answer for answer in answers), answers
    assert all(answer["error_of_bound"] <= 1 for answer in answers), answers
    assert all(answer["epoch"] == calls for answer in answers), answers


# Interpreted ranks, whose programs run side by side.


@pytest.mark.slow(keeps=3)
@pytest.mark.parametrize(("operator", "world", "shape", "programs"), [
    ("gemm_all_to_all", 2, RAGGED, 5), ("gemm_reduce_scatter", 2, RAGGED, 3), ("gemm_all_reduce", 2, RAGGED, 5),
    ("gemm_all_to_all", 4, RAGGED, 3), ("gemm_reduce_scatter", 2, RAGGED, 5), ("gemm_all_reduce", 2, RAGGED, 3),
    ("gemm_all_reduce", 2, SMALL, 9),  # five compute four own tiles: all sums leave by themselves
])  # fmt: skip
def test_they_reach_their_owners(
    gangs: dict[int, InterpretedGang], operator: str, world: int, shape: dict[str, int], programs: int
) -> None:
    """By one program that only sends, by two, or by four."""
    passed(gangs[world].call(relayed(operator, shape, world), CALLS, programs))


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(("operator", "dtype", "axes"), [
    ("gemm_all_reduce", "float32", {"tile": "64x128x32"}),  # a tile leaves in two pieces, the last one in half of one
    ("gemm_all_to_all", "float32", {"tile": "64x128x32", "tile_order": "remote_first"}),
    ("gemm_reduce_scatter", "float32", {"group_rows": 2, "comm_sms": 16}),
    ("gemm_all_to_all", "float16", {"group_rows": 1}),
])  # fmt: skip
def test_they_do_in_pieces_in_other_orders_and_of_other_types(
    gangs: dict[int, InterpretedGang], operator: str, dtype: str, axes: dict[str, Any]
) -> None:
    """The interpreter takes bfloat16 for its bits in bulk copies."""
    passed(gangs[2].call(relayed(operator, {"m": 176, "n": 304, "k": 64}, dtype=dtype, **axes), CALLS, programs=3))


def test_both_ranks_of_an_all_reduce_have_the_same_bits(gangs: dict[int, InterpretedGang]) -> None:
    """Of sums that are sent from memory, and of those that leave with their last tiles."""
    first, second = (answer["bits"] for answer in gangs[2].call(relayed("gemm_all_reduce", RAGGED), 1, programs=3))
    assert first == second


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", SENT_BY)
def test_they_are_right_where_numbers_of_calls_wrap_and_a_peer_is_late(
    gangs: dict[int, InterpretedGang], operator: str
) -> None:
    answers = gangs[2].call(relayed(operator, SMALL), programs=3, stamped=True, way="wraps")
    assert all("failure" not in answer and answer["error_of_bound"] <= 1 for answer in answers), answers
    assert {amount for answer in answers for amount in answer["rises"]} == {1, 2}, "one sends and two compute"


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize(("operator", "awaited"), [
    ("gemm_all_to_all", "permission to write into rank 1's buffers"),
    ("gemm_reduce_scatter", "(permission to write into rank 1's buffers|the piece that raises counter 0)"),
])  # fmt: skip
def test_a_rank_that_calls_alone_ends_by_the_deadline_with_the_sentence(
    gangs: dict[int, InterpretedGang], operator: str, awaited: str
) -> None:
    alone, peer = gangs[2].call(relayed(operator, SMALL), CALLS, programs=3, way="one more")
    said = alone["alone"] or "nothing was said"
    assert re.search(rf"^Rank 0 waited 2 s for {awaited}: the counter was {CALLS} instead of {CALLS + 1}", said)
    assert 2 <= alone["seconds"] < 100, "one deadline, however busy this computer is"
    assert (alone["epoch"], peer["epoch"]) == (CALLS + 1, CALLS)


# What schedules take by default, and what cannot be.

LARGE = {"m": 2048, "n": 8192, "k": 7168}
LONG, SHORT = {"m": 4096, "n": 4096, "k": 14336}, {"m": 8192, "n": 4096, "k": 1792}


def chosen(operator: str, shape: dict[str, int], world: int = 2, **axes: Any) -> tuple[Any, int]:
    """The tile order and the number of SMs that only send; who omits it has none."""
    schedule = gpu_trial(operator, shape, world=world, dtype="bfloat16", **axes).schedule
    return schedule["tile_order"], schedule.get(axis_rules.COMM_SMS, 0)


@pytest.mark.parametrize(("operator", "shape"), [
    ("gemm_all_reduce", LARGE), ("gemm_reduce_scatter", LARGE), ("gemm_all_to_all", LONG)
])  # fmt: skip
def test_where_few_sms_keep_up_with_the_others_they_send_by_default(operator: str, shape: dict[str, int]) -> None:
    assert chosen(operator, shape) == ("rotated", 4)
    assert chosen(operator, shape, tile_order="remote_first") == ("remote_first", 0), "who names an order has no more"
    assert chosen(operator, shape, tile_order="remote_first", comm_sms=8) == ("remote_first", 8)
    assert chosen(operator, shape, comm_sms=8) == ("rotated", 8)


@pytest.mark.parametrize(("operator", "order"), [
    ("gemm_all_reduce", "rotated"), ("gemm_reduce_scatter", "ring"), ("gemm_all_to_all", "interleaved")
])  # fmt: skip
def test_elsewhere_all_sms_compute_and_send(operator: str, order: str) -> None:
    """Links take longer than the product, or what was not measured is asked for."""
    several = "rotated" if OPERATORS[operator].reduces else order
    assert chosen(operator, SHORT) == (order, 0)
    assert chosen(operator, LONG, comm_sms=0) == (order, 0)
    assert chosen(operator, LONG, tile_order=order) == (order, 0)
    assert chosen(operator, LONG, grid=132) == (order, 0)
    assert chosen(operator, LONG, tile="128x256x64", num_warps=4) == (order, 0), "four warps send half as much"
    assert chosen(operator, LONG, tile="64x128x64") == (order, 0), "whose blocks have four warps"
    assert chosen(operator, LONG, store="registers")[1] == 0
    assert chosen(operator, LONG, world=4) == (several, 0)


@pytest.mark.parametrize("slots", [2, 4, 8, 16, 32])
def test_as_many_sms_as_a_gpu_has_do_not_only_send(slots: int) -> None:
    few = replace(H200, device=replace(H200.device, slots=slots))
    for operator in SENT_BY:
        assert chosen(operator, SHORT, machine=few)[1] < slots


def test_who_cannot_add_in_pairs_has_no_such_axis() -> None:
    for operator in SENT_BY:
        for world in (1, 2, 4):
            schedule = gpu_trial(operator, LONG, world=world, dtype="bfloat16").schedule
            of = gpu_trial(operator, LONG, world=world, dtype="bfloat16").problem
            has = world == 2 or (world == 4 and operator == "gemm_all_to_all")
            names = {axis.name for axis in axes(of, "fused", H200, NVLINK)}
            assert (axis_rules.COMM_SMS in names) == axis_rules.may_relay(of) == has
            shown = axis_rules.all_axes(of, schedule, "triton")
            assert (axis_rules.COMM_SMS in shown) == has


def test_schedules_that_were_stored_before_mean_none() -> None:
    plain = relayed("gemm_all_reduce", LARGE, comm_sms=0)
    assert axis_rules.COMM_SMS not in dict(plain.schedule.axes)
    named = Schedule("fused", (*plain.schedule.axes, (axis_rules.COMM_SMS, 0)))
    assert axis_rules.effective(plain.problem, named, "triton") == plain.schedule
    assert axis_rules.all_axes(plain.problem, plain.schedule, "triton")[axis_rules.COMM_SMS] == 0
    assert plain.key != relayed("gemm_all_reduce", LARGE).key


EARLY, BY_BULK = "SMs that only send have the whole call", "the bulk copy engine puts tiles aside"


ORDERED = "Accepted: tile_order = rotated or remote_first, or comm_sms = 0"


@pytest.mark.parametrize(("operator", "axes", "sentence"), [
    ("gemm_all_to_all", {"tile_order": "interleaved"}, f"go with tile_order = interleaved: {EARLY} .* {ORDERED}"),
    ("gemm_all_reduce", {"tile_order": "natural"}, f"go with tile_order = natural: {EARLY}"),
    ("gemm_reduce_scatter", {"tile_order": "ring"}, f"go with tile_order = ring: {EARLY}"),
    ("gemm_all_reduce", {"store": "registers"}, f"go with store = registers: {BY_BULK}, .* Accepted: store = tma, or"),
    ("gemm_all_to_all", {"grid": 264}, r"go with grid = 264: .* 264 > 132\. Accepted: grid = 132 or 0, or"),
    ("gemm_all_reduce", {"tile_order": "spanning", "store": None}, "changes nothing .* threads store each tile's rows"),
    ("gemm_all_reduce", {"world": 4}, "changes nothing .* its kernel does not read it"),
])  # fmt: skip
def test_what_does_not_go_with_them_is_refused(operator: str, axes: dict[str, Any], sentence: str) -> None:
    shape = {"m": 128, "n": 256, "k": 256} if axes.get("tile_order") == "spanning" else LONG
    known = {name: value for name, value in ({"store": "tma"} | axes).items() if value is not None}
    with pytest.raises(Refusal, match=f"comm_sms = 4 .*{sentence}"):
        gpu_trial(operator, shape, dtype="bfloat16", comm_sms=4, **{"world": 2} | known)


def test_no_sm_sends_what_the_network_moves() -> None:
    """Whoever shares a put of several ranks has no SMs for it either."""
    hosts, network = shipped_machine("h200_ib"), parse("network")
    large = problem("gemm_all_to_all", LONG | {"m": 16 * LONG["m"]}, world=16, dtype="bfloat16")
    between = schedule(large, "fused", {}, hosts, network)
    assert between["transport"] == axis_rules.GIN
    assert axis_rules.COMM_SMS not in {axis.name for axis in axes(large, "fused", hosts, network)}
    assert not axis_rules.relays(large, between)
    with pytest.raises(Refusal, match=r"comm_sms = 4 changes nothing .* the network card moves the bytes"):
        gpu_trial("gemm_all_to_all", LONG, world=2, dtype="bfloat16", transport="gin", comm_sms=4)


def test_every_launch_has_one_program_for_each_sm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters are of waves: the form with stamps has as many programs as the one that is timed, whatever fits."""
    monkeypatch.setattr(launch, "_sms", lambda: 132)
    for size in ("128x256x64", "64x64x64"):
        of = gpu_trial("gemm_all_reduce", LONG, world=2, dtype="bfloat16", tile=size, tile_order="rotated", comm_sms=4)
        (timed, stamped) = kernels_of(of, rank=0)
        assert [each._programs(resident) for each in (timed, stamped) for resident in (132, 264, 396)] == [132] * 6


def test_a_gpu_without_bulk_copies_puts_nothing_aside() -> None:
    old = replace(H200, device=replace(H200.device, architecture=80))
    for operator in SENT_BY:
        schedule = gpu_trial(operator, LONG, world=2, dtype="bfloat16", machine=old).schedule
        assert (schedule["store"], schedule.get(axis_rules.COMM_SMS, 0)) == ("registers", 0)


@pytest.mark.parametrize("operator", SENT_BY)
def test_each_peers_tile_leaves_once_and_sums_wait_for_both_parts(operator: str) -> None:
    of = relayed(operator, RAGGED)
    plan, own = expand(of.problem, of.schedule), OPERATORS[operator]
    sent = plan.num_bytes[plan.kind == Kind.PUT].sum() // of.world
    assert sent == own.wire_bytes(of.problem), "as many bytes as the operator has to send"
    for rank in range(of.world):
        tiles, steps = plan.tiles[rank], plan.steps_of(rank)
        assert (np.diff(tiles.chunk == rank) >= 0).all(), "peers' tiles come first"
        sums = steps[plan.kind[steps] == Kind.REDUCE].tolist()
        assert bool(sums) == own.reduces
        for step in sums:
            needed = plan.waits_for(step)
            assert sorted(plan.rank[needed].tolist()) == [0, 1]
            [put] = needed[plan.kind[needed] == Kind.PUT].tolist()
            assert plan.num_bytes[step] == 2 * plan.num_bytes[put], "it reads what came, and writes the sum"
            here, there = ([getattr(plan.tiles[plan.rank[each]], side)[plan.tile_start[each] : plan.tile_stop[each]]
                            for side in ("chunk", "row_start", "row_stop", "col_start", "col_stop")]
                           for each in (step, put))  # fmt: skip
            assert np.array_equal(here, there), "the same tiles, of this owner"
    assert set(plan.launches.name) == {"gemm_relay"}


# What they write of every tile.


def written(words: np.ndarray[Any, np.dtype[np.int64]], which: tuple[int, ...]) -> None:
    """Each record has *which* moments, one after the other, and no others."""
    moments = words[:, list(which)]
    assert (moments > 0).all()
    assert (np.diff(moments, axis=1) > 0).all()
    assert not np.delete(words[:, : PROCESSOR.value], list(which), axis=1).any()


@pytest.mark.slow(keeps=1)
@pytest.mark.parametrize("operator", SENT_BY)
def test_every_step_of_the_plan_is_seen_in_time(gangs: dict[int, InterpretedGang], operator: str) -> None:
    """A tile is computed by one program and sent by another one; a sum of the last wave leaves by who made it."""
    of = relayed(operator, RAGGED)
    plan, answers = expand(of.problem, of.schedule), gangs[2].call(of, 2, programs=3, stamped=True)
    passed(answers, 2)
    for rank, answer in enumerate(answers):
        words, tiles = np.array(answer["stamps"], dtype=np.int64), len(plan.tiles[rank])
        own = plan.tiles[rank].chunk == rank
        computed = (STARTED.value, COMPUTED.value)
        written(words[:tiles][~own], (*computed, SENT.value))
        written(words[:tiles][own], computed)
        sums = words[tiles:]
        assert not sums[~own].any()
        if OPERATORS[operator].reduces:
            leave = (SENT.value,) if operator == "gemm_all_reduce" else ()
            written(sums[own], (STARTED.value, WAITED.value, COMPUTED.value, *leave))
            assert (words[:tiles][own, COMPUTED.value] < sums[own, STARTED.value]).all()
        else:
            assert not sums.any()
        begin = int(words[words > 0].min())
        spans = timeline.of_kernel(plan, rank, timeline.Stamps.read(words, begin, 1e-9))
        assert [span.step for span in spans] == [plan.address(int(step)) for step in plan.steps_of(rank)]
        assert all(0 <= span.start_s <= span.stop_s for span in spans)
        assert all(span.tiles for span in spans if span.kind == "compute")
        kinds = [Kind(int(plan.kind[step])) for step in plan.steps_of(rank)]
        assert (Kind.REDUCE in kinds) == OPERATORS[operator].reduces
