"""Pieces that NCCL moves by a collective each, over ordinary memory: its captured calls hang on symmetric one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from kernels.backends.triton.branches import Op
from kernels.backends.triton.context import Context
from kernels.backends.triton.rectangles import Product, Rectangles, product, second
from kernels.operators import OPERATORS
from kernels.plan import Kind
from kernels.reference import Operands

Call = Callable[[], None]


class Collected(Rectangles):
    """Of one trial: a buffer for each collective, and the result."""

    def __init__(self, context: Context, group: Any) -> None:
        super().__init__(context, staged=False)
        self._group, self._dist = group, torch.distributed
        self._collective = OPERATORS[context.problem.operator].collective
        shape = OPERATORS[context.problem.operator].local(context.problem)["output"]
        self.out = self._empty(*shape) if not self._receives else context.local
        self._buffers: dict[int, Tensor] = {}

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*shape, dtype=self._context.dtype, device=self._context.device)

    def _number(self, op: Op) -> int:
        """Collectives and computations pair up."""
        return int(self._context.plan.index[op.step])

    def _buffer(self, op: Op) -> Tensor:
        """[ranks, rows, width] that the collective of *op*'s piece fills, or reads."""
        number, block, ranks = self._number(op), op.blocks[0], self._context.world
        width = slice(*self._span(op))
        if self._collective == "all_reduce":  # in place
            return self._by_rank(self.out)[:, block.rows, width]
        if number not in self._buffers:
            rows = block.row_stop - block.row_start
            self._buffers[number] = self._empty(ranks, rows, width.stop - width.start).normal_()
        return self._buffers[number]

    def _span(self, op: Op) -> tuple[int, int]:
        """Columns of what moves."""
        block = op.blocks[0]
        return (block.k_start, block.k_stop) if self._receives else (block.col_start, block.col_stop)

    def products(self, op: Op, operands: Operands) -> list[Product]:
        """One call for the piece of all ranks: own rows come and go as those of others do."""
        block, right = op.blocks[0], second(operands)
        buffer = self._buffer(op)
        if self._receives:
            into = self.local[:, block.rows, block.columns]
            return [product(buffer, right[block.k], into, adds=block.k_start > 0)]
        left = self.source(operands)[:, block.rows]
        return [product(left, right[:, block.columns], buffer, adds=False)]

    def collective(self, op: Op, operands: Operands) -> Call:
        """The call of the library; what has gaps is packed before and unpacked behind it."""
        block, buffer, group, dist = op.blocks[0], self._buffer(op), self._group, self._dist
        if self._receives:
            piece = self.source(operands)[:, block.rows, block.k]
            if self._collective == "all_gather":
                return self._packed(
                    piece[0], lambda here: dist.all_gather_into_tensor(_rows(buffer), here, group=group)
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
        """Each of *leaving* to its rank, *coming* from each; the library takes none with gaps."""
        packed = [one if one.is_contiguous() else torch.empty_like(one, memory_format=torch.contiguous_format)
                  for one in leaving]  # fmt: skip
        landing = [one if one.is_contiguous() else torch.empty_like(one, memory_format=torch.contiguous_format)
                   for one in coming]  # fmt: skip

        def call() -> None:
            for pack, one in zip(packed, leaving, strict=True):
                if pack is not one:
                    pack.copy_(one)
            self._dist.all_to_all(landing, packed, group=self._group)
            for one, land in zip(coming, landing, strict=True):
                if land is not one:
                    one.copy_(land)

        return call

    def _all_reduce(self, pieces: Tensor) -> Call:
        """One call where the piece of all ranks has no gaps, else one for each rank's."""
        parts = [pieces] if pieces.is_contiguous() else list(pieces)
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


def _rows(stack: Tensor) -> Tensor:
    """[ranks, rows, width] without gaps as one matrix."""
    return stack.view(-1, stack.shape[-1])


def is_by_library(context: Context) -> bool:
    """Whether collectives move the pieces."""
    return bool((context.plan.kind == Kind.COLLECTIVE).any())
