"""What single axes of schedules mean: one shot or two, and the controls of two streams."""

from pathlib import Path

import pytest

from kernels.fabric import Fabric, parse
from kernels.machine import Machine, load
from kernels.operators import OPERATORS, problem
from kernels.plan import Kind, Plan
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import axes as schemes_axes
from kernels.schemes import axis_rules, expand, schedule, stream_controls

# One shot or two: as the schedule says, or as all schedules meant before they could say it; and what each sends.

MACHINES = Path(__file__).parents[3] / "data/machines"
NVLINK = Fabric(kind="nvlink")


@pytest.fixture(scope="module")
def h200() -> Machine:
    return load(MACHINES / "h200_nvl8.toml")


def gemv(rows: int = 8192, tokens: int = 1) -> Problem:
    return problem("gemv_all_reduce", {"n": rows, "k": 28672, "tokens": tokens}, world=4, dtype="bfloat16")


def planned(h200: Machine, rows: int = 8192, **values: int) -> Plan:
    asked = gemv(rows)
    return expand(asked, schedule(asked, "fused", values, h200, NVLINK))


@pytest.mark.parametrize(("rows", "expected"), [(8192, 1), (65536, 1), (65540, 2), (131072, 2)])
def test_a_schedule_that_says_nothing_means_what_all_schedules_meant(rows: int, expected: int) -> None:
    asked = problem("gemv_all_reduce", {"n": rows, "k": 512, "tokens": 1}, world=4)
    assert axis_rules.shots(asked, Schedule("fused")) == expected


@pytest.mark.parametrize("value", [1, 2])
def test_what_a_schedule_says_goes(value: int) -> None:
    asked = problem("gemv_all_reduce", {"n": 8192, "k": 512, "tokens": 1}, world=4)
    assert axis_rules.shots(asked, Schedule("fused", (("shots", value),))) == value


@pytest.mark.parametrize("rows", [8192, 131072])
def test_the_value_that_stored_schedules_had_is_in_no_key_and_shown_all_the_same(h200: Machine, rows: int) -> None:
    asked, usual = gemv(rows), 1 if rows == 8192 else 2
    plain = schedule(asked, "fused", {}, h200, NVLINK)
    assert plain == schedule(asked, "fused", {"shots": usual}, h200, NVLINK)
    assert "shots" not in plain.to_json()["axes"]
    assert schedule(asked, "fused", {"shots": 3 - usual}, h200, NVLINK)["shots"] == 3 - usual
    named = Schedule("fused", (*plain.axes, ("shots", usual)))
    assert axis_rules.effective(asked, named, "triton") == plain
    assert axis_rules.all_axes(asked, plain, "triton") == {**dict(plain.axes), "shots": usual}
    [axis] = [axis for axis in schemes_axes(asked, "fused", h200, NVLINK) if axis.name == "shots"]
    assert (axis.values, axis.default) == ((1, 2), usual)


@pytest.mark.parametrize(
    ("operator", "order"), [("gemm_all_to_all", "interleaved"), ("gemm_reduce_scatter", "rotated")]
)
@pytest.mark.parametrize("value", [{}, {"group_rows": 4}, {"store": "registers"}, {"slice_tiles": 4}])
def test_a_value_that_spanning_tiles_do_not_read_leaves_the_defaults_of_tiles_of_one_rank(
    h200: Machine, operator: str, order: str, value: dict[str, int | str]
) -> None:
    few_rows = problem(operator, {"m": 128, "n": 4096, "k": 4096}, dtype="bfloat16", world=4)
    chosen = schedule(few_rows, "fused", value, h200, NVLINK)
    assert chosen["tile_order"] == ("spanning" if not value else "interleaved" if "slice_tiles" in value else order)
    if value:
        usual = {"store": "tma", "num_warps": 8, "num_stages": 3, "group_rows": 8, "grid": 0} | value
        assert {name: chosen[name] for name in usual} == usual


def test_who_sends_no_packets_has_no_such_axis(h200: Machine) -> None:
    laptop = load(MACHINES / "laptop_cpu.toml")
    assert "shots" not in {axis.name for axis in schemes_axes(gemv(), "fused", laptop, parse("emulated"))}
    gemm = problem("gemm_all_reduce", {"m": 1024, "n": 1024, "k": 1024}, world=4)
    assert "shots" not in {axis.name for axis in schemes_axes(gemm, "fused", h200, NVLINK)}
    on_cpus = schedule(gemv(), "fused", {}, laptop, parse("emulated"))
    assert not axis_rules.sends_packets(gemv(), on_cpus)
    assert "shots" not in axis_rules.all_axes(gemv(), on_cpus, "cpu")


def test_bytes_are_those_that_really_leave_beside_the_operator_s_minimum(h200: Machine) -> None:
    one, two = planned(h200, shots=1), planned(h200, shots=2)
    assert one.wire_bytes(0) == 3 * 8192 * 8 == 196_608
    assert two.wire_bytes(0) == 2 * 3 * 8192 // 4 * 8
    assert OPERATORS["gemv_all_reduce"].wire_bytes(gemv()) == 2 * 3 * 8192 // 4 * 2


def test_in_one_shot_every_rank_sums_everything_alone(h200: Machine) -> None:
    plan = planned(h200, shots=1)
    for rank in range(4):
        sums = (plan.rank == rank) & (plan.kind == Kind.REDUCE)
        assert (plan.tile_stop - plan.tile_start)[sums].sum() == len(plan.tiles[rank])
        for step in sums.nonzero()[0].tolist():
            needed = plan.waits_for(step)
            assert sorted(plan.rank[needed]) == [0, 1, 2, 3]
            assert set(plan.num_bytes[needed][plan.kind[needed] == Kind.PUT]) == {
                int(plan.tiles[rank].areas()[plan.tile_start[step] : plan.tile_stop[step]].sum()) * 8
            }


def test_in_two_shots_owners_sum_their_rows_and_tell_all(h200: Machine) -> None:
    plan = planned(h200, shots=2)
    for rank in range(4):
        sums = (plan.rank == rank) & (plan.kind == Kind.REDUCE)
        assert (plan.tiles[rank].chunk[plan.tile_start[sums]] == rank).all()
        assert ((plan.rank == rank) & (plan.kind == Kind.PUT)).sum() == sums.sum() * (3 + 3)


# Controls of two streams: which of them a schedule has, and the same streams without any.

OURS = {"tile": "64x128x64", "micro_batches": 8, "kernel": "ours", "comm_priority": "high", "resident_blocks": 1,
        "comm_sms": 0}  # fmt: skip
MODES = (
    ({}, stream_controls.BOTH), ({"comm_priority": "normal"}, stream_controls.SHAPING),
    ({"resident_blocks": 0}, stream_controls.PRIORITISED),
    ({"comm_priority": "normal", "resident_blocks": 0}, stream_controls.STREAMS),
    ({"comm_sms": 8}, stream_controls.SHARED),
)  # fmt: skip
"""Axes in addition to OURS, and the mode that they make: every mode once."""


@pytest.mark.parametrize(("axes", "mode"), MODES)
def test_every_mode_has_its_name(axes: dict[str, int | str], mode: str) -> None:
    assert stream_controls.mode({**OURS, **axes}) == mode


def test_cpu_ranks_have_a_priority_alone() -> None:
    axes = {"tile": "64x64x64", "micro_batches": 4, "collective": "direct", "comm_priority": "high"}
    assert stream_controls.mode(axes) == stream_controls.PRIORITISED
    assert stream_controls.off(axes) == {**axes, "comm_priority": "normal"}


def test_a_schedule_with_one_stream_has_no_mode_and_no_controls() -> None:
    axes = {"tile": "64x64x64", "collective": "library", "comm_sms": 8}
    assert not stream_controls.has_controls(axes)
    assert stream_controls.mode(axes) is None


def test_halves_alone_are_told_apart_by_what_they_read_and_streams_alone_have_no_control() -> None:
    schedule = Schedule("concurrent", tuple({**OURS, "comm_sms": 8}.items()))
    computes, moves = (dict(stream_controls.half(schedule, part).axes) for part in ("compute", "communication"))
    assert computes == {**OURS, "comm_sms": 8, "comm_priority": "normal"}
    assert moves == {**computes, "kernel": "library", "resident_blocks": 0}
    for part, axes in (("compute", computes), ("communication", moves)):
        assert stream_controls.of_half(axes, part) == stream_controls.of_half(dict(schedule.axes), part)
    cut = {"tile": "t", "comm_sms": 8, "pieces": 2}
    assert stream_controls.of_half(cut, "communication") == cut, "no controls of two streams"
    alone = stream_controls.streams_alone(schedule)
    assert stream_controls.mode(dict(alone.axes)) == stream_controls.STREAMS
    assert [name for name, _ in alone.axes] == [name for name, _ in schedule.axes], "in the same order"
