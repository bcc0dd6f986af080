"""What this worker has for its rank: a GPU and how it is linked, or cores. Found without torch, as plain facts."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, metadata, util
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.seating import Ranks
from kernels.hardware import WorkerDevice, hardware_of, versions

# The NVIDIA GPUs that this process may use, found without torch and without a context on any of them.

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


def gpus_here() -> tuple[Gpu, ...]:
    """The GPUs of this host that CUDA_VISIBLE_DEVICES leaves; none where there is no driver."""
    return visible(_gpus_by_library() or _by_driver(), os.environ.get(VISIBLE))


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


def _gpus_by_library() -> tuple[Gpu, ...]:
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


# What the GPUs of this host are and how they are linked: the driver's word, and torch's from a process of its own.

NONE = "none"
MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""Variables that turn NVLink multicast off, each for one library."""

# in a process of its own: a worker or a notebook must not carry torch, nor a CUDA context, because it was asked this
PROBE_GPU_ASK_TORCH = """
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
        from kernels.backends.triton.timing import measured
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
    visible = gpus_here()
    return {
        "gpus": _counted(f"{gpu.name}{_memory(gpu)}" for gpu in visible),
        "backend": backend(visible[0] if visible else None),
        **_by_library([gpu.number for gpu in visible]),
        "multicast": _multicast(visible),
    }


def linked_to(gpu: Gpu) -> tuple[str, ...] | None:
    """UUIDs of the GPUs of this host, hidden ones too, that *gpu* reaches over NVLink; None where nothing tells."""
    with library() as nvml:
        if nvml is None:
            return None
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
            uuids = [text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        except nvml.NVMLError:  # one of them has fallen off the bus
            return None
        if gpu.uuid not in uuids:
            return None
        its_handle = handles[uuids.index(gpu.uuid)]
        others = zip(uuids, handles, strict=True)
        return tuple(uuid for uuid, handle in others if uuid != gpu.uuid and _linked(nvml, its_handle, handle))


def _memory(gpu: Gpu) -> str:
    return "" if gpu.memory_bytes is None else f" {gpu.memory_bytes / 2**30:.0f} GiB"


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items()) or NONE


def _by_library(numbers: list[int]) -> dict[str, str]:
    """The driver's version, and the links between the GPUs of these numbers."""
    unknown = {"gpu_driver": NONE, "nvlink": NONE}
    if not numbers:
        return unknown
    with library() as nvml:
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


def _multicast(visible: tuple[Gpu, ...]) -> str:
    """As the environment says; whether the driver could is not asked."""
    if not visible:
        return NONE
    off = [name for name, value in MULTICAST_OFF.items() if os.environ.get(name) == value]
    return "off" if len(off) == len(MULTICAST_OFF) else f"off by {', '.join(off)}" if off else "not turned off"


# What this host and the workers of a cluster are made of: facts as rows, found without measuring or printing.

if TYPE_CHECKING:
    from distributed import Client

Facts = dict[str, Any]

PACKAGES = ("overlap-workbench", "torch", "triton", "numpy", "dask", "distributed")
SHARED_MEMORY = Path("/dev/shm")
ANSWER_S = 5.0
"""A worker that does not say by then how it is counts as stuck."""
_SILENT = "no answer within"
TORCH_S = 60.0
"""Importing torch from a cold network disk takes long."""


def probe_here() -> Facts:
    """This process's host; what cannot be found out, or is not installed, is None."""
    from distributed.system import MEMORY_LIMIT  # knows what a container may use

    return {
        "host": socket.gethostname(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": int(MEMORY_LIMIT),
        "shared_memory_free_bytes": shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None,
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def here_with_torch(hidden: bool = True) -> Facts:
    """The same, and what the driver and torch find: GPUs and their links, gloo, NCCL. Takes seconds.

    Not *hidden*: torch is shown GPUs, too, that this process does not see; else a worker with one knows of no peer.
    """
    known = probe_here() | facts()
    environment = {name: value for name, value in os.environ.items() if hidden or name != VISIBLE}
    command = [sys.executable, "-c", PROBE_GPU_ASK_TORCH]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S, env=environment)
    except subprocess.TimeoutExpired:
        return known | {"trouble": f"torch took longer than {TORCH_S:.0f} s to import"}
    if answer.returncode != 0:
        last_line = answer.stderr.strip().rpartition("\n")[2]
        return known | {"trouble": f"torch cannot be used: {last_line}"}
    return known | json.loads(answer.stdout)


def rows(client: Client | None = None) -> list[Facts]:
    """The doctor's facts: this host first, then each worker of the client's cluster."""
    first = {"place": "here"} | here_with_torch()
    if client is None:
        return [first]
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1).get("workers", {})
    on_host = {str(worker["host"]): address for address, worker in workers.items()}
    # torch tells all workers of a host the same, but for the one GPU that each may see
    of_hosts = ask(client, list(on_host.values()), _of_worker, TORCH_S + ANSWER_S)
    of_gpus = ask(client, list(workers), _of_its_gpu, 2 * ANSWER_S)
    return [first] + [
        {"place": worker["name"], "address": address} | of_hosts[on_host[str(worker["host"])]] | of_gpus[address]
        for address, worker in workers.items()
    ]


def _of_worker(worker: Any) -> Facts:
    return here_with_torch(hidden=False)


def _of_its_gpu(worker: Any) -> Facts:
    return facts()


def ask(
    client: Client, workers: list[str], what: Callable[..., Facts], deadline_s: float = ANSWER_S
) -> dict[str, Facts]:
    """What each worker answers, by address; one that cannot answer in time has the fact `trouble`.

    `what` runs in a thread of the worker, beside its event loop and its one task. A parameter of the name
    `dask_worker` would be the worker.
    """

    async def one(worker: str) -> Facts:
        try:
            answers = await asyncio.wait_for(client.run(_in_a_thread, what, workers=[worker]), deadline_s)
            return dict(answers[worker])
        except TimeoutError:
            return silence(deadline_s)
        except OSError as error:  # its connection ended: it has died, or its next process begins
            return {"trouble": f"{_SILENT} the life of its connection ({error})"}
        except Exception as error:  # whatever goes wrong over there is what is asked about
            return {"trouble": f"{type(error).__name__}: {error}"}

    async def everyone() -> dict[str, Facts]:
        return dict(zip(workers, await asyncio.gather(*map(one, workers)), strict=True))

    return client.sync(everyone, callback_timeout=deadline_s + ANSWER_S)


def silence(deadline_s: float) -> Facts:
    """What is known of a worker that does not answer."""
    return {"trouble": f"{_SILENT} {deadline_s:.0f} s"}


def is_silence(answer: Mapping[str, Any]) -> bool:
    """Whether *answer* is of a worker that did not answer: it is stopped or busy, and may be like all others."""
    return str(answer.get("trouble") or "").startswith(_SILENT)


async def _in_a_thread(what: Callable[[Any], Facts], dask_worker: Any) -> Facts:
    return await asyncio.to_thread(what, dask_worker)


def version(package: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(core_numbers())


def core_numbers() -> tuple[int, ...]:
    """Their numbers, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_model() -> str | None:
    """The processor's name as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


# What one GPU is like, as torch and its driver tell it: for a machine that no file describes.

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
    answer = ask(client, [address], _told, TORCH_S + ANSWER_S)[address]
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
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S)
    except subprocess.TimeoutExpired:
        return {}
    return dict(json.loads(answer.stdout)) if answer.returncode == 0 else {}


def _of_driver() -> dict[str, Any]:
    """How the first GPU that is seen is linked."""
    seen = gpus_here()
    with library() as nvml:
        if nvml is None or not seen:
            return {}
        links: dict[str, Any] = {}
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(seen[0].number)
            links["nvlinks"] = active_links(nvml, handle)
            links["pcie"] = [nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
                             nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)]  # fmt: skip
        return links


# What this worker has for its rank: a GPU and how it is linked, or cores. Found without torch, as plain facts.


def device(gpu: Gpu | None) -> WorkerDevice:
    """Of a worker of this host that has *gpu*, or none."""
    processor, cores = cpu_model() or "unknown processor", core_numbers()
    if gpu is None:
        return WorkerDevice(kind="cpu", model=processor, processor=processor, cores=cores)
    return WorkerDevice(
        kind="gpu", model=gpu.name, processor=processor, cores=cores, memory_bytes=gpu.memory_bytes, uuid=gpu.uuid,
        links=linked_to(gpu),
    )  # fmt: skip


def local_ranks(world: int, backend: str) -> Ranks | None:
    """What a gang of *world* ranks of the local cluster would run on, running or not; None where it has no room."""
    free: Sequence[Gpu | None] = gpus_here()[:world] if backend != "cpu" else [None] * world
    if len(free) < world:
        return None
    hardware = hardware_of(backend, [device(gpu) for gpu in free], ["here"] * world)
    return Ranks(versions(), hardware) if hardware else None
