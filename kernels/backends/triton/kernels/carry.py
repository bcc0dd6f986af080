"""A courier: a small kernel next to a GEMM that puts its slices to other hosts, and brings in what arrives from them.

A GEMM that put by itself would need registers that its tiles need, and its programs would wait for the network. So it
raises counters, as for copies by other streams, and the courier runs on SMs that the GEMM leaves free.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from kernels.backends.triton import device
from kernels.backends.triton.gin import transport
from kernels.backends.triton.gin.context import NetworkContext
from kernels.backends.triton.gin.table import SliceTable, slice_of
from kernels.backends.triton.kernels import gemm_pieces
from kernels.backends.triton.launch import LaunchableKernel
from kernels.backends.triton.pieces import EnqueueOrder, counter_of
from kernels.operators import OPERATORS
from kernels.operators.base import ResultLayout
from kernels.plan import Kind
from kernels.schemes.base import above

COURIERS, WARPS = 8, 4
"""Programs of a courier where the schedule names no `comm_sms`, one on each SM that is left free, and their warps."""
COPIED_MOST = 2048
"""Most elements of a row that landed and that a program copies at once."""


@triton.jit(do_not_specialize=["rank", "limit_ns"])
def carry(
    network, calls, slices, num_slices, arrivals, landing, out, counters_at, columns, chunk, stride, step, arrived,
    error, limit_ns, rank,
    WORLD: tl.constexpr, COPIED: tl.constexpr, RECEIVES: tl.constexpr,
):  # fmt: skip
    """Puts each of *slices* [num_slices, SLICE_WORDS] when its tiles are done, then waits for all of *arrivals*.

    What arrives is copied into *out* (see `transport.copy_landed`); with RECEIVES it stays, and raises the counter that
    the GEMM's tiles wait for. The words of both tables are those of `transport.py`.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    deadline, call = device.deadline_after(limit_ns), (tl.load(calls) + 1).to(tl.int32)
    counters = device.peer(counters_at, rank, tl.int32)
    for at in range(program, num_slices, programs):
        entry = slices + at * transport.SLICE_WORDS
        counter = tl.load(entry + transport.COUNTER).to(tl.int32)
        if counter >= 0:
            expected = tl.load(entry + transport.TILES).to(tl.int32) * call
            device.wait(counters + counter, expected, deadline, error, rank, device.PIECE, counter)
        transport.put_slice(network, calls, entry, tl.load(entry + transport.OWNER).to(tl.int32), error)
    if RECEIVES:
        raise_arrived(network, calls, arrivals, counters, deadline, error, rank, program, programs)
    else:
        transport.copy_landed(network, calls, landing, out, arrivals, chunk, columns, stride, step, deadline, error,
                              rank, program, programs, WORLD, COPIED)  # fmt: skip
    transport.finish(network, calls, None, arrived, deadline, error, rank, programs)


@triton.jit
def raise_arrived(network, calls, arrivals, counters, deadline, error, rank, program, programs):
    """Raises this rank's counter of each of *arrivals* (int32, ARRIVAL_WORDS) when it has landed."""
    for at in range(program, tl.load(network + transport.ARRIVALS).to(tl.int32), programs):
        entry = arrivals + at * transport.ARRIVAL_WORDS
        transport.arrive(network, calls, entry, tl.full((), -1, tl.int32), deadline, error, rank)
        device.signal_here(counters + tl.load(entry + transport.RAISES))


def kernel(context: NetworkContext, order: EnqueueOrder) -> LaunchableKernel:
    """Launch of `carry` for one trial, whose GEMM computes the steps of *order*."""
    operator = OPERATORS[context.problem.operator]
    extent, chunk = operator.extent(context.problem), operator.chunk_rows(context.problem)
    columns, by_rows = extent.columns, operator.layout is ResultLayout.ROWS
    leaving, arriving = _leaving(context, order), _arriving(context)
    programs = int(context.plan.schedule.get("comm_sms") or COURIERS)
    return LaunchableKernel(
        function=carry,
        arguments=(
            context.network(len(arriving)), context.calls,
            torch.tensor(leaving, dtype=torch.int64, device=context.device), len(leaving),
            torch.tensor(arriving, dtype=torch.int32, device=context.device), context.of(context.rank, "landing"),
            context.result(), context.addresses("counters"), columns, chunk,
            columns if by_rows else context.world * columns, chunk * columns if by_rows else columns,
            context.arrived, context.error, context.limit_ns, context.rank,
        ),
        constants={"WORLD": context.world, "COPIED": min(COPIED_MOST, above(columns)), "RECEIVES": context.receives},
        num_warps=WARPS,
        num_stages=1,
        items=max(1, len(leaving) + len(arriving)),
        grid=programs,
        concurrent=True,
        libraries=context.libraries,
    )  # fmt: skip


def spared(context: NetworkContext) -> int:
    """SMs that the GEMM leaves to the courier."""
    return int(context.plan.schedule.get("comm_sms") or COURIERS)


def _leaving(context: NetworkContext, order: EnqueueOrder) -> list[list[int]]:
    """The slices that this rank puts, in the order of the plan, with the counters of their tiles."""
    entries = []
    for op in order.of(Kind.PUT):
        number = _number(context.table, op.blocks[0].row_start)
        counter, tiles = (-1, 0) if context.receives else gemm_pieces.unit(context.plan, op)
        entries.append(context.leaving(op.peer, number, tiles=tiles, counter=counter))
    return entries


def _arriving(context: NetworkContext) -> Sequence[list[int]]:
    """What arrives: blocks of rows to copy, or whole slices with the counter that each raises."""
    if not context.receives:
        return context.arriving()
    plan, table = context.plan, context.table
    counters = {(int(plan.rank[step]), _number(table, int(plan.row_start[step]))): counter_of(plan, int(step))
                for step in plan.arrivals(context.rank)}  # fmt: skip
    height = max(stop - start for start, stop in table.rows)
    return [[*words[:-1], counters[words[0], words[1]]] for words in context.arriving(height)]


def _number(table: SliceTable, row: int) -> int:
    """Number of the slice that begins at *row* of a chunk."""
    return int(slice_of(table, torch.tensor([row]).numpy())[0])
