"""The arguments of a call: its operands' sizes, its group of ranks, and the schedule that its text selects."""

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
from kernels.operators.base import Flow, Operator
from kernels.problem import Problem
from kernels.schedule import Refusal, Schedule
from kernels.schemes import SCHEMES, axes, schedule
from kernels.trial import Trial, protocol

# Operands: the sizes and the result's shape that follow from them, and why they are illegal.

Size = Any
"""An int, or a symbol of torch's tracer that represents one."""


@dataclass(frozen=True, slots=True)
class OperandSizes:
    """Sizes by shape key and the world, which are all that an operator's `local` and `rule` read of a problem."""

    by_key: Mapping[str, Size]
    world: int

    def __getitem__(self, key: str) -> Size:
        return self.by_key[key]

    def as_problem(self) -> Problem:
        """These sizes for functions that take a Problem and only read its sizes; a real one holds no symbols."""
        return cast(Problem, self)


class Operand(NamedTuple):
    """One operand of a call, without its data."""

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
    if not is_padded_inside(known) and (reason := known.rule(sizes.as_problem())) is not None:
        raise Refusal(f"{operator} does not run in a group of {world}: {reason}")
    _check_shapes(known, (first, second), sizes)
    return sizes


def is_padded_inside(operator: Operator) -> bool:
    """Whether a call may have any number of rows: a GEMM of which every rank gets all rows, whoever sums them."""
    return operator.work == "gemm" and operator.flow is Flow.BROADCAST


def result_shape(operator: str, sizes: OperandSizes) -> tuple[Size, ...]:
    """Shape of one rank's output."""
    return OPERATORS[operator].local(sizes.as_problem())["output"]


@lru_cache(maxsize=1024)
def problem(operator: str, first: Operand, second: Operand, world: int) -> Problem:
    """The checked Problem of a call; Refusal as in `read`."""
    sizes = read(operator, first, second, world)
    return operators.problem(operator, sizes.by_key, dtype=dtype_name(first), world=world)


def dtype_name(operand: Operand) -> str:
    """The dtype as a Problem has it."""
    return str(operand.dtype).removeprefix("torch.")


def _check_kinds(known: Operator, first: Operand, second: Operand) -> None:
    """Raises Refusal where dimensions, dtypes or devices are illegal."""
    names = tuple(known.operands())
    for (name, dimensions), operand in zip(known.operands().items(), (first, second), strict=True):
        if len(operand.shape) != dimensions:
            raise Refusal(
                f"{known.name} got {name} with {len(operand.shape)} dimensions, {operand}. Accepted: "
                f"{_expected_operands(known)[name]}."
            )
    dtype = torch.int64 if known.work == "gather" else first.dtype
    if second.dtype != dtype:
        raise Refusal(
            f"{known.name} got {names[0]} of {first.dtype} and {names[1]} of {second.dtype}. Accepted: {names[1]} "
            f"of {dtype}."
        )
    if first.device != second.device:
        raise Refusal(
            f"{known.name} got {names[0]} on {first.device} and {names[1]} on {second.device}. Accepted: both on "
            "the device of this rank."
        )


def _check_shapes(known: Operator, operands: tuple[Operand, Operand], sizes: OperandSizes) -> None:
    """Raises Refusal where the operands disagree about the contraction or the number of tables."""
    names, expected = tuple(known.operands()), known.local(sizes.as_problem())
    for name, operand, other in zip(names, operands, reversed(names), strict=True):
        if operand.shape != expected[name]:
            raise Refusal(
                f"{known.name} got {name} of shape {operand}. With {other} of shape {operands[names.index(other)]} in "
                f"a group of {sizes.world} it must be {' x '.join(map(str, expected[name]))}. Accepted: "
                f"{', '.join(_expected_operands(known).values())}."
            )


def _expected_operands(known: Operator) -> dict[str, str]:
    """The operands with their shapes as text, by name: `tokens [m, k]`."""
    return {name: f"{name} {shape}" for name, shape in zip(known.operands(), known.operand_shapes, strict=True)}


# The group: the ranks of a process group that the caller made.

_C10D: Any = torch.distributed.distributed_c10d  # its names are not typed

ALONE = ""
"""The group name of one rank by itself, with or without torch.distributed."""


def process_group(name: str) -> Any:
    """The group called *name*, None for `ALONE`; Refusal lists the names that this process knows."""
    if name == ALONE:
        return None
    try:
        return _C10D._resolve_process_group(name)
    except (RuntimeError, ValueError):
        known = sorted(map(str, _C10D._world.pg_names.values()))
        names = ", ".join(map(repr, known)) if known else "none, since torch.distributed has no process group yet"
        raise Refusal(
            f"group_name = {name!r} is not a process group of this rank. Accepted: the group_name of a "
            f"ProcessGroup that this rank is in ({names}), or '' for one rank alone."
        ) from None


def world_of(name: str) -> int:
    """Number of ranks in the group called *name*, which is all that a tracer has to know of it."""
    group = process_group(name)
    return 1 if group is None else int(group.size())


@dataclass(slots=True)
class GroupRanks:
    """One rank's view of its group. `begin` is collective: all ranks call it in the same call."""

    seat: Seat
    nccl: Any
    """The process group, whatever its backend; None: one rank alone."""

    @classmethod
    def begin(cls, group: Any, device: torch.device) -> GroupRanks:
        """*group*'s ranks, which exchange their hosts; Refusal where there are several hosts."""
        if group is None or group.size() == 1:
            return cls(Seat(rank=0, world=1, session=f"ops_{_new_name()}", shares_heap=True), group)
        of_ranks = everyone(group, (_host(), _new_name()))
        if len(hosts := {host for host, _ in of_ranks}) > 1:
            raise Refusal(
                f"The operators do not run in a group of {group.size()} ranks on {len(hosts)} hosts. Ranks store "
                "into each other's memory, and hosts share 0 bytes of it. Accepted: a group of one host's ranks."
            )
        seat = Seat(rank=group.rank(), world=group.size(), session=f"ops_{of_ranks[0][1]}", shares_heap=True,
                    deadline_s=_timeout_s(group, device))  # fmt: skip
        return cls(seat, group)

    def everyone(self, value: Any) -> list[Any]:
        """All ranks' *value*, by rank."""
        return [value] if self.seat.world == 1 else everyone(self.nccl, value)

    def exchange(self, values: Sequence[float]) -> list[list[float]]:
        """All ranks' *values*, by rank."""
        return self.everyone(list(values))

    def barrier(self) -> None:
        """Waits on the host until all ranks are here."""
        self.everyone(None)


def everyone(group: Any, value: Any) -> list[Any]:
    """The *value* of every rank of *group*, by rank."""
    values: list[Any] = [None] * group.size()
    dist: Any = torch.distributed
    dist.all_gather_object(values, value, group=group)
    return values


def _host() -> str:
    """A name of this host; containers of one machine have the same boot id, but share no memory."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def _new_name() -> str:
    """A random name that no other group has."""
    return uuid.uuid4().hex[:12]


def _timeout_s(group: Any, device: torch.device) -> float:
    """Seconds that a wait may take, as the caller set them for this group in torch.distributed."""
    try:
        limit = group._get_backend(device).options._timeout
    except (AttributeError, RuntimeError):
        limit = _C10D.default_pg_timeout
    return float(limit.total_seconds())


# Other groups of this process: NCCL's kernels need SMs, and kernels that wait for peers hold theirs until peers come.

COLLECTIVE_SMS = 32
"""Thread blocks, each on an SM, that NCCL launches at most for one collective where a group's options do not say it."""
SHARE_OF_TIMEOUT = 0.5
"""Our waits end before torch ends the process for a collective of another group that waits, too."""


@dataclass(frozen=True, slots=True)
class OtherGroups:
    """Groups of a process, except the one that calls, whose collectives may run on its GPU at the same time."""

    count: int = 0
    sms: int = 0
    """Most SMs that one of their collectives takes."""
    timeout_s: float = float("inf")
    """Seconds after which torch ends the process for one of them."""

    @classmethod
    def of(cls, group: Any, device: torch.device) -> OtherGroups:
        """Those of this process except *group*, on *device*; there are none where ranks are CPUs."""
        if device.type != "cuda" or group is None:
            return cls()
        backends = [backend for other in _C10D._world.pg_names if other is not group and other.size() > 1
                    if (backend := _backend(other, device)) is not None]  # fmt: skip
        if not backends:
            return cls()
        limits = [backend.options.config.max_ctas for backend in backends]
        sms = max(limit if 0 < limit < COLLECTIVE_SMS else COLLECTIVE_SMS for limit in limits)
        return cls(len(backends), sms, min(backend.options._timeout.total_seconds() for backend in backends))

    @classmethod
    def agreed(cls, of_ranks: Sequence[OtherGroups]) -> OtherGroups:
        """What all ranks act on, since their kernels must have equally many programs."""
        return cls(max(each.count for each in of_ranks), max(each.sms for each in of_ranks),
                   min(each.timeout_s for each in of_ranks))  # fmt: skip

    def limit_s(self, timeout_s: float) -> float:
        """Seconds that a wait may take in a group with *timeout_s*."""
        return SHARE_OF_TIMEOUT * min(timeout_s, self.timeout_s) if self.count else timeout_s

    def programs(self, sms: int) -> int:
        """Most programs of a kernel that leaves SMs to them, one on each of the rest of *sms*; 0: no limit."""
        if self.count and self.sms >= sms:
            raise Refusal(
                f"No SM is left for this operator: {self.count} other process groups of this process may take "
                f"{self.sms} SMs for a collective, and the GPU has {sms}: {self.sms} >= {sms}. Accepted: groups whose "
                "pg_options have a smaller config.max_ctas."
            )
        return sms - self.sms if self.count else 0

    def sentence(self) -> str:
        """What to say where a wait has expired; empty if there are no other groups."""
        if not self.count:
            return ""
        return (
            f" There are {self.count} other process groups: {self.sms} SMs stay free for one of their collectives, but "
            "none next to lookups, and only if the groups existed at the first call."
        )


def _backend(group: Any, device: torch.device) -> Any:
    """NCCL's part of *group*, or None where it has none."""
    try:
        backend = group._get_backend(device)
    except RuntimeError:
        return None
    return backend if hasattr(getattr(backend, "options", None), "config") else None


# The schedule of a call: the default one, or the one in its text.

CALLED = tuple(name for name, scheme in SCHEMES.items() if scheme.is_operator)
"""The schemes that a call can run."""
FUSED = "fused"
"""The schedule of calls that name none, where nothing chooses one: fused, with the default of every axis."""
CPU_RANKS_MOST, GPU_RANKS_MOST = 64, 8
"""Most ranks of a group; GPU kernels take one descriptor per rank."""
SLOTS, SHARED_BYTES, L2_BYTES, ARCHITECTURE, BYTES_PER_SECOND = 132, 233_472, 52_428_800, 90, 4.8e12
"""Sizes of an H200, which are assumed where GPU kernels are interpreted without a GPU."""

NOTHING = Costs(
    launch_seconds=0, step_seconds=0, tile_seconds=0, signal_seconds=0, barrier_seconds=0, copy_engine_seconds=0,
    library_seconds=0, library_share=1, send_blocks=0,
)  # fmt: skip
"""Costs without values: they only serve estimates, and legality does not depend on them."""


def trial(problem: Problem, text: str, machine: Machine) -> Trial:
    """The trial that a backend runs for *problem*; Refusal where *text* is no schedule that is legal on *machine*.

    The text is `fused axis=value ...`, such as `fused tile=128x256x64 store=tma` or `sequential collective=library`, or
    that of a `Schedule`; axes without a value take their default. '' is `FUSED`.
    """
    fabric = fabric_of(machine)
    name, *assignments = [part for part in re.split(r"[\s(),]+", text) if part] or [FUSED]
    if name not in CALLED:
        raise Refusal(
            f"schedule = {text!r} does not run here: its scheme {name!r} is not an operator. Accepted: '' for the "
            f"default, or {' or '.join(CALLED)} and its axes, such as '{FUSED} slice_tiles=4'."
        )
    known = {axis.name: axis for axis in axes(problem, name, machine, fabric)}
    values = {}
    for part in assignments:
        axis, equals, value = part.partition("=")
        if not (axis and equals and value):
            raise Refusal(
                f"schedule = {text!r} does not have the form axis=value at {part!r}. Accepted axes: {', '.join(known)}."
            )
        values[axis] = known[axis].parse(value) if axis in known else value
    chosen: Schedule = schedule(problem, name, values, machine, fabric)
    return Trial(problem=problem, schedule=chosen, backend=machine.backend, machine=machine.name, fabric=fabric,
                 protocol=protocol("default"))  # fmt: skip


def fabric_of(machine: Machine) -> Fabric:
    """The link between the ranks of one host."""
    return Fabric(kind="nvlink" if machine.backend == "triton" else "shared_memory")


def cpu_machine() -> Machine:
    """A machine of this host's CPU ranks."""
    device = Device(
        kind="cpu", name="CPU", slots=1, matrix_flops_per_second={}, memory_bytes_per_second=1,
        memory_bytes=float("inf"), l2_bytes=0, copy_engines=0, shared_memory_per_slot_bytes=0,
    )  # fmt: skip
    return _machine("cpu", device, CPU_RANKS_MOST)


def gpu_machine(device: torch.device) -> Machine:
    """A machine of GPUs of one host like *device*, or like an H200 where *device* is a CPU that interprets kernels."""
    slots, memory, shared, l2, name = SLOTS, float("inf"), SHARED_BYTES, L2_BYTES, "interpreted"
    architecture, bytes_per_second = ARCHITECTURE, BYTES_PER_SECOND
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        slots, memory, name = properties.multi_processor_count, float(properties.total_memory), properties.name
        shared, l2 = properties.shared_memory_per_multiprocessor, properties.L2_cache_size
        architecture = 10 * properties.major + properties.minor
        # kHz, twice a clock, and bits
        rate = 2e3 * getattr(properties, "memory_clock_rate", 0) * getattr(properties, "memory_bus_width", 0) / 8
        bytes_per_second = rate or BYTES_PER_SECOND
    gpu = Device(
        kind="gpu", name=name, slots=slots, matrix_flops_per_second={}, memory_bytes_per_second=bytes_per_second,
        memory_bytes=memory, l2_bytes=l2, copy_engines=1, shared_memory_per_slot_bytes=shared,
        architecture=architecture,
    )  # fmt: skip
    return _machine("triton", gpu, GPU_RANKS_MOST)


def _machine(backend: str, device: Device, ranks_most: int) -> Machine:
    one_host = Dimension(
        topology="fully_connected", count=ranks_most, bandwidth_bytes_per_second=1, latency_seconds=0
    )  # fmt: skip
    return Machine(
        name=f"this host's {device.name}", title=device.name, backend=backend, device=device, costs=NOTHING,
        dimensions=(one_host,), provenance={"device": "assumed: only legality and default tiles are read from it"},
    )  # fmt: skip
