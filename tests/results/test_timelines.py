"""Numbers of timelines on spans with known answers, and on simulated ones: lanes, critical path, difference."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kernels.fabric import parse
from kernels.operators import problem
from kernels.outcome import Span
from kernels.schemes import schedule
from tests.charts.made import made_span
from tests.simulator import trials
from workbench.machines import shipped_machine
from workbench.results.timelines import (
    WAIT,
    BusyLanes,
    Segment,
    critical_path,
    difference,
    end_s,
    seconds_by_kind,
)
from workbench.simulator.predict import predict


def short(path: list[Segment]) -> list[tuple[str, float, float]]:
    return [(segment.kind, segment.start_s, segment.stop_s) for segment in path]


# The critical path goes back from the last end to whatever let each step begin.


def test_it_goes_from_rank_to_rank_along_what_steps_waited_for() -> None:
    spans = [
        made_span("0/compute/-1/0", 1.0, 4.0),
        made_span("0/put/1/0", 4.0, 6.0, pool="link", after="0/compute/-1/0"),
        made_span("1/compute/-1/0", 0.0, 2.0),
        made_span("1/reduce/-1/0", 6.5, 7.0, after="0/put/1/0"),
    ]
    path = critical_path(spans)
    assert short(path) == [
        (WAIT, 0.0, 1.0),
        ("compute", 1.0, 4.0),
        ("put", 4.0, 6.0),
        (WAIT, 6.0, 6.5),
        ("reduce", 6.5, 7.0),
    ]
    assert seconds_by_kind(path) == {"compute": 3.0, "put": 2.0, WAIT: 1.5, "reduce": 0.5}


def test_a_step_whose_pool_was_busy_follows_the_step_that_kept_it_busy() -> None:
    spans = [
        made_span("0/compute/-1/0", 0.0, 1.0),
        made_span("0/put/1/0", 1.0, 5.0, pool="link", after="0/compute/-1/0"),
        made_span("0/compute/-1/1", 1.0, 2.0),
        made_span("0/put/1/1", 5.0, 9.0, pool="link", after="0/compute/-1/1"),
    ]
    assert short(critical_path(spans)) == [("compute", 0.0, 1.0), ("put", 1.0, 5.0), ("put", 5.0, 9.0)]


def test_bytes_leave_after_the_step_that_sends_them() -> None:
    spans = [
        made_span("0/compute/-1/0", 0.0, 2.0),
        made_span("0/put/1/0", 2.0, 3.0, after="0/compute/-1/0"),
        made_span("0/put/1/0", 3.0, 8.0, pool="link", after="0/compute/-1/0"),
    ]
    assert short(critical_path(spans)) == [("compute", 0.0, 2.0), ("put", 2.0, 3.0), ("put", 3.0, 8.0)]


def test_a_step_that_waits_inside_itself_counts_from_the_end_of_what_it_waited_for() -> None:
    spans = [
        made_span("0/put/1/0", 0.0, 5.0, pool="link"),
        made_span("1/compute/-1/0", 0.5, 6.0, after="0/put/1/0"),
    ]
    assert short(critical_path(spans)) == [("put", 0.0, 5.0), ("compute", 5.0, 6.0)]


def test_a_step_that_waits_for_processors_follows_the_one_that_holds_them() -> None:
    """A collective begins when blocks of the next micro-batch's kernel end, which goes on."""
    spans = [
        made_span("0/compute/-1/0", 0.0, 2.0),
        made_span("0/compute/-1/1", 2.0, 9.0),
        made_span("0/collective/-1/0", 7.0, 12.0, pool="library", after="0/compute/-1/0", stream=2),
    ]
    assert short(critical_path(spans)) == [("compute", 0.0, 2.0), ("compute", 2.0, 7.0), ("collective", 7.0, 12.0)]


def test_a_library_call_is_followed_by_the_step_behind_it_though_no_address_says_so() -> None:
    spans = [made_span("0/collective/-1/0", 0.0, 3.0, pool="library"), made_span("0/compute/-1/0", 3.0, 5.0)]
    assert short(critical_path(spans)) == [("collective", 0.0, 3.0), ("compute", 3.0, 5.0)]


def test_steps_that_name_each_other_end_the_walk() -> None:
    spans = [
        made_span("0/compute/-1/0", 0.0, 3.0, after="0/put/1/0"),
        made_span("0/put/1/0", 1.0, 4.0, pool="link", after="0/compute/-1/0"),
    ]
    path = critical_path(spans)
    assert path[-1].stop_s == 4.0
    assert all(before.stop_s == after.start_s for before, after in pairwise(path))


def test_without_spans_there_is_no_path() -> None:
    assert critical_path([]) == []


SIMULATED = {
    "decomposed on CPU ranks": ("laptop_cpu", "decomposed", "emulated:bandwidth_bytes_per_second=1e9"),
    "fused on CPU ranks": ("laptop_cpu", "fused", "emulated:bandwidth_bytes_per_second=1e9"),
    "sequential on GPUs": ("h200_nvl4", "sequential", "nvlink"),
    "micro-batches on GPUs": ("h200_nvl4", "concurrent", "nvlink"),
    "fused on GPUs": ("h200_nvl4", "fused", "nvlink"),
}


def simulated(machine_name: str, scheme: str, link: str) -> tuple[Span, ...]:
    machine, fabric = shipped_machine(machine_name), parse(link)
    dtype = "float32" if machine.backend == "cpu" else "bfloat16"
    asked = problem("gemm_all_to_all", {"m": 4096, "n": 1024, "k": 1024}, world=2, dtype=dtype)
    chosen = schedule(asked, scheme, {}, machine, fabric)
    return predict(trials.trial(asked, chosen, machine, fabric), machine).spans


@pytest.mark.parametrize("name", SIMULATED)
def test_a_simulated_path_is_as_long_as_the_timeline_and_every_part_touches_the_next(name: str) -> None:
    spans = simulated(*SIMULATED[name])
    path, end = critical_path(spans), end_s(spans)
    assert path[0].start_s == 0.0
    assert path[-1].stop_s == end
    assert all(before.stop_s == after.start_s for before, after in pairwise(path))
    seconds = seconds_by_kind(path)
    assert sum(seconds.values()) == pytest.approx(end)
    assert seconds["compute"] > 0
    assert seconds.get(WAIT, 0.0) < 0.5 * end


# Lanes: busy times of any range, with what runs at once counted once.


def test_a_lane_is_busy_once_however_many_steps_run_at_once_and_only_inside_the_range() -> None:
    spans = [
        made_span("0/compute/-1/0", 0.0, 4.0),
        made_span("0/compute/-1/1", 2.0, 6.0),
        made_span("0/put/1/0", 5.0, 9.0, pool="link"),
    ]
    busy = BusyLanes(spans)
    titles = [lane.title(one_stream=True) for lane in busy.lanes]
    assert titles == ["rank 0 computes", "rank 0 link"]
    assert list(busy.seconds(0.0, 9.0).values()) == [6.0, 4.0]
    assert list(busy.seconds(3.0, 6.0).values()) == [3.0, 1.0]
    assert list(busy.seconds(9.0, 9.0).values()) == [0.0, 0.0]


# The difference: by address, in the order of the measured ends; small ones are not told apart.


def test_the_first_step_that_parts_is_named_and_steps_without_a_counterpart_are_counted() -> None:
    expected = [
        made_span("0/compute/-1/0", 0.0, 10.0),
        made_span("0/put/1/0", 10.0, 20.0, pool="link", after="0/compute/-1/0"),
        made_span("1/reduce/-1/0", 20.0, 30.0, after="0/put/1/0"),
        made_span("1/copy/-1/0", 30.0, 31.0),
    ]
    timed = [
        made_span("1/reduce/-1/0", 26.0, 35.0, after="0/put/1/0"),
        made_span("0/put/1/0", 10.0, 12.0, after="0/compute/-1/0"),
        made_span("0/put/1/0", 12.0, 26.0, pool="link", after="0/compute/-1/0"),
        made_span("0/compute/-1/0", 0.0, 10.5),
    ]
    between = difference(timed, expected)
    assert [(each.span.step, each.later_s) for each in between.steps] == [
        ("0/compute/-1/0", 0.5),
        ("0/put/1/0", 6.0),
        ("1/reduce/-1/0", 5.0),
    ]
    assert between.first is between.by_step["0/put/1/0"]
    assert (between.only_measured, between.only_simulated) == (0, 1)
    assert between.least_s == pytest.approx(0.62)


def test_a_coarse_clock_tells_less_apart() -> None:
    expected = [made_span("0/compute/-1/0", 0.0, 10.0)]
    timed = [made_span("0/compute/-1/0", 0.0, 10.5)]
    assert difference(timed, expected).first is not None
    assert difference([span._replace(tick_s=1.0) for span in timed], expected).first is None
