"""Calls of decomposed schedules: branches of copies and of computations, which follow the Plan's launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from kernels.backends.triton import collectives, pieces, timeline
from kernels.backends.triton.kernels import gemm_pieces
from kernels.backends.triton.kernels.copy import arrived, begin, put_pieces, sum_pieces
from kernels.backends.triton.kernels.sync import write_now
from kernels.backends.triton.launch import TRITON_DTYPES, Call, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.pieces import (
    EnqueuedStep,
    EnqueueOrder,
    MatrixProduct,
    Rectangles,
    is_staged,
    product,
    right_operand,
)
from kernels.backends.triton.schemes import OperandCalls
from kernels.backends.triton.streams import MAIN, StreamSet, copy, on_fewer, streams
from kernels.backends.triton.timeline import WatchedCalls
from kernels.operators import OPERATORS
from kernels.outcome import Span
from kernels.plan import Kind
from kernels.reference import Operands

# Puts of decomposed calls, by a copy engine or by SMs, each followed by its signal; and sums of arrived pieces.


class PieceTransfers:
    """Moves the pieces of one trial."""

    def __init__(self, context: Context, places: Rectangles) -> None:
        self._context, self._places = context, places
        self._programs = int(context.plan.schedule.get("comm_sms") or 0)

    def puts(self, ops: Sequence[EnqueuedStep], operands: Operands) -> Call:
        """A call that executes the puts *ops* one after another."""
        return self._by_sms(ops, operands) if self._programs else self._by_engine(ops, operands)

    def _by_engine(self, ops: Sequence[EnqueuedStep], operands: Operands) -> Call:
        """Puts by a copy engine; the signal, the epoch, is copied on the same stream, and so arrives after the data."""
        context, moves = self._context, []
        for op in ops:
            target, source = self._places.move(op, operands)
            counter = context.of(op.peer, "counters")[op.raises : op.raises + 1]
            moves.append((target, source, counter))

        def call() -> None:
            for target, source, counter in moves:
                copy(target, source)
                counter.copy_(context.epoch)

        return call

    def _by_sms(self, ops: Sequence[EnqueuedStep], operands: Operands) -> Call:
        """Puts by SMs, all in one kernel."""
        context = self._context
        pairs = [self._places.move(op, operands) for op in ops]
        (target, source), table = pairs[0], []
        base, name = _base(source), self._places.lands_in(ops[0])
        for op, (to, piece) in zip(ops, pairs, strict=True):
            source_start = (piece.data_ptr() - base.data_ptr()) // piece.itemsize
            target_start = (to.data_ptr() - context.of(op.peer, name).data_ptr()) // to.itemsize
            table.append((op.peer, source_start, target_start, *piece.shape, op.raises))
        puts = torch.tensor(table, dtype=torch.int64, device=context.device)
        done = torch.zeros(len(table), dtype=torch.int32, device=context.device)
        addresses, counters = context.addresses(name), context.addresses("counters")
        programs = 1 if context.device.type == "cpu" else self._programs
        return lambda: put_pieces[(programs,)](
            base, source.stride(0), addresses, target.stride(0), puts, len(table), counters, done,
            BLOCK_M=collectives.FEW.rows, BLOCK_N=collectives.FEW.columns, DTYPE=TRITON_DTYPES[context.problem.dtype],
            num_warps=collectives.FEW.warps,
        )  # fmt: skip


def _base(view: Tensor) -> Tensor:
    """The start of the memory that *view* belongs to, as a flat tensor."""
    return view.as_strided((1,), (1,), 0)


class Sums:
    """A call that sums one piece over ranks."""

    def __init__(self, context: Context, stage: Tensor, out: Tensor) -> None:
        ranks, rows, width = stage.shape
        block = collectives.MANY
        blocks = -(-rows // block.rows) * -(-width // block.columns)
        self._grid = 1 if context.device.type == "cpu" else blocks
        self._arguments = stage, stage.stride(0), out, rows, width, out.stride(0)
        self._world = ranks

    def __call__(self) -> None:
        block = collectives.MANY
        sum_pieces[(self._grid,)](
            *self._arguments, WORLD=self._world, BLOCK_M=block.rows, BLOCK_N=block.columns, num_warps=block.warps
        )


# Pieces that NCCL moves with one collective each, over ordinary memory: its captured calls hang on symmetric memory.


class CollectiveBuffers(Rectangles):
    """Buffers of one trial, one for each collective, and the result."""

    def __init__(self, context: Context, group: Any) -> None:
        super().__init__(context, staged=False)
        self._group, self._dist = group, torch.distributed
        self._collective = OPERATORS[context.problem.operator].collective
        shape = OPERATORS[context.problem.operator].local(context.problem)["output"]
        self.out = self._empty(*shape) if not self._receives else context.local
        self._buffers: dict[int, Tensor] = {}

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*shape, dtype=self._context.dtype, device=self._context.device)

    def _number(self, op: EnqueuedStep) -> int:
        """The number of a piece: that of its collective and of its computation are equal."""
        return int(self._context.plan.index[op.step])

    def _buffer(self, op: EnqueuedStep) -> Tensor:
        """[ranks, rows, width] that the collective of *op*'s piece fills or reads."""
        number, block, ranks = self._number(op), op.blocks[0], self._context.world
        width = slice(*self._span(op))
        if self._collective == "all_reduce":  # in place
            return self._by_rank(self.out)[:, block.rows, width]
        if number not in self._buffers:
            rows = block.row_stop - block.row_start
            self._buffers[number] = self._empty(ranks, rows, width.stop - width.start).normal_()
        return self._buffers[number]

    def _span(self, op: EnqueuedStep) -> tuple[int, int]:
        """First and last column of the moved data."""
        block = op.blocks[0]
        return (block.k_start, block.k_stop) if self._receives else (block.col_start, block.col_stop)

    def products(self, op: EnqueuedStep, operands: Operands) -> list[MatrixProduct]:
        """One product for the piece of all ranks: own rows are received or sent like those of peers."""
        block, right = op.blocks[0], right_operand(operands)
        buffer = self._buffer(op)
        if self._receives:
            into = self.local[:, block.rows, block.columns]
            return [product(buffer, right[block.k], into, adds=block.k_start > 0)]
        left = self.source(operands)[:, block.rows]
        return [product(left, right[:, block.columns], buffer, adds=False)]

    def collective(self, op: EnqueuedStep, operands: Operands) -> Call:
        """The call of the library; pieces with gaps are packed before and unpacked after it."""
        block, buffer, group, dist = op.blocks[0], self._buffer(op), self._group, self._dist
        if self._receives:
            piece = self.source(operands)[:, block.rows, block.k]
            if self._collective == "all_gather":
                return self._packed(
                    piece[0], lambda packed: dist.all_gather_into_tensor(_rows(buffer), packed, group=group)
                )
            return self._exchange(list(piece), list(buffer))
        if self._collective == "all_reduce":
            return self._all_reduce(buffer)
        out = self._by_rank(self.out)[:, block.rows, block.columns]
        if self._collective == "all_to_all":
            return self._exchange(list(buffer), list(out))
        received = out[0] if out[0].is_contiguous() else self._empty(*out[0].shape)

        def reduce_scatter() -> None:
            dist.reduce_scatter_tensor(received, _rows(buffer), group=group)
            if received is not out[0] and received.data_ptr() != out[0].data_ptr():
                out[0].copy_(received)

        return reduce_scatter

    def _packed(self, piece: Tensor, call: Any) -> Call:
        if piece.is_contiguous():
            return lambda: call(piece)
        packed = torch.empty_like(piece, memory_format=torch.contiguous_format)
        return lambda: call(packed.copy_(piece))

    def _exchange(self, leaving: list[Tensor], coming: list[Tensor]) -> Call:
        """Sends each of *leaving* to its rank and receives *coming*; the library accepts no tensors with gaps."""
        packed, landing = [_contiguous(each) for each in leaving], [_contiguous(each) for each in coming]

        def call() -> None:
            for buffer, piece in zip(packed, leaving, strict=True):
                if buffer is not piece:
                    buffer.copy_(piece)
            self._dist.all_to_all(landing, packed, group=self._group)
            for buffer, piece in zip(landing, coming, strict=True):
                if buffer is not piece:
                    piece.copy_(buffer)

        return call

    def _all_reduce(self, stack: Tensor) -> Call:
        """One all-reduce if the piece of all ranks has no gaps, else one for each rank's part."""
        parts = [stack] if stack.is_contiguous() else list(stack)
        calls = [self._reduced(part) for part in parts]

        def call() -> None:
            for each in calls:
                each()

        return call

    def _reduced(self, part: Tensor) -> Call:
        if part.is_contiguous():
            return lambda: self._dist.all_reduce(part, group=self._group)
        packed = torch.empty_like(part, memory_format=torch.contiguous_format)

        def call() -> None:
            packed.copy_(part)
            self._dist.all_reduce(packed, group=self._group)
            part.copy_(packed)

        return call


def _contiguous(piece: Tensor) -> Tensor:
    """*piece*, or an unwritten tensor without gaps of its shape."""
    return piece if piece.is_contiguous() else torch.empty_like(piece, memory_format=torch.contiguous_format)


def _rows(stack: Tensor) -> Tensor:
    """*stack* [ranks, rows, width] without gaps as one matrix."""
    return stack.view(-1, stack.shape[-1])


def is_by_library(context: Context) -> bool:
    """Whether collectives of the library move the pieces."""
    return bool((context.plan.kind == Kind.COLLECTIVE).any())


# One call: the launches of the Plan on their streams.


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceLaunch:
    """One launch of the Plan: steps that are enqueued together."""

    ops: tuple[EnqueuedStep, ...]
    after: tuple[int, ...]
    """Launches on other streams, by their row in the Plan, that must run before it."""
    waits: Call | None
    """Waits on the stream for pieces of peers or of our own kernel; None: it waits for none."""
    acts: Call
    meets: bool = False
    """Whether it begins behind the meeting of ranks: it puts to a peer, or reads the number of the call.

    Where operands come in, everything does: the first copy would begin later than it does after a meeting alone.
    """

    @property
    def stream(self) -> int:
        return self.ops[0].stream

    @property
    def number(self) -> int:
        """Row of the Plan's launches."""
        return self.ops[0].launch


Enqueued = tuple[StreamSet, Call | None, Sequence[PieceLaunch], Call | None]
"""One call: its streams, the meeting of ranks, the launches, and what runs after the streams have joined."""
Seconds = Mapping[int, tuple[float, float]]
"""Start and end of each launch, from the common start."""
SpanMaker = Callable[[Seconds, timeline.Ints, int, float], list[Span]]
"""Makes spans from these, the record of the kernels, the common start in nanoseconds, and the clock's tick in
seconds."""


def kernels(context: Context, operands: Operands, part: str) -> list[LaunchableKernel]:
    """Our GEMM, if one launch computes all pieces."""
    if part == "communication" or not gemm_pieces.is_one_launch(context.plan):
        return []
    order = pieces.order(context.plan, context.rank, part)
    return [gemm_pieces.kernel(context, Rectangles(context, staged=is_staged(context)), order, operands)]


def calls(context: Context, sets: Sequence[Operands], part: str, group: Any) -> OperandCalls:
    """One call for each of *sets*, on streams that all of them share."""
    order = pieces.order(context.plan, context.rank, part)
    stream_set = streams(order.streams, context.device)
    places, result = _places(context, group)
    if part != "whole":  # not zeros, which take less power, so that the GPU would clock higher
        context.local.normal_()
        context.of(context.rank, "operand" if context.receives else "out").normal_()
    built = [_PieceLaunches(context, order, places, operands) for operands in sets]
    each = [partial(enqueue, stream_set, call.first, call.launches, call.final) for call in built]
    return OperandCalls(each, result, [(stream_set, call) for call in built])


def _places(context: Context, group: Any) -> tuple[Rectangles, Tensor]:
    """The memory of pieces, and the result."""
    if is_by_library(context):
        library = CollectiveBuffers(context, group)
        return library, library.out
    return Rectangles(context, staged=is_staged(context)), context.result()


def enqueue(
    stream_set: StreamSet, first: Call | None, launches: Sequence[PieceLaunch], final: Call | None,
    watch: Callable[[PieceLaunch, Callable[[], None]], None] | None = None,
) -> None:  # fmt: skip
    """Enqueues one call: *first*, then every launch on its stream, then *final* after all streams have joined.

    Where not every launch `meets`, *first* is on a stream that copies, and only those that do wait for it.
    """
    apart = not all(launch.meets for launch in launches)
    if first is not None and not apart:
        first()
    stream_set.fork()
    number = next((each.stream for each in launches if each.ops[0].kind is Kind.PUT), MAIN)
    met, behind = None, {number}
    if first is not None and apart:
        with stream_set.on(number):
            first()
        met = stream_set.mark(number)
    crossed = {other for launch in launches for other in launch.after}
    events: dict[int, Any] = {}
    for launch in launches:
        if met is not None and launch.meets and launch.stream not in behind:
            stream_set.after(launch.stream, met)
            behind.add(launch.stream)
        for other in launch.after:
            stream_set.after(launch.stream, events[other])
        with stream_set.on(launch.stream):
            if launch.waits is not None:
                launch.waits()
            if watch is not None:
                watch(launch, launch.acts)
            else:
                launch.acts()
        if launch.number in crossed:
            events[launch.number] = stream_set.mark(launch.stream)
    stream_set.join()
    if final is not None:
        final()


def with_pause(launches: Sequence[PieceLaunch], pause: Call, *, meets: bool) -> list[PieceLaunch]:
    """*launches*; the first computation of a second stream comes after a *pause* if it waits for nothing else.

    Computations that are ready at the same time start in any order, and a copy would wait for one that runs second.
    Where ranks meet, the first stream pauses, too, and the second one twice as long: a full grid that began before the
    warp that meets peers would hold up every copy.
    """
    first = {launch.stream: launch for launch in reversed(launches) if launch.ops[0].kind is Kind.COMPUTE}
    ready = {stream: each for stream, each in first.items() if each.waits is None and not each.after}
    pauses = {each.number: int(stream != MAIN) + int(meets and not each.meets) for stream, each in ready.items()}
    return [replace(each, waits=_in_order([pause] * pauses[each.number])) if pauses.get(each.number) else each
            for each in launches]  # fmt: skip


class _PieceLaunches:
    """The launches of one call over one set of operands."""

    def __init__(self, context: Context, order: EnqueueOrder, places: Rectangles, operands: Operands) -> None:
        self._context, self._places, self._operands = context, places, operands
        self._is_one_launch = gemm_pieces.is_one_launch(context.plan)
        self._transfers = PieceTransfers(context, places)
        self._counters = context.addresses("counters")
        self._spared = int(context.plan.schedule.get("comm_sms") or 0)
        grouped: dict[int, list[EnqueuedStep]] = {}
        for op in order.ops:
            grouped.setdefault(op.launch, []).append(op)
        self._order = order
        of_step = {op.step: op for op in order.ops}
        meets = bool((context.plan.kind == Kind.PUT).any()) and any(op.kind is not Kind.COMPUTE for op in order.ops)
        launches = [self._launch(tuple(ops), of_step) for ops in grouped.values()]
        self.launches = with_pause(launches, self._waits_for([]), meets=meets and not context.receives)
        sums = self._is_one_launch and not context.receives and any(op.awaits for op in order.of(Kind.COMPUTE))
        if sums and context.device.type == "cpu":
            self.launches = self._interpreted()
        self.first = self._begin() if meets else None
        self.final = self._waits([(number, 1) for number in order.last])

    def _interpreted(self) -> list[PieceLaunch]:
        """The launches for interpreted ranks, which run one kernel at a time: own sums come after all contributions."""
        (gemm,) = (launch for launch in self.launches if launch.ops[0].kind is Kind.COMPUTE)
        puts = [launch for launch in self.launches if launch is not gemm]
        contributions = [launch for launch in puts if launch.ops[0].blocks[0].chunk != self._context.rank]
        halves = [replace(gemm, acts=self._kernel(summed=summed)) for summed in (False, True)]
        return [halves[0], *contributions, halves[1], *(launch for launch in puts if launch not in contributions)]

    def _kernel(self, *, summed: bool | None = None) -> Call:
        """The launch of our GEMM."""
        kernel = gemm_pieces.kernel(self._context, self._places, self._order, self._operands, summed=summed)
        return kernel.launcher(interpreted=1)

    def _begin(self) -> Call:
        context, credits = self._context, self._context.addresses("credits")
        return lambda: begin[(1,)](
            credits, context.epoch, context.error, context.limit_ns, context.rank, WORLD=context.world, num_warps=1
        )

    def _waits(self, awaited: Sequence[tuple[int, int]]) -> Call | None:
        """Waits for counters of this rank, given as (number, increase per call); None if there are none."""
        return self._waits_for(awaited) if awaited else None

    def _waits_for(self, awaited: Sequence[tuple[int, int]]) -> Call:
        """As `_waits`, but always a launch of one warp."""
        context = self._context
        numbers = torch.tensor(awaited, dtype=torch.int32, device=context.device)
        return lambda: arrived[(1,)](
            self._counters, numbers, len(numbers), context.epoch, context.error, context.limit_ns, context.rank,
            num_warps=1,
        )  # fmt: skip

    def _launch(self, ops: tuple[EnqueuedStep, ...], of_step: dict[int, EnqueuedStep]) -> PieceLaunch:
        computes = ops[0].kind is Kind.COMPUTE
        inside = self._is_one_launch and computes  # our kernel waits for pieces itself
        needed = [of_step[step] for op in ops for step in op.after if of_step[step].launch != op.launch]
        counted = [op for op in needed if self._is_one_launch and op.kind is Kind.COMPUTE]
        across = {op.launch for op in needed if op not in counted and op.stream != ops[0].stream}
        awaited = [] if inside else [(number, 1) for op in ops for number in op.awaits]
        awaited += [gemm_pieces.unit(self._context.plan, op) for op in ops if counted]
        meets = self._context.receives or inside or bool(awaited) or ops[0].kind is Kind.PUT
        return PieceLaunch(
            ops=ops, after=tuple(sorted(across)), waits=self._waits(awaited), acts=self._acts(ops), meets=meets
        )

    def _acts(self, ops: tuple[EnqueuedStep, ...]) -> Call:
        kind = ops[0].kind
        if kind is Kind.COMPUTE:
            if self._is_one_launch:
                return self._kernel()
            products = [product for op in ops for product in self._places.products(op, self._operands)]
            return on_fewer(_in_order(products), self._spared, self._context.device)
        if kind is Kind.PUT:
            return self._transfers.puts(ops, self._operands)
        if kind is Kind.REDUCE:
            return _in_order([Sums(self._context, *self._places.summed(op)) for op in ops])
        if kind is Kind.COLLECTIVE:
            assert isinstance(self._places, CollectiveBuffers)
            return _in_order([self._places.collective(op, self._operands) for op in ops])
        return _in_order([])  # what the library leaves in its buffer is read there


def _in_order(acts: Sequence[Call]) -> Call:
    def act() -> None:
        for each in acts:
            each()

    return act


def watched(context: Context, timed: OperandCalls) -> WatchedCalls:
    """The same calls with events before and after each launch, which are graph nodes and occupy no SM."""

    def make_spans(seconds: Seconds, words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        return timeline.of_launches(context.plan, context.rank, seconds, max(tick_s, timeline.EVENT_TICK_S))

    calls = [(stream_set, call.first, call.launches, call.final) for stream_set, call in timed.components]
    return by_events(calls, torch.zeros(1, dtype=torch.int64, device=context.device), make_spans)


def by_events(calls: Sequence[Enqueued], written: Tensor, make_spans: SpanMaker) -> WatchedCalls:
    """*calls* with events around each launch; *make_spans* makes spans from the events and *written*.

    *written* int64: the first value becomes the time at which a call begins; kernels may write the others.
    """
    moments: dict[int, tuple[Any, Any]] = {}
    origin: list[Any] = []
    kept: list[Any] = []  # a graph records all of its events as long as it lives

    def call(stream_set: StreamSet, first: Call | None, launches: Sequence[PieceLaunch], final: Call | None) -> None:
        write_now[(1,)](written, num_warps=1)
        stream_set.fork()
        origin[:] = [stream_set.mark(MAIN, timed=True)]
        kept.append(origin[0])

        def timed_launch(launch: PieceLaunch, acts: Call) -> None:
            before = stream_set.mark(launch.stream, timed=True)
            acts()
            both = before, stream_set.mark(launch.stream, timed=True)
            moments.update(dict.fromkeys((op.launch for op in launch.ops), both))
            kept.append(both)

        enqueue(stream_set, first, launches, final, timed_launch)

    def spans(words: timeline.Ints, start_ns: int, tick_s: float) -> list[Span]:
        offset_s = float(words[0] - start_ns) / 1e9

        def at(event: Any) -> float:
            return offset_s + float(origin[0].elapsed_time(event)) / 1e3

        seconds = {launch: (at(begin), at(end)) for launch, (begin, end) in moments.items()}
        return make_spans(seconds, words, start_ns, tick_s)

    return WatchedCalls([partial(call, *each) for each in calls], written, spans)
