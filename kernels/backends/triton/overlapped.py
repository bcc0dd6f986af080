"""torch's own overlapped operators, all_gather + GEMM and GEMM + reduce_scatter: decomposed by the shard, in a ring.

`torch.ops.symm_mem.fused_all_gather_matmul` and `fused_matmul_reduce_scatter` (torch/distributed/_symmetric_memory) are
what `decomposed` calls one piece of every shard, a ring of unfused steps, by copy engines: rank by rank a shard is
copied by a copy engine and multiplied by cuBLAS, on two streams. They pull where a plan pushes, and allocate their
result, so a call points the trial's result at what it returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton.context import Context
from kernels.reference import Operands
from kernels.trial import Trial

Call = Callable[[], None]

OPERATORS = ("all_gather_gemm", "gemm_reduce_scatter")
AXES = {
    "pieces": 1, "split": "rows", "steps": "uniform", "grouping": "unfused", "pattern": "ring", "engine": "copy_engine",
}  # fmt: skip
"""The one decomposed schedule that they are."""


def refusal(trial: Trial) -> str | None:
    """Why a decomposed *trial* is not what torch's operators do, or None."""
    asked = trial.problem.operator
    if asked not in OPERATORS:
        return (
            f"scheme = decomposed was asked for {asked} on backend = triton, where it is torch's own overlapped "
            f"operators, of which there are {len(OPERATORS)}. Accepted: {', '.join(OPERATORS)}; or scheme = fused."
        )
    for name, needed in AXES.items():
        if trial.schedule[name] != needed:
            return (
                f"{name} = {trial.schedule[name]} was asked for on backend = triton, where scheme = decomposed is "
                f"torch's own {asked}, which has 1 schedule. Accepted: "
                f"{', '.join(f'{axis} = {value}' for axis, value in AXES.items())}."
            )
    if trial.world == 1:
        return "world = 1 was asked for of torch's overlapped operators, which need peers: 1 < 2. Accepted: 2 or more."
    if trial.part != "whole":
        return (
            f"part = {trial.part} was asked for of scheme = decomposed on backend = triton, but torch's operators do "
            "both parts in one call. Accepted: whole; or scheme = sequential."
        )
    return None


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
