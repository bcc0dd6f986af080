"""What a GPU is doing beside our kernels: clocks, power, temperature, and why it runs slower than it could (NVML)."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module, util
from typing import Any

REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "clocks of another GPU",
    0x20: "heat (software)", 0x40: "heat (hardware)", 0x80: "power brake", 0x100: "display clocks",
}  # fmt: skip
"""Bits of nvmlDeviceGetCurrentClocksEventReasons, NVML's reference manual; bit 0, nothing to do, is none."""


class Meter:
    """The GPU whose UUID torch knows as *uuid*; only who it is where nvidia-ml-py or its driver is missing."""

    def __init__(self, uuid: str, name: str) -> None:
        self._who = {"gpu": uuid if uuid.startswith("GPU-") else f"GPU-{uuid}", "gpu_name": name}
        self._nvml: Any = import_module("pynvml") if util.find_spec("pynvml") else None
        self._handle: Any = None
        if self._nvml:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlInit()
                self._handle = self._nvml.nvmlDeviceGetHandleByUUID(self._who["gpu"])

    def read(self) -> dict[str, Any]:
        """Now: takes some milliseconds. What this GPU does not tell is left out.

        `power_watts` is the mean of the last second; NVML refreshes what it says some ten times a second.
        """
        nvml, handle, found = self._nvml, self._handle, dict[str, Any](self._who)
        if handle is None:
            return found
        with suppress(nvml.NVMLError):
            found["sm_clock_mhz"] = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        with suppress(nvml.NVMLError):
            found["memory_clock_mhz"] = int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))
        with suppress(nvml.NVMLError):
            found["power_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        with suppress(nvml.NVMLError, AttributeError):  # a library from before there was one
            (now,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
            if now.nvmlReturn == 0:
                found["power_now_watts"] = now.value.uiVal / 1e3
        with suppress(nvml.NVMLError):
            found["temperature_celsius"] = int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        with suppress(nvml.NVMLError):
            ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
            ask = ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons  # its name before CUDA 12.2
            found["throttled"] = reasons(ask(handle))
        return found


def reasons(bits: int) -> list[str]:
    """Why the clocks are lower than they could be; empty: they are not."""
    return [word for bit, word in REASONS.items() if bits & bit]
