"""How calls are timed: calls of a graph, the tick of the clock, and what NVML says of a GPU meanwhile."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernels.backends.triton import timing
from kernels.backends.triton.timing import CALLS_MOST, Clock, turns
from kernels.trial import PROTOCOLS
from tests.gpu import recording
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


def test_it_is_measured_by_reading_it_again_and_again() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", MEASURE], check=True, env=environment, timeout=200, cwd=ROOT)


def test_it_is_said_in_words() -> None:
    assert str(Clock(tick_s=1.024e-6, read_s=2e-8)) == "ticks every 1.02 µs, read in 20 ns"


# What NVML says of a GPU, from a stand-in for its library: what it does not know is left out.


class Nvml:
    """As much of nvidia-ml-py as is asked; this GPU tells no temperature."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    NVMLError = LookupError

    def nvmlInit(self) -> None:
        return None

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1a2b":
            raise self.NVMLError
        return uuid

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        return {1: 1755, 2: 3201}[which]

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 651_500

    NVML_FI_DEV_POWER_INSTANT = 186

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[int]) -> list[Any]:
        return [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=702_000)) for _ in fields]

    def nvmlDeviceGetTemperature(self, handle: str, which: int) -> int:
        raise self.NVMLError

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 0x1 | 0x4 | 0x40


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing.util, "find_spec", lambda name: name)
    monkeypatch.setattr(timing, "import_module", lambda name: Nvml())


@pytest.mark.usefixtures("library")
def test_a_probes_answer_holds_the_condition_of_a_gpu_that_it_does_not_name_and_what_nccl_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = SimpleNamespace(uuid="1a2b", name="NVIDIA H200")
    monkeypatch.setattr(recording.torch.cuda, "get_device_properties", lambda device: known)
    monkeypatch.setattr(recording.torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "0")
    told = recording.state("cuda:0")
    assert told["condition"] == {
        "sm_clock_mhz": 1755, "memory_clock_mhz": 3201, "power_watts": 651.5, "power_now_watts": 702.0,
        "throttled": ["power cap", "heat (hardware)"],
    }  # fmt: skip
    assert {"version": "2.28.9", "NCCL_GRAPH_REGISTER": "0"}.items() <= told["nccl"].items()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("uuid", ["1a2b", "GPU-1a2b"])
def test_a_gpu_tells_who_it_is_its_clocks_and_why_they_are_low(uuid: str) -> None:
    assert timing.Meter(uuid, "NVIDIA H200").read() == {
        "gpu": "GPU-1a2b", "gpu_name": "NVIDIA H200",
        "sm_clock_mhz": 1755, "memory_clock_mhz": 3201, "power_watts": 651.5, "power_now_watts": 702.0,
        "throttled": ["power cap", "heat (hardware)"],
    }  # fmt: skip


@pytest.mark.usefixtures("library")
def test_of_a_gpu_that_the_library_does_not_know_we_know_who_it_is() -> None:
    assert timing.Meter("another", "NVIDIA H200").read() == {"gpu": "GPU-another", "gpu_name": "NVIDIA H200"}


def test_nothing_more_is_said_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {"pynvml": None}
    monkeypatch.setattr(timing.util, "find_spec", found.get)
    assert timing.Meter("1a2b", "NVIDIA H200").read() == {"gpu": "GPU-1a2b", "gpu_name": "NVIDIA H200"}
