"""Decomposed calls piece by piece: the order in which a rank enqueues steps, and the memory that each step uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.backends.triton.memory import Context
from kernels.operators import OPERATORS
from kernels.operators.base import Flow
from kernels.plan import Kind, Plan
from kernels.reference import Operands

# What one call of a decomposed schedule enqueues on which stream, and in which order: a list derived from its Plan.


class PieceBlock(NamedTuple):
    """A piece of one rank's rows: start and stop of rows (inside the chunk), columns and contraction."""

    chunk: int
    row_start: int
    row_stop: int
    col_start: int
    col_stop: int
    k_start: int
    k_stop: int

    @property
    def rows(self) -> slice:
        return slice(self.row_start, self.row_stop)

    @property
    def columns(self) -> slice:
        return slice(self.col_start, self.col_stop)

    @property
    def k(self) -> slice:
        return slice(self.k_start, self.k_stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueuedStep:
    """One step of the Plan as one rank enqueues it."""

    step: int
    kind: Kind
    stream: int
    priority: int
    launch: int
    """Row of the Plan's launches; steps that are enqueued together have the same."""
    peer: int
    blocks: tuple[PieceBlock, ...]
    after: tuple[int, ...]
    """Steps of this rank that must run before it, on any stream."""
    awaits: tuple[int, ...]
    """Counters of this rank that must have risen: then the puts of peers have arrived."""
    raises: int
    """The counter of *peer* that rises when this put has arrived; -1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOrder:
    """Everything that one rank enqueues in one call, in the order of its capture."""

    ops: tuple[EnqueuedStep, ...]
    last: tuple[int, ...]
    """Counters that no step waits for, and which must rise before the call ends."""
    streams: tuple[tuple[int, int], ...]
    """Number and priority of each stream except number 0, the stream of the call."""

    def of(self, *kinds: Kind) -> list[EnqueuedStep]:
        """The steps of *kinds*, in order."""
        return [op for op in self.ops if op.kind in kinds]


def counter_of(plan: Plan, step: int) -> int:
    """Number of the counter on the receiver that the put *step* raises: one for each put of each sender."""
    return int(plan.rank[step]) * puts_most(plan) + int(plan.index[step])


def puts_most(plan: Plan) -> int:
    """Largest number of puts of one rank to one peer."""
    return int(plan.index[plan.kind == Kind.PUT].max(initial=-1)) + 1


def order(plan: Plan, rank: int, part: str = "whole") -> EnqueueOrder:
    """What *rank* enqueues of *part*: of the steps with all predecessors enqueued, the lowest turn goes first."""
    computes = plan.kind == Kind.COMPUTE
    kept = {"whole": computes | ~computes, "compute": computes, "communication": ~computes}[part]
    steps = [int(step) for step in plan.steps_of(rank) if kept[step]]
    remaining = [_op(plan, rank, step, kept) for step in sorted(steps, key=lambda step: int(plan.turn[step]))]
    enqueued: dict[int, EnqueuedStep] = {}
    while remaining:
        op = next(op for op in remaining if enqueued.keys() >= set(op.after))
        remaining.remove(op)
        enqueued[op.step] = op
    ops = tuple(enqueued.values())
    awaited = {counter for op in ops for counter in op.awaits}
    arrivals = [counter_of(plan, int(step)) for step in plan.arrivals(rank) if kept[step]]
    return EnqueueOrder(
        ops=ops,
        last=tuple(counter for counter in arrivals if counter not in awaited),
        streams=tuple(sorted({(op.stream, op.priority) for op in ops if op.stream})),
    )


def _op(plan: Plan, rank: int, step: int, kept: NDArray[np.bool_]) -> EnqueuedStep:
    """*step* of *rank* as it is enqueued; it waits for those predecessors that are *kept*."""
    needed = [int(other) for other in plan.waits_for(step) if kept[other]]
    puts = [other for other in needed if plan.rank[other] != rank and plan.kind[other] == Kind.PUT]
    launch, kind = int(plan.launch[step]), Kind(int(plan.kind[step]))
    return EnqueuedStep(
        step=step,
        kind=kind,
        stream=max(0, int(plan.launches.stream[launch])),
        priority=int(plan.launches.priority[launch]),
        launch=launch,
        peer=int(plan.peer[step]),
        blocks=_blocks(plan, step),
        after=tuple(other for other in needed if plan.rank[other] == rank),
        awaits=tuple(counter_of(plan, other) for other in puts),  # collectives of the library synchronize by themselves
        raises=counter_of(plan, step) if kind is Kind.PUT else -1,
    )


def _blocks(plan: Plan, step: int) -> tuple[PieceBlock, ...]:
    """Rectangles of *step*: one for each run of tiles of one chunk, or one of operand rows of the rank itself."""
    rank, span = int(plan.rank[step]), (int(plan.k_start[step]), int(plan.k_stop[step]))
    begin, end = int(plan.tile_start[step]), int(plan.tile_stop[step])
    if begin == end:
        return (PieceBlock(rank, int(plan.row_start[step]), int(plan.row_stop[step]), 0, 0, *span),)
    tiles, blocks = plan.tiles[rank], []
    changes = np.flatnonzero(np.diff(tiles.chunk[begin:end])) + begin + 1
    for first, last in zip([begin, *changes], [*changes, end], strict=True):
        run = slice(first, last)
        blocks.append(PieceBlock(
            int(tiles.chunk[first]), int(tiles.row_start[run].min()), int(tiles.row_stop[run].max()),
            int(tiles.col_start[run].min()), int(tiles.col_stop[run].max()), *span,
        ))  # fmt: skip
    return tuple(blocks)


def runs(blocks: Sequence[PieceBlock], rank: int) -> list[list[PieceBlock]]:
    """*blocks* of one step, grouped into calls of the library: neighbouring ranks together, *rank*'s own rows alone."""
    joined: list[list[PieceBlock]] = []
    for block in sorted(blocks):
        last = joined[-1][-1] if joined else None
        neighbours = last is not None and last.chunk + 1 == block.chunk and last[1:] == block[1:]
        if neighbours and rank not in (block.chunk, last.chunk if last else -1):
            joined[-1].append(block)
        else:
            joined.append([block])
    return joined


# The memory of each piece: what a GEMM reads and writes, and source and target of each copy.


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """*left* [.., m, k] x *right* [k, n] -> *into* [.., m, n], added to the values there if it *adds*."""

    left: Tensor
    right: Tensor
    into: Tensor
    adds: bool

    def __call__(self) -> None:
        if self.left.dim() == 2:
            if self.adds:
                self.into.addmm_(self.left, self.right)
            else:
                torch.mm(self.left, self.right, out=self.into)
            return
        right = self.right.expand(len(self.left), *self.right.shape)
        if self.adds:
            self.into.baddbmm_(self.left, right)
        else:
            torch.bmm(self.left, right, out=self.into)


def product(left: Tensor, right: Tensor, into: Tensor, *, adds: bool) -> MatrixProduct:
    """The product of stacks [ranks, .., ..]: as one matrix if the rows of both are evenly spaced, else as a batch."""
    rows, sums = _flat(left), _flat(into)
    if rows is None or sums is None:
        return MatrixProduct(left, right, into, adds)
    return MatrixProduct(rows, right, sums, adds)


def _flat(stack: Tensor) -> Tensor | None:
    """*stack* [ranks, rows, width] as one matrix, or None if its rows are not evenly spaced."""
    ranks, rows, width = stack.shape
    if ranks == 1 or stack.stride(0) == rows * stack.stride(1):
        return stack.as_strided((ranks * rows, width), stack.stride()[1:])
    return None


def right_operand(operands: Operands) -> Tensor:
    """The right operand of the product, [k, n]."""
    return list(operands.values())[1]


class Rectangles:
    """Tensors of one trial on one rank as [rank, row, column], by the rank that owns the rows."""

    def __init__(self, context: Context, *, staged: bool) -> None:
        """*staged*: contributions to a sum are kept by rank until they are summed, else each is added to the result."""
        self._context, self._rank, self._staged = context, context.rank, staged
        operator = OPERATORS[context.problem.operator]
        self._receives, self._reduces = operator.flow is Flow.RECEIVE, operator.reduces
        extent = operator.extent(context.problem)
        self._chunk, self._columns, self._contraction = (
            operator.chunk_rows(context.problem), extent.columns, extent.contraction
        )  # fmt: skip
        self.local = self._by_rank(context.local)

    def _by_rank(self, matrix: Tensor) -> Tensor:
        return matrix.view(-1, self._chunk, matrix.shape[-1])

    def source(self, operands: Operands) -> Tensor:
        """The operand whose rows are cut into pieces: one chunk of an all-gather, else one chunk per rank."""
        return self._by_rank(next(iter(operands.values())))

    def here(self, name: str, rank: int | None = None) -> Tensor:
        """Tensor *name* on *rank*, or on this one."""
        return self._by_rank(self._context.of(self._rank if rank is None else rank, name).flatten(0, -2))

    def result_of(self, rank: int) -> Tensor:
        """[chunk, columns] of *rank*'s result that *rank* sums or computes itself."""
        out = self.here("out", rank)
        return out[rank if len(out) > 1 else 0]

    def products(self, op: EnqueuedStep, operands: Operands) -> list[MatrixProduct]:
        """Products of a compute step: one call for the rows of neighbouring peers, a separate one for own rows."""
        right = right_operand(operands)
        return [
            product(self._left(run, operands), right[run[0].k, run[0].columns], self._into(run),
                    adds=run[0].k_start > 0 or self._is_sum(run[0]))
            for run in runs(op.blocks, self._rank)
        ]  # fmt: skip

    def _is_sum(self, block: PieceBlock) -> bool:
        """Whether contributions of peers are already at the place where *block* is computed."""
        return self._reduces and not self._staged and block.chunk == self._rank

    def _left(self, run: Sequence[PieceBlock], operands: Operands) -> Tensor:
        block, ranks = run[0], slice(run[0].chunk, run[-1].chunk + 1)
        source = self.source(operands)
        if not self._receives:
            return source[ranks, block.rows, block.k]
        if block.chunk == self._rank:  # own rows are read where they are
            return source[self._rank % len(source), block.rows, block.k][None]
        return self.here("operand")[ranks, block.rows, block.k]

    def _into(self, run: Sequence[PieceBlock]) -> Tensor:
        block, ranks = run[0], slice(run[0].chunk, run[-1].chunk + 1)
        if self._receives or block.chunk != self._rank:
            return self.local[ranks, block.rows, block.columns]
        place = self.here("stage")[self._rank] if self._reduces and self._staged else self.result_of(self._rank)
        return place[block.rows, block.columns][None]

    def move(self, op: EnqueuedStep, operands: Operands) -> tuple[Tensor, Tensor]:
        """Target on the peer and source of a put, both [rows, width]."""
        (block,), peer = op.blocks, op.peer
        if self._receives:
            source, at = self.source(operands), (block.rows, block.k)
            return self.here("operand", peer)[self._rank][at], source[peer % len(source)][at]
        at = block.rows, block.columns
        source = self.result_of(self._rank) if block.chunk == self._rank else self.local[peer]
        adds = self._reduces and not self._staged and block.chunk != self._rank
        target = self.result_of(peer) if adds else self.here(self.lands_in(op), peer)[self._rank]
        return target[at], source[at]

    def lands_in(self, op: EnqueuedStep) -> str:
        """Name of the peer's tensor that a put writes."""
        if self._receives:
            return "operand"
        return "stage" if self._staged and self._reduces and op.blocks[0].chunk != self._rank else "out"

    def summed(self, op: EnqueuedStep) -> tuple[Tensor, Tensor]:
        """Input [ranks, rows, width] of a reduce step, and the place of the sum."""
        (block,) = op.blocks
        return self.here("stage")[:, block.rows, block.columns], self.result_of(self._rank)[block.rows, block.columns]


def is_staged(context: Context) -> bool:
    """Whether contributions to a sum are kept by rank, for a step that sums them or for our kernel's own tiles.

    Contributions of a single peer go to the place of the sum instead, and own tiles are added to them.
    """
    plan = context.plan
    return bool((plan.kind == Kind.REDUCE).any()) or (plan.schedule.get("launches") == "one" and plan.problem.world > 2)
