"""How calls are timed: calls of a graph, and the tick of the clock."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernels.backends.triton import timing
from kernels.backends.triton.backend import TritonTrial
from kernels.backends.triton.timing import CALLS_MOST, Clock, GraphReplay, replayed_ahead, turns
from kernels.trial import PROTOCOLS
from tests.kernels.backends.triton.conftest import ROOT

# How many calls a graph has: as many as fill some milliseconds, or as the protocol says, all operands in turn.


@pytest.mark.parametrize(("typical_s", "count"), [(1e-6, CALLS_MOST // 8 * 8), (3e-4, 8), (5e-4, 8)])
def test_an_open_number_of_calls_fills_some_milliseconds_and_takes_all_operands_alike(
    typical_s: float, count: int
) -> None:
    (numbers,) = turns(PROTOCOLS["default"], 8, typical_s)
    assert numbers == [number % 8 for number in range(count)]


def test_eager_calls_are_as_many_as_there_are_operands() -> None:
    assert turns(replace(PROTOCOLS["default"], cuda_graph=False), 3, 1e-6) == [[0, 1, 2]]


def test_one_call_a_graph_takes_the_operands_graph_by_graph() -> None:
    assert turns(PROTOCOLS["latency"], 4, 1e-6) == [[0], [1], [2], [3]]
    assert turns(replace(PROTOCOLS["default"], calls_per_graph=4), 6, 1e-6) == [
        [0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5],
    ]  # fmt: skip


class Replay:
    """Of two calls; it takes 2000 ns, and begins *after* nanoseconds."""

    def __init__(self, log: list[str], after: int) -> None:
        self.log, self.after = log, after

    def enqueue(self, stamps: torch.Tensor) -> None:
        self.log.append("enqueued")
        stamps[0], stamps[1] = self.after, self.after + 2000

    def per_call(self, start: int, stop: int) -> float:
        return (stop - start) / 1e9 / 2


class Stream:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def synchronize(self) -> None:
        self.log.append("waited")


def test_replays_ahead_follow_each_other_and_say_how_busy_the_gpu_was() -> None:
    log: list[str] = []
    replays: list[Any] = [Replay(log, after) for after in (0, 2000, 5000)]
    ahead = replayed_ahead(replays, cast(Any, Stream(log)), torch.zeros(3, 2, dtype=torch.int64))
    assert log == ["enqueued"] * 3 + ["waited"], "the host waits once"
    assert ahead.seconds == [1e-6] * 3
    assert ahead.busy_share == 6000 / 7000


def test_a_trial_runs_ahead_in_the_order_of_its_graphs_and_by_its_micro_batches() -> None:
    log: list[str] = []
    met: list[int] = []
    replays = [Replay(log, 0), Replay(log, 10_000)]
    backend = SimpleNamespace(barrier=lambda: met.append(len(log)), stream=Stream(log))
    trial: Any = SimpleNamespace(
        _replays=replays, _barrier=None, backend=backend, _check=lambda: None,
        context=SimpleNamespace(device="cpu"), calls=SimpleNamespace(results=[None, None]),
    )  # fmt: skip
    ahead = TritonTrial.run_ahead(trial, 70)
    assert len(ahead.seconds) == 70
    assert ahead.seconds[0] == 1e-6 / 2, "a call has two problems"
    assert log == ["enqueued"] * 64 + ["waited"] + ["enqueued"] * 6 + ["waited"], "the host waits for 64, not for each"
    assert met == [0, 65], "ranks meet before each of the two"
    alone: Any = SimpleNamespace(_replays=replays, _barrier=print, run=lambda: 2e-6)
    assert TritonTrial.run_ahead(alone, 3) == ([2e-6] * 3, None), "between hosts one by one, and nobody knows"


def test_a_replay_leaves_its_stamps_where_they_are_wanted() -> None:
    stamps, played = torch.zeros(2, dtype=torch.int64), list[int]()
    replay: Any = SimpleNamespace(_stream=None, _graph=SimpleNamespace(replay=lambda: played.append(1)),
                                  _stamps=torch.tensor([5, 7]))  # fmt: skip
    GraphReplay.enqueue(replay, stamps)
    assert stamps.tolist() == [5, 7]
    assert played == [1]


def test_many_sets_of_operands_make_a_graph_longer() -> None:
    (numbers,) = turns(PROTOCOLS["default"], 64, 1e-5)
    assert numbers == list(range(64))


def test_calls_that_are_long_share_their_operands_among_graphs() -> None:
    assert turns(PROTOCOLS["default"], 4, 1.1e-3) == [[0, 1, 2, 3]]
    assert turns(PROTOCOLS["default"], 4, 1.2e-3) == [[0, 1], [2, 3]]
    assert turns(PROTOCOLS["default"], 4, 4e-3) == [[0], [1], [2], [3]]
    assert turns(PROTOCOLS["default"], 8, 1.4e-3) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("name", ["default", "latency"])
@pytest.mark.parametrize("sets", [4, 8, 64])
@pytest.mark.parametrize("typical_s", [1e-6, 1e-4, 1e-2])
def test_the_last_call_of_all_takes_the_last_set_of_operands(name: str, sets: int, typical_s: float) -> None:
    graphs = turns(PROTOCOLS[name], sets, typical_s)
    assert graphs[-1][-1] == sets - 1
    assert {number for graph in graphs for number in graph} == set(range(sets))


# What is launched behind the meeting of the ranks is loaded before anything waits there.


class Launches:
    """Stands for a kernel: notes how far from a line of 16 bytes the tensor lies that each launch takes."""

    def __init__(self, log: list[object]) -> None:
        self.log = log

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda stamp, num_warps: self.log.append(stamp.data_ptr() % 16)


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What happened on a GPU that is a fake one."""
    log: list[object] = []
    fake = SimpleNamespace(
        int64=torch.int64, zeros=lambda count, dtype, device: torch.zeros(count, dtype=dtype),
        cuda=SimpleNamespace(synchronize=lambda device: log.append("waited"), stream=None),
    )  # fmt: skip
    monkeypatch.setattr(timing, "torch", fake)
    monkeypatch.setattr(timing, "write_now", Launches(log))
    timing.load_after_meeting.cache_clear()
    return log


def test_the_reading_of_the_clock_is_loaded_before_the_first_meeting_once_a_device(events: list[object]) -> None:
    context: Any = SimpleNamespace(device=torch.device("cuda", 0))
    for _ in range(2):
        timing.GraphReplay(context, [], Any, captured=False, barrier=lambda stamp: lambda: events.append("met"))._play()
    assert events == [0, 8, "waited", "met", 8, "met", 8], "both kernels that Triton makes of it, then the meetings"


def test_nothing_is_loaded_for_interpreted_ranks(events: list[object]) -> None:
    timing.load_after_meeting(torch.device("cpu"))
    assert events == []


# The clock's tick is the smallest step that it is seen to make, and never 0.

MEASURE = """
import torch
from kernels.backends.triton import timing
timing.READS = 50
found = timing.measured(torch.device("cpu"))
assert 0 < found.tick_s <= 1e-3, found
assert found.tick_s <= found.read_s < 1, found
assert timing.measured(torch.device("cpu")) is found
"""
"""The interpreter's clock is the host's, which steps at every reading."""


@pytest.mark.slow
def test_it_is_measured_by_reading_it_again_and_again() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", MEASURE], check=True, env=environment, timeout=200, cwd=ROOT)


def test_it_is_said_in_words() -> None:
    assert str(Clock(tick_s=1.024e-6, read_s=2e-8)) == "ticks every 1.02 µs, read in 20 ns"
