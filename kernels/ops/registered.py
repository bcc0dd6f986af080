"""Registration of the operators with torch: calls of a group, gradients, schema and shapes without data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.backends.base import Hang
from kernels.operators import OPERATORS
from kernels.ops import arguments, buckets, sequential
from kernels.ops.arguments import GroupRanks, Operand, read, result_shape, world_of
from kernels.ops.buckets import Bucket
from kernels.ops.cpu import CpuCalls
from kernels.problem import Problem
from kernels.schedule import Refusal

# Calls: one for each operator and pair of operands, with state that a group's calls share.


class GroupCalls(Protocol):
    """The calls of one group on one kind of device."""

    ranks: GroupRanks

    def call(self, problem: Problem, schedule: str, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The result of this rank, and whether it has memory to itself; if not, it is valid until the next call."""

    def follow(self) -> None:
        """Orders the current stream after earlier calls, which may still read what a padded call overwrites."""

    def check(self) -> None:
        """Waits for all calls; raises Hang where a wait inside one has expired."""

    def forget(self) -> None:
        """Makes the next calls first calls again, on all ranks together."""


GroupKey = tuple[str, torch.device]
"""Name and device of a group."""
_CALLS: dict[GroupKey, GroupCalls] = {}
"""The calls of every group."""
_BROKEN: dict[GroupKey, str] = {}
"""Errors of groups that can make no more calls, since their ranks no longer agree on the last call."""
READ_MOST = 4096
"""Kinds of calls that are kept."""
_READ: dict[tuple[Any, ...], Bucket] = {}
"""What the groups in _CALLS run, by all that it is read from: nothing is read twice."""
_BUFFERS: dict[tuple[Problem, torch.device, int], Tensor] = {}
"""The first operands of padded calls, by bucket, device and group."""
_NAMES = {name: tuple(operator.operands()) for name, operator in OPERATORS.items()}
_LOCK = RLock()
"""Orders calls, since backward passes run on other threads."""


def call(operator: str, first: Tensor, second: Tensor, group_name: str, schedule: str) -> tuple[Tensor, bool]:
    """The result of this rank, and whether it has memory to itself; if not, it is valid until the group's next call.

    Raises Refusal where operands, group or schedule are illegal; Hang where a rank did not come in time.
    """
    device = first.device
    kinds = operator, group_name, first.shape, second.shape, first.dtype, second.dtype, device, second.device
    first_name, second_name = _NAMES[operator]
    with _LOCK:
        key = group_name, device
        _drop_replaced(key)
        if (bucket := _READ.get(kinds)) is None:
            bucket = buckets.of(operator, Operand.of(first), Operand.of(second), arguments.world_of(group_name))
        calls = calls_of(key)
        _keep(kinds, bucket)
        try:
            if bucket.rows:
                return _padded(calls, bucket, schedule, first, second)
            return calls.call(bucket.problem, schedule, {first_name: first, second_name: second})
        except Hang as hang:
            _BROKEN[key] = str(hang)
            raise Hang(_with_remedy(str(hang))) from None


def _padded(calls: GroupCalls, bucket: Bucket, schedule: str, first: Tensor, second: Tensor) -> tuple[Tensor, bool]:
    """As `call`, in the rows of *bucket*: the first operand is copied to where they begin."""
    first_name, second_name = _NAMES[bucket.problem.operator]
    place = bucket.problem, first.device, id(calls)
    if (buffer := _BUFFERS.get(place)) is None:
        if first.is_cuda and torch.cuda.is_current_stream_capturing():
            raise Refusal(
                f"{bucket.problem.operator} cannot make its first padded call of {bucket.problem['m']} rows inside a "
                "CUDA graph, because it allocates them. Accepted: one call of fewer rows before the capture."
            )
        with torch.inference_mode(False):  # later calls may be outside of it
            buffer = _BUFFERS[place] = bucket.buffer(first)
    calls.follow()
    bucket.fill(buffer, first)
    result, is_new = calls.call(bucket.problem, schedule, {first_name: buffer, second_name: second})
    rows, is_copy = bucket.take(result)
    return rows, is_new or is_copy


def bucket_rows(*rows: int) -> None:
    """As `buckets.bucket_rows`."""
    with _LOCK:
        buckets.bucket_rows(*rows)
        _READ.clear()


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
            _forget_buffers(_CALLS[key])
            if _current(key):
                _CALLS[key].forget()
            else:  # its process group is gone
                _drop(key)
        _READ.clear()


def _forget_buffers(calls: GroupCalls) -> None:
    for place in [place for place in _BUFFERS if place[-1] == id(calls)]:
        del _BUFFERS[place]


def _drop_replaced(key: GroupKey) -> None:
    """Forgets what is known of a group if the caller has made another of that name."""
    if key in _CALLS and not _current(key):
        _drop(key)
        _BROKEN.pop(key, None)
        _READ.clear()


def _drop(key: GroupKey) -> None:
    """Frees what a group's calls use, once no kernel does: a wait for a rank that is gone ends by a deadline."""
    if key[1].type == "cuda":
        torch.cuda.synchronize(key[1])
    _forget_buffers(_CALLS.pop(key))


def _keep(kinds: tuple[Any, ...], bucket: Bucket) -> None:
    if kinds not in _READ:
        if len(_READ) == READ_MOST:
            _READ.clear()
        _READ[kinds] = bucket


def calls_of(key: GroupKey) -> GroupCalls:
    """The calls of a group, which begin here: collective the first time. Hang where its ranks no longer agree."""
    if key in _BROKEN:
        raise Hang(_with_remedy(_BROKEN[key]))
    if key not in _CALLS:
        _CALLS[key] = _begin(arguments.process_group(key[0]), key[1])
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


def _current(key: GroupKey) -> bool:
    """Whether the group of that name is still the group of these calls."""
    try:
        return _CALLS[key].ranks.nccl is arguments.process_group(key[0])
    except Refusal:  # the caller has destroyed it
        return False


def _with_remedy(message: str) -> str:
    return f"{message} The ranks no longer agree on the last call. Call kernels.ops.close() on all of them first."


# Gradients: the backward of an operator is its dual operator, and one GEMM for the weights.

Gradients = tuple[Tensor | None, Tensor | None, None, None]
"""Gradients of the two operands, the group name and the schedule."""
Backward = Callable[[Any, Tensor], Gradients]


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


def _of_several(move: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor, str], Tensor]:
    """*move* for a group's name; a group of one rank moves nothing."""
    return lambda rows, name: move(rows, name if world_of(name) > 1 else None)


_gathered, _exchanged = _of_several(sequential.gathered), _of_several(sequential.exchanged)

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


_C: Any = torch._C  # its names are not typed


def _plain(device: str) -> int:
    """What the dispatcher has to do for tensors of *device*, of no subclass and outside all modes and transforms."""
    keys, sets = _C.DispatchKey, _C.DispatchKeySet
    return int((sets(getattr(keys, device)) | sets(getattr(keys, f"Autograd{device}"))).raw_repr())


PLAIN = frozenset(_plain(device.upper()) for device in DEVICES)


def _with_gradient(operator: str, run: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What torch dispatches a call to before any other: plain tensors without a gradient need no second dispatch."""
    overload, backward = getattr(torch.ops.workbench, operator).default, BACKWARD[operator]

    def below(keys: Any, *inputs: Any) -> Tensor:
        with _C._AutoDispatchBelowAutograd():
            result: Tensor = overload.redispatch(keys & _C._after_autograd_keyset, *inputs)
            return result

    class Differentiable(torch.autograd.Function):
        """Keeps both operands for the backward pass."""

        @staticmethod
        def forward(ctx: Any, first: Tensor, second: Tensor, group_name: str, schedule: str, keys: Any) -> Tensor:
            ctx.group_name = group_name
            ctx.save_for_backward(first, second)
            return below(keys, first, second, group_name, schedule)

        @staticmethod
        def backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
            return *backward(ctx, upstream), None

    def dispatch(keys: Any, first: Tensor, second: Tensor, group_name: str = "", schedule: str = "") -> Tensor:
        if torch.is_grad_enabled() and (first.requires_grad or second.requires_grad):
            result: Tensor = Differentiable.apply(first, second, group_name, schedule, keys)
            return result
        if keys.raw_repr() in PLAIN:
            return run(first, second, group_name, schedule)
        return below(keys, first, second, group_name, schedule)

    return dispatch


# Below a graph break Dynamo would trace whatever Python the dispatcher calls: plans, tables, launches.
_untraced: Callable[[Callable[..., Tensor]], Callable[..., Tensor]] = getattr(torch, "_disable_dynamo")  # noqa: B009


def _register(operator: str, library: Any) -> None:
    """Registers torch.ops.workbench.<operator>."""
    first, second = OPERATORS[operator].operands()
    library.define(
        f"{operator}(Tensor {first}, Tensor {second}, str group_name='', str schedule='') -> Tensor",
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    run = _implementation(operator)
    for device in DEVICES:
        library.impl(operator, _untraced(run), device.upper())
    library.impl(operator, _untraced(_with_gradient(operator, run)), "Autograd", with_keyset=True)
    torch.library.register_fake(f"{NAMESPACE}::{operator}", _shape_only(operator), lib=library)


def _registered() -> Any:
    """The library of all operators; torch forgets them without a reference to it."""
    library = torch.library.Library(NAMESPACE, "DEF")
    for operator in OPERATORS:
        _register(operator, library)
    return library


LIBRARY = _registered()
REGISTERED = {operator: getattr(torch.ops.workbench, operator) for operator in OPERATORS}
"""Registered operators by name."""
