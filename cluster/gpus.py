"""The NVIDIA GPUs that this process may use, found without torch and without a context on any of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that hides GPUs from CUDA."""
RESOURCE = "GPU"
"""A worker that was given a GPU has one of it, as in dask-cuda, so that tasks of other users can ask for it."""
CPU, TRITON = "cpu", "triton"

DRIVER = Path("/proc/driver/nvidia/gpus")
"""Where the kernel's module tells of its GPUs, one folder each, in the order of the bus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; what the driver's files do not tell is None."""

    number: int
    """Its place on the bus: what CUDA calls it once CUDA_DEVICE_ORDER is PCI_BUS_ID."""
    name: str
    uuid: str = ""
    """Such as GPU-6f1ae4bc-..., or nothing where the driver does not tell it: then it is dealt to nobody."""
    memory_bytes: int | None = None


def here() -> tuple[Gpu, ...]:
    """The GPUs of this host that CUDA_VISIBLE_DEVICES leaves; none where there is no driver."""
    return visible(_by_library() or _by_driver(), os.environ.get(VISIBLE))


def visible(gpus: Sequence[Gpu], said: str | None) -> tuple[Gpu, ...]:
    """What CUDA would see of *gpus*: numbers or beginnings of UUIDs; the first that means none of them ends the list.

    A MIG slice is none of them: its memory cannot be shared with peers.
    """
    if said is None:
        return tuple(gpus)
    listed: list[Gpu] = []
    for word in filter(None, (part.strip() for part in said.split(","))):
        meant = [gpu for gpu in gpus if word == str(gpu.number) or (not word.isdigit() and gpu.uuid.startswith(word))]
        if len(meant) != 1 or meant[0] in listed:
            break
        listed += meant
    return tuple(listed)


def backend(gpu: Gpu | None) -> str:
    """The fastest backend that a rank process has whose GPU is *gpu*: triton with a GPU and Triton, else cpu."""
    return TRITON if gpu is not None and util.find_spec("triton") is not None else CPU


def environment(gpu: Gpu | None, peers: Sequence[str] = ()) -> dict[str, str]:
    """Variables of a process that is to have *gpu*, or none; behind it the GPUs with the UUIDs *peers*, to copy to.

    CUDA takes the UUID whatever its order of devices is, and it is the same GPU on every host and in every container.
    """
    shown = [] if gpu is None else [gpu.uuid or str(gpu.number), *peers]
    return {VISIBLE: ",".join(shown), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@contextmanager
def library() -> Iterator[Any]:
    """NVIDIA's management library as nvidia-ml-py has it, started and ended again; None where it is not to be had."""
    if util.find_spec("pynvml") is None:
        yield None
        return
    nvml = import_module("pynvml")
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


def _by_library() -> tuple[Gpu, ...]:
    with library() as nvml:
        if nvml is None:
            return ()
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
            return tuple(
                Gpu(
                    number=number,
                    name=text(nvml.nvmlDeviceGetName(handle)),
                    uuid=text(nvml.nvmlDeviceGetUUID(handle)),
                    memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                )
                for number, handle in enumerate(handles)
            )
        except nvml.NVMLError:  # one of them has fallen off the bus: the driver's files still list the others
            return ()


def _by_driver() -> tuple[Gpu, ...]:
    folders = sorted(DRIVER.iterdir()) if DRIVER.is_dir() else []
    listed = []
    for number, folder in enumerate(folders):
        with suppress(OSError):
            lines = (folder / "information").read_text().splitlines()
            facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            uuid = facts.get("GPU UUID", "")
            known = "" if "?" in uuid else uuid  # the driver writes question marks until the GPU was first used
            listed.append(Gpu(number=number, name=facts.get("Model", "NVIDIA GPU"), uuid=known))
    return tuple(listed)


def text(value: bytes | str) -> str:
    """Of what the library tells, which older versions of it tell as bytes."""
    return value.decode() if isinstance(value, bytes) else value
