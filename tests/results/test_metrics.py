"""Derived numbers and floors follow their definitions, and are absent where a part is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernels.fabric import parse
from kernels.machine import Machine
from kernels.operators import OPERATORS, problem
from kernels.outcome import Estimate, Failure, Measurement, Span
from kernels.plan import Kind
from kernels.schemes import expand, schedule
from kernels.trial import PROTOCOLS, Trial
from workbench.charts.waterfall import MEANING
from workbench.machines import shipped_machine
from workbench.reports import run_report
from workbench.results import metrics, recordings

# Derived numbers follow their definitions, and are absent where a part is missing.

MakeTrial = Callable[..., Trial]
Measure = Callable[..., Measurement]


def span(rank: int, pool: str, start: float, stop: float) -> Span:
    kind = "compute" if pool == "compute" else "put"
    return Span(f"{rank}/{kind}/-1/0", rank, kind, pool, start, stop)


def test_the_floor_is_the_larger_of_compute_and_wire() -> None:
    assert metrics.floor(3.0, 8.0, 4.0) == 3.0
    assert metrics.floor(1.0, 8.0, 4.0) == 2.0


def test_the_pipeline_floor_is_computation_alone_or_a_slice_and_then_the_wire() -> None:
    assert metrics.pipeline_floor(3.0, minimal_wire_bytes=8.0, put_bytes_per_second=4.0, first_slice_s=0.5) == 3.0
    assert metrics.pipeline_floor(2.2, minimal_wire_bytes=8.0, put_bytes_per_second=4.0, first_slice_s=0.5) == 2.5


def test_exposed_communication_is_a_share_of_what_the_library_exposes() -> None:
    assert metrics.exposed_share(3.5, library_s=5.0, compute_s=3.0) == 0.25
    assert metrics.exposed_share(6.0, library_s=5.0, compute_s=3.0) == 1.5
    assert metrics.exposed_share(3.5, library_s=3.0, compute_s=3.0) is None


def test_a_perfect_overlap_has_efficiency_one_and_none_has_zero() -> None:
    assert metrics.overlap_efficiency(3.0, plain_s=5.0, compute_s=3.0, comm_s=2.0) == 1.0
    assert metrics.overlap_efficiency(5.0, plain_s=5.0, compute_s=3.0, comm_s=2.0) == 0.0


def test_without_communication_there_is_nothing_to_hide() -> None:
    assert metrics.overlap_efficiency(3.0, plain_s=3.0, compute_s=3.0, comm_s=0.0) is None
    assert metrics.share_of_ideal(3.0, whole_s=3.0, transfer_s=0.0) is None
    assert metrics.overlap_ratio([span(0, "compute", 0, 1)]) is None


def test_share_of_ideal_compares_gained_with_possible_speed_up() -> None:
    assert metrics.ideal_speedup(1.0, 1.0) == 2.0
    assert metrics.ideal_speedup(4.0, 1.0) == 1.25
    assert metrics.share_of_ideal(1.0, whole_s=1.0, transfer_s=1.0) == 1.0
    assert metrics.share_of_ideal(4 / 3, whole_s=1.0, transfer_s=1.0) == pytest.approx(0.5)
    assert metrics.share_of_ideal(5.0, whole_s=4.0, transfer_s=1.0) == 0.0


def part_row(part: str, time_s: float, scheme: str = "decomposed", **more: object) -> dict[str, object]:
    """A row of one part of a schedule, all of one problem and one block."""
    axes = {"pieces": 2} if scheme == "decomposed" else {"collective": "library"}
    given = {"outcome": "measurement", "source": "measured", "operator": "all_gather_gemm", "shape": {"m": 8}}
    place = {"world": 2, "dtype": "bfloat16", "machine": "h200_nvl2", "fabric": "nvlink", "protocol": "device"}
    moved = {"backend": "triton", "block": "b1", "minimal_wire_bytes": 64, "wire_bytes_per_rank": 64, "adds": False}
    return {**given, **place, **moved, "axes": axes, "scheme": scheme, "part": part, "time_s": time_s, **more}


def test_the_signatures_of_pieces_are_formed_from_the_parts_of_their_block() -> None:
    rows = [
        part_row("compute", 8.0, "sequential"), part_row("compute", 9.0, "sequential", axes={"collective": "direct"}),
        part_row("compute", 8.8), part_row("communication", 5.0, computing_s=None, moving_s=4.0),
        part_row("communication", 4.0, "sequential"), part_row("communication", 3.0, "sequential", adds=True),
        part_row("communication", 2.0, "sequential", wire_bytes_per_rank=128),
        part_row("compute", 1.0, "sequential", block="another"),
        part_row("whole", 10.0, computing_s=9.68, moving_s=5.0), part_row("whole", 12.0, "sequential"),
    ]  # fmt: skip
    filled = metrics.fill(rows)[-2]
    assert (filled["whole_s"], filled["transfer_s"]) == (8.0, 4.0), "the best whole; what adds, or moves more, is none"
    assert filled["decomposition_loss"] == pytest.approx({"compute": 1.1, "communication": 1.25})
    assert filled["contention_loss"] == pytest.approx({"compute": 1.1, "communication": 1.25}), "busy over busy"
    assert filled["ideal_speedup"] == 1.5
    assert filled["share_of_ideal"] == pytest.approx(0.4)
    for other in (metrics.fill(rows)[0], metrics.fill(rows)[-1]):
        assert other["decomposition_loss"] is other["share_of_ideal"] is None, "a part and a baseline have none"


def test_signatures_whose_parts_are_missing_are_none() -> None:
    alone = metrics.fill([part_row("whole", 10.0)])[0]
    assert [alone[key] for key in ("decomposition_loss", "contention_loss", "ideal_speedup", "share_of_ideal")] == [
        None
    ] * 4
    computed = metrics.fill(
        [part_row("compute", 8.0, "sequential"), part_row("compute", 8.8), part_row("whole", 10.0)]
    )[-1]
    assert computed["decomposition_loss"] == pytest.approx({"compute": 1.1, "communication": None})


def test_bytes_are_of_one_problem_as_a_time_is(make_trial: Any) -> None:
    several = make_trial("concurrent", operator="gemm_all_to_all", micro_batches=4)
    assert metrics.wire_bytes(several) == metrics.wire_bytes(make_trial("sequential", operator="gemm_all_to_all"))


def test_what_sums_on_its_way_is_no_transfer(make_trial: Any) -> None:
    assert metrics.adds(make_trial("sequential", operator="gemm_reduce_scatter"))
    assert not metrics.adds(make_trial("sequential", operator="gemm_all_to_all"))


def test_overlap_ratio_counts_time_once_and_rank_by_rank() -> None:
    spans = [span(0, "compute", 0, 2), span(0, "compute", 1, 3), span(0, "link", 2, 6),
             span(1, "compute", 0, 1), span(1, "link", 4, 6)]  # fmt: skip
    assert metrics.overlap_ratio(spans) == pytest.approx(1 / 6)


def test_processors_that_copy_the_bytes_of_a_put_do_not_compute() -> None:
    copies = Span("0/put/1/0", 0, "put", "compute", 2, 4)
    assert metrics.overlap_ratio([span(0, "compute", 0, 3), copies, span(0, "link", 2, 6)]) == pytest.approx(1 / 4)


def test_what_is_on_a_stream_without_computation_is_communication_whoever_moves_it() -> None:
    pushed = Span("0/put/1/0", 0, "put", "compute", 2, 4, stream=2)
    added = Span("0/reduce/-1/0", 0, "reduce", "compute", 4, 6, stream=2)
    assert metrics.overlap_ratio([span(0, "compute", 0, 3), pushed, added]) == pytest.approx(1 / 4)
    assert metrics.overlap_ratio([span(0, "compute", 0, 3), added._replace(stream=0)]) is None


def test_spans_of_several_problems_are_shortened_as_their_time_is() -> None:
    spans = [span(0, "compute", 0, 4), span(0, "link", 2, 8)]
    row = {"scheme": "concurrent", "axes": {"micro_batches": 4}}
    assert [(each.start_s, each.stop_s) for each in metrics.per_problem(spans, row)] == [(0, 1), (0.5, 2)]
    assert metrics.per_problem(spans, {"scheme": "fused", "axes": {"slice_tiles": 4}}) is spans
    known = {"floor_s": 1.0, "compute_s": 1.0, "time_s": 2.0}
    losses = metrics.waterfall({**known, **row}, spans, pieces_alone_s=1.0) or {}
    assert losses["unexplained"] == pytest.approx(2.0 - 1.0 - (losses["fill and drain"] or 0.0))


TWO_STREAMS = {"tile": "t", "micro_batches": 8, "collective": "library", "kernel": "ours", "comm_priority": "normal",
               "resident_blocks": 0, "comm_sms": 0}  # fmt: skip


def test_controls_are_compared_with_the_same_streams_without_any() -> None:
    """Both losses of contention come from the halves alone, which have no priority."""

    def row(time_s: float, part: str = "whole", **axes: object) -> dict[str, object]:
        return part_row(part, time_s, "concurrent", axes={**TWO_STREAMS, **axes}, computing_s=7.7, moving_s=6.0)

    rows = [
        row(10.0), row(8.0, comm_priority="high"), row(9.0, resident_blocks=1), row(6.0, kernel="library", comm_sms=8),
        row(7.0, "compute"), row(5.0, "communication"), part_row("whole", 12.0, "sequential"),
        row(5.0) | {"block": "another"},
    ]  # fmt: skip
    for part in rows[4:6]:
        part["computing_s"] = part["moving_s"] = None
    filled = metrics.fill(rows)
    assert [each["against_streams"] for each in filled[:4]] == [1.0, 0.8, 0.9, None], "another kernel, other streams"
    assert [each["against_streams"] for each in filled[4:7]] == [None] * 3
    assert [each["time_ratio"] for each in filled[:2]] == pytest.approx([10 / 12, 8 / 12])
    assert filled[1]["contention_loss"] == pytest.approx({"compute": 1.1, "communication": 1.2})
    assert filled[2]["contention_loss"] == {"compute": None, "communication": 1.2}, "its blocks are other ones"
    early = metrics.fill(rows[:1])[0]
    assert early["time_ratio"] is None
    assert metrics.agreed_in_block([early, filled[1]])[0]["time_ratio"] == pytest.approx(10 / 12)


def test_losses_and_ratios_are_above_one_where_time_was_lost() -> None:
    assert metrics.exposed_communication(5.0, compute_s=3.0) == 2.0
    assert metrics.decomposition_loss(3.3, whole_alone_s=3.0) == pytest.approx(1.1)
    assert metrics.contention_loss(3.6, alone_s=3.0) == pytest.approx(1.2)
    assert metrics.time_ratio(4.0, sequential_s=5.0) == 0.8
    assert metrics.against_streams(4.0, streams_s=5.0) == 0.8
    assert metrics.above_longer(6.0, compute_s=5.0, comm_s=4.0) == pytest.approx(0.2)


def test_busbw_is_what_one_direction_carries_in_every_collective() -> None:
    gemm = {"m": 1024, "n": 512, "k": 256}
    sizes = {
        "gemv_all_reduce": {"n": 1024, "k": 512, "tokens": 4},
        "embedding_all_to_all": {"tables_per_rank": 2, "rows": 100, "dim": 16, "batch": 64, "pooling": 4},
    }
    for name, operator in OPERATORS.items():
        asked = problem(name, sizes.get(name, gemm), world=4)
        assert metrics.busbw(asked, 2.0) == pytest.approx(operator.wire_bytes(asked) / 2.0), name


def test_a_waterfall_falls_from_the_floor_to_the_measured_time() -> None:
    spans = [span(0, "compute", 0.1, 1.4), span(0, "link", 0.5, 1.9), span(1, "compute", 0, 1)]
    row = {"floor_s": 0.9, "compute_s": 1.0, "time_s": 2.0}
    losses = metrics.waterfall(row, spans, pieces_alone_s=1.2)
    assert losses == pytest.approx({
        **{"floor": 0.9, "disturbance": 0.1, "fill and drain": 0.5, "waiting": 0.0},
        **{"decomposition": 0.2, "contention": 0.1, "unexplained": 0.2},
    })  # fmt: skip
    assert list(losses or {}) == list(MEANING)


def test_parts_of_a_waterfall_that_were_timed_are_known_without_the_others() -> None:
    spans = [span(0, "compute", 0.1, 1.4), span(0, "link", 0.5, 1.9)]
    row = {"floor_s": 0.9, "compute_s": 1.0, "time_s": 2.0}
    missing = {
        ("disturbance", "decomposition"): metrics.waterfall({**row, "compute_s": None}, spans, pieces_alone_s=1.2),
        ("fill and drain", "waiting", "contention"): metrics.waterfall(row, [], pieces_alone_s=1.2),
        ("decomposition", "contention"): metrics.waterfall(row, spans, pieces_alone_s=None),
    }
    for parts, losses in missing.items():
        assert losses is not None
        assert tuple(metrics.unknown_losses(losses)) == parts
        assert sum(each or 0.0 for each in losses.values()) == pytest.approx(2.0)
    assert metrics.waterfall({**row, "floor_s": None}, spans, pieces_alone_s=1.2) is None


def test_a_sequential_computation_alone_serves_every_collective() -> None:
    ours = {"tile": "t", "collective": "direct", "kernel": "ours"}
    alone = {"part": "compute", "scheme": "sequential", "source": "recorded", "block": "b", "time_s": 1.0}
    rows = [alone | {"axes": {**ours, "collective": "library"}},
            alone | {"axes": {"tile": "t", "collective": "library", "kernel": "library"}, "time_s": 2.0}]  # fmt: skip
    whole = {"scheme": "sequential", "source": "recorded", "block": "b"}
    expected = (
        (1.0, ours),
        (2.0, {**ours, "kernel": "library", "tile": "u"}),
        (None, {**ours, "tile": "u"}),
        (None, {**ours, "kernel": "library", "collective": "overlapped"}),
    )
    for time_s, axes in expected:
        assert run_report.pieces_alone_s(rows, {**whole, "axes": axes}) == time_s, axes
    assert run_report.pieces_alone_s(rows, {**whole, "axes": ours, "block": "c"}) is None
    streams = {"scheme": "concurrent", "source": "recorded", "block": "b"}
    halves = [streams | {"part": "compute", "time_s": 3.0, "axes": TWO_STREAMS}]
    assert run_report.pieces_alone_s(halves, streams | {"axes": {**TWO_STREAMS, "comm_priority": "high"}}) == 3.0


def test_a_trial_that_nothing_disturbs_leaves_nothing_unexplained() -> None:
    compute_s, pieces_s, wire_s = 1.2, 1.3, 0.8
    sequential = [span(0, "compute", 0, compute_s), span(0, "link", compute_s, compute_s + wire_s)]
    decomposed = [span(0, "compute", 0, pieces_s), span(0, "link", 0.65, pieces_s + wire_s / 2)]
    for spans, alone_s in ((sequential, compute_s), (decomposed, pieces_s)):
        row = {"floor_s": 1.0, "compute_s": compute_s, "time_s": spans[-1].stop_s}
        losses = metrics.waterfall(row, spans, alone_s) or {}
        assert losses["disturbance"] == pytest.approx(0.2)
        assert losses["unexplained"] == pytest.approx(0)


def test_a_computation_that_waits_for_the_wire_in_between_is_explained() -> None:
    """A sequential schedule copies its own share after the call: its processors wait meanwhile."""
    spans = [span(0, "compute", 0, 1.2), span(0, "link", 1.2, 2.0), span(0, "compute", 2.0, 2.1)]
    row = {"floor_s": 1.2, "compute_s": 1.3, "time_s": 2.1}
    losses = metrics.waterfall(row, spans, pieces_alone_s=1.3) or {}
    assert losses["waiting"] == pytest.approx(0.8)
    assert losses["unexplained"] == pytest.approx(0)


def test_what_hides_behind_the_wire_is_no_loss() -> None:
    spans = [span(0, "compute", 0, 1.3), span(0, "link", 0.3, 2.3)]
    losses = metrics.waterfall({"floor_s": 2.0, "compute_s": 1.2, "time_s": 2.3}, spans, pieces_alone_s=1.3)
    assert {part: seconds for part, seconds in (losses or {}).items() if abs(seconds or 0.0) > 1e-12} == pytest.approx(
        {"floor": 2.0, "fill and drain": 0.3}
    )


def test_rows_are_completed_from_the_parts_of_the_same_problem(make_trial: MakeTrial, measure: Measure) -> None:
    baseline = make_trial("sequential")
    outcomes = [
        measure(make_trial("sequential", "compute", fabric="shared_memory"), 3e-3),
        measure(make_trial("decomposed", "compute"), 4e-3),
        measure(baseline.of_part("communication"), 2e-3),
        measure(baseline, 5e-3),
        measure(make_trial("fused"), 3.5e-3),
    ]
    filled = metrics.fill([metrics.row_of(outcome) for outcome in outcomes])[-1]
    minimal = 128 * 128 * 4
    assert filled["compute_s"] == pytest.approx(3e-3)
    assert filled["comm_s"] == pytest.approx(2e-3)
    assert filled["sequential_s"] == pytest.approx(5e-3)
    assert filled["wire_bytes_per_rank"] == filled["minimal_wire_bytes"] == minimal
    assert filled["floor_s"] == pytest.approx(max(3e-3, minimal / 1e9))


def test_a_row_that_overlaps_has_its_pipeline_floor_and_the_librarys_time(
    make_trial: MakeTrial, measure: Measure
) -> None:
    baseline = make_trial("sequential")
    by_library = make_trial("sequential", fabric="shared_memory", collective="library")
    fused = make_trial("fused", slice_tiles=1)
    outcomes = [measure(make_trial("sequential", "compute", fabric="shared_memory"), 3e-4), measure(baseline, 5e-4),
                measure(by_library, 6e-4), measure(fused, 4e-4)]  # fmt: skip
    machine = shipped_machine("laptop_cpu")
    filled = metrics.fill([metrics.row_of(outcome, None, machine) for outcome in outcomes])
    wire_bytes, tiles = 128 * 128 * 4, len(expand(fused.problem, fused.schedule).tiles[0])
    assert filled[-1]["first_slice_share"] == pytest.approx(1 / tiles)
    assert filled[-1]["put_bytes_per_second"] == 1e9
    assert filled[-1]["pipeline_floor_s"] == pytest.approx(max(3e-4, wire_bytes / 1e9 + 3e-4 * 0.99 / tiles), rel=0.02)
    assert filled[-1]["library_s"] is None, "it ran over another link"
    assert filled[2]["library_s"] == pytest.approx(6e-4)
    assert [each["pipeline_floor_s"] for each in filled[:3]] == [None, None, None]
    assert [each["put_bytes_per_second"] for each in filled] == [None, 1e9, None, 1e9]


def test_the_floor_is_of_the_computation_at_its_fastest(make_trial: MakeTrial, measure: Measure) -> None:
    slow = metrics.row_of(measure(make_trial("sequential", "compute"), 9.0))
    filled = metrics.fill([{**slow, "low_s": 7.0, "high_s": 10.0}, metrics.row_of(measure(make_trial("fused")))])[1]
    assert (filled["compute_s"], filled["floor_s"]) == (9.0, 7.0)


def test_the_uncertainty_of_an_estimate_lowers_no_floor(make_trial: MakeTrial) -> None:
    guess = {"time_s": 9.0, "low_s": 7.0, "high_s": 11.0, "calibrated": True, "predictor": "p", "digest": "d"}
    rows = [metrics.row_of(Estimate(trial=make_trial("fused", part), **guess)) for part in ("compute", "whole")]
    assert metrics.fill(rows)[1]["floor_s"] == 9.0


def test_what_was_not_measured_stays_empty(make_trial: MakeTrial, measure: Measure) -> None:
    alone = metrics.fill([metrics.row_of(measure(make_trial("fused")))])[0]
    assert [alone[key] for key in ("floor_s", "compute_s", "comm_s", "sequential_s")] == [None] * 4


def test_measured_rows_are_not_joined_with_estimates(make_trial: MakeTrial, measure: Measure) -> None:
    part = make_trial("sequential", "compute")
    guess = Estimate(trial=part, time_s=1e-9, low_s=1e-9, high_s=1e-9, calibrated=False, predictor="p", digest="d")
    rows = [metrics.row_of(guess), metrics.row_of(measure(make_trial("fused")))]
    assert metrics.fill(rows)[1]["compute_s"] is None


def test_other_links_have_other_baselines_but_the_same_compute(make_trial: MakeTrial, measure: Measure) -> None:
    slow = "emulated:bandwidth_bytes_per_second=1e6"
    outcomes = [measure(make_trial("sequential", "compute")), measure(make_trial("sequential"))]
    filled = metrics.fill(
        [metrics.row_of(outcome) for outcome in [*outcomes, measure(make_trial("fused", fabric=slow))]]
    )
    assert filled[-1]["sequential_s"] is None
    assert filled[-1]["floor_s"] == pytest.approx(128 * 128 * 4 / 1e6)


def test_one_rank_has_its_computation_for_a_floor(make_trial: MakeTrial, measure: Measure) -> None:
    alone = make_trial("sequential", world=1)
    rows = metrics.fill([metrics.row_of(measure(alone.of_part("compute"), 2e-3)), metrics.row_of(measure(alone))])
    assert rows[1]["wire_bytes_per_rank"] == 0
    assert rows[1]["floor_s"] == pytest.approx(2e-3)


def test_a_real_link_takes_its_bandwidth_from_the_machine(make_trial: MakeTrial, machine: Machine) -> None:
    shared = make_trial("sequential", fabric="shared_memory")
    assert metrics.link_bytes_per_second(shared, machine) == 1e9
    assert metrics.link_bytes_per_second(shared, None) is None
    unresolved = replace(shared, fabric=make_trial(fabric="emulated:wire_to_compute=1").fabric)
    assert metrics.link_bytes_per_second(unresolved, machine) is None


def test_a_refused_trial_has_no_plan_to_count_bytes_of(make_trial: MakeTrial) -> None:
    refused = Failure(trial=make_trial(), stage="refused", message="no")
    assert metrics.row_of(refused)["wire_bytes_per_rank"] is None


def test_the_baseline_is_the_fastest_sequential_schedule_and_efficiency_wants_one_that_does_not_overlap() -> None:
    """torch's overlapped operators and our kernel as the computation count; nobody knows the parts of the former."""

    def took(seconds: float, scheme: str = "sequential", **axes: str) -> dict[str, Any]:
        row = metrics.row_of(Measurement(trial=ways[0], samples=((seconds,),), correct=True, block="b"))
        return {**row, "scheme": scheme, "axes": axes}

    ways = [entry.measurement.trial for entry in recordings.recordings("h200_nvl2_ways")]
    rows = [took(5.0, collective="library", kernel="library"), took(4.0, collective="direct", kernel="ours"),
            took(3.0, collective="overlapped", kernel="library"), took(2.0, "fused"),
            took(1.0, "decomposed")]  # fmt: skip
    filled = metrics.fill(rows)[3]
    assert [filled[key] for key in ("sequential_s", "plain_s", "library_s")] == [3.0, 4.0, 5.0]
    assert metrics.gain(filled) == 1.5
    older = metrics.fill([metrics.row_of(entry.measurement) for entry in recordings.recordings("h200_nvl2_ways")])
    assert all(row["sequential_s"] == row["plain_s"] for row in older), "there they are decomposed"


# What a pipeline floor is computed from: the first slice of a Plan, and a put rate that was measured or is absent.

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
