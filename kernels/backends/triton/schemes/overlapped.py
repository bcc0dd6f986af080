"""Calls of torch's own overlapped operators, all_gather + GEMM and GEMM + reduce_scatter.

`torch.ops.symm_mem.fused_all_gather_matmul` and `fused_matmul_reduce_scatter` (torch/distributed/_symmetric_memory)
correspond to a `decomposed` schedule with one piece per shard, a ring of unfused steps, and copy engines, and have its
Plan: rank by rank a shard is copied by a copy engine and multiplied by cuBLAS, on two streams. They pull data where a
plan pushes them, and allocate their result, so a call points the trial's result at the returned tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton.launch import Call, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.schemes import OperandCalls
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.reference import Operands


def kernels(context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
    """No kernels of ours."""
    return []


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
    """One call of torch for each of *sets*."""
    shape = OPERATORS[context.problem.operator].local(context.problem)["output"]
    result = torch.empty(shape, dtype=context.dtype, device=context.device)
    return OperandCalls([call(context, operands, group, result) for operands in sets], result)


watched = None
"""None: the steps inside torch's operators cannot be recorded."""


def call(context: Context, operands: Operands, group: Any, result: Tensor) -> Call:
    """One call over *operands*, after which *result* is the tensor that torch returned."""
    first, second = operands.values()
    name, operators = group.group_name, torch.ops.symm_mem

    def gathered() -> None:
        _, (out,) = operators.fused_all_gather_matmul(first, [second], 0, name, return_A=False)
        result.set_(out)

    def scattered() -> None:
        result.set_(operators.fused_matmul_reduce_scatter(first, second, "sum", 0, name))

    return gathered if OPERATORS[context.problem.operator].flow is Flow.RECEIVE else scattered
