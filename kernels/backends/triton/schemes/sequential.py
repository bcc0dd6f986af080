"""Calls of sequential schedules: a computation and a collective, one after the other on one stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from kernels.backends.triton import nccl, timeline
from kernels.backends.triton.collectives import ConcurrentMode, copies, direct, lanes
from kernels.backends.triton.kernels.sync import write_now
from kernels.backends.triton.launch import Call, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.nccl import WINDOWS, winner
from kernels.backends.triton.schemes import OperandCalls
from kernels.backends.triton.schemes.fused import kernel, launches
from kernels.backends.triton.timeline import WatchedCalls
from kernels.operators import OPERATORS
from kernels.operators.base import Flow, ResultLayout
from kernels.outcome import Span
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schemes import expand, fused, library
from kernels.schemes.sequential import is_ours

# The two halves: a computation by our kernel or cuBLAS, and a collective of NCCL, of torch, or ours.


class Sequential:
    """The two halves of one trial for each set of operands; all sets write the same buffers, as with our kernels."""

    def __init__(
        self, context: Context, sets: Sequence[Operands], group: Any, mode: ConcurrentMode | None = None
    ) -> None:
        """*mode*: how its collective is launched if a computation runs at the same time."""
        self.context, self.sets, self._group, self._mode = context, list(sets), group, mode
        self.operator = OPERATORS[context.problem.operator]
        extent, world = self.operator.extent(context.problem), context.world
        self.chunk = self.operator.chunk_rows(context.problem)
        self._tuned = nccl.tuned(group, context.device) if self._collective == "library_tuned" and world > 1 else None
        self._setting = setting_of(context.problem)
        if self._tuned and not context.receives:
            context.local_in(self._buffer)  # before a kernel that computes into it is made
        self.local = context.local
        # NCCL registers the buffers of captured calls by itself: with symmetric ones its graphs hang (NCCL 2.28)
        self._buffers = {name: self._buffer(context.of(context.rank, name).shape) for name in self._of_library()}
        for buffer in self._buffers.values():
            buffer.normal_()  # on zeros a GPU clocks higher, and the computation alone would look too fast
        self._received: Tensor | None = None
        if self.operator.layout is ResultLayout.COLUMNS:
            self._received = self._buffer((world, self.chunk, extent.columns))
        if self._tuned:
            self._into_windows(self._tuned)

    @cached_property
    def _lanes(self) -> Iterable[torch.cuda.Stream]:
        """Streams for the copies of copy engines, the same for all sets of operands."""
        mode_lanes = self._mode.lanes if self._mode else None
        return lanes(self.context) if mode_lanes is None else mode_lanes

    @property
    def _collective(self) -> str:
        return str(self.context.plan.schedule["collective"])

    def _buffer(self, shape: Sequence[int]) -> Tensor:
        """Unwritten memory that a collective reads or writes."""
        context = self.context
        if self._tuned:
            return self._tuned.buffer(shape, context.dtype, context.device, self._setting)
        return torch.empty(*shape, dtype=context.dtype, device=context.device)

    def _into_windows(self, tuned: nccl.TunedCollectives) -> None:
        """Moves the operands that are sent into windows, too, and selects the fastest process group."""
        self._group = tuned.group_for(self._setting)
        if self.context.receives and self._setting == WINDOWS:
            name, first = next(iter(self.sets[0].items()))
            together = self._buffer((len(self.sets), *first.shape))
            self.sets = [
                {**operands, name: place.copy_(operands[name])}
                for operands, place in zip(self.sets, together, strict=True)
            ]

    @property
    def facts(self) -> dict[str, str]:
        """Facts that affect the time in addition to the schedule."""
        return {"library_tuned": self._setting} if self._tuned else {}

    def _of_library(self) -> tuple[str, ...]:
        """Names of the tensors that the library writes and that are therefore not symmetric."""
        if self._collective not in library.CALLS:
            return ()
        return ("operand",) if self.operator.flow is Flow.RECEIVE else ("out",)

    def here(self, name: str) -> Tensor:
        """Tensor *name* that this trial's collective writes."""
        return self._buffers[name] if name in self._buffers else self.context.of(self.context.rank, name)

    def compute(self, number: int) -> Call:
        """The computation of set *number* by cuBLAS; no library computes a pooled lookup."""
        first, second = self.sets[number].values()
        target = self.target
        if self.operator.flow is Flow.RECEIVE:
            operand = self.here("operand")
            return lambda: _ignore(torch.mm(operand, second, out=target))
        return lambda: _ignore(torch.mm(first, second, out=target))

    @property
    def target(self) -> Tensor:
        """[M, N] into which results go: torch's symmetric all-reduces read their operand from symmetric memory."""
        symmetric = self._collective in ("one_shot", "two_shot")
        return self.context.of(self.context.rank, "out") if symmetric else self.local

    def collective(self, number: int) -> Call:
        """The collective of set *number*, by the schedule's `collective`."""
        match self._collective:
            case "library" | "library_tuned":
                return self._nccl(self.sets[number])
            case "one_shot" | "two_shot" as shot:
                return self._symmetric(str(shot))
            case "direct":
                return direct(self.context, self._pushed(self.sets[number]), self._mode)
            case _:
                return copies(self.context, self._pushed(self.sets[number]), self._lanes, self._mode)

    def _nccl(self, operands: Operands) -> Call:
        dist: Any = torch.distributed
        context, group = self.context, self._group
        if context.world == 1:
            return lambda: None
        if self.operator.flow is Flow.RECEIVE:
            operand = self.here("operand")
            if "shard" in operands:
                return lambda: dist.all_gather_into_tensor(operand, operands["shard"], group=group)
            return lambda: dist.all_to_all_single(operand, operands["tokens"], group=group)
        out = self.here("out")
        if self.operator.flow is Flow.BROADCAST:
            return lambda: dist.all_reduce(self.local, group=group)
        if self.operator.reduces:
            return lambda: dist.reduce_scatter_tensor(out, self.local, group=group)
        if self._received is None:
            return lambda: dist.all_to_all_single(out, self.local, group=group)
        return self._all_to_all_and_permute(out, self._received)

    def _all_to_all_and_permute(self, out: Tensor, received: Tensor) -> Call:
        """The library delivers [source, sample, column]; the output is [sample, source, column]."""
        dist: Any = torch.distributed
        permuted = out.view(self.chunk, self.context.world, -1)

        def call() -> None:
            dist.all_to_all_single(received.view(-1, received.shape[-1]), self.local, group=self._group)
            permuted.copy_(received.transpose(0, 1))

        return call

    def _symmetric(self, shot: str) -> Call:
        """torch's own all-reduces over symmetric memory."""
        context, name = self.context, self._group.group_name
        stage = context.of(context.rank, "out")
        if shot == "two_shot":
            return lambda: _ignore(torch.ops.symm_mem.two_shot_all_reduce_(stage, "sum", name))
        return lambda: _ignore(torch.ops.symm_mem.one_shot_all_reduce_out(stage, "sum", name, self.local))

    def _pushed(self, operands: Operands) -> Tensor:
        """The tensor that our own collectives push: the operand, or the local result."""
        if self.operator.flow is Flow.RECEIVE:
            return operands["shard"] if "shard" in operands else operands["tokens"]
        return self.local

    def result(self) -> Tensor:
        """Where the collective leaves this rank's output."""
        context = self.context
        if self.operator.flow is Flow.RECEIVE:
            return context.result()
        if self.operator.flow is Flow.BROADCAST and self._collective != "two_shot":
            return self.local
        return self.here("out")


def setting_of(problem: Problem) -> str:
    """NCCL setting of `library_tuned`, by the bytes of the whole buffer that *problem*'s collective fills or reads."""
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    width = extent.contraction if operator.flow is Flow.RECEIVE else extent.columns
    return winner(operator.collective, extent.rows * width * problem.itemsize)


def _ignore(value: Any) -> None:
    """Drops the result of operators that return the tensor they wrote."""


# The calls of the halves.


def kernels(context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
    """Our kernel if it computes; with stamps it is the same."""
    if part == "communication" or not is_ours(context.problem, context.plan.schedule):
        return []
    return [kernel_alone(context, operands, {}, context.local)]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
    """One call for each of *sets*: the half that *part* names, or both."""
    trial_halves = Sequential(context, sets, group)
    by_set = _halves(trial_halves, part)
    return OperandCalls(
        [partial(_in_order, each) for each in by_set], trial_halves.result(), by_set, trial_halves.facts
    )


def watched(context: Context, timed: OperandCalls) -> WatchedCalls:
    """The same calls, in which the stream writes the time after each half."""
    ends = torch.zeros(2, dtype=torch.int64, device=context.device)

    def call(halves: Sequence[Call]) -> None:
        for number, half in enumerate(halves):
            half()
            write_now[(1,)](ends[number:], num_warps=1)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_halves(context.plan, context.rank, (words - start_ns).tolist(), tick_s)

    return WatchedCalls([partial(call, halves) for halves in timed.components], ends, spans)


def _halves(trial_halves: Sequential, part: str) -> list[tuple[Call, ...]]:
    """The halves that *part* names, by set of operands; the one that depends on the other comes last."""
    computes = [] if part == "communication" else [computations(trial_halves)]
    numbers = range(len(trial_halves.sets))
    collectives = [] if part == "compute" else [[trial_halves.collective(number) for number in numbers]]
    halves = (*collectives, *computes) if trial_halves.context.receives else (*computes, *collectives)
    return list(zip(*halves, strict=True))


def _in_order(halves: Sequence[Call]) -> None:
    for half in halves:
        half()


def computations(halves: Sequential) -> list[Call]:
    """The computations by set of operands, by our kernel or by cuBLAS."""
    if not is_ours(halves.context.problem, halves.context.plan.schedule):
        return [halves.compute(number) for number in range(len(halves.sets))]
    return launches(our_kernels(halves))


def our_kernels(halves: Sequential) -> list[LaunchableKernel]:
    """Our kernel by set of operands, which reads and writes the buffers of the collective."""
    places = {"operand": halves.here("operand")} if halves.context.receives else {}
    return [kernel_alone(halves.context, operands, places, halves.target) for operands in halves.sets]


def kernel_alone(
    context: Context, operands: Operands, places: Mapping[str, Tensor], target: Tensor
) -> LaunchableKernel:
    """Our kernel without communication, into *target*; *places*: this rank's tensors outside symmetric memory."""
    plan = expand(context.problem, fused.alone(context.problem, context.plan.schedule["tile"]))
    return kernel(context.computing(plan, places, target), operands, alone=True)
