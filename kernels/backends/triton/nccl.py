"""NCCL as it was found fastest (winners.py): communicators with more channels, and buffers in symmetric windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import log
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from kernels.schedule import Refusal

# Which of its settings NCCL was fastest with in a recorded sweep on H200s, at each size of each collective.

DEFAULT, WINDOWS = "default", "windows"
FARTHEST = 2
"""A size tells of those up to so many times larger or smaller."""
CHANNELS = {"32 channels": 32}
"""Settings that are a communicator of its own with so many channels."""
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
"""By collective and bytes of one rank's whole buffer, as nccl-tests count them: the setting that took least in
graphs."""


def winner(collective: str, num_bytes: int) -> str:
    """The setting for *collective* of *num_bytes*: that of the nearest size of the sweep, by their ratio.

    Where that is further than FARTHEST away: what the sizes on both sides agree on, or else NCCL as it comes.
    """
    sizes = WINNERS[collective]
    nearest = min(sizes, key=lambda size: abs(log(size / num_bytes)))
    if num_bytes <= FARTHEST * nearest and nearest <= FARTHEST * num_bytes:
        return sizes[nearest]
    below, above = [size for size in sizes if size < num_bytes], [size for size in sizes if size > num_bytes]
    around = {sizes[max(below)], sizes[min(above)]} if below and above else set()
    return around.pop() if len(around) == 1 else DEFAULT


# NCCL as it was found fastest (winners.py): communicators with more channels, and buffers in symmetric windows.

# graphs of collectives on registered buffers hang at replay in NCCL 2.28 unless it leaves registration alone
OF_RANKS = {"NCCL_GRAPH_REGISTER": "0"}
"""What every rank tells NCCL, and what a sweep of its settings has to tell it, too."""
PREFIXES = ("NCCL_", "TORCH_NCCL_", "TORCH_SYMM_MEM_")
NO_SETTINGS = ("NCCL_VERSION",)
"""Of a container's image, and not of the library that runs."""
NOT_OURS_TO_TELL = ("FILE", "DIR", "PATH", "HOSTID", "COMM_ID", "ADDR")
"""Ends of names whose values are places on this host."""


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """NCCL's version, and the variables of this process's *environment* that tell it how to work."""
    set_here = {
        name: "set" if name.endswith(NOT_OURS_TO_TELL) else value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES) and name not in NO_SETTINGS
    }
    return {"version": ".".join(map(str, torch.cuda.nccl.version())), **set_here}


class TunedCollectives:
    """What one process group's collectives can be called with beside NCCL's defaults. Making one is collective."""

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
        """The process group whose calls have *setting*, one of winners.py."""
        return self._groups[setting]

    def buffer(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device, setting: str) -> Tensor:
        """Unwritten memory for a collective with *setting*, in a window where that says so."""
        if setting != WINDOWS:
            return torch.empty(*shape, dtype=dtype, device=device)
        pool = torch.cuda.MemPool(self._backend.mem_allocator)
        with torch.cuda.use_mem_pool(pool):
            made = torch.empty(*shape, dtype=dtype, device=device)
        self._backend.register_mem_pool(pool, symm=True)
        self._pools.append(pool)
        return made

    def forget(self) -> None:
        """Buffers so far are windows no longer; all ranks call it, when their trials have ended."""
        for pool in self._pools:
            self._backend.deregister_mem_pool(pool)
        self._pools.clear()


def _of(least: int | None, most: int, limit: timedelta, cluster: int | None = None) -> Any:
    """A group of all ranks whose communicator has *least* to *most* channels, each a block; calls end after *limit*.

    torch would give it 10 minutes, whatever the main group has. Without *least* NCCL takes fewer where it sees fit.
    *cluster*: blocks that only begin together, on neighbouring SMs; None: as many as NCCL wants, 4 on Hopper.
    """
    dist: Any = torch.distributed
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = limit  # torch warns where it is another than the keyword
    options.config.max_ctas = most
    if least is not None:
        options.config.min_ctas = least
    if cluster is not None:
        options.config.cga_cluster_size = cluster
    return dist.new_group(backend="nccl", pg_options=options, timeout=limit)


_limited: tuple[Any, dict[int, Any]] | None = None


def channels(share: int, *, sends: bool) -> int:
    """Most that keep to *share* SMs. Those of sends and receives are a power of two: NCCL rounds 24 up to 32."""
    return 1 << share.bit_length() - 1 if sends and share else share


def at_most(group: Any, blocks: int, device: torch.device) -> Any:
    """*group* with a communicator of at most *blocks* blocks; 0: *group* itself. Making one is collective.

    It lives as long as *group*, whose rank belongs to one gang at a time. Its blocks begin one by one: a cluster of
    them finds no room beside a computation that leaves SMs here and there.
    """
    global _limited
    if not blocks or group is None:
        return group
    if _limited is None or _limited[0] is not group:
        _limited = group, {}
    made = _limited[1]
    if blocks not in made:
        made[blocks] = _of(None, blocks, group._get_backend(device).options._timeout, cluster=1)
    return made[blocks]


_made: tuple[Any, TunedCollectives] | None = None
_lost: list[TunedCollectives] = []
"""Of groups that broke: freeing a window whose communicator has ended ends the process, so they stay."""


def forget(group: Any) -> None:
    """The trials before have ended, on all ranks of *group*."""
    global _limited
    if _made is not None and _made[0] is group:
        _made[1].forget()
    if _limited is not None and _limited[0] is not group:
        _limited = None


def leave() -> None:
    """The process group of this rank is about to end, and its windows go before it."""
    global _made, _limited
    if _made is not None:
        try:
            _made[1].forget()
        except RuntimeError:
            _lost.append(_made[1])
    _made = _limited = None


def tuned(group: Any, device: torch.device) -> TunedCollectives:
    """The one of *group*: a rank belongs to one gang at a time."""
    global _made
    if _made is None or _made[0] is not group:
        _made = (group, TunedCollectives(group, device))
    return _made[1]
