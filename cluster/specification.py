"""What one GPU is like, as torch and its driver tell it: for a machine that no file describes."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster import gpus, probe, probe_gpu

if TYPE_CHECKING:
    from distributed import Client

# in a process of its own, as probe_gpu does
ASK_TORCH = """
import json, torch
told = torch.cuda.get_device_properties(0)
names = ("multi_processor_count", "total_memory", "L2_cache_size", "shared_memory_per_multiprocessor", "major", "minor",
         "clock_rate", "memory_clock_rate", "memory_bus_width")
print(json.dumps({name: getattr(told, name, None) for name in names}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """Of one GPU; what nobody told is None."""

    slots: int | None = None
    """SMs."""
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    shared_memory_per_slot_bytes: int | None = None
    capability: tuple[int, int] | None = None
    """CUDA's compute capability."""
    clock_hz: float | None = None
    """The highest clock of the SMs."""
    memory_bytes_per_second: float | None = None
    """Two transfers per clock of the memory, over its whole width."""
    nvlinks: int = 0
    """How many NVLinks are up."""
    pcie: tuple[int, int] | None = None
    """Generation of PCI Express, and lanes, at the most."""


def here() -> Specification:
    """Of the first GPU that this process sees. Takes the seconds in which torch starts."""
    return told_by(_of_torch(), _of_driver())


def of_worker(client: Client, address: str) -> Specification:
    """The same of the worker at *address*; what it does not tell in time is None."""
    answer = probe.ask(client, [address], _told, probe.TORCH_S + probe.ANSWER_S)[address]
    return told_by(answer.get("torch", {}), answer.get("driver", {}))


def told_by(torch: dict[str, Any], driver: dict[str, Any]) -> Specification:
    """What torch's properties of a device (kHz, bytes, bits) and the driver tell, put together."""
    clock, width = torch.get("memory_clock_rate"), torch.get("memory_bus_width")
    major, minor = torch.get("major"), torch.get("minor")
    sm_clock, pcie = torch.get("clock_rate"), driver.get("pcie")
    return Specification(
        slots=torch.get("multi_processor_count"),
        memory_bytes=torch.get("total_memory"),
        l2_bytes=torch.get("L2_cache_size"),
        shared_memory_per_slot_bytes=torch.get("shared_memory_per_multiprocessor"),
        capability=None if major is None or minor is None else (major, minor),
        clock_hz=sm_clock * 1e3 if sm_clock else None,
        memory_bytes_per_second=2 * clock * 1e3 * width / 8 if clock and width else None,
        nvlinks=driver.get("nvlinks", 0),
        pcie=tuple(pcie) if pcie else None,
    )


def _told(worker: Any) -> dict[str, Any]:
    return {"torch": _of_torch(), "driver": _of_driver()}


def _of_torch() -> dict[str, Any]:
    command = [sys.executable, "-c", ASK_TORCH]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=probe.TORCH_S)
    except subprocess.TimeoutExpired:
        return {}
    return dict(json.loads(answer.stdout)) if answer.returncode == 0 else {}


def _of_driver() -> dict[str, Any]:
    """How the first GPU that is seen is linked."""
    seen = gpus.here()
    with gpus.library() as nvml:
        if nvml is None or not seen:
            return {}
        links: dict[str, Any] = {}
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(seen[0].number)
            links["nvlinks"] = probe_gpu.active_links(nvml, handle)
            links["pcie"] = [nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
                             nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)]  # fmt: skip
        return links
