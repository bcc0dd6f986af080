"""Puts of decomposed calls, by a copy engine or by SMs, each with its signal behind; and sums of what they brought."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kernels.backends.triton import shares
from kernels.backends.triton.branches import Op
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.piece import put_pieces, sum_pieces
from kernels.backends.triton.launch import TRITON_DTYPES
from kernels.backends.triton.rectangles import Rectangles
from kernels.backends.triton.streams import copy
from kernels.reference import Operands

Call = Callable[[], None]


class Moved:
    """What moves the pieces of one trial."""

    def __init__(self, context: Context, places: Rectangles) -> None:
        self._context, self._places = context, places
        self._programs = int(context.plan.schedule.get("comm_sms") or 0)

    def puts(self, ops: Sequence[Op], operands: Operands) -> Call:
        """*ops* one after the other."""
        return self._by_sms(ops, operands) if self._programs else self._by_engine(ops, operands)

    def _by_engine(self, ops: Sequence[Op], operands: Operands) -> Call:
        """The epoch travels as the data do, behind them on one stream, so that it is not there before them."""
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

    def _by_sms(self, ops: Sequence[Op], operands: Operands) -> Call:
        """All of them in one kernel."""
        context = self._context
        pairs = [self._places.move(op, operands) for op in ops]
        (target, source), table = pairs[0], []
        base, name = _base(source), self._places.lands_in(ops[0])
        for op, (there, here) in zip(ops, pairs, strict=True):
            begins = (here.data_ptr() - base.data_ptr()) // here.itemsize
            lands = (there.data_ptr() - context.of(op.peer, name).data_ptr()) // there.itemsize
            table.append((op.peer, begins, lands, *here.shape, op.raises))
        puts = torch.tensor(table, dtype=torch.int64, device=context.device)
        done = torch.zeros(len(table), dtype=torch.int32, device=context.device)
        addresses, counters = context.addresses(name), context.addresses("counters")
        programs = 1 if context.device.type == "cpu" else self._programs
        return lambda: put_pieces[(programs,)](
            base, source.stride(0), addresses, target.stride(0), puts, len(table), counters, done,
            BLOCK_M=shares.FEW.rows, BLOCK_N=shares.FEW.columns, DTYPE=TRITON_DTYPES[context.problem.dtype],
            num_warps=shares.FEW.warps,
        )  # fmt: skip


def _base(view: Tensor) -> Tensor:
    """All of the memory that *view* is of, as a flat tensor."""
    return view.as_strided((1,), (1,), 0)


class Sums:
    """The sum over ranks of one piece."""

    def __init__(self, context: Context, stage: Tensor, out: Tensor) -> None:
        ranks, rows, width = stage.shape
        block = shares.MANY
        blocks = -(-rows // block.rows) * -(-width // block.columns)
        self._grid = 1 if context.device.type == "cpu" else blocks
        self._arguments = stage, stage.stride(0), out, rows, width, out.stride(0)
        self._world = ranks

    def __call__(self) -> None:
        block = shares.MANY
        sum_pieces[(self._grid,)](
            *self._arguments, WORLD=self._world, BLOCK_M=block.rows, BLOCK_N=block.columns, num_warps=block.warps
        )
