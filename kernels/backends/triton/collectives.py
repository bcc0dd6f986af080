"""Collectives that we make ourselves between two meetings: everybody's share is pushed to it, and summed where asked.

`direct` pushes by stores of the SMs, `copy_engine` by copy engines: the same bytes to the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.backends.triton.kernels.copy import put_rows, sum_shares
from kernels.backends.triton.launch import TRITON_DTYPES, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.timing import StreamBarrier
from kernels.operators import OPERATORS
from kernels.operators.base import Flow, ResultLayout

Call = Callable[[], None]


@dataclass(frozen=True, slots=True)
class CopyBlock:
    """What a thread block has on its way at once: *rows* of *columns* values, by *warps*."""

    rows: int
    columns: int
    warps: int


MANY = CopyBlock(16, 256, 8)
"""8 KiB of two-byte values, two stores of 16 bytes by each thread: several such blocks share an SM."""
FEW = CopyBlock(64, 512, 32)
"""64 KiB: a block has an SM to itself, and hides the memory's latency alone. One of `MANY` moves 6 GB/s (H200)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentMode:
    """How a collective works where a computation runs at the same time."""

    blocks: int = 0
    """That it has at most; 0: as many as there is work for."""
    lanes: Iterable[torch.cuda.Stream] | None = None
    """What copy engines are given their work on; None: streams of the collective's own."""

    @property
    def block(self) -> CopyBlock:
        """Of each of its blocks."""
        return FEW if self.blocks else MANY

    def __call__(self, kernel: LaunchableKernel) -> LaunchableKernel:
        """*kernel*, which waits for nobody, begins with the SMs that it finds free."""
        return replace(kernel, beside=True, grid=self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Which rows of *source* [rows, width] go where: sizes in elements."""

    source: Tensor
    source_step: int
    """From one rank's share to the next; 0: all get the same."""
    target: str
    target_step: int
    """From where one rank's share lies in the target to the next."""
    target_stride: int
    rows: int
    """Of one share."""
    width: int


def layout(context: Context, source: Tensor) -> RowLayout:
    """Of the operator's own collective: *source* is what this rank computed, or the operand that it has."""
    operator, world = OPERATORS[context.problem.operator], context.world
    rows, width = operator.chunk_rows(context.problem), source.shape[-1]
    share = rows * width
    target, step, stride = "out", share, width
    if operator.flow is Flow.RECEIVE:
        target = "operand"
    elif operator.reduces:
        target = "stage"
    elif operator.layout is ResultLayout.COLUMNS:
        step, stride = width, world * width
    same = operator.collective == "all_gather"
    return RowLayout(source=source, source_step=0 if same else share, target=target, target_step=step,
                  target_stride=stride, rows=rows, width=width)  # fmt: skip


def direct(context: Context, source: Tensor, beside: ConcurrentMode | None = None) -> Call:
    """Shares leave by stores of the SMs."""
    kernel = put_kernel(context, layout(context, source), beside.block if beside else MANY)
    return between_meetings(context, (beside(kernel) if beside else kernel).launcher(), beside)


def put_kernel(context: Context, where: RowLayout, block: CopyBlock = MANY) -> LaunchableKernel:
    """`put_rows` over *where*."""
    blocks = -(-where.rows // block.rows) * -(-where.width // block.columns)
    return LaunchableKernel(
        function=put_rows,
        arguments=(where.source, context.addresses(where.target), where.rows, where.width, where.source_step,
                   where.target_step, where.target_stride, context.rank),
        constants={"WORLD": context.world, "BLOCK_M": block.rows, "BLOCK_N": block.columns,
                   "DTYPE": TRITON_DTYPES[context.problem.dtype]},
        num_warps=block.warps,
        items=blocks * context.world,
    )  # fmt: skip


def lanes(context: Context) -> list[torch.cuda.Stream]:
    """Streams for the copies of one trial, whichever set of operands it takes.

    One for each share, and one more: torch deals streams from a pool of 32 in turn, so one of them may be the stream
    that the calls run on, and `at_once` leaves that out.
    """
    return [torch.cuda.Stream(context.device) for _ in range(context.world + 1)]


def copies(
    context: Context, source: Tensor, streams: Iterable[torch.cuda.Stream], beside: ConcurrentMode | None = None
) -> Call:
    """Shares leave by copy engines, all at once: each is without gaps on both sides, or copy_engine is not offered.

    *streams*: the trial's `lanes`.
    """
    where = layout(context, source)
    share = where.rows * where.width
    order = [(context.rank + step) % context.world for step in range(context.world)]
    begin = context.rank * where.target_step
    pairs = [
        (context.of(peer, where.target).view(-1)[begin : begin + share],
         where.source.view(-1)[peer * where.source_step : peer * where.source_step + share])
        for peer in order
    ]  # fmt: skip
    return between_meetings(context, lambda: at_once(pairs, streams, context.device), beside)


def at_once(pairs: Sequence[tuple[Tensor, Tensor]], streams: Iterable[torch.cuda.Stream], device: torch.device) -> None:
    """Copies each (target, source) on a stream of its own; the current stream goes on when all are done.

    *streams*: one more than *pairs*, all different; the current one, or the last, copies nothing.
    """
    current = torch.cuda.current_stream(device)
    others = [stream for stream in streams if stream != current][: len(pairs)]
    for stream, (target, source) in zip(others, pairs, strict=True):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            target.copy_(source)
    for stream in others:
        current.wait_stream(stream)


def between_meetings(context: Context, push: Call, beside: ConcurrentMode | None = None) -> Call:
    """Nobody pushes before all are here, nobody goes on before all have pushed; then sums are made."""
    meeting = StreamBarrier(context)
    operator = OPERATORS[context.problem.operator]
    stage = context.of(context.rank, "stage") if operator.reduces else None
    total: Call | None = None
    if stage is not None:
        summed = sum_kernel(context, stage, beside.block if beside else MANY)
        total = (beside(summed) if beside else summed).launcher()

    def call() -> None:
        meeting()
        push()
        meeting()
        if total is not None:
            total()

    return call


def sum_kernel(context: Context, stage: Tensor, block: CopyBlock = MANY) -> LaunchableKernel:
    """`sum_shares` of *stage* into this rank's output."""
    out, values = context.of(context.rank, "out"), block.rows * block.columns
    return LaunchableKernel(
        function=sum_shares,
        arguments=(stage, out, out.numel()),
        constants={"WORLD": context.world, "BLOCK": values},
        num_warps=block.warps,
        items=-(-out.numel() // values),
    )
