"""Calls of concurrent schedules: several problems at once, computations on one stream, collectives on another.

Both are halves of a sequential call (`sequential.Sequential`), and each problem has separate data. A graph's branches
come from the Plan's launches, as those of decomposed calls do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton import nccl, pieces, timeline, timing
from kernels.backends.triton.collectives import ConcurrentMode
from kernels.backends.triton.kernels.sync import WORDS, meet, write_now
from kernels.backends.triton.launch import Call, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.pieces import EnqueuedStep, EnqueueOrder
from kernels.backends.triton.schemes import OperandCalls, fused, sequential
from kernels.backends.triton.schemes.decomposed import Enqueued, PieceLaunch, Seconds, by_events, enqueue
from kernels.backends.triton.schemes.sequential import Sequential
from kernels.backends.triton.streams import MAIN, StreamSet, on_fewer, streams
from kernels.backends.triton.timeline import WatchedCalls
from kernels.backends.triton.timing import Node
from kernels.operators import OPERATORS
from kernels.outcome import Span
from kernels.plan import Kind, Plan, Pool
from kernels.reference import Operands
from kernels.schemes import library
from kernels.schemes.concurrent import problems
from kernels.schemes.sequential import is_ours

# Whether the controls of a concurrent schedule act: the requested values compared with a captured graph.

CLOCK_KERNELS = (meet.__name__, write_now.__name__)
"""Kernels of one thread block that belong to the timing and to neither half."""


def captured_kernels(call: Call) -> list[Node]:
    """The kernels that *call* would launch: it is captured alone and never runs."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    return timing.kernels(graph)


def control_facts(
    plan: Plan, rank: int, every: Sequence[Node], computes: set[str], device: torch.device
) -> dict[str, Any]:
    """The kernels of one graph by half, and a message for each control that has no effect on them.

    *computes*: names of the kernels that compute; all others except those of the clock belong to the collective.
    """
    computing = [node for node in every if node.name in computes]
    others = [node for node in every if node.name not in computes and node.name not in CLOCK_KERNELS]
    sms = int(torch.cuda.get_device_properties(device).multi_processor_count)
    high = bool((plan.launches.priority[plan.launches.rank == rank] > 0).any())
    share = plan.schedule.count("comm_sms")
    unmet = [*unmet_priority(high, others), *unmet_share(share, sms, computing, others)]
    return {"controls": {"compute": timing.facts(computing), "communication": timing.facts(others), "unmet": unmet}}


def unmet_priority(high: bool, others: Sequence[Node]) -> list[str]:
    """Messages about kernels of a collective that lack its priority."""
    odd = [node for node in others if (node.priority < 0) != high]
    if not odd:
        return []
    message = (
        f"comm_priority = {'high' if high else 'normal'} has not reached the graph: {len(odd)} of {len(others)} "
        f"kernels of the collective have priority {odd[0].priority}, {odd[0].name} among them."
    )
    return [message]


def unmet_share(share: int, sms: int, computing: Sequence[Node], others: Sequence[Node]) -> list[str]:
    """Messages about kernels that do not keep to the split of *sms* SMs, of which the collective has *share*."""
    if not share:
        return []
    messages, remaining = [], sms - share
    largest = max(computing, key=lambda node: node.blocks, default=None)
    if (
        largest is not None and largest.blocks > remaining and largest.blocks % remaining
    ):  # else each SM has equally many
        messages.append(
            f"comm_sms = {share} does not limit the computation: {largest.name} has {largest.blocks} blocks, and "
            f"{remaining} SMs remain for it."
        )
    largest = max(others, key=lambda node: node.blocks, default=None)
    if largest is not None and largest.blocks > share:
        messages.append(
            f"comm_sms = {share} does not limit the collective: {largest.name} has {largest.blocks} blocks: "
            f"{largest.blocks} > {share}."
        )
    return messages


# The halves of all problems, and how they are enqueued.

BEFORE_STAMPS = 2
"""int64 values before the stamps: the time at which a call begins, and one that pads to 16 bytes."""

CallTable = list[list[Call]]
"""Calls by micro-batch, then by set of operands."""


@dataclass(frozen=True, slots=True)
class HalfLaunch:
    """One half of one micro-batch, which is enqueued together."""

    micro_batch: int
    computes: bool
    ops: tuple[EnqueuedStep, ...]
    after: tuple[int, ...]
    """Launches of other streams that must run before it, as in `PieceLaunch.after`."""


def kernels(context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
    """Our kernel if it computes, and for a whole trial also the form that writes stamps."""
    if part == "communication" or not is_ours(context.problem, context.plan.schedule):
        return []
    timed = _concurrent(context, sequential.kernel_alone(context, operands, {}, context.local))
    stamps = torch.zeros(1, WORDS.value, dtype=torch.int64, device=context.device)
    return [timed, timed.stamped(stamps)] if part == "whole" else [timed]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
    """One call for each set of the first micro-batch, together with the corresponding sets of the others."""
    built = _ConcurrentCalls(context, sets, part, group)
    each = [partial(enqueue, *call) for call in built.enqueued(built.computations)]
    results = [halves.result() for halves in built.by_problem]
    return OperandCalls(each, results[0], [built], built.by_problem[0].facts, results[1:], built.graph_facts)


def units(plan: Plan, rank: int, order: EnqueueOrder) -> list[HalfLaunch]:
    """*order* of *rank* by micro-batch and half; the copies of a half are on the same stream as the rest of it.

    So all collectives follow each other: their barriers share one count, and no other signals are awaited.
    """
    of_step = {op.step: op for op in order.ops}
    grouped: dict[tuple[int, bool], list[EnqueuedStep]] = {}
    for op in order.ops:
        grouped.setdefault(_half(plan, op), []).append(op)
    ordered = {half: tuple(sorted(ops, key=lambda op: op.stream)) for half, ops in grouped.items()}
    launches = []
    for half, ops in ordered.items():
        needed = {_half(plan, of_step[step]) for op in ops for step in op.after}
        if any(op.awaits for op in ops):  # the puts of peers have arrived when our own collective has ended
            needed.add((half[0], False))
        needed &= ordered.keys() - {half}
        after = sorted(ordered[other][0].launch for other in needed)
        launches.append(HalfLaunch(*half, ops, tuple(after)))
    return launches


def _half(plan: Plan, op: EnqueuedStep) -> tuple[int, bool]:
    return int(plan.launches.micro_batch[op.launch]), op.kind is Kind.COMPUTE


class _ConcurrentCalls:
    """The halves of one trial's problems, over all sets of operands, and their streams."""

    def __init__(self, context: Context, sets: Sequence[Operands], part: str, group: Any) -> None:
        self.context, count = context, problems(context.plan.schedule)
        self._sets = len(sets) // count
        self._order = pieces.order(context.plan, context.rank, part)
        self._units = units(context.plan, context.rank, self._order)
        self._comm_sms = context.plan.schedule.count("comm_sms")
        self._stream_set, lanes = self._streams()
        mode = ConcurrentMode(blocks=self._comm_sms, lanes=lanes)
        sets_by_problem = [sets[number * self._sets : (number + 1) * self._sets] for number in range(count)]
        limited = nccl.at_most(group, self._blocks_of_nccl(), context.device)
        self.by_problem = [
            Sequential(context.of_problem(number), each, limited, mode) for number, each in enumerate(sets_by_problem)
        ]
        self._ours = is_ours(context.problem, context.plan.schedule)
        self.kernels = self._our_kernels() if part != "communication" else []
        self.computations = self._computations() if part != "communication" else []
        self._collectives = (
            [[halves.collective(number) for number in range(self._sets)] for halves in self.by_problem]
            if part != "compute" else []
        )  # fmt: skip

    def _blocks_of_nccl(self) -> int:
        """Most thread blocks of NCCL; 0: as many as it chooses."""
        if self.context.plan.schedule["collective"] not in library.CALLS or self.context.world == 1:
            return 0
        sends = OPERATORS[self.context.problem.operator].collective == "all_to_all"
        return nccl.channels(self._comm_sms, sends=sends)

    def _streams(self) -> tuple[StreamSet, Any]:
        """The streams of the units, and further ones as lanes for the copies of one collective."""
        numbers = {(unit.ops[0].stream, unit.ops[0].priority) for unit in self._units if unit.ops[0].stream != MAIN}
        first = 1 + max((number for number, _ in numbers), default=MAIN)
        copied = any(self.context.plan.pool[op.step] == Pool.COPY_ENGINE for op in self._order.ops)
        lanes = range(first, first + self.context.world) if copied else range(0)
        stream_set = streams([*sorted(numbers), *((number, 0) for number in lanes)], self.context.device)
        return stream_set, stream_set.lanes(lanes)

    def _our_kernels(self) -> list[list[LaunchableKernel]]:
        """Our kernels by micro-batch and set; none if a library computes."""
        if not self._ours:
            return []
        return [
            [_concurrent(self.context, kernel) for kernel in sequential.our_kernels(each)] for each in self.by_problem
        ]

    def _computations(self) -> CallTable:
        if self._ours:
            return [fused.launches(of_problem) for of_problem in self.kernels]
        share, device = self._comm_sms, self.context.device
        return [[on_fewer(call, share, device) for call in sequential.computations(each)] for each in self.by_problem]

    def enqueued(self, computations: CallTable) -> list[Enqueued]:
        """One call per set of operands, with *computations* as its computations."""
        return [(self._stream_set, None, self._launches(computations, number), None) for number in range(self._sets)]

    def _launches(self, computations: CallTable, number: int) -> list[PieceLaunch]:
        return [
            PieceLaunch(ops=unit.ops, after=unit.after, waits=None,
                   acts=(computations if unit.computes else self._collectives)[unit.micro_batch][number])
            for unit in self._units
        ]  # fmt: skip

    def graph_facts(self, captured: Sequence[Node]) -> dict[str, Any]:
        """Facts of the kernels in a graph of these calls, and of controls that have no effect."""
        names = {kernel.function.__name__ for of_problem in self.kernels for kernel in of_problem}
        if self.computations and not names:
            names = {node.name for node in captured_kernels(self.computations[0][0])}
        return control_facts(self.context.plan, self.context.rank, captured, names, self.context.device)


def _concurrent(context: Context, kernel: LaunchableKernel) -> LaunchableKernel:
    """*kernel* as the schedule shapes it to run at the same time as a collective."""
    schedule = context.plan.schedule
    resident = int(schedule.get("resident_blocks") or 0)
    return replace(kernel, concurrent=True, resident=resident, spared=schedule.count("comm_sms"))


def watched(context: Context, timed: OperandCalls) -> WatchedCalls:
    """The same calls with events around each half, and stamps of tiles if our kernel computes."""
    (built,) = timed.components
    count, records = len(built.kernels), built.kernels[0][0].records if built.kernels else 0
    size = count, records + records % 2, WORDS.value  # aligned like the stamps with which the kernel was compiled
    written = torch.zeros(BEFORE_STAMPS + prod(size), dtype=torch.int64, device=context.device)
    stamps = written[BEFORE_STAMPS:].view(size)
    computations = _stamped(built.kernels, stamps) if built.kernels else built.computations

    def make_spans(seconds: Seconds, words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        spans = timeline.of_halves_on_streams(context.plan, context.rank, seconds, max(tick_s, timeline.EVENT_TICK_S))
        if not count:
            return spans
        by_problem = words[BEFORE_STAMPS:].reshape(count, -1)
        each = [timeline.Stamps.read(of_problem, start_ns, tick_s) for of_problem in by_problem]
        return timeline.with_tiles(context.plan, spans, each)

    return by_events(built.enqueued(computations), written, make_spans)


def _stamped(kernels: Sequence[Sequence[LaunchableKernel]], stamps: Tensor) -> CallTable:
    """Launches that write *stamps* [micro-batches, records, values], by micro-batch and set."""
    return [
        fused.launches([kernel.stamped(records) for kernel in of_problem])
        for of_problem, records in zip(kernels, stamps, strict=True)
    ]
