"""Our own collectives: between two meetings each rank pushes shares to its peers, which sum them if needed.

`direct` pushes with stores of the SMs, `copy_engine` with copy engines: the same bytes to the same places. Stores of
SMs meet inside their kernel, unless a computation runs at the same time: what starts on whatever SMs are free waits for
no peer. Sums are a second kernel: only the last thread block of a rank waits for the peers' shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kernels.backends.triton.kernels.copy import put_rows, sum_shares
from kernels.backends.triton.launch import TRITON_DTYPES, Call, LaunchableKernel
from kernels.backends.triton.memory import Context
from kernels.backends.triton.timing import StreamBarrier
from kernels.operators import OPERATORS
from kernels.operators.base import Flow, ResultLayout


@dataclass(frozen=True, slots=True)
class CopyBlock:
    """The tile that one thread block copies at once: *rows* x *columns* values, by *warps* warps."""

    rows: int
    columns: int
    warps: int


MANY = CopyBlock(16, 256, 8)
"""8 KiB of two-byte values, two stores of 16 bytes per thread: several such thread blocks share an SM."""
FEW = CopyBlock(64, 512, 32)
"""64 KiB: a thread block has an SM to itself and hides the latency alone. One block of `MANY` moves 6 GB/s (H200)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrentMode:
    """How a collective is launched while a computation runs at the same time."""

    blocks: int = 0
    """Largest number of thread blocks; 0: as many as there is work for."""
    lanes: Iterable[torch.cuda.Stream] | None = None
    """Streams for the copies of copy engines; None: streams of the collective itself."""

    @property
    def block(self) -> CopyBlock:
        """Tile that each of its thread blocks copies at once."""
        return FEW if self.blocks else MANY

    def __call__(self, kernel: LaunchableKernel) -> LaunchableKernel:
        """*kernel*, which waits for no peer, launched so that it starts on whatever SMs are free."""
        return replace(kernel, concurrent=True, grid=self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLayout:
    """Which rows of *source* [rows, width] go where: sizes in elements."""

    source: Tensor
    source_step: int
    """Distance from one rank's share to the next; 0: all ranks get the same rows."""
    target: str
    target_step: int
    """Distance in the target from one rank's share to the next."""
    target_stride: int
    rows: int
    """Rows of one share."""
    width: int


def layout(context: Context, source: Tensor) -> RowLayout:
    """Row layout of the operator's collective; *source* is what this rank computed, or its operand."""
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


def direct(context: Context, source: Tensor, mode: ConcurrentMode | None = None) -> Call:
    """A call that pushes the shares with stores of the SMs."""
    where = layout(context, source)
    if mode is not None:
        return between_barriers(context, mode(put_kernel(context, where, mode.block)).launcher(), mode)
    push, total = put_kernel(context, where, meets=True).launcher(), sums(context)
    if total is None:
        return push

    def call() -> None:
        push()
        total()

    return call


def put_kernel(context: Context, where: RowLayout, block: CopyBlock = MANY, *, meets: bool = False) -> LaunchableKernel:
    """Launch of `put_rows` over the rows of *where*; *meets*: the ranks meet inside it, before and after the stores.

    A kernel that meets waits for peers: it must not be launched as a concurrent one.
    """
    meeting = (context.addresses("meet"), context.met, context.arrived, context.error) if meets else (None,) * 4
    blocks = -(-where.rows // block.rows) * -(-where.width // block.columns)
    return LaunchableKernel(
        function=put_rows,
        arguments=(where.source, context.addresses(where.target), where.rows, where.width, where.source_step,
                   where.target_step, where.target_stride, context.rank, *meeting, context.limit_ns),
        constants={"WORLD": context.world, "BLOCK_M": block.rows, "BLOCK_N": block.columns,
                   "DTYPE": TRITON_DTYPES[context.problem.dtype], "MEETS": meets},
        num_warps=block.warps,
        items=blocks * context.world,
    )  # fmt: skip


def lanes(context: Context) -> list[torch.cuda.Stream]:
    """Streams for the copies of one trial, shared by all of its sets of operands.

    One for each share, and one more: torch hands out streams from a pool of 32 in turn, so one of them may be the
    stream that the calls run on, which `at_once` leaves out.
    """
    return [torch.cuda.Stream(context.device) for _ in range(context.world + 1)]


def copies(
    context: Context, source: Tensor, streams: Iterable[torch.cuda.Stream], mode: ConcurrentMode | None = None
) -> Call:
    """A call that pushes all shares at once with copy engines; each share is contiguous on both sides.

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
    return between_barriers(context, lambda: at_once(pairs, streams, context.device), mode)


def at_once(pairs: Sequence[tuple[Tensor, Tensor]], streams: Iterable[torch.cuda.Stream], device: torch.device) -> None:
    """Copies each (target, source) pair on its own stream; the current stream continues when all are done.

    *streams*: one more than *pairs*, all different; the current stream, or else the last one, copies nothing.
    """
    current = torch.cuda.current_stream(device)
    others = [stream for stream in streams if stream != current][: len(pairs)]
    for stream, (target, source) in zip(others, pairs, strict=True):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            target.copy_(source)
    for stream in others:
        current.wait_stream(stream)


def between_barriers(context: Context, push: Call, mode: ConcurrentMode | None = None) -> Call:
    """A call that runs *push* between two barriers of all ranks, and then sums the shares if the operator reduces."""
    barrier, total = StreamBarrier(context), sums(context, mode)

    def call() -> None:
        barrier()
        push()
        barrier()
        if total is not None:
            total()

    return call


def sums(context: Context, mode: ConcurrentMode | None = None) -> Call | None:
    """A call that sums the shares which have arrived; None where the operator sums none."""
    if not OPERATORS[context.problem.operator].reduces:
        return None
    kernel = sum_kernel(context, context.of(context.rank, "stage"), mode.block if mode else MANY)
    return (mode(kernel) if mode else kernel).launcher()


def sum_kernel(context: Context, stage: Tensor, block: CopyBlock = MANY) -> LaunchableKernel:
    """Launch of `sum_shares`, which sums *stage* into this rank's output."""
    out, values = context.of(context.rank, "out"), block.rows * block.columns
    return LaunchableKernel(
        function=sum_shares,
        arguments=(stage, out, out.numel()),
        constants={"WORLD": context.world, "BLOCK": values},
        num_warps=block.warps,
        items=-(-out.numel() // values),
    )
