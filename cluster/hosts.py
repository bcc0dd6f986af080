"""Hardware of a host and its workers: GPUs, their links, cores and versions, found without torch in this process."""

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata, util
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster import network
from cluster.seating import Ranks
from kernels.fabric import FEWEST_SHARING, MOST_SHARING
from kernels.hardware import WorkerDevice, hardware_of, versions
from kernels.nvml import nvml_library

# The NVIDIA GPUs that this process may use, found without torch and without a CUDA context.

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that hides GPUs from CUDA."""
RESOURCE = "GPU"
"""Dask resource of a worker with a GPU, as in dask-cuda, so that tasks of other users can request it."""
CPU, TRITON = "cpu", "triton"

DRIVER = Path("/proc/driver/nvidia/gpus")
"""Where the driver lists its GPUs, one folder each, in the order of the bus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; what the driver does not report is None."""

    number: int
    """Its place on the bus, which is its CUDA number where CUDA_DEVICE_ORDER is PCI_BUS_ID."""
    name: str
    uuid: str = ""
    """Such as GPU-6f1ae4bc-...; empty where the driver does not report it: no worker gets such a GPU."""
    memory_bytes: int | None = None


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs of this host that CUDA_VISIBLE_DEVICES leaves visible; none where there is no driver."""
    return select_visible(_gpus_from_nvml() or _gpus_from_driver_files(), os.environ.get(VISIBLE))


def select_visible(gpus: Sequence[Gpu], variable: str | None) -> tuple[Gpu, ...]:
    """Those of *gpus* that CUDA would see with this value of CUDA_VISIBLE_DEVICES: numbers, or beginnings of UUIDs.

    As in CUDA, the first entry that names no GPU ends the list. A MIG slice names none: its memory cannot be shared
    with peers.
    """
    if variable is None:
        return tuple(gpus)
    listed: list[Gpu] = []
    for entry in filter(None, (part.strip() for part in variable.split(","))):
        matching = [
            gpu for gpu in gpus if entry == str(gpu.number) or (not entry.isdigit() and gpu.uuid.startswith(entry))
        ]
        if len(matching) != 1 or matching[0] in listed:
            break
        listed += matching
    return tuple(listed)


def fastest_backend(gpu: Gpu | None) -> str:
    """The fastest backend of a rank process with *gpu*: triton with a GPU and Triton, else cpu."""
    return TRITON if gpu is not None and util.find_spec("triton") is not None else CPU


def environment(gpu: Gpu | None, peers: Sequence[str] = ()) -> dict[str, str]:
    """Variables of a process that uses *gpu*, or none, and also sees the GPUs with the UUIDs *peers*, to copy to them.

    A UUID means the same GPU for every order of devices, on every host and in every container.
    """
    shown = [] if gpu is None else [gpu.uuid or str(gpu.number), *peers]
    return {VISIBLE: ",".join(shown), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _gpus_from_nvml() -> tuple[Gpu, ...]:
    with nvml_library() as nvml:
        if nvml is None:
            return ()
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
            return tuple(
                Gpu(
                    number=number,
                    name=decoded(nvml.nvmlDeviceGetName(handle)),
                    uuid=decoded(nvml.nvmlDeviceGetUUID(handle)),
                    memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                )
                for number, handle in enumerate(handles)
            )
        except nvml.NVMLError:  # one of them has fallen off the bus: the driver's files still list the others
            return ()


def _gpus_from_driver_files() -> tuple[Gpu, ...]:
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


def decoded(value: bytes | str) -> str:
    """A text from the library; its older versions return bytes."""
    return value.decode() if isinstance(value, bytes) else value


# Links and software of this host's GPUs: from the driver, and from torch in a process of its own.

NONE = "none"
MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""Variables that turn NVLink multicast off, each for one library."""

# runs in a process of its own: a worker or a notebook must not import torch or create a CUDA context for it
TORCH_FACTS_SCRIPT = """
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


def gpu_facts() -> dict[str, Any]:
    """Facts about the GPUs that this process sees, without a CUDA context; `none` where there are none."""
    gpus = visible_gpus()
    return {
        "gpus": _counted(f"{gpu.name}{_memory(gpu)}" for gpu in gpus),
        "backend": fastest_backend(gpus[0] if gpus else None),
        **_driver_facts([gpu.number for gpu in gpus]),
        "multicast": _multicast(gpus),
    }


def nvlink_peers(gpu: Gpu) -> tuple[str, ...] | None:
    """UUIDs of this host's GPUs, including hidden ones, that *gpu* reaches over NVLink; None where this is unknown."""
    with nvml_library() as nvml:
        if nvml is None:
            return None
        try:
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
            uuids = [decoded(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        except nvml.NVMLError:  # one of them has fallen off the bus
            return None
        if gpu.uuid not in uuids:
            return None
        gpu_handle = handles[uuids.index(gpu.uuid)]
        pairs = zip(uuids, handles, strict=True)
        return tuple(uuid for uuid, handle in pairs if uuid != gpu.uuid and _are_linked(nvml, gpu_handle, handle))


def _memory(gpu: Gpu) -> str:
    return "" if gpu.memory_bytes is None else f" {gpu.memory_bytes / 2**30:.0f} GiB"


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items()) or NONE


def _driver_facts(numbers: list[int]) -> dict[str, str]:
    """The driver's version, and the links between the GPUs with these numbers."""
    unknown = {"gpu_driver": NONE, "nvlink": NONE}
    if not numbers:
        return unknown
    with nvml_library() as nvml:
        if nvml is None:
            return dict.fromkeys(unknown, "unknown: nvidia-ml-py is not installed or finds no driver")
        try:
            driver = nvml.nvmlSystemGetDriverVersion()
            handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]
        except nvml.NVMLError as error:
            return dict.fromkeys(unknown, f"unknown: {error}")
        driver = driver.decode() if isinstance(driver, bytes) else driver
        return {"gpu_driver": driver, "nvlink": _nvlink_summary(nvml, handles)}


def _nvlink_summary(nvml: Any, handles: list[Any]) -> str:
    """Text such as `4 x 18 links, 6 of 6 pairs`: active NVLinks per GPU, and linked pairs of GPUs."""
    links = _counted(f"{count} links" for handle in handles if (count := active_links(nvml, handle)))
    pairs = list(combinations(handles, 2))
    linked = sum(_are_linked(nvml, *pair) for pair in pairs)
    return f"{links}, {linked} of {len(pairs)} pairs" if pairs and links != NONE else links


def active_links(nvml: Any, handle: Any) -> int:
    """How many NVLinks of a GPU are active."""
    count = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        with suppress(nvml.NVMLError):  # fewer links than the most that any GPU has
            count += nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED
    return count


def _are_linked(nvml: Any, first: Any, second: Any) -> bool:
    """Whether two GPUs reach each other over NVLink, switches included."""
    with suppress(nvml.NVMLError):
        status = nvml.nvmlDeviceGetP2PStatus(first, second, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
        return bool(status == nvml.NVML_P2P_STATUS_OK)
    return False


def _multicast(gpus: tuple[Gpu, ...]) -> str:
    """Whether the environment turns NVLink multicast off; the driver is not queried."""
    if not gpus:
        return NONE
    off = [name for name, value in MULTICAST_OFF.items() if os.environ.get(name) == value]
    return "off" if len(off) == len(MULTICAST_OFF) else f"off by {', '.join(off)}" if off else "not turned off"


# Facts about this host and the workers of a cluster, as rows for `workbench doctor`.

if TYPE_CHECKING:
    from distributed import Client

Facts = dict[str, Any]

PACKAGES = ("overlap-workbench", "torch", "triton", "numpy", "dask", "distributed")
SHARED_MEMORY = Path("/dev/shm")
ANSWER_S = 5.0
"""A worker that does not answer within this time, s, counts as stuck."""
_NO_ANSWER = "no answer within"
TORCH_S = 60.0
"""Time limit of a process that imports torch, s: from a cold network disk it takes long."""


def host_facts() -> Facts:
    """Facts about this process's host; None for what is unknown or not installed."""
    from distributed.system import MEMORY_LIMIT  # knows what a container may use

    return {
        "host": socket.gethostname(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "memory_bytes": int(MEMORY_LIMIT),
        "shared_memory_free_bytes": shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else None,
        "python": platform.python_version(),
        **{name: package_version(name) for name in PACKAGES},
    }


def host_facts_with_torch(hidden: bool = True) -> Facts:
    """`host_facts`, and what the driver and torch report: GPUs, links, networks, gloo, NCCL. Takes seconds.

    Without *hidden*, torch also sees the GPUs that are hidden from this process: a worker with one GPU would report no
    peer.
    """
    known = host_facts() | gpu_facts() | network.here().facts()
    environment = {name: value for name, value in os.environ.items() if hidden or name != VISIBLE}
    command = [sys.executable, "-c", TORCH_FACTS_SCRIPT]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S, env=environment)
    except subprocess.TimeoutExpired:
        return known | {"trouble": f"torch took longer than {TORCH_S:.0f} s to import"}
    if answer.returncode != 0:
        last_line = answer.stderr.strip().rpartition("\n")[2]
        return known | {"trouble": f"torch cannot be used: {last_line}"}
    return known | json.loads(answer.stdout)


def doctor_rows(client: Client | None = None) -> list[Facts]:
    """Rows of `workbench doctor`: this host first, then each worker of the client's cluster."""
    first = {"place": "here"} | host_facts_with_torch()
    if client is None:
        return [first]
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1).get("workers", {})
    on_host = {str(worker["host"]): address for address, worker in workers.items()}
    # torch reports the same to all workers of a host, except for the one GPU that each may see
    of_hosts = ask_workers(client, list(on_host.values()), _worker_facts, TORCH_S + ANSWER_S)
    of_gpus = ask_workers(client, list(workers), _worker_gpu_facts, 2 * ANSWER_S)
    return [first] + [
        {"place": worker["name"], "address": address} | of_hosts[on_host[str(worker["host"])]] | of_gpus[address]
        for address, worker in workers.items()
    ]


def _worker_facts(worker: Any) -> Facts:
    return host_facts_with_torch(hidden=False)


def _worker_gpu_facts(worker: Any) -> Facts:
    return gpu_facts()


def ask_workers(
    client: Client, workers: list[str], question: Callable[..., Facts], deadline_s: float = ANSWER_S
) -> dict[str, Facts]:
    """Answer of each worker, by address; one that does not answer in time has the fact `trouble`.

    *question* is called with the worker, in a thread of that worker next to its event loop and its one task.
    """

    async def answer_of(worker: str) -> Facts:
        try:
            answers = await asyncio.wait_for(client.run(_in_a_thread, question, workers=[worker]), deadline_s)
            return dict(answers[worker])
        except TimeoutError:
            return no_answer(deadline_s)
        except OSError as error:  # its connection ended: it has died, or its nanny starts it again
            return {"trouble": f"{_NO_ANSWER} the life of its connection ({error})"}
        except Exception as error:  # any failure of the worker is an answer
            return {"trouble": f"{type(error).__name__}: {error}"}

    async def everyone() -> dict[str, Facts]:
        return dict(zip(workers, await asyncio.gather(*map(answer_of, workers)), strict=True))

    return client.sync(everyone, callback_timeout=deadline_s + ANSWER_S)


def no_answer(deadline_s: float) -> Facts:
    """Facts about a worker that does not answer."""
    return {"trouble": f"{_NO_ANSWER} {deadline_s:.0f} s"}


def is_no_answer(answer: Mapping[str, Any]) -> bool:
    """Whether *answer* stands for none: the worker is stopped or busy, and may otherwise be like all others."""
    return str(answer.get("trouble") or "").startswith(_NO_ANSWER)


async def _in_a_thread(question: Callable[[Any], Facts], dask_worker: Any) -> Facts:
    return await asyncio.to_thread(question, dask_worker)


def package_version(package: str) -> str | None:
    """Installed version of *package*, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def usable_cores() -> int:
    """How many whole cores this process may use."""
    return max(1, int(allowed_cores()))


def allowed_cores() -> float:
    """How many cores this process may use: its affinity, or the quota of its container where that is less."""
    quota = _quota_cores()
    return float(len(core_numbers())) if quota is None else min(quota, float(len(core_numbers())))


_CGROUPS = {"": Path("/sys/fs/cgroup"), "cpu": Path("/sys/fs/cgroup/cpu")}
"""Folders of control groups by controller: of version 2, which names none, and of version 1."""


def _quota_cores() -> float | None:
    """The least quota in cores of this process's control groups and of those around them; None without one.

    A container sees its own group as the root. A service's group is below the root.
    """
    groups = {*_CGROUPS.values()}
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for _, controllers, name in (line.split(":", 2) for line in lines):
        for controller in controllers.split(","):
            if root := _CGROUPS.get(controller):
                group = root / name.lstrip("/")
                groups |= {group, *group.parents} - {*root.parents}
    return min(filter(None, map(_quota, groups)), default=None)


def _quota(group: Path) -> float | None:
    """The quota of one control group in cores; None without one."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return None
    try:
        return int(quota) / int(period) if int(quota) > 0 else None
    except ValueError:  # "max"
        return None


def container_seconds() -> float | None:
    """CPU seconds that this container has used so far (cgroup v2, else v1); None where no quota limits it."""
    if _quota_cores() is None:
        return None
    try:
        counters = dict(line.split() for line in Path("/sys/fs/cgroup/cpu.stat").read_text().splitlines())
        return int(counters["usage_usec"]) / 1e6
    except (OSError, ValueError, KeyError):
        try:
            return int(Path("/sys/fs/cgroup/cpuacct/cpuacct.usage").read_text()) / 1e9
        except (OSError, ValueError):
            return None


def core_numbers() -> tuple[int, ...]:
    """Numbers of the cores that this process may run on, in order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_model() -> str | None:
    """The processor's name as the operating system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


# Specification of one GPU, from torch and the driver: for a machine that no file describes.

# runs in a process of its own, as TORCH_FACTS_SCRIPT does
DEVICE_PROPERTIES_SCRIPT = """
import json, torch
properties = torch.cuda.get_device_properties(0)
names = ("multi_processor_count", "total_memory", "L2_cache_size", "shared_memory_per_multiprocessor", "major", "minor",
         "clock_rate", "memory_clock_rate", "memory_bus_width")
print(json.dumps({name: getattr(properties, name, None) for name in names}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """Specification of one GPU; None for what is unknown."""

    slots: int | None = None
    """Number of SMs."""
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    shared_memory_per_slot_bytes: int | None = None
    capability: tuple[int, int] | None = None
    """CUDA's compute capability."""
    clock_hz: float | None = None
    """The highest clock of the SMs."""
    memory_bytes_per_second: float | None = None
    """Peak rate: two transfers per clock of the memory, over its whole width."""
    nvlinks: int = 0
    """How many NVLinks are active."""
    pcie: tuple[int, int] | None = None
    """Highest generation of PCI Express, and most lanes."""


def local_specification() -> Specification:
    """Specification of the first GPU that this process sees. Takes seconds, because it starts torch."""
    return specification_from(_torch_properties(), _first_gpu_links())


def worker_specification(client: Client, address: str) -> Specification:
    """Specification of the first GPU of the worker at *address*; None for what it does not report in time."""
    answer = ask_workers(client, [address], _torch_and_driver, TORCH_S + ANSWER_S)[address]
    return specification_from(answer.get("torch", {}), answer.get("driver", {}))


def specification_from(torch: dict[str, Any], driver: dict[str, Any]) -> Specification:
    """Specification from torch's properties of a device (kHz, bytes, bits) and the driver's facts."""
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


def _torch_and_driver(worker: Any) -> dict[str, Any]:
    return {"torch": _torch_properties(), "driver": _first_gpu_links()}


def _torch_properties() -> dict[str, Any]:
    command = [sys.executable, "-c", DEVICE_PROPERTIES_SCRIPT]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_S)
    except subprocess.TimeoutExpired:
        return {}
    return dict(json.loads(answer.stdout)) if answer.returncode == 0 else {}


def _first_gpu_links() -> dict[str, Any]:
    """Links of the first visible GPU."""
    gpus = visible_gpus()
    with nvml_library() as nvml:
        if nvml is None or not gpus:
            return {}
        links: dict[str, Any] = {}
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByIndex(gpus[0].number)
            links["nvlinks"] = active_links(nvml, handle)
            links["pcie"] = [nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
                             nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)]  # fmt: skip
        return links


# Devices of the workers of this host, and what a local gang would run on.


def worker_device(gpu: Gpu | None, ranks_on_gpu: int = 1) -> WorkerDevice:
    """Device of a worker of this host: *gpu*, of *ranks_on_gpu* workers, with its links; its cores without a GPU.

    Of its cores it has as many as a quota allows, since workers of one container share that.
    """
    processor, cores = cpu_model() or "unknown processor", core_numbers()[: usable_cores()]
    if gpu is None:
        return WorkerDevice(kind="cpu", model=processor, processor=processor, cores=cores)
    return WorkerDevice(
        kind="gpu", model=gpu.name, processor=processor, cores=cores, memory_bytes=gpu.memory_bytes, uuid=gpu.uuid,
        links=nvlink_peers(gpu), ranks_on_gpu=ranks_on_gpu,
    )  # fmt: skip


def local_ranks(world: int, backend: str, *, share_gpu: bool = False) -> Ranks | None:
    """What *world* ranks of the local cluster would run on, even before it starts; None with too few GPUs.

    *share_gpu*: all of them would be on the first GPU.
    """
    free: Sequence[Gpu | None] = visible_gpus()[:world] if backend != "cpu" else [None] * world
    free = list(free[:1]) * world if share_gpu else free
    if len(free) < world:
        return None
    devices = [worker_device(gpu, world if share_gpu and gpu else 1) for gpu in free]
    hardware = hardware_of(backend, devices, ["here"] * world)
    return Ranks(versions(), hardware) if hardware else None


def sharing_refusal(name: str, num_ranks: int, num_gpus: int) -> str | None:
    """Why *num_ranks* ranks, an option called *name*, cannot share one of this host's *num_gpus* GPUs, or None."""
    most = f"{FEWEST_SHARING} to {MOST_SHARING}"
    if num_gpus < 1:
        return f"{name} = {num_ranks} ranks cannot share a GPU: this host has 0. Accepted: a host with 1, or CPU ranks."
    if FEWEST_SHARING <= num_ranks <= num_gpus:
        return (
            f"{name} = {num_ranks} ranks share no GPU where each has one: this host has {num_gpus} GPUs, and "
            f"{num_ranks} <= {num_gpus}. Accepted: ranks with a GPU each, or more than {num_gpus} that share one."
        )
    if not FEWEST_SHARING <= num_ranks <= MOST_SHARING:
        bound = f"{num_ranks} < {FEWEST_SHARING}" if num_ranks < FEWEST_SHARING else f"{num_ranks} > {MOST_SHARING}"
        return f"{name} = {num_ranks} ranks cannot share a GPU: {most} ranks share one, and {bound}. Accepted: {most}."
    return None
