"""torch's own overlapped operators, all_gather + GEMM and GEMM + reduce_scatter: sequential, collective = overlapped.

`torch.ops.symm_mem.fused_all_gather_matmul` and `fused_matmul_reduce_scatter` (torch/distributed/_symmetric_memory) are
what `decomposed` calls one piece of every shard, a ring of unfused steps, by copy engines, and have that Plan: rank by
rank a shard is copied by a copy engine and multiplied by cuBLAS, on two streams. They pull where a plan pushes, and
allocate their result, so a call points the trial's result at what it returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton.context import Context
from kernels.reference import Operands

Call = Callable[[], None]


def call(context: Context, operands: Operands, group: Any, result: Tensor) -> Call:
    """One call over *operands*, after which *result* is the tensor that torch made."""
    first, second = operands.values()
    name, stated = group.group_name, torch.ops.symm_mem

    def gathered() -> None:
        _, (out,) = stated.fused_all_gather_matmul(first, [second], 0, name, return_A=False)
        result.set_(out)

    def scattered() -> None:
        result.set_(stated.fused_matmul_reduce_scatter(first, second, "sum", 0, name))

    return gathered if context.problem.operator == "all_gather_gemm" else scattered
