"""What one call of a decomposed schedule puts on which stream, and in which order: a plain list, read from its Plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.plan import Kind, Plan


class Block(NamedTuple):
    """A piece of one rank's rows: begin and end of each direction, rows counted inside the chunk."""

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
class Op:
    """One step of the Plan as one rank enqueues it."""

    step: int
    kind: Kind
    stream: int
    priority: int
    launch: int
    """Row of the Plan's launches: what is enqueued together has the same."""
    peer: int
    blocks: tuple[Block, ...]
    after: tuple[int, ...]
    """Steps of this rank that come before, on whatever stream."""
    awaits: tuple[int, ...]
    """Counters of this rank that must have risen: what peers put is here."""
    raises: int
    """The counter of *peer* that rises when this put is there; -1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """All that one rank enqueues in one call, in the order in which it is captured."""

    ops: tuple[Op, ...]
    last: tuple[int, ...]
    """Counters that no step waits for, and without which the call has not ended."""
    streams: tuple[tuple[int, int], ...]
    """Number and priority of each stream but the one that the call comes on, which is number 0."""

    def of(self, *kinds: Kind) -> list[Op]:
        """Those of *kinds*, in order."""
        return [op for op in self.ops if op.kind in kinds]


def counter_of(plan: Plan, step: int) -> int:
    """Number of the counter on the receiver that the put *step* raises: one for each put of each sender."""
    return int(plan.rank[step]) * puts_most(plan) + int(plan.index[step])


def puts_most(plan: Plan) -> int:
    """Puts of one rank to one peer, at the most."""
    return int(plan.index[plan.kind == Kind.PUT].max(initial=-1)) + 1


def order(plan: Plan, rank: int, part: str = "whole") -> Order:
    """What *rank* enqueues of *part*: of the steps that only wait for enqueued ones, what feeds peers goes first."""
    computes = plan.kind == Kind.COMPUTE
    kept = {"whole": computes | ~computes, "compute": computes, "communication": ~computes}[part]
    steps = [int(step) for step in plan.steps_of(rank) if kept[step]]
    left = [_op(plan, rank, step, kept) for step in sorted(steps, key=lambda step: int(plan.turn[step]))]
    enqueued: dict[int, Op] = {}
    while left:
        op = next(op for op in left if enqueued.keys() >= set(op.after))
        left.remove(op)
        enqueued[op.step] = op
    ops = tuple(enqueued.values())
    awaited = {counter for op in ops for counter in op.awaits}
    arrivals = [counter_of(plan, int(step)) for step in plan.arrivals(rank) if kept[step]]
    return Order(
        ops=ops,
        last=tuple(counter for counter in arrivals if counter not in awaited),
        streams=tuple(sorted({(op.stream, op.priority) for op in ops if op.stream})),
    )


def _op(plan: Plan, rank: int, step: int, kept: NDArray[np.bool_]) -> Op:
    """*step* of *rank*, which waits for those that are *kept*."""
    needed = [int(other) for other in plan.waits_for(step) if kept[other]]
    puts = [other for other in needed if plan.rank[other] != rank and plan.kind[other] == Kind.PUT]
    launch, kind = int(plan.launch[step]), Kind(int(plan.kind[step]))
    return Op(
        step=step,
        kind=kind,
        stream=max(0, int(plan.launches.stream[launch])),
        priority=int(plan.launches.priority[launch]),
        launch=launch,
        peer=int(plan.peer[step]),
        blocks=_blocks(plan, step),
        after=tuple(other for other in needed if plan.rank[other] == rank),
        awaits=tuple(counter_of(plan, other) for other in puts),  # the library waits for its own calls of others
        raises=counter_of(plan, step) if kind is Kind.PUT else -1,
    )


def _blocks(plan: Plan, step: int) -> tuple[Block, ...]:
    """The rectangles of *step*: of tiles one for each run of one chunk, of operand rows one of the rank itself."""
    rank, span = int(plan.rank[step]), (int(plan.k_start[step]), int(plan.k_stop[step]))
    begin, end = int(plan.tile_start[step]), int(plan.tile_stop[step])
    if begin == end:
        return (Block(rank, int(plan.row_start[step]), int(plan.row_stop[step]), 0, 0, *span),)
    tiles, blocks = plan.tiles[rank], []
    changes = np.flatnonzero(np.diff(tiles.chunk[begin:end])) + begin + 1
    for first, last in zip([begin, *changes], [*changes, end], strict=True):
        here = slice(first, last)
        blocks.append(Block(
            int(tiles.chunk[first]), int(tiles.row_start[here].min()), int(tiles.row_stop[here].max()),
            int(tiles.col_start[here].min()), int(tiles.col_stop[here].max()), *span,
        ))  # fmt: skip
    return tuple(blocks)


def runs(blocks: Sequence[Block], rank: int) -> list[list[Block]]:
    """*blocks* of one step that one call of the library computes: those of neighbouring ranks; *rank*'s own apart."""
    joined: list[list[Block]] = []
    for block in sorted(blocks):
        last = joined[-1][-1] if joined else None
        neighbours = last is not None and last.chunk + 1 == block.chunk and last[1:] == block[1:]
        if neighbours and rank not in (block.chunk, last.chunk if last else -1):
            joined[-1].append(block)
        else:
            joined.append([block])
    return joined
