"""Which schedule a call means: the default one, or the one that its text states."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import torch
import torch.distributed
from torch import Tensor

from kernels import operators
from kernels.backends.base import Seat
from kernels.fabric import Fabric
from kernels.machine import Costs, Device, Dimension, Machine
from kernels.operators import OPERATORS
from kernels.operators.base import Operator
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import SCHEMES, axes, schedule
from kernels.trial import Trial, protocol

# What a call of an operator asks for, read off its two operands: sizes, result, and why they cannot be.

Size = Any
"""An int, or a symbol of torch's tracer that stands for one."""


@dataclass(frozen=True, slots=True)
class OperandSizes:
    """Sizes by shape key and the world: all that an operator's `local` and `rule` read of a problem."""

    by_key: Mapping[str, Size]
    world: int

    def __getitem__(self, key: str) -> Size:
        return self.by_key[key]

    def as_problem(self) -> Problem:
        """For functions that only read sizes: a Problem holds no symbols."""
        return cast(Problem, self)


class Operand(NamedTuple):
    """What a call has to know of one operand before it is computed with."""

    shape: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)

    def __str__(self) -> str:
        return " x ".join(map(str, self.shape))


def read(operator: str, first: Operand, second: Operand, world: int) -> OperandSizes:
    """The sizes of a call; Refusal where the operands cannot be those of *operator* on *world* ranks."""
    known = OPERATORS[operator]
    _check_kinds(known, first, second)
    sizes = OperandSizes(known.sizes(first.shape, second.shape, world), world)
    for key, size in sizes.by_key.items():
        if size < 1:
            raise Refusal(f"{operator} got {key} = {size}, and {size} < 1. Accepted: sizes from 1.")
    if (sentence := known.rule(sizes.as_problem())) is not None:
        raise Refusal(f"{operator} does not run in a group of {world}: {sentence}")
    _check_shapes(known, (first, second), sizes)
    return sizes


def result_shape(operator: str, sizes: OperandSizes) -> tuple[Size, ...]:
    """Of one rank's output."""
    return OPERATORS[operator].local(sizes.as_problem())["output"]


@lru_cache(maxsize=1024)
def problem(operator: str, first: Operand, second: Operand, world: int) -> Problem:
    """The checked Problem of a call; Refusal as in `read`."""
    sizes, dtype = read(operator, first, second, world), str(first.dtype).removeprefix("torch.")
    return operators.problem(operator, sizes.by_key, dtype=dtype, world=world)


def _check_kinds(known: Operator, first: Operand, second: Operand) -> None:
    """Dimensions, dtypes and devices."""
    called = tuple(known.operands())
    for (name, dimensions), operand in zip(known.operands().items(), (first, second), strict=True):
        if len(operand.shape) != dimensions:
            raise Refusal(
                f"{known.name} got {name} with {len(operand.shape)} dimensions, {operand}. Accepted: "
                f"{_meant(known)[name]}."
            )
    wanted = torch.int64 if known.work == "gather" else first.dtype
    if second.dtype != wanted:
        raise Refusal(
            f"{known.name} got {called[0]} of {first.dtype} and {called[1]} of {second.dtype}. Accepted: {called[1]} "
            f"of {wanted}."
        )
    if first.device != second.device:
        raise Refusal(
            f"{known.name} got {called[0]} on {first.device} and {called[1]} on {second.device}. Accepted: both on "
            "the device of this rank."
        )


def _check_shapes(known: Operator, operands: tuple[Operand, Operand], sizes: OperandSizes) -> None:
    """What both operands state has to agree: the contraction, the number of tables."""
    called, expected = tuple(known.operands()), known.local(sizes.as_problem())
    for name, operand, other in zip(called, operands, reversed(called), strict=True):
        if operand.shape != expected[name]:
            beside = operands[called.index(other)]
            raise Refusal(
                f"{known.name} got {name} of shape {operand}. Beside {other} of shape {beside} in a group of "
                f"{sizes.world} it must be {' x '.join(map(str, expected[name]))}. Accepted: "
                f"{', '.join(_meant(known).values())}."
            )


def _meant(known: Operator) -> dict[str, str]:
    """The operands with their shapes in words, by name."""
    return {name: f"{name} {words}" for name, words in zip(known.operands(), known.operand_words, strict=True)}


# The ranks of a process group that the caller made: who they are, and what they tell each other once.

_C10D: Any = torch.distributed.distributed_c10d  # its names are not typed

ALONE = ""
"""The group name of one rank by itself, whether or not torch.distributed was begun."""


def process_group(name: str) -> Any:
    """The group called *name*, None for `ALONE`; Refusal lists the names that this process knows."""
    if name == ALONE:
        return None
    try:
        return _C10D._resolve_process_group(name)
    except (RuntimeError, ValueError):
        known = sorted(map(str, _C10D._world.pg_names.values()))
        told = ", ".join(map(repr, known)) if known else "none, since torch.distributed has no process group yet"
        raise Refusal(
            f"group_name = {name!r} is not a process group of this rank. Accepted: the group_name of a "
            f"ProcessGroup that this rank is in ({told}), or '' for one rank alone."
        ) from None


def world_of(name: str) -> int:
    """Ranks in the group called *name*: all that a tracer has to know of it."""
    group = process_group(name)
    return 1 if group is None else int(group.size())


@dataclass(slots=True)
class GroupRanks:
    """One rank's view of its group. Beginning one is collective: all ranks call `begin` in the same call."""

    seat: Seat
    nccl: Any
    """The process group, whatever its backend; None: one rank alone."""

    @classmethod
    def begin(cls, group: Any, device: torch.device) -> GroupRanks:
        """*group*'s ranks, who told each other their hosts; Refusal where these are several."""
        if group is None or group.size() == 1:
            return cls(Seat(rank=0, world=1, session=f"ops_{_drawn()}", shares_heap=True), group)
        told = everyone(group, (_host(), _drawn()))
        if len(hosts := {host for host, _ in told}) > 1:
            raise Refusal(
                f"The operators do not run in a group of {group.size()} ranks on {len(hosts)} hosts. Ranks store "
                "into each other's memory, and hosts share 0 bytes of it. Accepted: a group of one host's ranks."
            )
        seat = Seat(rank=group.rank(), world=group.size(), session=f"ops_{told[0][1]}", shares_heap=True,
                    deadline_s=_timeout_s(group, device))  # fmt: skip
        return cls(seat, group)

    def everyone(self, value: Any) -> list[Any]:
        """Everybody's *value*, by rank."""
        return [value] if self.seat.world == 1 else everyone(self.nccl, value)

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """Everybody's *values*, by rank."""
        return self.everyone(list(values))

    def barrier(self) -> None:
        """All ranks meet on the host."""
        self.everyone(None)


def everyone(group: Any, value: Any) -> list[Any]:
    """The *value* of every rank of *group*, by rank."""
    found: list[Any] = [None] * group.size()
    dist: Any = torch.distributed
    dist.all_gather_object(found, value, group=group)
    return found


def _host() -> str:
    """Names this host: containers of one machine share a boot, but no memory."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def _drawn() -> str:
    """A name that nobody had before."""
    return uuid.uuid4().hex[:12]


def _timeout_s(group: Any, device: torch.device) -> float:
    """How long a wait may take: what the caller told torch.distributed for this group."""
    try:
        limit = group._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        limit = _C10D.default_pg_timeout
    return float(limit.total_seconds())


# Which schedule a call means: the default one, or the one that its text states.

CALLED = tuple(name for name, scheme in SCHEMES.items() if scheme.is_operator)
"""The schemes that a call may mean, the usual one first."""
CPU_RANKS_MOST, GPU_RANKS_MOST = 64, 8
"""GPU kernels take one descriptor per rank."""
SLOTS, SHARED_BYTES, L2_BYTES = 132, 233_472, 52_428_800
"""Of an H200: what is assumed where GPU kernels are interpreted and there is no GPU to ask."""

NOTHING = Costs(
    launch_seconds=0, step_seconds=0, tile_seconds=0, signal_seconds=0, barrier_seconds=0, copy_engine_seconds=0,
    library_seconds=0, library_share=1, send_blocks=0,
)  # fmt: skip
"""Costs estimate times; what is legal does not depend on them."""


def trial(problem: Problem, text: str, machine: Machine) -> Trial:
    """What a backend is to run for *problem*; Refusal where *text* states no schedule that is legal on *machine*.

    '' is the default schedule. Else `fused axis=value ...`, such as `fused tile=128x256x64 store=tma`, or the text of a
    `Schedule`; axes that are not stated take their default.
    """
    fabric = Fabric(kind="nvlink" if machine.backend == "triton" else "shared_memory")
    name, *words = [word for word in re.split(r"[\s(),]+", text) if word] or CALLED
    if name not in CALLED:
        raise Refusal(
            f"schedule = {text!r} does not run here: its scheme {name!r} is not an operator. Accepted: '' for the "
            f"default, or {' or '.join(CALLED)} and its axes, such as '{CALLED[0]} slice_tiles=4'."
        )
    known = {axis.name: axis for axis in axes(problem, name, machine, fabric)}
    values = {}
    for word in words:
        axis, equals, value = word.partition("=")
        if not (axis and equals and value):
            raise Refusal(
                f"schedule = {text!r} does not have the form axis=value at {word!r}. Accepted axes: {', '.join(known)}."
            )
        values[axis] = known[axis].parse(value) if axis in known else value
    chosen: Schedule = schedule(problem, name, values, machine, fabric)
    return Trial(problem=problem, schedule=chosen, backend=machine.backend, machine=machine.name, fabric=fabric,
                 protocol=protocol("default"))  # fmt: skip


def cpu_machine() -> Machine:
    """CPU ranks of one host."""
    device = Device(
        kind="cpu", name="CPU", slots=1, matrix_flops_per_second={}, memory_bytes_per_second=1,
        memory_bytes=float("inf"), l2_bytes=0, copy_engines=0, shared_memory_per_slot_bytes=0,
    )  # fmt: skip
    return _machine("cpu", device, CPU_RANKS_MOST)


def gpu_machine(device: torch.device) -> Machine:
    """GPUs of one host like *device*; an H200's numbers where it is none, since kernels are interpreted."""
    slots, memory, shared, l2, name = SLOTS, float("inf"), SHARED_BYTES, L2_BYTES, "interpreted"
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        slots, memory, name = properties.multi_processor_count, float(properties.total_memory), properties.name
        shared, l2 = properties.shared_memory_per_multiprocessor, properties.L2_cache_size
    gpu = Device(
        kind="gpu", name=name, slots=slots, matrix_flops_per_second={}, memory_bytes_per_second=1,
        memory_bytes=memory, l2_bytes=l2, copy_engines=1, shared_memory_per_slot_bytes=shared,
    )  # fmt: skip
    return _machine("triton", gpu, GPU_RANKS_MOST)


def _machine(backend: str, device: Device, ranks_most: int) -> Machine:
    one_host = Dimension(
        topology="fully_connected", count=ranks_most, bandwidth_bytes_per_second=1, latency_seconds=0
    )  # fmt: skip
    return Machine(
        name=f"this host's {device.name}", title=device.name, backend=backend, device=device, costs=NOTHING,
        dimensions=(one_host,), provenance={"device": "assumed: the workbench reads only legality from it"},
    )  # fmt: skip
