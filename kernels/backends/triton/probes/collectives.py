"""NCCL's collectives as it chooses to run them: the table that estimates of library calls are read from."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed

from kernels.backends.triton.probes.site import Call, Site

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def wire_bytes(name: str, num_bytes: float, world: int) -> float:
    """Bytes that leave each rank at least; *num_bytes*: the larger of a call's two buffers, as nccl-tests count."""
    return (2 if name == "all_reduce" else 1) * num_bytes * (world - 1) / world


def calls(site: Site, name: str, num_bytes: int, group: Any) -> list[Call]:
    """Calls of one collective over buffers of its own, random; *num_bytes* as in `wire_bytes`."""
    dist: Any = torch.distributed
    count = num_bytes // 2 // site.world * site.world
    large = torch.randn(count, device=site.device).to(torch.bfloat16)
    if name == "all_reduce":
        # the largest and not the sum, which would be infinite after a hundred calls in place
        return [lambda: dist.all_reduce(large, dist.ReduceOp.MAX, group=group)]
    if name == "all_to_all":
        received = torch.empty_like(large)
        return [lambda: dist.all_to_all_single(received, large, group=group)]
    small = torch.randn(count // site.world, device=site.device).to(torch.bfloat16)
    if name == "all_gather":
        return [lambda: dist.all_gather_into_tensor(large, small, group=group)]
    return [lambda: dist.reduce_scatter_tensor(small, large, group=group)]
