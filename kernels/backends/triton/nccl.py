"""NCCL as a recorded sweep found it fastest on H200s: windows for rows that only move, more channels for sums.

`python -m tests.gpu.nccl_sweep` is the sweep, data/probes/h200_nvl2_nccl.jsonl what it said: with both buffers
registered as symmetric windows an all-to-all takes 0.69 to 0.91 and an all-gather up to 32 MiB 0.68 to 0.90 of NCCL's
default time, sums of 32 MiB and more 1.2 to 1.3; with 32 channels these take 0.92 to 0.96.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from kernels.schedule import Refusal

MOVES = ("all_to_all", "all_gather")
"""Collectives that sum nothing."""
SMALL_BYTES = 32 * 1024
"""Sums of up to so many bytes are faster in windows, too: 0.9 of the default."""
MANY_BYTES = 256 * 1024
"""Sums from here on want more channels than NCCL takes."""
CHANNELS = 32


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


class Tuned:
    """What one process group's collectives can be called with beside NCCL's defaults. Making one is collective."""

    def __init__(self, group: Any, device: torch.device) -> None:
        dist: Any = torch.distributed
        self._backend = group._get_backend(device)
        if not hasattr(self._backend, "register_mem_pool"):
            raise Refusal(
                f"collective = library_tuned does not run with torch {torch.__version__}: it registers buffers as "
                "NCCL windows, which came with torch 2.11. Accepted: torch 2.11 or newer, or collective = library."
            )
        options = dist.ProcessGroupNCCL.Options()
        options.config.min_ctas = options.config.max_ctas = CHANNELS
        self.default, self.many_channels = group, dist.new_group(backend="nccl", pg_options=options)
        self._pools: list[Any] = []

    def group_for(self, collective: str, num_bytes: int) -> Any:
        """The process group that calls *collective* of *num_bytes*."""
        return self.default if collective in MOVES or num_bytes < MANY_BYTES else self.many_channels

    def buffer(self, shape: Sequence[int], dtype: torch.dtype, collective: str, device: torch.device) -> Tensor:
        """Unwritten memory for *collective*, in a window where that is faster."""
        num_bytes = torch.Size(shape).numel() * dtype.itemsize
        if collective not in MOVES and num_bytes > SMALL_BYTES:
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


_made: tuple[Any, Tuned] | None = None


def forget(group: Any) -> None:
    """The trials before have ended, on all ranks of *group*; another group has ended itself, its windows with it."""
    global _made
    if _made is not None and _made[0] is group:
        _made[1].forget()
    else:
        _made = None


def tuned(group: Any, device: torch.device) -> Tuned:
    """The one of *group*: a rank belongs to one gang at a time."""
    global _made
    if _made is None or _made[0] is not group:
        _made = (group, Tuned(group, device))
    return _made[1]
