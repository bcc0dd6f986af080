"""The trace of a run: streams and engines as threads, and on GPUs a thread for each SM, on which nothing overlaps."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kernels.outcome import Measurement, Span, TileTimes
from kernels.trial import Trial
from workbench.reports import traces
from workbench.results import metrics
from workbench.results.store import Store

US = 1e-6
TILES = (
    TileTimes(0, 7, 0.0, 0.0, 10 * US, 12 * US),
    TileTimes(1, 7, 1 * US, 4 * US, 11 * US, 11 * US),  # beside the first
    TileTimes(2, 7, 12 * US, 12 * US, 20 * US, 21 * US),  # after it
    TileTimes(3, 9, 0.0, 0.0, 10 * US, 12 * US),
)
SPANS = (
    Span("0/compute/-1/0", 0, "compute", "compute", 0.0, 20 * US, None, 1 * US, TILES),
    Span("0/put/1/0", 0, "put", "link", 10 * US, 21 * US, "0/compute/-1/0", 1 * US,
         (TileTimes(5, 9, 13 * US, 13 * US, 13 * US, 21 * US),)),
    Span("1/compute/-1/0", 1, "compute", "compute", 0.0, 20 * US, None, 1 * US),
)  # fmt: skip


@pytest.fixture
def events(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement], tmp_path: Path
) -> list[dict[str, Any]]:
    measured, run = replace(measure(make_trial()), spans=SPANS), store.begin_run({}, {})
    store.add_outcome(run, measured, metrics.row_of(measured, run))
    written: list[dict[str, Any]] = json.loads(traces.write(store, run, tmp_path / "t.json").read_text())["traceEvents"]
    return written


def named(events: list[dict[str, Any]], process: int) -> dict[int, str]:
    return {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == process}


def test_streams_and_engines_come_first_then_each_sm_and_its_blocks(events: list[dict[str, Any]]) -> None:
    assert list(named(events, 1).values()) == ["computes", "link", "SM 7", "SM 7, block 2", "SM 9"]
    assert list(named(events, 2).values()) == ["computes"]
    assert [number for number in named(events, 1) if number >= traces.FIRST_SM] == sorted(named(events, 1))[2:]


def test_two_streams_have_a_thread_each(
    store: Store, make_trial: Callable[..., Trial], measure: Callable[..., Measurement], tmp_path: Path
) -> None:
    spans = (*SPANS, Span("1/compute/-1/1", 1, "compute", "compute", 5 * US, 9 * US, stream=1))
    measured, run = replace(measure(make_trial()), spans=spans), store.begin_run({}, {})
    store.add_outcome(run, measured, metrics.row_of(measured, run))
    events = json.loads(traces.write(store, run, tmp_path / "t.json").read_text())["traceEvents"]
    assert list(named(events, 2).values()) == ["stream 0", "stream 1"]
    threads = {event["name"]: event["tid"] for event in events if event["pid"] == 2 and event["ph"] == "X"}
    assert threads == {"1/compute/-1/0": 0, "1/compute/-1/1": 1}


def test_every_tile_is_there_once_under_its_step_and_nothing_overlaps(events: list[dict[str, Any]]) -> None:
    threads = named(events, 1)
    by_thread = defaultdict(list)
    for event in (event for event in events if event["ph"] == "X" and event["tid"] >= traces.FIRST_SM):
        by_thread[threads[event["tid"]]].append(event)
    times = {thread: [(e["name"], round(e["ts"]), round(e["ts"] + e["dur"])) for e in of_thread]
             for thread, of_thread in by_thread.items()}  # fmt: skip
    compute, put = "0/compute/-1/0", "0/put/1/0"
    assert times == {
        "SM 7": [(compute, 0, 10), ("send", 10, 12), (compute, 12, 20), ("send", 20, 21)],
        "SM 7, block 2": [("wait", 1, 4), (compute, 4, 11)],
        "SM 9": [(compute, 0, 10), ("send", 10, 12), (put, 13, 21)],
    }
    for of_thread in times.values():
        assert all(before[2] <= after[1] for before, after in pairwise(of_thread))
    assert {e["args"]["step"] for of_thread in by_thread.values() for e in of_thread} == {compute, put}
    assert by_thread["SM 9"][-1]["args"] == {"step": put, "program": 5}


def test_steps_say_how_exact_they_are(events: list[dict[str, Any]]) -> None:
    steps = [event for event in events if event["ph"] == "X" and event["tid"] < traces.FIRST_SM]
    assert [event["args"]["waited_for"] for event in steps] == [None, "0/compute/-1/0", None]
    assert [event["args"]["clock_tick_us"] for event in steps] == pytest.approx([1.0] * 3)
