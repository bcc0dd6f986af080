"""Sequential calls on CUDA tensors over symmetric memory: torch's collectives there, and stores of our own.

Each call computes by torch, on the current stream. `Repeated` (kernels/backends/triton/repeated.py) is the fused twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton.collectives import layout, put_kernel, sum_kernel
from kernels.backends.triton.repeated import CallContext, on_fewer
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.ops.sequential import Operands, PreparedCall, computed
from kernels.schedule import Refusal


def prepared(
    places: CallContext, operands: Operands, group: Any, programs_most: Callable[[], int]
) -> PreparedCall:  # fmt: skip
    """The sequential call of *places*' plan; the library's needs none. Creating it compiles; a barrier must follow.

    *operands*: some of the shapes and dtype of later calls. *group*: the caller's process group. *programs_most*
    gives what `on_fewer` takes, for a kernel of ours that waits for peers inside; Refusal where no SM is left for it.
    """
    match places.plan.schedule["collective"]:
        case "overlapped":
            return OverlappedCall(places, group)
        case "one_shot" | "two_shot":
            return SymmetricCall(places, group)
        case "direct":
            return PushedCall(places, operands, programs_most())
        case other:
            raise Refusal(
                f"collective = {other} does not run in torch.ops.workbench: its buffers belong to the workbench's own "
                "process groups. Accepted: library, overlapped, one_shot, two_shot, direct, where the operator has it."
            )


class OverlappedCall:
    """torch's own operator that computes and communicates, `fused_all_gather_matmul` or its counterpart."""

    fresh = True

    def __init__(self, places: CallContext, group: Any) -> None:
        self._receives, self._name = places.receives, str(group.group_name)

    def __call__(self, operands: Operands) -> Tensor:
        first, second = operands.values()
        operators: Any = torch.ops.symm_mem
        if self._receives:
            _, (out,) = operators.fused_all_gather_matmul(first, [second], 0, self._name, return_A=False)
            return out
        return operators.fused_matmul_reduce_scatter(first, second, "sum", 0, self._name)

    def failure(self) -> str | None:
        """None: torch raises its own errors."""
        return None


class SymmetricCall:
    """torch computes into symmetric memory, then sums it there: all-reduces in one shot or two."""

    def __init__(self, places: CallContext, group: Any) -> None:
        self._problem, self._name = places.problem, str(group.group_name)
        self._stage = places.of(places.rank, "out")
        self.fresh = places.plan.schedule["collective"] == "one_shot"

    def __call__(self, operands: Operands) -> Tensor:
        operators: Any = torch.ops.symm_mem
        if not self.fresh:
            computed(self._problem, operands, self._stage)
            operators.two_shot_all_reduce_(self._stage, "sum", self._name)
            return self._stage
        computed(self._problem, operands, self._stage)
        out = torch.empty_like(self._stage)
        operators.one_shot_all_reduce_out(self._stage, "sum", self._name, out)
        return out

    def failure(self) -> str | None:
        """None: torch raises its own errors."""
        return None


class PushedCall:
    """torch computes; between two meetings SMs store each share into its owner's memory, which sums them if needed."""

    def __init__(self, places: CallContext, operands: Operands, programs_most: int) -> None:
        self.places, self._operator = places, OPERATORS[places.problem.operator]
        source = next(iter(operands.values())) if places.receives else places.local
        pushes = on_fewer(put_kernel(places, layout(places, source), meets=True), programs_most)
        self._pushed, self._push = list(pushes.arguments), pushes.argument_launcher()
        self._out = places.of(places.rank, "operand" if places.receives else "out")
        stage = places.of(places.rank, "stage") if self._operator.reduces else None
        self._total = None if stage is None else sum_kernel(places, stage).launcher()
        self.fresh = places.receives

    def __call__(self, operands: Operands) -> Tensor:
        first, second = operands.values()
        source = first
        if self._operator.flow is not Flow.RECEIVE:
            source = computed(self.places.problem, operands, self.places.local)
        self._push([source, *self._pushed[1:]])
        if self._total is not None:
            self._total()
        return torch.mm(self._out, second) if self.fresh else self._out

    def failure(self) -> str | None:
        """As `Repeated.failure`."""
        return self.places.ended_failure()
