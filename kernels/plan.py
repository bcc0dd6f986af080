"""A Plan is what a schedule expands to: the steps of every rank as columns, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Problem
from kernels.schedule import Schedule

Ints = NDArray[np.int64]


class Kind(IntEnum):
    """What a step does."""

    COMPUTE = 0
    """A range of this rank's tile order, over a range of the contraction."""
    PUT = 1
    """Bytes leave for *peer*'s memory, followed by a signal there."""
    PULL = 2
    """Bytes are fetched from *peer*'s memory."""
    REDUCE = 3
    """The contributions of all ranks to a range of tiles are summed here."""
    COPY = 4
    """Bytes move inside this rank: out of a staging buffer."""
    COLLECTIVE = 5
    """An opaque call of the library (NCCL, gloo), made by all ranks together."""

    @property
    def word(self) -> str:
        return self.name.lower()


class Pool(IntEnum):
    """What a step holds units of while it is issued, without preemption."""

    COMPUTE = 0
    """The SM slots of a GPU, or a CPU rank's one thread."""
    COPY_ENGINE = 1
    """The copy engines of a GPU."""
    LINK = 2
    """This rank's egress direction."""
    LIBRARY = 3
    """The channels of the library."""

    @property
    def word(self) -> str:
        return self.name.lower()


EVERYTHING = 0
"""As a share: all units of the pool that the steps with a stated share leave on that rank."""
ANY_STREAM = -1
"""As a stream: ordered by nothing but what steps wait for."""


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Kernels and library calls that steps belong to, as columns: one row for each launch on each rank."""

    rank: Ints
    name: tuple[str, ...]
    """What is called: `gemm_send`, `compute`, `all_to_all` ..."""
    stream: Ints
    """Launches of one rank and stream begin in order, each after all steps of the one before have been issued."""
    priority: Ints
    """Of the steps that are ready, those of the launch with the higher priority go first; 0 is usual."""
    resident_blocks: Ints
    """Blocks that an SM holds at once; 0: as many as fit."""
    grid: Ints
    """Blocks in all; 0: as many as fit."""

    def __len__(self) -> int:
        return len(self.rank)

    @classmethod
    def of(cls, rank: Ints, name: Sequence[str], *, stream: int, grid: int = 0) -> Launches:
        """Launches of usual priority, *name* for each entry of *rank*, all on one *stream* of their rank."""
        usual = np.zeros(len(rank), dtype=np.int64)
        return cls(rank, tuple(name), usual + stream, usual, usual, usual + grid)


@dataclass(frozen=True, slots=True)
class Tiles:
    """One rank's tiles in the order they are computed; rows are counted inside the chunk."""

    chunk: Ints
    """Whose rows: destination, source or owner rank, by the operator's flow."""
    row_start: Ints
    row_stop: Ints
    col_start: Ints
    col_stop: Ints

    def __len__(self) -> int:
        return len(self.chunk)

    def elements(self, start: int = 0, stop: int | None = None) -> int:
        """Output elements of tiles start..stop."""
        rows = self.row_stop[start:stop] - self.row_start[start:stop]
        return int((rows * (self.col_stop[start:stop] - self.col_start[start:stop])).sum())


COLUMNS = (
    "rank",
    "kind",
    "peer",
    "index",
    "launch",
    "pool",
    "share",
    "tile_start",
    "tile_stop",
    "k_start",
    "k_stop",
    "row_start",
    "row_stop",
    "num_bytes",
    "in_place",
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """Steps as columns. On every rank and pool, of the steps that are ready the lowest `turn` goes first."""

    problem: Problem
    schedule: Schedule
    rank: Ints
    kind: Ints
    peer: Ints
    """The other rank of a put or pull; -1 where there is none."""
    index: Ints
    """Counts the steps of one (rank, kind, peer)."""
    launch: Ints
    """The row of `launches` that the step belongs to: steps of one launch share its grid, its stream, its start."""
    pool: Ints
    share: Ints
    """Units of the pool that the step holds while it is issued.

    Steps of EVERYTHING and steps with a share of their own never compete: they wait in lines of their own.
    """
    tile_start: Ints
    tile_stop: Ints
    """Range of `tiles[rank]` that is computed, sent, reduced or copied; empty for operand moves."""
    k_start: Ints
    k_stop: Ints
    """Range of the contraction that is computed, or whose operand columns move."""
    row_start: Ints
    row_stop: Ints
    """Operand moves (receive -> compute): the range of the shard's rows."""
    num_bytes: Ints
    """Put, pull, collective: bytes that leave this rank. Reduce, copy: bytes read and written here."""
    in_place: Ints
    """1 for a put whose bytes the kernel already stored at the peer: only the signal is left to send."""
    after_start: Ints
    """`after[after_start[s]:after_start[s + 1]]` are the steps that step s waits for."""
    after: Ints
    tiles: tuple[Tiles, ...]
    """By rank."""
    launches: Launches

    def __len__(self) -> int:
        return len(self.rank)

    def waits_for(self, step: int) -> Ints:
        """The steps that *step* waits for."""
        return self.after[self.after_start[step] : self.after_start[step + 1]]

    @property
    def turn(self) -> Ints:
        """Who goes first: what feeds peers (put, reduce, copy, collective) before compute, then in order."""
        return np.arange(len(self)) + len(self) * (self.kind == Kind.COMPUTE)

    @property
    def stream(self) -> Ints:
        """By step, the stream of its launch; 0 where that is ANY_STREAM, too."""
        return np.maximum(self.launches.stream[self.launch], 0)

    def steps_of(self, rank: int) -> Ints:
        """Step numbers of *rank*, in order."""
        return np.flatnonzero(self.rank == rank)

    def address(self, step: int) -> str:
        """The step's id: rank/kind/peer/index."""
        kind = Kind(int(self.kind[step])).word
        return f"{self.rank[step]}/{kind}/{self.peer[step]}/{self.index[step]}"

    def arrivals(self, rank: int) -> Ints:
        """The puts of other ranks into *rank*'s memory."""
        return np.flatnonzero((self.peer == rank) & (self.kind == Kind.PUT))

    def wire_bytes(self, rank: int) -> int:
        """Bytes that leave *rank*."""
        moved = np.isin(self.kind, (Kind.PUT, Kind.PULL, Kind.COLLECTIVE))
        return int(self.num_bytes[(self.rank == rank) & moved].sum())

    def part(self, part: str) -> Plan:
        """The Plan of `whole`, `compute` alone (compute steps) or `communication` alone (all others)."""
        if part == "whole":
            return self
        computes = self.kind == Kind.COMPUTE
        return self._keep(computes if part == "compute" else ~computes)

    def _keep(self, kept: NDArray[np.bool_]) -> Plan:
        number = np.cumsum(kept) - 1
        after = [[int(number[s]) for s in self.waits_for(int(step)) if kept[s]] for step in np.flatnonzero(kept)]
        starts, flat = _csr(after)
        columns = {name: getattr(self, name)[kept] for name in COLUMNS}
        return replace(self, **columns, after_start=starts, after=flat)


def _csr(after: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    starts = np.zeros(len(after) + 1, dtype=np.int64)
    starts[1:] = np.cumsum([len(entry) for entry in after])
    flat = np.fromiter((s for entry in after for s in entry), dtype=np.int64, count=int(starts[-1]))
    return starts, flat


class Step(NamedTuple):
    """One step as a scheme states it; see the columns of Plan."""

    rank: int
    kind: Kind
    pool: Pool
    peer: int = -1
    share: int = EVERYTHING
    tiles: tuple[int, int] = (0, 0)
    k: tuple[int, int] = (0, 0)
    rows: tuple[int, int] = (0, 0)
    num_bytes: int = 0
    in_place: bool = False


Launched = Callable[[Ints, Ints], tuple[Launches, Ints]]
"""From the columns `rank` and `kind` the launches, and by step the one it belongs to."""


def one_launch(rank: Ints, kind: Ints) -> tuple[Launches, Ints]:
    """Everything that a rank does is one kernel."""
    ranks = np.arange(int(rank.max(initial=-1)) + 1)
    return Launches.of(ranks, ("kernel",) * len(ranks), stream=0), rank.copy()


class Planner:
    """Collects steps one by one; `plan()` turns them into columns."""

    def __init__(self, problem: Problem, schedule: Schedule, tiles: Sequence[Tiles]) -> None:
        self.problem, self.schedule, self.tiles = problem, schedule, tuple(tiles)
        self._rows: list[tuple[int, ...]] = []
        self._after: list[list[int]] = []
        self._counts: dict[tuple[int, Kind, int], int] = {}

    def add(self, step: Step, after: Iterable[int] = ()) -> int:
        """Appends *step*, which waits for *after*, and returns its number."""
        counted = (step.rank, step.kind, step.peer)
        index = self._counts.get(counted, 0)
        self._counts[counted] = index + 1
        spans = (*step.tiles, *step.k, *step.rows)
        self._rows.append((*counted, index, 0, step.pool, step.share, *spans, step.num_bytes, step.in_place))
        self._after.append(list(after))
        return len(self._rows) - 1

    def plan(self, launched: Launched = one_launch) -> Plan:
        """The columns; *launched* says which launches there are and which of them each step belongs to."""
        table = np.array(self._rows, dtype=np.int64).reshape(-1, len(COLUMNS))
        starts, flat = _csr(self._after)
        columns = dict(zip(COLUMNS, table.T.copy(), strict=True))
        launches, columns["launch"] = launched(columns["rank"], columns["kind"])
        return Plan(
            problem=self.problem, schedule=self.schedule, **columns, after_start=starts, after=flat, tiles=self.tiles,
            launches=launches,
        )  # fmt: skip
