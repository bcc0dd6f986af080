"""A Plan is what a schedule expands to: the steps of every rank as columns, and what each of them waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernels.problem import Problem
from kernels.schedule import Schedule

# Functions on columns of integers, without loops.

Ints = NDArray[np.int64]
Ranges = tuple[Ints, Ints]
"""Starts and stops of ranges, as two columns."""


def some(parts: Ranges, chosen: Any) -> Ranges:
    """The ranges at the places *chosen*: numbers in any shape, or any other index of an array."""
    return parts[0][chosen], parts[1][chosen]


def bounds(counts: Ints) -> Ints:
    """[0, counts[0], counts[0] + counts[1], ...]: the boundaries of parts of these lengths when laid end to end."""
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def inside(counts: Ints) -> Ints:
    """0, 1 .. counts[0] - 1, 0, 1 .. counts[1] - 1, ...: the place of each entry inside its part."""
    return np.arange(int(counts.sum())) - np.repeat(bounds(counts)[:-1], counts)


def laid(start: Ints, stop: Ints) -> Ints:
    """start[0] .. stop[0] - 1, start[1] .. stop[1] - 1, ...: the numbers of all ranges, end to end."""
    return np.repeat(start, stop - start) + inside(stop - start)


def nth(key: Ints) -> Ints:
    """The number of equal entries before each one: 7 9 7 7 9 -> 0 0 1 2 1."""
    order, at = np.argsort(key, kind="stable"), np.arange(len(key))
    runs = key[order]
    first = at.copy()
    first[1:][runs[1:] == runs[:-1]] = 0
    place = np.empty_like(at)
    place[order] = at - np.maximum.accumulate(first)
    return place


def by_step(waiting: Ints, needed: Ints, count: int) -> tuple[Ints, Ints]:
    """Groups pairs by waiting step, of *count* steps: s needs `flat[start[s]:start[s + 1]]`, in the pairs' order."""
    start = bounds(np.bincount(waiting, minlength=count).astype(np.int64))
    if (waiting[1:] >= waiting[:-1]).all():
        return start, needed
    return start, needed[np.argsort(waiting, kind="stable")]


def distinct(waiting: Ints, needed: Ints) -> tuple[Ints, Ints]:
    """The same pairs, sorted and without duplicates."""
    many = int(needed.max(initial=0)) + 1
    first, second = np.divmod(np.unique(waiting * many + needed), many)
    return first, second


def before(key: Ints) -> Ints:
    """The place of the last equal entry before each one, or -1: 7 9 7 7 9 -> -1 -1 0 2 1."""
    order = np.argsort(key, kind="stable")
    again = key[order[1:]] == key[order[:-1]]
    place = np.full(len(key), -1, dtype=np.int64)
    place[order[1:][again]] = order[:-1][again]
    return place


# Plans.

Range = tuple[Ints | int, Ints | int]
"""Start and stop of one range, or of many at once."""


class Kind(IntEnum):
    """The kinds of steps; no kind has the number 2."""

    COMPUTE = 0
    """Computes a range of this rank's tile order, over a range of the contraction.

    An empty range at its end: adds the float32 partial sums of ranges that were computed at the same time.
    """
    PUT = 1
    """Sends bytes to *peer*'s memory, followed by a signal there."""
    REDUCE = 3
    """Sums the contributions of all ranks to a range of tiles."""
    COPY = 4
    """Moves bytes inside this rank, out of a staging buffer."""
    COLLECTIVE = 5
    """Calls the library (NCCL, gloo) on all ranks together; the call is opaque."""

    @property
    def word(self) -> str:
        return self.name.lower()


NUM_KINDS = max(Kind) + 1
"""Length of an array that is indexed by the numbers of kinds."""


def kind_names() -> NDArray[np.object_]:
    """The word of each kind, indexed by its number."""
    words = np.full(NUM_KINDS, "", dtype=object)
    words[list(Kind)] = [kind.word for kind in Kind]
    return words


class Pool(IntEnum):
    """The resources of a rank: a step holds units of one pool while it is issued, without preemption."""

    COMPUTE = 0
    """The SM slots of a GPU, or a CPU rank's one thread."""
    COPY_ENGINE = 1
    """The copy engines of a GPU."""
    LINK = 2
    """The egress direction of this rank's link."""
    LIBRARY = 3
    """The channels of the library."""

    @property
    def word(self) -> str:
        return self.name.lower()


EVERYTHING = 0
"""As a share: all units of the pool that steps with a numbered share leave on that rank."""
ANY_STREAM = -1
"""As a stream: launches are ordered only by what their steps wait for."""


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Kernels and library calls that steps belong to, as columns: one row for each launch on each rank."""

    rank: Ints
    name: tuple[str, ...]
    """Name of the kernel or call: `gemm_send`, `compute`, `all_to_all` ..."""
    stream: Ints
    """Launches of one rank and stream begin in order, each after all steps of the one before have been issued."""
    priority: Ints
    """Ready steps of the launch with the higher priority go first; 0 is usual."""
    resident_blocks: Ints
    """Blocks that an SM holds at once; 0: as many as fit."""
    grid: Ints
    """Total number of blocks; 0: as many as fit."""
    micro_batch: Ints
    """The problem that it works on, of several independent ones in one call; 0 is usual."""
    place: Ints
    """Ready steps of equal priority go by the place of their launch, lower ones first; 0 is usual."""

    def __len__(self) -> int:
        return len(self.rank)

    @classmethod
    def of(cls, rank: Ints, name: Sequence[str], *, stream: Ints | int, priority: Ints | int = 0,
           grid: int = 0) -> Launches:  # fmt: skip
        """Launches with *name* for each entry of *rank*, on one *stream* of their rank or each on its own."""
        usual = np.zeros(len(rank), dtype=np.int64)
        return cls(rank, tuple(name), usual + stream, usual + priority, usual, usual + grid, usual, usual)


@dataclass(frozen=True, slots=True)
class Tiles:
    """One rank's tiles in the order in which they are computed; rows are counted inside the chunk."""

    chunk: Ints
    """Rank whose rows these are: destination, source or owner, by the operator's flow."""
    row_start: Ints
    row_stop: Ints
    col_start: Ints
    col_stop: Ints

    def __len__(self) -> int:
        return len(self.chunk)

    def areas(self) -> Ints:
        """Number of output elements of each tile."""
        return (self.row_stop - self.row_start) * (self.col_stop - self.col_start)


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
    """The steps of all ranks as columns.

    On every rank and pool, ready steps of the launch with the highest priority go first, and among these the one with
    the lowest `turn`.
    """

    problem: Problem
    schedule: Schedule
    rank: Ints
    kind: Ints
    peer: Ints
    """The other rank of a put; -1 where there is none."""
    index: Ints
    """Number of the step among those of one (rank, kind, peer)."""
    launch: Ints
    """The row of `launches` that the step belongs to: steps of one launch share its grid, its stream, its start."""
    pool: Ints
    share: Ints
    """Units of the pool that the step holds while it is issued.

    All steps of one rank and pool wait in one queue, whatever their share: no step overtakes its head.
    """
    tile_start: Ints
    tile_stop: Ints
    """Range of `tiles[rank]` that is computed, sent, reduced or copied; empty for operand moves."""
    k_start: Ints
    k_stop: Ints
    """Range of the contraction that is computed, or whose operand columns move."""
    row_start: Ints
    row_stop: Ints
    """Range of the shard's rows that an operand move carries (receive -> compute)."""
    num_bytes: Ints
    """Bytes that leave this rank (put, collective), or that are read and written here (reduce, copy, partial sums)."""
    in_place: Ints
    """1 for a put whose bytes the kernel already stored at the peer, so that only the signal is sent."""
    after_start: Ints
    """`after[after_start[s]:after_start[s + 1]]` are the steps that step s waits for."""
    after: Ints
    tiles: tuple[Tiles, ...]
    """Tiles of one problem by rank, which are the same for all micro-batches."""
    launches: Launches

    def __len__(self) -> int:
        return len(self.rank)

    def waits_for(self, step: int) -> Ints:
        """The steps that *step* waits for."""
        return self.after[self.after_start[step] : self.after_start[step + 1]]

    @property
    def adds_units(self) -> NDArray[np.bool_]:
        """Whether each step adds partial sums of ranges that were computed at the same time."""
        return (self.kind == Kind.COMPUTE) & (self.k_start == self.k_stop)

    @property
    def turn(self) -> Ints:
        """Order of the steps: by place of the launch, then steps that feed peers (all but compute), then by number."""
        return np.arange(len(self)) + len(self) * (2 * self.place + (self.kind == Kind.COMPUTE))

    @property
    def stream(self) -> Ints:
        """The stream of each step's launch; 0 also for ANY_STREAM."""
        return np.maximum(self.launches.stream[self.launch], 0)

    @property
    def micro_batch(self) -> Ints:
        """The problem of the call that each step works on."""
        return self.launches.micro_batch[self.launch]

    @property
    def problem_of_call(self) -> list[int] | list[None]:
        """The micro-batch of each step where there are several; None where the call has one problem."""
        return self.micro_batch.tolist() if self.launches.micro_batch.any() else [None] * len(self)

    @property
    def place(self) -> Ints:
        """The place of each step's launch."""
        return self.launches.place[self.launch]

    def steps_of(self, rank: int) -> Ints:
        """Step numbers of *rank*, in order."""
        return np.flatnonzero(self.rank == rank)

    def address(self, step: int) -> str:
        """The step's name: rank/kind/peer/index."""
        kind = Kind(int(self.kind[step])).word
        return f"{self.rank[step]}/{kind}/{self.peer[step]}/{self.index[step]}"

    def origin(self, step: int) -> int:
        """The rank whose operand rows put *step* carries: its own rank, or that of the put that brought them there."""
        brought = [int(before) for before in self.waits_for(step) if self.kind[before] == Kind.PUT]
        return int(self.rank[brought[0]]) if brought else int(self.rank[step])

    def arrivals(self, rank: int) -> Ints:
        """The puts of other ranks into *rank*'s memory."""
        return np.flatnonzero((self.peer == rank) & (self.kind == Kind.PUT))

    def wire_bytes(self, rank: int) -> int:
        """Bytes that leave *rank*."""
        moved = np.isin(self.kind, (Kind.PUT, Kind.COLLECTIVE))
        return int(self.num_bytes[(self.rank == rank) & moved].sum())

    def next_launches(self) -> dict[int, int]:
        """Each launch that has steps -> the next one on the same rank and stream."""
        has_steps = np.bincount(self.launch, minlength=len(self.launches)) > 0
        ordered = np.flatnonzero(has_steps & (self.launches.stream != ANY_STREAM))
        places = zip(self.launches.rank[ordered].tolist(), self.launches.stream[ordered].tolist(), strict=True)
        last: dict[tuple[int, int], int] = {}
        following = {}
        for launch, at in zip(ordered.tolist(), places, strict=True):
            if at in last:
                following[last[at]] = launch
            last[at] = launch
        return following

    @property
    def memory_bytes(self) -> int:
        """Bytes of the arrays; those that ranks share count once."""
        tiles = (getattr(each, column.name) for each in self.tiles for column in fields(Tiles))
        launches = (getattr(self.launches, column.name) for column in fields(Launches) if column.name != "name")
        steps = (self.after_start, self.after, *(getattr(self, name) for name in COLUMNS))
        arrays = {id(array): array.nbytes for array in (*steps, *tiles, *launches)}
        return sum(arrays.values()) + 8 * len(self.launches)  # names are shared, too: a pointer each

    def part(self, part: str) -> Plan:
        """The Plan of one part: `whole`, `compute` (compute steps only) or `communication` (all other steps)."""
        if part == "whole":
            return self
        computes = self.kind == Kind.COMPUTE
        return self._keep(computes if part == "compute" else ~computes)

    def _keep(self, kept: NDArray[np.bool_]) -> Plan:
        number, waiting = np.cumsum(kept) - 1, np.repeat(np.arange(len(self)), np.diff(self.after_start))
        both = kept[waiting] & kept[self.after]
        start, flat = by_step(number[waiting[both]], number[self.after[both]], int(kept.sum()))
        columns = {name: getattr(self, name)[kept] for name in COLUMNS}
        return replace(self, **columns, after_start=start, after=flat)


class Step(NamedTuple):
    """Steps that a scheme adds; see the columns of Plan. Arrays describe one step for each of their elements."""

    rank: Ints | int
    kind: Kind
    pool: Pool
    peer: Ints | int = -1
    share: int = EVERYTHING
    tiles: Range = (0, 0)
    k: Range = (0, 0)
    rows: Range = (0, 0)
    num_bytes: Ints | int = 0
    in_place: bool = False


Launched = Callable[[Mapping[str, Ints]], tuple[Launches, Ints]]
"""A function of the columns by name that returns the launches, and for each step the launch that it belongs to."""


def one_launch(columns: Mapping[str, Ints]) -> tuple[Launches, Ints]:
    """One launch for each rank, to which all its steps belong."""
    ranks = np.arange(int(columns["rank"].max(initial=-1)) + 1)
    return Launches.of(ranks, ("kernel",) * len(ranks), stream=0), columns["rank"].copy()


class Planner:
    """Collects steps, many at once; `plan()` lays their columns end to end."""

    def __init__(self, problem: Problem, schedule: Schedule, tiles: Sequence[Tiles]) -> None:
        self.problem, self.schedule, self.tiles = problem, schedule, tuple(tiles)
        self._added: list[Ints] = []
        self._followers: list[tuple[Ints, Ints]] = []
        self._waiting: list[Ints] = []
        self._needed: list[Ints] = []
        self._count = 0
        areas = [bounds(each.areas()) for each in self.tiles]
        self._first = bounds(np.array([len(area) for area in areas], dtype=np.int64))
        self._areas = np.concatenate([*areas, np.zeros(0, dtype=np.int64)])

    def add(self, step: Step, after: ArrayLike = ()) -> Ints:
        """Appends *step* and returns its numbers for `after`, in its shape.

        *after* has one axis more: what each of the steps waits for, -1 for nothing.
        """
        of_rank, of_columns = (step.rank, step.kind, step.peer), (step.pool, step.share, *step.tiles, *step.k)
        values = (*of_rank, *of_columns, *step.rows, step.num_bytes, step.in_place)
        shape = np.broadcast_shapes(*{np.shape(each) for each in values})
        columns = np.empty((len(_ADDED), *shape), dtype=np.int64)
        for row, each in enumerate(values):
            columns[row] = each
        numbers = np.arange(self._count, self._count + prod(shape)).reshape(shape)
        self._count += numbers.size
        self._added.append(columns.reshape(len(_ADDED), -1))
        self.wait(numbers[..., None], after)
        return numbers

    def wait(self, steps: Ints, needed: ArrayLike) -> None:
        """Makes each of *steps* also wait for the entry of *needed* at its place; -1 for no step."""
        needed = np.asarray(needed, dtype=np.int64)
        if not needed.size:
            return
        waiting, needed = np.broadcast_arrays(steps, needed)
        is_step = needed >= 0
        self._waiting.append(waiting[is_step])
        self._needed.append(needed[is_step])

    def follow(self, steps: Ints, leaders: Ints) -> None:
        """Places each of *steps* right behind its leader in the Plan's order, not behind all steps added before."""
        self._followers.append((steps, leaders))

    def elements(self, rank: Ints | int, at: Range) -> Ints:
        """Number of output elements of the tiles *at* of *rank*, for many ranges at once."""
        first = self._first[rank]
        return np.asarray(self._areas[first + at[1]] - self._areas[first + at[0]])

    def plan(self, launched: Launched = one_launch) -> Plan:
        """The Plan of all steps added; *launched* makes the launches and assigns each step to one."""
        order = self._order()
        columns = dict(zip(_ADDED, _end_to_end(self._added, (len(_ADDED), 0))[:, order], strict=True))
        columns["index"] = index_of(columns, self.problem.world)
        number = np.empty(self._count, dtype=np.int64)
        number[order] = np.arange(self._count)
        waiting, needed = (number[_end_to_end(parts)] for parts in (self._waiting, self._needed))
        start, flat = by_step(waiting, needed, self._count)
        launches, columns["launch"] = launched(columns)
        return Plan(
            problem=self.problem, schedule=self.schedule, **columns, after_start=start, after=flat, tiles=self.tiles,
            launches=launches,
        )  # fmt: skip

    def _order(self) -> Ints | slice:
        """The order of the steps: as they were added, except for those that follow others."""
        if not self._followers:
            return slice(None)
        place = np.arange(self._count)
        for steps, leaders in self._followers:
            place[steps] = leaders
        return np.argsort(place, kind="stable")


_ADDED = tuple(name for name in COLUMNS if name not in ("index", "launch"))
"""Names of the columns in the order in which `Planner.add` lays them out."""


def _end_to_end(parts: Sequence[Ints], nothing: tuple[int, ...] = (0,)) -> Ints:
    """*parts* joined along their last axis; *nothing* is the shape of no parts."""
    return np.concatenate([np.zeros(nothing, dtype=np.int64), *parts], axis=-1)


def index_of(columns: Mapping[str, Ints], world: int) -> Ints:
    """The column `index`: for each step, the number of steps of its rank, kind and peer before it."""
    return nth((columns["rank"] * NUM_KINDS + columns["kind"]) * (world + 1) + columns["peer"] + 1)
