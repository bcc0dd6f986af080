"""Calls of fused GEMMs whose ranks are on several hosts: the GEMM on its stream, and its courier on another.

Both begin together. Where results are sent the GEMM raises a counter for each slice, and the courier puts it. Where
operands are received the courier puts own rows at once, and raises a counter for each slice that has landed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.backends.triton import pieces
from kernels.backends.triton.gin.context import NetworkContext
from kernels.backends.triton.kernels import carry, gemm_pieces
from kernels.backends.triton.launch import Call, LaunchableKernel
from kernels.backends.triton.pieces import Rectangles
from kernels.backends.triton.schemes import OperandCalls
from kernels.backends.triton.streams import MAIN, StreamSet, streams
from kernels.reference import Operands
from kernels.schedule import Refusal
from kernels.schemes import fused
from kernels.schemes.axis_rules import GIN

COURIER = 1
"""Number of the courier's stream, whose priority is high: it is small, and the network waits for it."""


@dataclass(frozen=True, slots=True)
class CarriedCall:
    """One call on one set of operands."""

    context: NetworkContext
    operands: Operands
    gemm: Call
    courier: Call
    streams: StreamSet

    def __call__(self) -> None:
        context = self.context
        context.epoch.add_(1)
        if context.receives:  # a put reads from the window, where a caller's rows do not lie
            context.of(context.rank, "stage").copy_(next(iter(self.operands.values())))
        self.streams.fork()
        # interpreted ranks run one after the other: whoever waits for the other one comes second
        enqueued = [(COURIER, self.courier), (MAIN, self.gemm)]
        for number, launch in enqueued if context.receives else reversed(enqueued):
            with self.streams.on(number):
                launch()
        self.streams.join()


def kernels(context: NetworkContext, operands: Operands) -> list[LaunchableKernel]:
    """The GEMM and its courier; results of peers' rows are computed into what leaves."""
    if not context.receives:
        context.local_in(lambda shape: context.of(context.rank, "stage").view(*shape))
    order = pieces.order(context.plan, context.rank)
    gemm = gemm_pieces.kernel(context, Rectangles(context, staged=False), order, operands)
    return [_as_scheduled(gemm, context), carry.kernel(context, order)]


def _as_scheduled(gemm: LaunchableKernel, context: NetworkContext) -> LaunchableKernel:
    """*gemm* with the warps, stages, stores and blocks of the schedule, of which the courier takes its share.

    Refusal where that leaves the GEMM no block.
    """
    schedule, couriers = context.plan.schedule, carry.spared(context)
    grid = schedule.count("grid")
    if 0 < grid <= couriers:
        raise Refusal(
            f"grid = {grid} is too small for transport = {GIN}, whose courier takes {couriers} of its blocks: "
            f"{grid} <= {couriers}. Accepted: more than {couriers}, or 0 for all that fit."
        )
    by_bulk = bool(gemm.constants["TMA"]) and schedule["store"] == fused.STORE
    return replace(
        gemm, num_warps=schedule.count("num_warps"), num_stages=schedule.count("num_stages"), spared=couriers,
        grid=max(0, grid - couriers), constants={**gemm.constants, "TMA": by_bulk},
    )  # fmt: skip


def calls(context: NetworkContext, sets: Sequence[Operands]) -> OperandCalls:
    """A call for each of *sets*, which share the courier and its tables."""
    stream_set = streams([(COURIER, 1)], context.device)
    by_set = [kernels(context, operands) for operands in sets]
    courier = by_set[0][1].launcher()
    each = [CarriedCall(context, operands, gemm.launcher(), courier, stream_set)
            for operands, (gemm, _) in zip(sets, by_set, strict=True)]  # fmt: skip
    return OperandCalls(each, context.result())
