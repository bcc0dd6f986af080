"""What NVML says of a GPU, from a stand-in for its library, and that the library has one home."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels import nvml
from tests.gpu import recording

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
    monkeypatch.setattr(nvml.util, "find_spec", lambda name: name)
    monkeypatch.setattr(nvml, "import_module", lambda name: Nvml())


@pytest.mark.usefixtures("library")
def test_a_probes_answer_holds_the_condition_of_a_gpu_that_it_does_not_name_and_what_nccl_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = SimpleNamespace(uuid="1a2b", name="NVIDIA H200")
    monkeypatch.setattr(recording.torch.cuda, "get_device_properties", lambda device: known)
    monkeypatch.setattr(recording.torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "0")
    state = recording.state("cuda:0")
    assert state["condition"] == {
        "sm_clock_mhz": 1755, "memory_clock_mhz": 3201, "power_watts": 651.5, "power_now_watts": 702.0,
        "throttled": ["power cap", "heat (hardware)"],
    }  # fmt: skip
    assert {"version": "2.28.9", "NCCL_GRAPH_REGISTER": "0"}.items() <= state["nccl"].items()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("uuid", ["1a2b", "GPU-1a2b"])
def test_a_gpu_tells_who_it_is_its_clocks_and_why_they_are_low(uuid: str) -> None:
    assert nvml.Meter(uuid, "NVIDIA H200").read() == {
        "gpu": "GPU-1a2b", "gpu_name": "NVIDIA H200",
        "sm_clock_mhz": 1755, "memory_clock_mhz": 3201, "power_watts": 651.5, "power_now_watts": 702.0,
        "throttled": ["power cap", "heat (hardware)"],
    }  # fmt: skip


@pytest.mark.usefixtures("library")
def test_of_a_gpu_that_the_library_does_not_know_we_know_who_it_is() -> None:
    assert nvml.Meter("another", "NVIDIA H200").read() == {"gpu": "GPU-another", "gpu_name": "NVIDIA H200"}


def test_nothing_more_is_said_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: dict[str, Any] = {"pynvml": None}
    monkeypatch.setattr(nvml.util, "find_spec", installed.get)
    assert nvml.Meter("1a2b", "NVIDIA H200").read() == {"gpu": "GPU-1a2b", "gpu_name": "NVIDIA H200"}


class NvmlOfLimits(Nvml):
    """A library that has limits; the cap of this GPU was lowered."""

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:
        return 500_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: str) -> int:
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, handle: str, which: int) -> int:
        return {1: 1980}[which]


def test_limits_are_what_somebody_may_have_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml.util, "find_spec", lambda name: name)
    monkeypatch.setattr(nvml, "import_module", lambda name: NvmlOfLimits())
    assert nvml.Meter("1a2b", "NVIDIA H200").limits() == {
        "power_limit_watts": 500.0, "power_limit_default_watts": 700.0, "sm_clock_max_mhz": 1980,
    }  # fmt: skip
    assert nvml.Meter("another", "NVIDIA H200").limits() == {}


@pytest.mark.usefixtures("library")
def test_an_old_library_without_limits_leaves_them_out() -> None:
    assert nvml.Meter("1a2b", "NVIDIA H200").limits() == {}


def test_the_library_has_one_home() -> None:
    root = Path(__file__).parents[2]
    files = [path for room in ("kernels", "cluster", "workbench", "tests/gpu") for path in (root / room).rglob("*.py")]
    homes = [path.relative_to(root).as_posix() for path in files if '"pynvml"' in path.read_text(encoding="utf-8")]
    assert sorted(homes) == ["kernels/nvml.py", "workbench/cli/missing.py"], "the latter names its package"
