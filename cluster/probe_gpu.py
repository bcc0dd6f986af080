"""What the GPUs of this host are and how they are linked: the driver's word, and torch's from a process of its own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import combinations
from typing import Any

from cluster import gpus

NONE = "none"
MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""Variables that turn NVLink multicast off, each for one library."""

# in a process of its own: a worker or a notebook must not carry torch, nor a CUDA context, because it was asked this
ASK_TORCH = """
import json, torch, torch.distributed as dist
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
reached = sum(torch.cuda.can_device_access_peer(i, j) for i, j in pairs)
try:
    import torch.distributed._symmetric_memory as symmetric
    symmetric = hasattr(symmetric, "rendezvous")
except ImportError:
    symmetric = False
nccl = dist.is_available() and dist.is_nccl_available()
clock = "none"
if count:
    try:
        from kernels.backends.triton.clock import measured
        clock = str(measured(torch.device("cuda", 0)))
    except Exception as error:
        clock = f"unknown: {type(error).__name__}: {error}"
print(json.dumps({
    "cuda": torch.version.cuda or "none",
    "gpu_clock": clock,
    "gloo": dist.is_available() and dist.is_gloo_available(),
    "nccl": ".".join(map(str, torch.cuda.nccl.version())) if nccl and count else "none",
    "peer_access": f"{reached} of {len(pairs)} directions" if pairs else "none",
    "symmetric_memory": "available" if symmetric and count else "none",
}))
"""


def facts() -> dict[str, Any]:
    """Of the GPUs that this process sees, without a context on any of them; `none` where there are none."""
    visible = gpus.here()
    return {
        "gpus": _counted(f"{gpu.name}{_memory(gpu)}" for gpu in visible),
        "backend": gpus.backend(visible[0] if visible else None),
        **_by_library([gpu.number for gpu in visible]),
        "multicast": _multicast(visible),
    }


def linked_to(gpu: gpus.Gpu) -> tuple[str, ...] | None:
    """UUIDs of the GPUs of this host, hidden ones too, that *gpu* reaches over NVLink; None where nothing tells."""
    with gpus.library() as nvml:
        if nvml is None:
            return None
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
            uuids = [gpus.text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        except nvml.NVMLError:  # one of them has fallen off the bus
            return None
        if gpu.uuid not in uuids:
            return None
        its_handle = handles[uuids.index(gpu.uuid)]
        others = zip(uuids, handles, strict=True)
        return tuple(uuid for uuid, handle in others if uuid != gpu.uuid and _linked(nvml, its_handle, handle))


def _memory(gpu: gpus.Gpu) -> str:
    return "" if gpu.memory_bytes is None else f" {gpu.memory_bytes / 2**30:.0f} GiB"


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items()) or NONE


def _by_library(numbers: list[int]) -> dict[str, str]:
    """The driver's version, and the links between the GPUs of these numbers."""
    unknown = {"gpu_driver": NONE, "nvlink": NONE}
    if not numbers:
        return unknown
    with gpus.library() as nvml:
        if nvml is None:
            return dict.fromkeys(unknown, "unknown: nvidia-ml-py is not installed or finds no driver")
        try:
            driver = nvml.nvmlSystemGetDriverVersion()
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]
        except nvml.NVMLError as error:
            return dict.fromkeys(unknown, f"unknown: {error}")
        driver = driver.decode() if isinstance(driver, bytes) else driver
        return {"gpu_driver": driver, "nvlink": _links(nvml, handles)}


def _links(nvml: Any, handles: list[Any]) -> str:
    """Such as `4 x 18 links, 6 of 6 pairs`: how many are up, and between how many pairs of GPUs."""
    links = _counted(f"{count} links" for handle in handles if (count := active_links(nvml, handle)))
    pairs = list(combinations(handles, 2))
    linked = sum(_linked(nvml, *pair) for pair in pairs)
    return f"{links}, {linked} of {len(pairs)} pairs" if pairs and links != NONE else links


def active_links(nvml: Any, handle: Any) -> int:
    """How many NVLinks of a GPU are up."""
    up = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        with suppress(nvml.NVMLError):  # fewer links than the most that any GPU has
            up += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
    return up


def _linked(nvml: Any, first: Any, second: Any) -> bool:
    """Whether two GPUs reach each other over NVLink, switches included."""
    with suppress(nvml.NVMLError):
        status = nvml.nvmlDeviceGetP2PStatus(first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        return bool(status == nvml.NVML_P2P_STATUS_OK)
    return False


def _multicast(visible: tuple[gpus.Gpu, ...]) -> str:
    """As the environment says; whether the driver could is not asked."""
    if not visible:
        return NONE
    off = [name for name, value in MULTICAST_OFF.items() if os.environ.get(name) == value]
    return "off" if len(off) == len(MULTICAST_OFF) else f"off by {', '.join(off)}" if off else "not turned off"
