"""What this worker has for its rank: a GPU and how it is linked, or cores. Found without torch, as plain facts."""

from __future__ import annotations

from collections.abc import Sequence

from cluster import gpus, probe_gpu
from cluster.probe import core_numbers, cpu_model
from cluster.seating import Ranks
from kernels.hardware import Device, hardware_of
from kernels.prints import versions


def device(gpu: gpus.Gpu | None) -> Device:
    """Of a worker of this host that has *gpu*, or none."""
    processor, cores = cpu_model() or "unknown processor", core_numbers()
    if gpu is None:
        return Device(kind="cpu", model=processor, processor=processor, cores=cores)
    return Device(
        kind="gpu", model=gpu.name, processor=processor, cores=cores, memory_bytes=gpu.memory_bytes, uuid=gpu.uuid,
        links=probe_gpu.linked_to(gpu),
    )  # fmt: skip


def local_ranks(world: int, backend: str) -> Ranks | None:
    """What a gang of *world* ranks of the local cluster would run on, running or not; None where it has no room."""
    free: Sequence[gpus.Gpu | None] = gpus.here()[:world] if backend != "cpu" else [None] * world
    if len(free) < world:
        return None
    hardware = hardware_of(backend, [device(gpu) for gpu in free], ["here"] * world)
    return Ranks(versions(), hardware) if hardware else None
