"""Calls of concurrent schedules: several problems at once, computations on one stream, collectives on another.

Both are the halves of a sequential call (library.Sequential), each problem over data of its own. A graph's branches
come from the Plan's launches, as those of decomposed calls do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton import nccl, pieces, timeline, timing
from kernels.backends.triton.collectives import ConcurrentMode
from kernels.backends.triton.kernels.sync import WORDS, meet, write_now
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.pieces import EnqueuedStep, EnqueueOrder
from kernels.backends.triton.schemes import Call, OperandCalls, fused, sequential
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

# Whether the controls of a concurrent schedule act: what was asked for, beside what a captured graph holds.

OF_THE_CLOCK = (meet.__name__, write_now.__name__)
"""Kernels of one thread block that count nobody's SMs."""


def controls_captured(call: Callable[[], None]) -> list[Node]:
    """The kernels that *call* would launch: it is captured by itself, and never runs."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        call()
    return timing.kernels(graph)


def facts(plan: Plan, rank: int, every: Sequence[Node], computes: set[str], device: torch.device) -> dict[str, Any]:
    """The kernels of one graph by half, and a sentence for each control that they do not show.

    *computes*: the names of those that compute; all others but the clock's are the collective's.
    """
    computing = [node for node in every if node.name in computes]
    others = [node for node in every if node.name not in computes and node.name not in OF_THE_CLOCK]
    sms = int(torch.cuda.get_device_properties(device).multi_processor_count)
    high = bool((plan.launches.priority[plan.launches.rank == rank] > 0).any())
    share = plan.schedule.count("comm_sms")
    unmet = [*of_priority(high, others), *of_share(share, sms, computing, others)]
    return {"controls": {"compute": timing.facts(computing), "communication": timing.facts(others), "unmet": unmet}}


def of_priority(high: bool, others: Sequence[Node]) -> list[str]:
    """What the kernels of a collective do not show of its priority."""
    odd = [node for node in others if (node.priority < 0) != high]
    if not odd:
        return []
    sentence = (
        f"comm_priority = {'high' if high else 'normal'} has not reached the graph: {len(odd)} of {len(others)} "
        f"kernels of the collective have priority {odd[0].priority}, {odd[0].name} among them."
    )
    return [sentence]


def of_share(share: int, sms: int, computing: Sequence[Node], others: Sequence[Node]) -> list[str]:
    """What the kernels do not show of *share* of *sms* SMs, which the computation leaves to the collective."""
    if not share:
        return []
    sentences, left = [], sms - share
    largest = max(computing, key=lambda node: node.blocks, default=None)
    if largest is not None and largest.blocks > left and largest.blocks % left:  # else each SM has the same number
        sentences.append(
            f"comm_sms = {share} does not limit the computation: {largest.name} has {largest.blocks} blocks, and "
            f"{left} SMs were left to it."
        )
    largest = max(others, key=lambda node: node.blocks, default=None)
    if largest is not None and largest.blocks > share:
        sentences.append(
            f"comm_sms = {share} does not limit the collective: {largest.name} has {largest.blocks} blocks: "
            f"{largest.blocks} > {share}."
        )
    return sentences


# Calls of concurrent schedules: several problems at once, computations on one stream, collectives on another.

BEFORE_STAMPS = 2
"""Words: the moment at which a call begins, and one that fills up 16 bytes."""

By = list[list[Call]]
"""By micro-batch, then by set of operands."""


@dataclass(frozen=True, slots=True)
class HalfLaunch:
    """One half of one micro-batch: what is enqueued together."""

    micro_batch: int
    computes: bool
    ops: tuple[EnqueuedStep, ...]
    after: tuple[int, ...]
    """Launches of other streams that come before it, as `PieceLaunch.after` names them."""


def kernels(context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
    """Our kernel alone, where it computes, and of a whole trial the form that is watched."""
    if part == "communication" or not is_ours(context.problem, context.plan.schedule):
        return []
    timed = _beside(context, sequential.alone(context, operands, {}, context.local))
    stamps = torch.zeros(1, WORDS.value, dtype=torch.int64, device=context.device)
    return [timed, timed.stamped(stamps)] if part == "whole" else [timed]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
    """A call for each set of the first micro-batch, with the sets of the others beside it."""
    made = _ConcurrentCalls(context, sets, part, group)
    each = [partial(enqueue, *one) for one in made.enqueued(made.computations)]
    results = [both.result() for both in made.halves]
    return OperandCalls(each, results[0], [made], made.halves[0].facts, results[1:], made.read)


def units(plan: Plan, rank: int, order: EnqueueOrder) -> list[HalfLaunch]:
    """*order* by micro-batch and half, as *rank* enqueues them; a half's copies are on one stream with the rest of it.

    So all collectives follow each other: their meetings count together, and no other signals are awaited.
    """
    of_step = {op.step: op for op in order.ops}
    grouped: dict[tuple[int, bool], list[EnqueuedStep]] = {}
    for op in order.ops:
        grouped.setdefault(_half(plan, op), []).append(op)
    ordered = {half: tuple(sorted(ops, key=lambda op: op.stream)) for half, ops in grouped.items()}
    made = []
    for half, ops in ordered.items():
        needed = {_half(plan, of_step[step]) for op in ops for step in op.after}
        if any(op.awaits for op in ops):  # what peers put is here when our own collective has ended
            needed.add((half[0], False))
        needed &= ordered.keys() - {half}
        after = sorted(ordered[other][0].launch for other in needed)
        made.append(HalfLaunch(*half, ops, tuple(after)))
    return made


def _half(plan: Plan, op: EnqueuedStep) -> tuple[int, bool]:
    return int(plan.launches.micro_batch[op.launch]), op.kind is Kind.COMPUTE


class _ConcurrentCalls:
    """The halves of one trial's problems, over all sets of operands, and the streams that they run on."""

    def __init__(self, context: Context, sets: Sequence[Operands], part: str, group: Any) -> None:
        self.context, count = context, problems(context.plan.schedule)
        self._sets = len(sets) // count
        self._order = pieces.order(context.plan, context.rank, part)
        self._units = units(context.plan, context.rank, self._order)
        self._comm_sms = context.plan.schedule.count("comm_sms")
        self._ways, lanes = self._streams()
        beside = ConcurrentMode(blocks=self._comm_sms, lanes=lanes)
        by_problem = [sets[number * self._sets : (number + 1) * self._sets] for number in range(count)]
        limited = nccl.at_most(group, self._blocks_of_nccl(), context.device)
        self.halves = [
            Sequential(context.of_problem(number), each, limited, beside) for number, each in enumerate(by_problem)
        ]
        self._ours = is_ours(context.problem, context.plan.schedule)
        self.kernels = self._own_kernels() if part != "communication" else []
        self.computations = self._computations() if part != "communication" else []
        self._collectives = (
            [[both.collective(number) for number in range(self._sets)] for both in self.halves]
            if part != "compute" else []
        )  # fmt: skip

    def _blocks_of_nccl(self) -> int:
        """At most; 0: as many as it wants."""
        if self.context.plan.schedule["collective"] not in library.CALLS or self.context.world == 1:
            return 0
        sends = OPERATORS[self.context.problem.operator].collective == "all_to_all"
        return nccl.channels(self._comm_sms, sends=sends)

    def _streams(self) -> tuple[StreamSet, Any]:
        """Those of the units, and lanes for the copies of one collective, which have numbers of their own."""
        numbers = {(unit.ops[0].stream, unit.ops[0].priority) for unit in self._units if unit.ops[0].stream != MAIN}
        first = 1 + max((number for number, _ in numbers), default=MAIN)
        copied = any(self.context.plan.pool[op.step] == Pool.COPY_ENGINE for op in self._order.ops)
        lanes = range(first, first + self.context.world) if copied else range(0)
        ways = streams([*sorted(numbers), *((number, 0) for number in lanes)], self.context.device)
        return ways, ways.lanes(lanes)

    def _own_kernels(self) -> list[list[LaunchableKernel]]:
        """By micro-batch and set, where no library computes."""
        if not self._ours:
            return []
        return [[_beside(self.context, one) for one in sequential.own_kernels(both)] for both in self.halves]

    def _computations(self) -> By:
        if self._ours:
            return [fused.launches(of_problem) for of_problem in self.kernels]
        share, device = self._comm_sms, self.context.device
        return [[on_fewer(call, share, device) for call in sequential.computations(both)] for both in self.halves]

    def enqueued(self, computations: By) -> list[Enqueued]:
        """By set of operands a call whose computations are *computations*."""
        return [(self._ways, None, self._launches(computations, number), None) for number in range(self._sets)]

    def _launches(self, computations: By, number: int) -> list[PieceLaunch]:
        return [
            PieceLaunch(ops=unit.ops, after=unit.after, waits=None,
                   acts=(computations if unit.computes else self._collectives)[unit.micro_batch][number])
            for unit in self._units
        ]  # fmt: skip

    def read(self, captured: Sequence[Node]) -> dict[str, Any]:
        """What a graph of these calls holds, and which controls it does not show."""
        names = {kernel.function.__name__ for of_problem in self.kernels for kernel in of_problem}
        if self.computations and not names:
            names = {node.name for node in controls_captured(self.computations[0][0])}
        return facts(self.context.plan, self.context.rank, captured, names, self.context.device)


def _beside(context: Context, kernel: LaunchableKernel) -> LaunchableKernel:
    """*kernel* as the schedule shapes it beside a collective."""
    schedule = context.plan.schedule
    resident = int(schedule.get("resident_blocks") or 0)
    return replace(kernel, beside=True, resident=resident, spared=schedule.count("comm_sms"))


def watched(context: Context, timed: OperandCalls) -> WatchedCalls:
    """The same calls with events around each half, and stamps of tiles where our kernel computes."""
    (made,) = timed.made
    count, records = len(made.kernels), made.kernels[0][0].records if made.kernels else 0
    size = count, records + records % 2, WORDS.value  # so that all stamps are aligned as those are that were compiled
    written = torch.zeros(BEFORE_STAMPS + prod(size), dtype=torch.int64, device=context.device)
    stamps = written[BEFORE_STAMPS:].view(size)
    computations = _stamped(made.kernels, stamps) if made.kernels else made.computations

    def laid(seconds: Seconds, words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        spans = timeline.of_halves_on_streams(context.plan, context.rank, seconds, max(tick_s, timeline.EVENT_TICK_S))
        if not count:
            return spans
        by_problem = words[BEFORE_STAMPS:].reshape(count, -1)
        each = [timeline.Stamps.read(of_problem, start_ns, tick_s) for of_problem in by_problem]
        return timeline.with_tiles(context.plan, spans, each)

    return by_events(made.enqueued(computations), written, laid)


def _stamped(kernels: Sequence[Sequence[LaunchableKernel]], stamps: Tensor) -> By:
    """By micro-batch and set, launches that write stamps: *stamps* [micro-batches, records, words]."""
    return [
        fused.launches([kernel.stamped(records) for kernel in of_problem])
        for of_problem, records in zip(kernels, stamps, strict=True)
    ]
