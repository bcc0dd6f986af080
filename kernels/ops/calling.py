"""One call of an operator, on whichever device its operands are; what a group's calls share is kept between them."""

from __future__ import annotations

from collections.abc import Mapping
from threading import RLock
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.backends.base import Hang
from kernels.operators import OPERATORS
from kernels.ops import groups
from kernels.ops.arguments import Operand
from kernels.ops.arguments import problem as problem_of
from kernels.ops.cpu import CpuCalls
from kernels.ops.groups import Ranks
from kernels.problem import Problem
from kernels.schedule import Refusal


class Calls(Protocol):
    """The calls of one group on one kind of device."""

    ranks: Ranks

    def call(self, problem: Problem, schedule: str, operands: Mapping[str, Tensor]) -> tuple[Tensor, bool]:
        """The result of this rank, and whether its memory is its own; if not, it is valid until the next call."""

    def check(self) -> None:
        """Raises Hang when a wait of a call has expired; waits for all calls."""

    def forget(self) -> None:
        """All ranks together: the next calls are first calls again."""


_CALLS: dict[tuple[str, torch.device], Calls] = {}
"""By group name and device."""
_BROKEN: dict[tuple[str, torch.device], str] = {}
"""What went wrong in groups that can make no more calls: their ranks no longer agree on what was called last."""
_LOCK = RLock()
"""Backward passes run on threads of their own; calls come one after the other."""


def call(operator: str, first: Tensor, second: Tensor, group_name: str, schedule: str) -> tuple[Tensor, bool]:
    """The result of this rank, and whether its memory is its own; if not, it is valid until the group's next call.

    Refusal where the operands, the group or the schedule cannot be; Hang where a rank did not come in time.
    """
    problem = problem_of(operator, Operand.of(first), Operand.of(second), groups.world_of(group_name))
    with _LOCK:
        key = (group_name, first.device)
        calls = _calls(group_name, first.device)
        try:
            return calls.call(
                problem, schedule, dict(zip(OPERATORS[operator].operands(), (first, second), strict=True))
            )
        except Hang as hang:
            _BROKEN[key] = str(hang)
            raise Hang(_told(str(hang))) from None


def check() -> None:
    """Waits for all calls of this process and raises Hang, with the sentence, if a wait inside one has expired.

    Without it such a wait is told by the next call of the same group: nothing is waited for in between.
    """
    with _LOCK:
        for key, calls in _CALLS.items():
            try:
                calls.check()
            except Hang as hang:
                _BROKEN[key] = str(hang)
                raise Hang(_told(str(hang))) from None


def close(group_name: str | None = None) -> None:
    """Forgets the calls of a group, or of all groups: the next ones are first calls again.

    Collective: all ranks of the group call it, also after a Hang, since it is what makes them agree again. The
    symmetric memory of GPUs stays with the group, for its next calls; that of CPU ranks goes back.
    """
    with _LOCK:
        for key in [key for key in _CALLS if group_name in (None, key[0])]:
            _BROKEN.pop(key, None)
            if _current(key):
                _CALLS[key].forget()
            else:  # its ranks can no longer be asked
                del _CALLS[key]


def _calls(group_name: str, device: torch.device) -> Calls:
    key = (group_name, device)
    if key in _CALLS and not _current(key):  # the caller made another of that name
        del _CALLS[key]
        _BROKEN.pop(key, None)
    if key in _BROKEN:
        raise Hang(_told(_BROKEN[key]))
    if key not in _CALLS:
        _CALLS[key] = _begin(groups.process_group(group_name), device)
    return _CALLS[key]


def _begin(group: Any, device: torch.device) -> Calls:
    if device.type == "cpu":
        return CpuCalls(Ranks.begin(group, device))
    try:
        from kernels.ops.gpu import GpuCalls
    except ImportError as error:
        raise Refusal(
            f"An operator on {device} needs {error.name}, which is not installed: its kernels are written in "
            "Triton. Accepted: CPU tensors, or an installation with the extra [gpu]."
        ) from None
    with torch.cuda.device(device):
        return GpuCalls(Ranks.begin(group, device), device)


def _current(key: tuple[str, torch.device]) -> bool:
    """Whether the group of that name is still the one whose calls these are."""
    try:
        return _CALLS[key].ranks.nccl is groups.process_group(key[0])
    except Refusal:  # the caller has ended it
        return False


def _told(sentence: str) -> str:
    return f"{sentence} The ranks no longer agree on the last call. Call kernels.ops.close() on all of them first."
