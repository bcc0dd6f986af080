"""Which slices a rank puts to which peers, by which context and signal, and why no queue is full. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kernels.operators import OPERATORS
from kernels.plan import Ints, Kind, Plan
from kernels.schemes.axis_rules import GIN, puts_between_hosts

QUEUE = 32
"""Puts that one context holds for one peer (NCCL 2.32, GIN by a thread of the host); the next one waits for ever."""
CONTEXTS = 4
"""Contexts of a rank: on one H200 over sockets 128 programs took 61 ms with 1, 11.5 with 4 and 10.9 with 8 (a probe,
2026-11-23)."""
SLICES_MOST = QUEUE * CONTEXTS
"""Most slices of a chunk: each is one put to each peer, and queues are emptied once in a call."""
HALVES = 2
"""Landing places and their counters alternate by the parity of the call (rule 4 of `transport.py`)."""


@dataclass(frozen=True, slots=True)
class SliceTable:
    """The slices of a chunk of rows, the same for every pair of ranks; each is one put with a signal of its own."""

    world: int
    rows: tuple[tuple[int, int], ...]
    """First row and end of each slice inside a chunk, in order."""
    contexts: int = CONTEXTS

    @classmethod
    def of_plan(cls, plan: Plan) -> SliceTable:
        """The slices that the puts of *plan* move, which all ranks cut alike; none where the library moves all."""
        if not puts_between_hosts(plan.schedule):
            return cls(plan.problem.world, ())
        steps = np.flatnonzero(plan.kind == Kind.PUT)
        ranges = sorted({_rows(plan, int(step)) for step in steps})
        table = cls(plan.problem.world, tuple(ranges))
        chunk = OPERATORS[plan.problem.operator].chunk_rows(plan.problem)
        ends = [0, *(stop for _, stop in ranges)]
        whole = [start for start, _ in ranges] == ends[:-1] and ends[-1] == chunk
        assert whole, f"{ranges} do not cover {chunk} rows once"
        return table

    def __len__(self) -> int:
        return len(self.rows)

    def context(self, number: int) -> int:
        """The context whose queue and signals slice *number* uses, at its sender and its receiver."""
        return number % self.contexts

    def signal(self, source: int, number: int, half: int = 0) -> int:
        """The signal of slice *number* of rank *source* in calls of one parity: one counter for each."""
        return half * self.half_signals + source * len(self.rows) + number

    @property
    def half_signals(self) -> int:
        """Signals of all slices in calls of one parity."""
        return self.world * len(self.rows)

    @property
    def meeting(self) -> int:
        """The first signal of barriers, by rank."""
        return HALVES * self.half_signals

    @property
    def signals(self) -> int:
        """Signals of one context."""
        return self.meeting + self.world

    def puts(self, rank: int) -> list[tuple[int, int]]:
        """Context and peer of each put of *rank* in one call, between two flushes of all contexts."""
        return [(self.context(number), peer)
                for number in range(len(self.rows)) for peer in range(self.world) if peer != rank]  # fmt: skip

    def refusal(self) -> str | None:
        """Why a queue could be full, or None: a put into a full one would wait without a deadline."""
        return queue_refusal(len(self.rows), self.contexts, (self.puts(rank) for rank in range(self.world)))


def queue_refusal(slices: int, contexts: int, puts: Iterable[list[tuple[int, int]]]) -> str | None:
    """Why the *puts* (context, peer) of some rank between two flushes do not fit its queues, or None."""
    fullest = max((max(Counter(each).values(), default=0) for each in puts), default=0)
    if fullest <= QUEUE:
        return None
    return (
        f"slice_tiles cuts a chunk into {slices} slices, which is too many for transport = {GIN}: {contexts} contexts "
        f"hold {QUEUE} puts each for a peer, and one would get {fullest}: {fullest} > {QUEUE}. Accepted: slices so "
        f"large that a chunk has at most {QUEUE * contexts}."
    )


def _rows(plan: Plan, step: int) -> tuple[int, int]:
    """Rows inside a chunk that put *step* moves: those of its tiles, or of the operand."""
    start, stop = int(plan.tile_start[step]), int(plan.tile_stop[step])
    if start == stop:
        return int(plan.row_start[step]), int(plan.row_stop[step])
    tiles = plan.tiles[int(plan.rank[step])]
    return int(tiles.row_start[start:stop].min()), int(tiles.row_stop[start:stop].max())


def slice_of(table: SliceTable, row: Ints) -> Ints:
    """The number of the slice that contains each *row* of a chunk."""
    starts = np.array([start for start, _ in table.rows], dtype=np.int64)
    return np.searchsorted(starts, row, side="right") - 1
