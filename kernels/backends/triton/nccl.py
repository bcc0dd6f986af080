"""NCCL with its fastest recorded settings: communicators with more channels, and buffers in symmetric windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import log
from threading import Thread
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from kernels.schedule import Refusal

# The fastest setting of NCCL in a recorded sweep on H200s, by collective and size.

DEFAULT, WINDOWS = "default", "windows"
MAX_DISTANCE = 2
"""A measured size represents sizes up to this many times larger or smaller."""
CHANNELS = {"32 channels": 32}
"""Settings that need a separate communicator, and its number of channels."""
WINNERS: dict[str, dict[int, str]] = {
    "all_gather": {2097152: WINDOWS, 8388608: WINDOWS, 33554432: WINDOWS, 134217728: "32 channels"},
    "all_reduce": {
        8192: WINDOWS, 16384: WINDOWS, 32768: WINDOWS, 65536: WINDOWS, 131072: "32 channels", 262144: WINDOWS,
        2097152: WINDOWS, 8388608: "32 channels", 33554432: "32 channels", 134217728: "32 channels",
    },
    "all_to_all": {
        1048576: WINDOWS, 4194304: WINDOWS, 16777216: WINDOWS, 33554432: WINDOWS, 67108864: WINDOWS,
        117440512: WINDOWS, 134217728: WINDOWS,
    },
    "reduce_scatter": {2097152: WINDOWS, 8388608: "32 channels", 33554432: "32 channels", 134217728: "32 channels"},
}  # fmt: skip
"""The setting that was fastest in graphs, by collective and bytes of one rank's whole buffer, as nccl-tests count."""


def winner(collective: str, num_bytes: int) -> str:
    """The setting for *collective* of *num_bytes*: that of the nearest measured size, by ratio.

    Beyond MAX_DISTANCE: the setting that the next sizes on both sides agree on, or else NCCL's defaults.
    """
    sizes = WINNERS[collective]
    nearest = min(sizes, key=lambda size: abs(log(size / num_bytes)))
    if num_bytes <= MAX_DISTANCE * nearest and nearest <= MAX_DISTANCE * num_bytes:
        return sizes[nearest]
    below, above = [size for size in sizes if size < num_bytes], [size for size in sizes if size > num_bytes]
    around = {sizes[max(below)], sizes[min(above)]} if below and above else set()
    return around.pop() if len(around) == 1 else DEFAULT


# Communicators and buffers with these settings.

# graphs of collectives on registered buffers hang at replay in NCCL 2.28 unless it leaves registration alone
OF_RANKS = {"NCCL_GRAPH_REGISTER": "0"}
"""Environment variables for NCCL on every rank; a sweep of settings needs them, too."""
OF_NETWORK = {"NCCL_GDRCOPY_ENABLE": "1", "NCCL_GIN_TYPE": "2"}
"""Of ranks on several hosts: puts by a thread of the host (2), which copies through GDRCopy; NCCL does not open that by
itself. Both NCCLs of a process read them, torch's and the one that kernels link."""
LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
OF_SHARED_GPU = {**LOOPBACK, "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
"""Environment variables of every rank that shares its GPU: its host's loopback, memory on one device, no multicast."""
PREFIXES = ("NCCL_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")
NO_SETTINGS = ("NCCL_VERSION",)
"""Variables that describe a container image and not the loaded library."""
PRIVATE_SUFFIXES = ("FILE", "DIR", "PATH", "HOSTID", "COMM_ID", "ADDR")
"""Name suffixes of variables whose values are paths or addresses of this host, which are not recorded."""


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """NCCL's version, and the variables of *environment* that configure it."""
    set_here = {
        name: "set" if name.endswith(PRIVATE_SUFFIXES) else value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) and name not in NO_SETTINGS
    }
    return {"version": ".".join(map(str, torch.cuda.nccl.version())), **set_here}


HOST_NAME = "NCCL_HOSTID"
"""A host's name for NCCL, instead of the machine's own."""


def of_shared_gpu(process: int) -> dict[str, str]:
    """Environment variables of a rank process that shares its GPU; set before its process group starts.

    NCCL takes a GPU once a host, and a host by its name: each process is a host of its own, whatever its rank.
    """
    return OF_SHARED_GPU | {HOST_NAME: f"process{process}"}


def of_host_on_shared_gpu(address: str, environment: Mapping[str, str]) -> dict[str, str]:
    """As `of_shared_gpu`, for a rank whose host is only an *address* of this computer: named by it, or as it is now."""
    return OF_SHARED_GPU | {HOST_NAME: environment.get(HOST_NAME) or address}


def ends_within(seconds: float, call: Callable[[], object], name: str) -> bool:
    """Whether *call* ends within *seconds*: NCCL waits for peers without a deadline, so it waits in a thread *name*.

    Raises what *call* raises.
    """
    failures: list[Exception] = []

    def called() -> None:
        try:
            call()
        except Exception as error:  # raised again where the call was made
            failures.append(error)

    thread = Thread(target=called, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return False
    if failures:
        raise failures[0]
    return True


class TunedCollectives:
    """One process group's communicators and buffers with tuned settings. Creating one is collective."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self._backend = group._get_backend(device)
        if not hasattr(self._backend, "register_mem_pool"):
            raise Refusal(
                f"collective = library_tuned does not run with torch {torch.__version__}: it registers buffers as "
                "NCCL windows, which came with torch 2.11. Accepted: torch 2.11 or newer, or collective = library."
            )
        self._groups = {DEFAULT: group, WINDOWS: group} | {
            name: _of(count, count, self._backend.options._timeout) for name, count in CHANNELS.items()
        }
        self._pools: list[Any] = []

    def group_for(self, setting: str) -> Any:
        """The process group whose calls use *setting*, a value of WINNERS."""
        return self._groups[setting]

    def buffer(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, setting: str) -> Tensor:
        """Unwritten memory for a collective with *setting*; with WINDOWS it is registered as an NCCL window."""
        if setting != WINDOWS:
            return torch.empty(*shape, dtype=dtype, device=device)
        pool = torch.cuda.MemPool(self._backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            tensor = torch.empty(*shape, dtype=dtype, device=device)
        self._backend.register_mem_pool(pool, symm=True)
        self._pools.append(pool)
        return tensor

    def forget(self) -> None:
        """Deregisters all windows; all ranks call it when their trials have ended."""
        for pool in self._pools:
            self._backend.deregister_mem_pool(pool)
        self._pools.clear()


def _of(least: int | None, most: int, limit: timedelta, cluster: int | None = None) -> Any:
    """A group of all ranks whose communicator has *least* to *most* channels, one thread block each; timeout *limit*.

    torch's default timeout would be 10 minutes, whatever the main group has. Without *least* NCCL may use fewer.
    *cluster*: thread blocks that only start together, on neighbouring SMs; None: NCCL's default, 4 on Hopper.
    """
    dist: Any = torch.distributed
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = limit  # torch warns if it differs from the keyword
    options.config.max_ctas = most
    if least is not None:
        options.config.min_ctas = least
    if cluster is not None:
        options.config.cga_cluster_size = cluster
    return dist.new_group(backend="nccl", pg_options=options, timeout=limit)


_limited: tuple[Any, dict[int, Any]] | None = None
"""The main group, and its copies with few thread blocks, by their number."""


def channels(share: int, *, sends: bool) -> int:
    """Most channels that fit *share* SMs. Sends and receives need a power of two: NCCL rounds 24 up to 32."""
    return 1 << share.bit_length() - 1 if sends and share else share


def at_most(group: Any, blocks: int, device: torch.device) -> Any:
    """*group* with a communicator of at most *blocks* thread blocks; 0: *group* itself. Creating one is collective.

    It lives as long as *group*, whose rank belongs to one gang at a time. Its blocks start one by one: a cluster of
    them would find no room next to a computation that leaves scattered SMs free.
    """
    global _limited
    if not blocks or group is None:
        return group
    if _limited is None or _limited[0] is not group:
        _limited = group, {}
    by_blocks = _limited[1]
    if blocks not in by_blocks:
        by_blocks[blocks] = _of(None, blocks, group._get_backend(device).options._timeout, cluster=1)
    return by_blocks[blocks]


_tuned: tuple[Any, TunedCollectives] | None = None
"""The main group, and its tuned collectives."""
_leaked: list[TunedCollectives] = []
"""Those of broken groups, kept on purpose: freeing a window whose communicator has ended kills the process."""


def forget(group: Any) -> None:
    """Releases what the trials before used; they have ended on all ranks of *group*."""
    global _limited
    if _tuned is not None and _tuned[0] is group:
        _tuned[1].forget()
    if _limited is not None and _limited[0] is not group:
        _limited = None


def leave() -> None:
    """Deregisters all windows before the process group of this rank ends."""
    global _tuned, _limited
    if _tuned is not None:
        try:
            _tuned[1].forget()
        except RuntimeError:
            _leaked.append(_tuned[1])
    _tuned = _limited = None


def tuned(group: Any, device: torch.device) -> TunedCollectives:
    """The tuned collectives of *group*; a rank belongs to one gang at a time."""
    global _tuned
    if _tuned is None or _tuned[0] is not group:
        _tuned = (group, TunedCollectives(group, device))
    return _tuned[1]
