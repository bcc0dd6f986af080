"""What NVML says of a GPU, from a stand-in for its library: what it does not know is left out."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernels.backends.triton import timing
from tests.gpu import recording


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
