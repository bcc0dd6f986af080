"""The operators' gradients: an operator's backward is its dual operator, and one GEMM for the weights.

What travels one way in the forward pass travels the other way in the backward pass: all_gather_gemm and
gemm_reduce_scatter are each other's duals, and so are gemm_all_to_all and all_to_all_gemm. What the gradient of the
weights needs is gathered or exchanged again in the backward pass instead of being kept. Duals run their default
schedule: the text of the forward pass states axes of another flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed import _functional_collectives

from kernels.ops.groups import world_of
from kernels.schedule import Refusal

collectives: Any = _functional_collectives  # a group may be its name, which its types leave out

Gradients = tuple[Tensor | None, Tensor | None, None, None]
"""Of the two operands, the group name and the schedule."""
Backward = Callable[[Any, Tensor], Gradients]


def remember(ctx: Any, inputs: tuple[Tensor, Tensor, str, str], output: Tensor) -> None:
    """Keeps both operands for the backward pass: torch.library's setup_context, whose names these are."""
    first, second, ctx.group_name, _ = inputs
    ctx.save_for_backward(first, second)


def dual(operator: str, moved: Callable[[Tensor, str], Tensor], *, receives: bool) -> Backward:
    """The backward of a GEMM whose rows travel: *operator* carries the first operand's gradient back as it is computed.

    The weights' gradient is one GEMM over all rows that the weights met, which are *moved* to them once more: those of
    the first operand where the forward pass *receives* rows, else those of the upstream gradient.
    """

    def backward(context: Any, upstream: Tensor) -> Gradients:
        (rows, weights), name = context.saved_tensors, context.group_name
        first = second = None
        if context.needs_input_grad[0]:
            first = getattr(torch.ops.workbench, operator)(upstream, weights.t(), name)
        if context.needs_input_grad[1]:
            used, sent = (moved(rows, name), upstream) if receives else (rows, moved(upstream, name))
            second = used.t() @ sent
        return first, second, None, None

    return backward


def gemm_all_reduce(context: Any, upstream: Tensor) -> Gradients:
    """Both are local: all ranks hold the same output and, by Megatron's convention, the same upstream gradient."""
    a, b = context.saved_tensors
    first = upstream @ b.t() if context.needs_input_grad[0] else None
    second = a.t() @ upstream if context.needs_input_grad[1] else None
    return first, second, None, None


def embedding_all_to_all(context: Any, upstream: Tensor) -> Gradients:
    """tables: each sample's upstream gradient goes to the tables' owner and is added to all rows it looked up.

    Added in float32; on GPUs by atomics, so that the last bits differ from run to run.
    """
    (tables, indices), name = context.saved_tensors, context.group_name
    if not context.needs_input_grad[0]:
        return None, None, None, None
    count, rows, dim = tables.shape
    by_owner = upstream.view(upstream.shape[0], -1, count * dim).transpose(0, 1)
    of_mine = _exchanged(by_owner.reshape(-1, count * dim), name).view(-1, dim).float()
    first = torch.zeros(count * rows, dim, dtype=torch.float32, device=tables.device)
    places = indices + rows * torch.arange(count, device=indices.device)[:, None]
    for lookup in range(indices.shape[2]):
        first.index_add_(0, places[:, :, lookup].reshape(-1), of_mine)
    return first.view_as(tables).to(tables.dtype), None, None, None


def gemv_all_reduce(context: Any, upstream: Tensor) -> Gradients:
    """None: it is for decoding."""
    raise Refusal(
        "gemv_all_reduce has no gradient: it is for decoding, and 0 of its 2 operands have one. Accepted: "
        "gemm_all_reduce, or torch.no_grad() around it."
    )


def _gathered(rows: Tensor, group_name: str) -> Tensor:
    """The rows of all ranks, one rank's after the other's."""
    if world_of(group_name) == 1:
        return rows
    return collectives.wait_tensor(collectives.all_gather_tensor(rows.contiguous(), 0, group_name))


def _exchanged(rows: Tensor, group_name: str) -> Tensor:
    """Chunk p of *rows* goes to rank p; what comes lies by source."""
    if world_of(group_name) == 1:
        return rows
    return collectives.wait_tensor(collectives.all_to_all_single(rows.contiguous(), None, None, group_name))


BACKWARD: dict[str, Backward] = {
    "embedding_all_to_all": embedding_all_to_all,
    "gemv_all_reduce": gemv_all_reduce,
    "gemm_all_to_all": dual("all_to_all_gemm", _exchanged, receives=False),
    "all_gather_gemm": dual("gemm_reduce_scatter", _gathered, receives=True),
    "all_to_all_gemm": dual("gemm_all_to_all", _exchanged, receives=True),
    "gemm_reduce_scatter": dual("all_gather_gemm", _gathered, receives=False),
    "gemm_all_reduce": gemm_all_reduce,
}
