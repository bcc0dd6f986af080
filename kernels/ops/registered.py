"""Registration of the operators with torch: calls of a group, gradients, schema and shapes without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed import _functional_collectives

from kernels.backends.base import Hang
from kernels.operators import OPERATORS
from kernels.ops import arguments
from kernels.ops.arguments import GroupRanks, Operand, read, result_shape, world_of
from kernels.ops.arguments import problem as problem_of
from kernels.ops.cpu import CpuCalls
from kernels.problem import Problem
from kernels.schedule import Refusal

# Calls: one for each operator and pair of operands, with state that a group's calls share.


class GroupCalls(Protocol):
    """The calls of one group on one kind of device."""

    ranks: GroupRanks

    def call(self, problem: Problem, schedule: str, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The result of this rank, and whether it has memory to itself; if not, it is valid until the next call."""

    def check(self) -> None:
        """Waits for all calls; raises Hang where a wait inside one has expired."""

    def forget(self) -> None:
        """Makes the next calls first calls again, on all ranks together."""


_CALLS: dict[tuple[str, torch.device], GroupCalls] = {}
"""The calls of every group, by group name and device."""
_BROKEN: dict[tuple[str, torch.device], str] = {}
"""Errors of groups that can make no more calls, since their ranks no longer agree on the last call."""
_LOCK = RLock()
"""Orders calls, since backward passes run on other threads."""


def call(operator: str, first: Tensor, second: Tensor, group_name: str, schedule: str) -> tuple[Tensor, bool]:
    """The result of this rank, and whether it has memory to itself; if not, it is valid until the group's next call.

    Raises Refusal where operands, group or schedule are illegal; Hang where a rank did not come in time.
    """
    problem = problem_of(operator, Operand.of(first), Operand.of(second), arguments.world_of(group_name))
    with _LOCK:
        key = (group_name, first.device)
        calls = _calls(group_name, first.device)
        try:
            return calls.call(
                problem, schedule, dict(zip(OPERATORS[operator].operands(), (first, second), strict=True))
            )
        except Hang as hang:
            _BROKEN[key] = str(hang)
            raise Hang(_with_remedy(str(hang))) from None


def check() -> None:
    """Waits for all calls of this process; raises Hang where a wait inside one has expired.

    Without it the next call of the same group reports such a wait, since calls do not wait in between.
    """
    with _LOCK:
        for key, calls in _CALLS.items():
            try:
                calls.check()
            except Hang as hang:
                _BROKEN[key] = str(hang)
                raise Hang(_with_remedy(str(hang))) from None


def close(group_name: str | None = None) -> None:
    """Forgets the calls of a group, or of all groups: the next ones are first calls again.

    It is collective: all ranks of the group call it, also after a Hang, after which they agree again. The symmetric
    memory of GPUs stays with the group, for its next calls; that of CPU ranks is freed.
    """
    with _LOCK:
        for key in [key for key in _CALLS if group_name in (None, key[0])]:
            _BROKEN.pop(key, None)
            if _current(key):
                _CALLS[key].forget()
            else:  # its process group is gone
                del _CALLS[key]


def _calls(group_name: str, device: torch.device) -> GroupCalls:
    key = (group_name, device)
    if key in _CALLS and not _current(key):  # the caller made another of that name
        del _CALLS[key]
        _BROKEN.pop(key, None)
    if key in _BROKEN:
        raise Hang(_with_remedy(_BROKEN[key]))
    if key not in _CALLS:
        _CALLS[key] = _begin(arguments.process_group(group_name), device)
    return _CALLS[key]


def _begin(group: Any, device: torch.device) -> GroupCalls:
    if device.type == "cpu":
        return CpuCalls(GroupRanks.begin(group, device))
    try:
        from kernels.ops.gpu import GpuCalls
    except ImportError as error:
        raise Refusal(
            f"An operator on {device} needs {error.name}, which is not installed: its kernels are written in "
            "Triton. Accepted: CPU tensors, or an installation with the extra [gpu]."
        ) from None
    with torch.cuda.device(device):
        return GpuCalls(GroupRanks.begin(group, device), device)


def _current(key: tuple[str, torch.device]) -> bool:
    """Whether the group of that name is still the group of these calls."""
    try:
        return _CALLS[key].ranks.nccl is arguments.process_group(key[0])
    except Refusal:  # the caller has destroyed it
        return False


def _with_remedy(message: str) -> str:
    return f"{message} The ranks no longer agree on the last call. Call kernels.ops.close() on all of them first."


# Gradients: the backward of an operator is its dual operator, and one GEMM for the weights.

collectives: Any = _functional_collectives  # a group may be its name, which its types leave out

Gradients = tuple[Tensor | None, Tensor | None, None, None]
"""Gradients of the two operands, the group name and the schedule."""
Backward = Callable[[Any, Tensor], Gradients]


def remember(ctx: Any, inputs: tuple[Tensor, Tensor, str, str], output: Tensor) -> None:
    """Keeps both operands for the backward pass: a setup_context of torch.library, which prescribes these names."""
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
    """Both gradients, computed locally: by Megatron's convention, all ranks hold the same upstream gradient."""
    a, b = context.saved_tensors
    first = upstream @ b.t() if context.needs_input_grad[0] else None
    second = a.t() @ upstream if context.needs_input_grad[1] else None
    return first, second, None, None


def embedding_all_to_all(context: Any, upstream: Tensor) -> Gradients:
    """The tables' gradient: each sample's upstream gradient goes to the owner and is added to all rows it looked up.

    The sums are in float32, on GPUs by atomics, so that the last bits differ from run to run.
    """
    (tables, indices), name = context.saved_tensors, context.group_name
    if not context.needs_input_grad[0]:
        return None, None, None, None
    count, rows, dim = tables.shape
    by_owner = upstream.view(upstream.shape[0], -1, count * dim).transpose(0, 1)
    received = _exchanged(by_owner.reshape(-1, count * dim), name).view(-1, dim).float()
    first = torch.zeros(count * rows, dim, dtype=torch.float32, device=tables.device)
    places = indices + rows * torch.arange(count, device=indices.device)[:, None]
    for lookup in range(indices.shape[2]):
        first.index_add_(0, places[:, :, lookup].reshape(-1), received)
    return first.view_as(tables).to(tables.dtype), None, None, None


def gemv_all_reduce(context: Any, upstream: Tensor) -> Gradients:
    """Raises Refusal: the operator is for decoding and has no gradient."""
    raise Refusal(
        "gemv_all_reduce has no gradient: it is for decoding, and 0 of its 2 operands have one. Accepted: "
        "gemm_all_reduce, or torch.no_grad() around it."
    )


def _gathered(rows: Tensor, group_name: str) -> Tensor:
    """The rows of all ranks, in rank order."""
    if world_of(group_name) == 1:
        return rows
    return collectives.wait_tensor(collectives.all_gather_tensor(rows.contiguous(), 0, group_name))


def _exchanged(rows: Tensor, group_name: str) -> Tensor:
    """The chunks that this rank gets, by source, where chunk p of *rows* goes to rank p."""
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


# Registration: schema, implementation, shapes without data.

NAMESPACE = "workbench"
DEVICES = ("cpu", "cuda")


def _implementation(operator: str) -> Callable[..., Tensor]:
    def run(first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
        result, is_new = call(operator, first, second, group_name, schedule)
        return result if is_new else result.clone()

    return run


def _shape_only(operator: str) -> Callable[..., Tensor]:
    def fake(first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
        sizes = read(operator, Operand.of(first), Operand.of(second), world_of(group_name))
        return first.new_empty(result_shape(operator, sizes))

    return fake


def _register(operator: str) -> Any:
    """Registers torch.ops.workbench.<operator>."""
    first, second = OPERATORS[operator].operands()
    schema = f"(Tensor {first}, Tensor {second}, str group_name='', str schedule='') -> Tensor"
    registered = torch.library.custom_op(
        f"{NAMESPACE}::{operator}", _implementation(operator), mutates_args=(), device_types=DEVICES, schema=schema
    )
    registered.register_fake(_shape_only(operator))
    registered.register_autograd(BACKWARD[operator], setup_context=remember)
    return registered


REGISTERED = {operator: _register(operator) for operator in OPERATORS}
"""Registered operators by name; torch forgets those without a reference."""
