"""Calls of decomposed schedules: branches of copies and of computations, as the Plan's launches say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.backends.triton import branches, cublas, timeline
from kernels.backends.triton.branches import Op, Order
from kernels.backends.triton.calls import Call, Calls
from kernels.backends.triton.collected import Collected, is_by_library
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels import gemm_pieces
from kernels.backends.triton.kernels.meet import write_now
from kernels.backends.triton.kernels.piece import arrived, begin
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.moved import Moved, Sums
from kernels.backends.triton.rectangles import Rectangles, is_staged
from kernels.backends.triton.streams import MAIN, Streams, streams
from kernels.backends.triton.watch import Watched
from kernels.outcome import Span
from kernels.plan import Kind
from kernels.reference import Operands


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is enqueued together: one launch of the Plan."""

    ops: tuple[Op, ...]
    after: tuple[int, ...]
    """Launches, by their row in the Plan, that come before it on other streams."""
    waits: Call | None
    """Waits on the stream for pieces of peers, or of our own kernel; None: for none."""
    acts: Call

    @property
    def stream(self) -> int:
        return self.ops[0].stream

    @property
    def number(self) -> int:
        """Its row in the Plan."""
        return self.ops[0].launch


Enqueued = tuple[Streams, Call | None, Sequence[Launch], Call | None]
"""One call: its streams, what comes before their fork, the launches, what comes when they have joined."""
Seconds = Mapping[int, tuple[float, float]]
"""By launch, begin and end from the common start."""
Laid = Callable[[Seconds, timeline.Ints, int, float], list[Span]]
"""Makes spans of them, of what kernels wrote, the common start in nanoseconds, and the clock's tick in seconds."""


def kernels(context: Context, operands: Operands, part: str) -> list[Kernel]:
    """Our GEMM, where one launch computes all."""
    if part == "communication" or not gemm_pieces.is_one(context.plan):
        return []
    order = branches.order(context.plan, context.rank, part)
    return [gemm_pieces.kernel(context, Rectangles(context, staged=is_staged(context)), order, operands)]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> Calls:
    """For each of *sets* one call, on streams that all of them share."""
    order = branches.order(context.plan, context.rank, part)
    ways = streams(order.streams, context.device)
    places, result = _places(context, group)
    if part != "whole":  # zeros would take less power, and a GPU clocks higher on them
        context.local.normal_()
        context.of(context.rank, "operand" if context.receives else "out").normal_()
    made = [_Made(context, order, places, operands) for operands in sets]
    each = [partial(enqueue, ways, one.first, one.launches, one.final) for one in made]
    return Calls(each, result, [(ways, one) for one in made])


def _places(context: Context, group: Any) -> tuple[Rectangles, Tensor]:
    """Where pieces lie, and the result."""
    if is_by_library(context):
        library = Collected(context, group)
        return library, library.out
    return Rectangles(context, staged=is_staged(context)), context.result()


def enqueue(
    ways: Streams, first: Call | None, launches: Sequence[Launch], final: Call | None,
    watch: Callable[[Launch, Callable[[], None]], None] | None = None,
) -> None:  # fmt: skip
    """One call: *first*, then every launch on its stream, then *final*, where all streams have joined."""
    if first is not None:
        first()
    ways.fork()
    crossed = {other for launch in launches for other in launch.after}
    events: dict[int, Any] = {}
    for launch in launches:
        for other in launch.after:
            ways.after(launch.stream, events[other])
        with ways.on(launch.stream):
            if launch.waits is not None:
                launch.waits()
            if watch is not None:
                watch(launch, launch.acts)
            else:
                launch.acts()
        if launch.number in crossed:
            events[launch.number] = ways.mark(launch.stream)
    ways.join()
    if final is not None:
        final()


def in_turn(launches: Sequence[Launch], pause: Call) -> list[Launch]:
    """*launches*, the first computation of a second stream behind a *pause*, where it waits for nothing else.

    What is ready at the same moment begins in any order, and a copy would wait for a piece that is computed second.
    """
    first = {launch.stream: launch for launch in reversed(launches) if launch.ops[0].kind is Kind.COMPUTE}
    late = [launch for stream, launch in first.items() if stream != MAIN and launch.waits is None and not launch.after]
    return [replace(launch, waits=pause) if launch in late else launch for launch in launches]


class _Made:
    """One call's launches over one set of operands."""

    def __init__(self, context: Context, order: Order, places: Rectangles, operands: Operands) -> None:
        self._context, self._places, self._operands = context, places, operands
        self._one = gemm_pieces.is_one(context.plan)
        self._moved = Moved(context, places)
        self._counters = context.addresses("counters")
        self._spared = int(context.plan.schedule.get("comm_sms") or 0)
        grouped: dict[int, list[Op]] = {}
        for op in order.ops:
            grouped.setdefault(op.launch, []).append(op)
        self._order = order
        of_step = {op.step: op for op in order.ops}
        self.launches = in_turn([self._launch(tuple(ops), of_step) for ops in grouped.values()], self._waits_for([]))
        sums = self._one and not context.receives and any(op.awaits for op in order.of(Kind.COMPUTE))
        if sums and context.device.type == "cpu":
            self.launches = self._one_by_one()
        meets = bool((context.plan.kind == Kind.PUT).any()) and any(op.kind is not Kind.COMPUTE for op in order.ops)
        self.first = self._begin() if meets else None
        self.final = self._waits([(number, 1) for number in order.last])

    def _one_by_one(self) -> list[Launch]:
        """As interpreted ranks need it, which run nothing beside a kernel: its own sums come behind contributions."""
        (one,) = (launch for launch in self.launches if launch.ops[0].kind is Kind.COMPUTE)
        puts = [launch for launch in self.launches if launch is not one]
        leave = [launch for launch in puts if launch.ops[0].blocks[0].chunk != self._context.rank]
        halves = [replace(one, acts=self._kernel(summed=summed)) for summed in (False, True)]
        return [halves[0], *leave, halves[1], *(launch for launch in puts if launch not in leave)]

    def _kernel(self, *, summed: bool | None = None) -> Call:
        """Our one launch."""
        kernel = gemm_pieces.kernel(self._context, self._places, self._order, self._operands, summed=summed)
        return kernel.launcher(interpreted=1)

    def _begin(self) -> Call:
        context, credits = self._context, self._context.addresses("credits")
        return lambda: begin[(1,)](
            credits, context.epoch, context.error, context.limit_ns, context.rank, WORLD=context.world, num_warps=1
        )

    def _waits(self, awaited: Sequence[tuple[int, int]]) -> Call | None:
        """Until counters of this rank have risen: their numbers, and by how much a call raises each."""
        return self._waits_for(awaited) if awaited else None

    def _waits_for(self, awaited: Sequence[tuple[int, int]]) -> Call:
        """The same, a launch of one warp in any case."""
        context = self._context
        numbers = torch.tensor(awaited, dtype=torch.int32, device=context.device)
        return lambda: arrived[(1,)](
            self._counters, numbers, len(numbers), context.epoch, context.error, context.limit_ns, context.rank,
            num_warps=1,
        )  # fmt: skip

    def _launch(self, ops: tuple[Op, ...], of_step: dict[int, Op]) -> Launch:
        computes = ops[0].kind is Kind.COMPUTE
        inside = self._one and computes  # our kernel waits for pieces itself
        needed = [of_step[step] for op in ops for step in op.after if of_step[step].launch != op.launch]
        counted = [op for op in needed if self._one and op.kind is Kind.COMPUTE]
        across = {op.launch for op in needed if op not in counted and op.stream != ops[0].stream}
        awaited = [] if inside else [(number, 1) for op in ops for number in op.awaits]
        awaited += [gemm_pieces.unit(self._context.plan, op) for op in ops if counted]
        return Launch(ops=ops, after=tuple(sorted(across)), waits=self._waits(awaited), acts=self._acts(ops))

    def _acts(self, ops: tuple[Op, ...]) -> Call:
        kind = ops[0].kind
        if kind is Kind.COMPUTE:
            if self._one:
                return self._kernel()
            products = [product for op in ops for product in self._places.products(op, self._operands)]
            return cublas.on_fewer(_in_order(products), self._spared, self._context.device)
        if kind is Kind.PUT:
            return self._moved.puts(ops, self._operands)
        if kind is Kind.REDUCE:
            return _in_order([Sums(self._context, *self._places.summed(op)) for op in ops])
        if kind is Kind.COLLECTIVE:
            assert isinstance(self._places, Collected)
            return _in_order([self._places.collective(op, self._operands) for op in ops])
        return _in_order([])  # what the library leaves in its buffer is read there


def _in_order(acts: Sequence[Call]) -> Call:
    def act() -> None:
        for each in acts:
            each()

    return act


def watched(context: Context, timed: Calls) -> Watched:
    """The same calls with events before and behind each launch, which are nodes of the graph and take no SM."""

    def laid(seconds: Seconds, words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_launches(context.plan, context.rank, seconds, max(tick_s, timeline.EVENT_TICK_S))

    made = [(ways, one.first, one.launches, one.final) for ways, one in timed.made]
    return by_events(made, torch.zeros(1, dtype=torch.int64, device=context.device), laid)


def by_events(made: Sequence[Enqueued], written: Tensor, laid: Laid) -> Watched:
    """Calls of *made* with events around each launch; *laid* makes spans of what they say, and of *written*.

    *written* [words] int64: its first word becomes the moment at which a call begins, the others are the kernels' own.
    """
    moments: dict[int, tuple[Any, Any]] = {}
    origin: list[Any] = []
    kept: list[Any] = []  # a graph records all of its events as long as it lives

    def call(ways: Streams, first: Call | None, launches: Sequence[Launch], final: Call | None) -> None:
        write_now[(1,)](written, num_warps=1)
        ways.fork()
        origin[:] = [ways.mark(MAIN, timed=True)]
        kept.append(origin[0])

        def timed_launch(launch: Launch, acts: Call) -> None:
            before = ways.mark(launch.stream, timed=True)
            acts()
            both = before, ways.mark(launch.stream, timed=True)
            moments.update(dict.fromkeys((op.launch for op in launch.ops), both))
            kept.append(both)

        enqueue(ways, first, launches, final, timed_launch)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        offset_s = float(words[0] - start_ns) / 1e9

        def at(event: Any) -> float:
            return offset_s + float(origin[0].elapsed_time(event)) / 1e3

        seconds = {launch: (at(begin), at(end)) for launch, (begin, end) in moments.items()}
        return laid(seconds, words, start_ns, tick_s)

    return Watched([partial(call, *one) for one in made], written, spans)
