"""NVIDIA's management library (package nvidia-ml-py): its one home. Clocks, power, limits, and why clocks are low."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module, util
from typing import Any

# The library, which is absent on hosts without a GPU.


def module() -> Any:
    """The library's module, or None where it is not installed; `nvmlInit` was not called yet."""
    return import_module("pynvml") if util.find_spec("pynvml") else None


@contextmanager
def nvml_library() -> Iterator[Any]:
    """The library for as long as the `with` lasts; None where it is missing or finds no driver."""
    nvml = module()
    if nvml is None:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver
        yield None
        return
    try:
        yield nvml
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def driver_version() -> str | None:
    """The driver's version; None where it cannot be read."""
    with nvml_library() as nvml:
        if nvml is not None:
            with suppress(nvml.NVMLError):
                version = nvml.nvmlSystemGetDriverVersion()
                return version.decode() if isinstance(version, bytes) else str(version)
    return None


# State of a GPU during a measurement.

REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "clocks of another GPU",
    0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
"""Bits of nvmlDeviceGetCurrentClocksEventReasons (NVML reference manual), without bit 0, an idle GPU."""


def reasons(bits: int) -> list[str]:
    """Why the clocks are reduced; empty: they are not."""
    return [reason for bit, reason in REASONS.items() if bits & bit]


class Meter:
    """State of the GPU with torch's *uuid*; only its identity if nvidia-ml-py or its driver is missing."""

    def __init__(self, uuid: str, name: str) -> None:
        self._identity = {"gpu": uuid if uuid.startswith("GPU-") else f"GPU-{uuid}", "gpu_name": name}
        self._nvml: Any = module()
        self._handle: Any = None
        if self._nvml:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlInit()
                self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._identity["gpu"])

    def read(self) -> dict[str, Any]:
        """The current state, which takes some milliseconds to read; values that this GPU does not report are left out.

        `power_watts` is the mean of the last second; NVML refreshes its values about ten times a second.
        """
        nvml, handle, state = self._nvml, self._handle, dict[str, Any](self._identity)
        if handle is None:
            return state
        readers: dict[str, Callable[[], Any]] = {
            "sm_clock_mhz": lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
            "power_now_watts": self._power_now_watts,
            "temperature_celsius": lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            "throttled": self._throttled,
        }
        return state | self._known(readers)

    def limits(self) -> dict[str, Any]:
        """What somebody may have set: power limit, the card's own, and the highest SM clock; what is unknown is left
        out."""
        nvml, handle = self._nvml, self._handle
        if handle is None:
            return {}
        return self._known({
            "power_limit_watts": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3,
            "power_limit_default_watts": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3,
            "sm_clock_max_mhz": lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        })  # fmt: skip

    def _known(self, readers: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """The values of *readers* by name, without None and without those that raise."""
        values: dict[str, Any] = {}
        for name, reader in readers.items():
            with suppress(self._nvml.NVMLError, AttributeError):  # an old library lacks some functions
                values[name] = reader()
        return {name: value for name, value in values.items() if value is not None}

    def _power_now_watts(self) -> float | None:
        (now,) = self._nvml.nvmlDeviceGetFieldValues(self._handle, [self._nvml.NVML_FI_DEV_POWER_INSTANT])
        return now.value.uiVal / 1e3 if now.nvmlReturn == 0 else None

    def _throttled(self) -> list[str]:
        read_bits = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        read_bits = read_bits or self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons  # its name before CUDA 12.2
        return reasons(read_bits(self._handle))
