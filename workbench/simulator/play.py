"""Playing a Plan on pools: a heap of events gives every step its start and end, and every rank its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import LINK_NAMES
from kernels.outcome import Span
from kernels.plan import EVERYTHING, Kind, Plan, Pool, kind_names
from workbench.simulator.price.costs import Grids, StepCosts

if TYPE_CHECKING:
    from workbench.simulator import play_compiled

# Which steps wait for which, and which go first: what both ways of playing a Plan begin with.

Ints = NDArray[np.int64]


def priority_order(plan: Plan) -> tuple[Ints, Ints]:
    """All steps in order of priority, and the place of each step in that order."""
    priority = plan.launches.priority
    first = np.lexsort((plan.turn, -priority[plan.launch])) if priority.any() else np.argsort(plan.turn, kind="stable")
    place = np.empty_like(first)
    place[first] = np.arange(len(plan))
    return first, place


def wait_counts(plan: Plan, gate: Ints, launches: Mapping[int, int]) -> Ints:
    """By gate, how many steps and launches it waits for."""
    waits = np.diff(plan.after_start)
    if launches:
        has_previous = np.zeros(len(plan.launches), dtype=np.int64)
        has_previous[list(launches.values())] = 1
        waits += has_previous[plan.launch]
    return np.bincount(gate, waits, minlength=len(plan)).astype(np.int64)


def gates(plan: Plan) -> tuple[Ints, dict[int, Sequence[int]]]:
    """The gate at which each step waits, and the steps that wait at each gate of a collective.

    A step waits at its own gate; a collective waits at rank 0's, which opens once the call is ready on all ranks.
    """
    gate = np.arange(len(plan))
    calls = np.flatnonzero(plan.kind == Kind.COLLECTIVE)
    opens: dict[int, list[int]] = {}
    first: dict[int, int] = {}
    for step, number in zip(calls.tolist(), plan.index[calls].tolist(), strict=True):
        gate[step] = first.setdefault(number, step)
        opens.setdefault(int(gate[step]), []).append(step)
    return gate, dict(opens)


def followers(plan: Plan, gate: Ints) -> tuple[Ints, Ints]:
    """*bounds* and *flat*: the gates at which other steps wait for step s are flat[bounds[s]:bounds[s + 1]]."""
    waiting = np.repeat(gate, np.diff(plan.after_start))
    order = np.argsort(plan.after, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(plan.after, minlength=len(plan)))])
    return bounds, waiting[order]


# Shares of pools as units: what a step holds while it runs, the queue it waits in, and the crew that moves it.


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PoolShares:
    """Units that steps hold: columns by step, except *capacity*. Every pool of every rank has one queue."""

    queue: Ints
    units: Ints
    """Units of its pool that the step holds, at least 1."""
    crew: Ints
    """The launch whose workgroups move its puts one after another; -1 for steps that wait for units alone."""
    capacity: Ints
    """Units by queue."""


def shares(plan: Plan, pool: Ints, share: Ints, capacity: Ints) -> PoolShares:
    """What the steps of *plan* hold: each *share* units of its *pool*; *capacity* has units by rank and pool.

    EVERYTHING is all that the largest numeric share on that rank and pool leaves: a kernel that keeps 16 of 132 SMs for
    its puts computes on 116. Where nothing is left it is the whole pool, and the steps take turns.

    The SMs that a kernel keeps for its puts work together on each of them. So puts of one launch that have a numeric
    share of the SMs have a crew: they follow each other, however many units are free.
    """
    queue, units_of_pool = plan.rank * capacity.shape[1] + pool, capacity.ravel()
    has_number = share != EVERYTHING
    if not has_number.any():
        no_crew = np.full(len(plan), -1)
        return PoolShares(queue=queue, units=units_of_pool[queue], crew=no_crew, capacity=units_of_pool)
    if (too_large := np.flatnonzero(share > units_of_pool[queue])).size:
        step = int(too_large[0])
        raise AssertionError(
            f"{plan.address(step)} holds {share[step]} units of a pool of {units_of_pool[queue[step]]}"
        )
    most = np.zeros_like(units_of_pool)
    np.maximum.at(most, queue, share)
    rest = np.where(most < units_of_pool, units_of_pool - most, units_of_pool)
    return PoolShares(queue=queue, units=np.where(has_number, share, rest[queue]),
                  crew=np.where(has_crew(plan, pool, share), plan.launch, -1), capacity=units_of_pool)  # fmt: skip


def has_crew(plan: Plan, pool: Ints, share: Ints) -> NDArray[np.bool_]:
    """By step, whether its launch keeps SMs for this put."""
    return (plan.kind == Kind.PUT) & (share != EVERYTHING) & (pool == Pool.COMPUTE)


# Kernels that share a GPU: their blocks take SMs one by one as SMs come free, and no block is ever interrupted.

Floats = NDArray[np.float64]


Event = tuple[float, int, int]
"""Time, step, and what happens.

0: the step gives its share back. 1: other steps see that it is done. 2: the launch after the step's own one is ready.
-n: the step's blocks on n units have ended, or have ended a tile."""


class UnitDealer:
    """Deals the units of pools to the blocks of grids.

    Blocks of the highest priority go first; within one priority, those of the grid that has begun, then the lowest
    place. Blocks are spread over all free units. A block keeps its unit for all of its tiles; a block of a pooled grid
    keeps it as long as there are tiles that no block has taken.
    """

    def __init__(self, grids: Grids, queue: Ints, priority: Ints, lead: Floats, rank: Ints) -> None:
        self._blocks, self._tiles = grids.blocks.tolist(), grids.tiles.tolist()
        self._resident, self._is_pooled = grids.resident.tolist(), grids.is_pooled.tolist()
        self._seconds, self._alone = grids.tile_seconds.tolist(), grids.alone_seconds.tolist()
        self._shared = grids.shared_seconds.tolist()
        self._priority, self._lead = priority.tolist(), lead.tolist()
        count = len(self._blocks)
        self._dealt, self._pending, self._busy = [0] * count, [0] * count, [0] * count
        self._remaining = grids.tiles.tolist()
        self._room, self._packs = grids.room.tolist(), grids.packs.tolist()
        # _kind: a number for each rank and kind of work: 2 * rank + 1 for steps that compute, 2 * rank for others
        self._slowdown, self._kind = grids.slowdown.tolist(), (2 * rank + grids.computes).tolist()
        self._under_way = [0] * (2 * int(rank.max(initial=0)) + 2)
        self.gap_seconds = grids.gap_seconds
        self.queues = frozenset(queue[grids.blocks > 0].tolist())
        self._begun: dict[int, list[int]] = {queue: [] for queue in self.queues}
        assert not np.isin(queue[grids.blocks == 0], list(self.queues)).any(), "a pool has grids alone, or none"

    def deal(self, queue: int, free: int, heads: list[int], step_at: list[int], now: float,
             events: list[Event]) -> tuple[int, list[int]]:  # fmt: skip
        """Deal *free* units of *queue*; return those that remain, and the steps that have begun.

        *heads*: heap of the places that are ready.
        """
        begun, started, without_room = self._begun[queue], list[int](), list[int]()
        while free and (heads or begun):
            if heads and self._room[step_at[heads[0]]] > free:
                without_room.append(heappop(heads))
                continue
            step = max(begun, key=lambda each: self._priority[each], default=-1)
            if heads and (step < 0 or self._priority[step_at[heads[0]]] > self._priority[step]):
                step = step_at[heappop(heads)]
                begun.append(step)
                started.append(step)
                self.begins(step)
            give = self._give_pooled if self._is_pooled[step] else self._give
            free -= give(step, free, now, events)
            if self._dealt[step] == self._blocks[step]:
                begun.remove(step)
        for place in without_room:
            heappush(heads, place)
        return free, started

    def begins(self, step: int) -> None:
        """Note that *step*, of a grid or not, is under way."""
        self._under_way[self._kind[step]] += 1

    def leaves(self, step: int) -> None:
        """Note that *step* is no longer under way."""
        self._under_way[self._kind[step]] -= 1

    def _slower(self, step: int) -> float:
        """How many times as long as usual a tile of *step* takes now."""
        return self._slowdown[step] if self._under_way[self._kind[step] ^ 1] else 1.0

    def _give(self, step: int, free: int, now: float, events: list[Event]) -> int:
        """Begin as many blocks of *step* as *free* units hold; return how many units they take."""
        resident, first = self._resident[step], self._dealt[step]
        count = min(self._blocks[step] - first, free * resident)
        together = -(-count // free)
        if self._packs[step] and self._under_way[self._kind[step] ^ 1]:
            together = resident
        tiles_each, remainder = divmod(self._tiles[step], self._blocks[step])
        longer_blocks = max(0, min(first + count, remainder) - first)
        units, longer_units = -(-count // together), -(-longer_blocks // together)
        lead, seconds = self._lead[step] if not first else 0.0, self._alone[step]
        if together > 1:
            seconds += (self._seconds[step] - seconds) * (together - 1) / (resident - 1)
        seconds *= self._slower(step)
        for number, tiles in ((longer_units, tiles_each + 1), (units - longer_units, tiles_each)):
            if number:
                heappush(events, (now + lead + tiles * seconds, step, -number))
                self._pending[step] += 1
        self._dealt[step] = first + count
        return units

    def _give_pooled(self, step: int, free: int, now: float, events: list[Event]) -> int:
        """Begin blocks of a pooled *step* and return their units. Blocks that get no tile are done at once."""
        first = self._dealt[step]
        count = min(self._blocks[step] - first, free, self._remaining[step])
        if count:
            self._take(step, count, now + (self._lead[step] if not first else 0.0), events)
        self._dealt[step] = first + count if self._remaining[step] else self._blocks[step]
        return count

    def _take(self, step: int, count: int, now: float, events: list[Event]) -> None:
        """Let *count* blocks take a tile each."""
        self._remaining[step] -= count
        self._busy[step] += count
        floor = self._shared[step] * self._busy[step] / self._tiles[step]
        heappush(events, (now + self._slower(step) * max(self._seconds[step], floor), step, -count))
        self._pending[step] += 1

    def end(self, step: int, units: int, now: float, events: list[Event]) -> int:
        """End blocks of *step* on *units* units, or one tile of each; return how many units they give back."""
        self._pending[step] -= 1
        if not self._is_pooled[step]:
            return units
        self._busy[step] -= units
        count = min(units, self._remaining[step])
        if count:
            self._take(step, count, now, events)
        return units - count

    def is_done(self, step: int) -> bool:
        """Whether no block of *step* runs or will run."""
        is_dealt = self._dealt[step] == self._blocks[step] or (self._is_pooled[step] and not self._remaining[step])
        return is_dealt and not self._pending[step]


# A large Plan laid out as arrays for the compiled loop.


class StepEvents(NamedTuple):
    """Times at which steps start, issue, leave and finish: columns by step."""

    start: Floats
    issued: Floats
    left: Floats
    finish: Floats
    waited_for: Ints


def played(plan: Plan, held: PoolShares, costs: Sequence[Floats], links: Ints, begin: float) -> tuple[StepEvents, int]:
    """The events of *plan*, played by compiled code from *begin*, and how many steps never finish.

    *costs*: issue, transit, overlap and delay of StepCosts; *links*: the number of the egress link of each step.
    """
    from workbench.simulator import play_compiled  # numba takes 0.4 s to import, and few Plans are worth it

    at, numbers, seconds = laid_out(plan, held, costs, links)
    finished = int(play_compiled.run(at, numbers, seconds, len(held.capacity), begin))
    rows = seconds[: len(plan) * play_compiled.SECONDS].reshape(len(plan), play_compiled.SECONDS)
    columns = range(play_compiled.START, play_compiled.SECONDS)
    start, issued, left, finish = (rows[:, column].copy() for column in columns)
    waited_for = numbers[at.waited_for : at.waited_for + len(plan)]
    return StepEvents(start, issued, left, finish, waited_for), len(plan) - finished


def laid_out(
    plan: Plan, held: PoolShares, costs: Sequence[Floats], links: Ints
) -> tuple[play_compiled.ColumnPlaces, Ints, Floats]:
    """The state of *plan* before its first event: the places of its columns, then its whole numbers and its seconds."""
    from workbench.simulator import play_compiled

    count, num_launches, num_queues = len(plan), len(plan.launches), len(held.capacity)
    order, place = priority_order(plan)
    gate, _ = gates(plan)
    launches = plan.next_launches()
    missing = wait_counts(plan, gate, launches)
    link = np.where(links >= 0, plan.rank * (int(links.max(initial=0)) + 1) + links, -1)
    ready, ready_count = _first_ready(held, missing[gate] == 0, place)
    of_launch, zeros = _rows(plan.launch, num_launches), np.zeros(num_launches, dtype=np.int64)
    numbers = _IntColumns()
    crews = np.where(held.crew >= 0, held.crew, num_launches)
    places = {
        "steps": numbers.add(np.stack([held.queue, held.units, held.crew, link, plan.launch, place], axis=1)),
        "order": numbers.add(order), "followers": numbers.rows(*followers(plan, gate)),
        "opens": numbers.rows(*_rows(gate, count)),
        "next_launch": numbers.add(_next_launch_column(launches, num_launches)),
        "gates": numbers.rows(of_launch[0], gate[of_launch[1]]), "ready": numbers.rows(*ready),
        "aside": numbers.rows(*_rows(crews, num_launches + 1)), "missing": numbers.add(missing),
        "unissued": numbers.add(np.bincount(plan.launch, minlength=num_launches)), "free": numbers.add(held.capacity),
        "ready_count": numbers.add(ready_count), "aside_count": numbers.add(zeros), "busy": numbers.add(zeros),
        "touched": numbers.add(np.arange(num_queues)), "is_touched": numbers.add(np.ones(num_queues, dtype=np.int64)),
        "events": numbers.add(np.zeros(count + 1, dtype=np.int64)), "waited_for": numbers.add(np.full(count, -1)),
    }  # fmt: skip
    free_at, num_links = count * play_compiled.SECONDS, int(link.max(initial=-1)) + 1
    seconds = np.zeros(free_at + num_links + count + 1)
    rows = seconds[:free_at].reshape(count, play_compiled.SECONDS)
    for column, values in enumerate(costs):
        rows[:, column] = values
    return (
        play_compiled.ColumnPlaces(**places, seconds=0, free_at=free_at, times=free_at + num_links),
        numbers.end_to_end(),
        seconds,
    )


class _IntColumns:
    """Columns of whole numbers, end to end."""

    def __init__(self) -> None:
        self._columns: list[Ints] = []
        self._length = 0

    def add(self, column: Ints) -> int:
        """Append *column*; return where it begins."""
        begin = self._length
        self._columns.append(column.ravel())
        self._length += column.size
        return begin

    def rows(self, bounds: Ints, flat: Ints) -> int:
        """Append the rows of *flat*; return where their bounds begin. Bounds are indices into all columns."""
        return self.add(bounds + self.add(flat))

    def end_to_end(self) -> Ints:
        """All columns as one array."""
        return np.concatenate(self._columns).astype(np.int64, copy=False)


def _first_ready(held: PoolShares, is_ready: NDArray[np.bool_], place: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """By queue, the places that are ready at the start, then room for the others; and how many are ready.

    Ascending numbers are a heap.
    """
    by_queue = np.lexsort((place, ~is_ready, held.queue))
    bounds = _bounds(held.queue, len(held.capacity))
    ready_count = np.bincount(held.queue[is_ready], minlength=len(held.capacity))
    return (bounds, place[by_queue]), ready_count


def _rows(key: Ints, count: int) -> tuple[Ints, Ints]:
    """Bounds by *key*, which has *count* values, and the steps that have each value, in order."""
    return _bounds(key, count), np.argsort(key, kind="stable")


def _bounds(key: Ints, count: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(key, minlength=count))]).astype(np.int64)


def _next_launch_column(launches: Mapping[int, int], num_launches: int) -> Ints:
    column = np.full(num_launches, -1)
    column[list(launches)] = list(launches.values())
    return column


# The events of a Plan, one by one, in plain Python.

COMPILED_FROM = 2_000
"""Steps from which a Plan is worth compiled code, once that is loaded. Both ways give bit-equal numbers."""
WORTH_LOADING = 120_000
"""Steps of such Plans after which a process loads the compiled code: that takes a quarter of a second, as these do."""

LAUNCH_BEHIND = 2
"""The last number of an Event: the next launch on the stream is ready, and no step ends."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PlayedTimes:
    """When every step started and ended, in seconds from the common start; columns by step."""

    start: Floats
    """When the step takes its share of its pool."""
    issued: Floats
    """When it gives its share back."""
    left: Floats
    """When its last byte has left; `issued` for steps that send nothing."""
    finish: Floats
    """When the steps that wait for it may go on."""
    waited_for: Ints
    """The step that made it ready: the last one to finish of those it waited for, or the last one to be issued of the
    previous launch on its stream; -1 for none."""
    rank_end: Floats
    """By rank, the end of its own steps and of all arrivals into its memory."""

    @property
    def time_s(self) -> float:
        """The slowest rank's end."""
        return float(self.rank_end.max(initial=0.0))


def play(plan: Plan, costs: StepCosts, *, compiled: bool | None = None) -> PlayedTimes:
    """Play *plan*: whenever units of a pool are free, the first of the steps that are ready for it takes its share.

    The first step is the one whose launch has the highest priority, and among those the one with the lowest turn. It
    waits until its whole share is free, and no other step overtakes it meanwhile; no running step is interrupted. A
    launch on a stream begins when all steps of the previous launch there have been issued.

    *compiled*: whether numba plays it; None: for a large Plan, in a process that plays many of them.
    """
    by_numba = costs.grids is None and (_is_worth_compiled(len(plan)) if compiled is None else compiled)
    events, unfinished = (_play_compiled if by_numba else _play_plainly)(plan, costs)
    assert unfinished == 0, f"{unfinished} of {len(plan)} steps of {plan.schedule} wait for each other"
    issued, finish = np.asarray(events.issued), np.asarray(events.finish)
    ends = np.full(plan.problem.world, costs.start_seconds)
    if len(plan):
        np.maximum.at(ends, plan.rank, issued)
        lands = np.where((plan.kind == Kind.PUT), plan.peer, plan.rank)
        np.maximum.at(ends, lands, finish)
    return PlayedTimes(start=np.asarray(events.start), issued=issued, left=np.asarray(events.left), finish=finish,
                  waited_for=np.asarray(events.waited_for, dtype=np.int64), rank_end=ends)  # fmt: skip


class _Played:
    """The steps of large Plans that this process has played so far."""

    steps = 0


def _is_worth_compiled(steps: int) -> bool:
    if steps < COMPILED_FROM:
        return False
    _Played.steps += steps
    return _Played.steps >= WORTH_LOADING


def _play_plainly(plan: Plan, costs: StepCosts) -> tuple[_PlayState, int]:
    state = _PlayState(plan, costs)
    state.run()
    return state, state.unfinished


def _play_compiled(plan: Plan, costs: StepCosts) -> tuple[StepEvents, int]:
    held = shares(plan, costs.pool, costs.share, costs.capacity)
    seconds = (costs.issue, costs.transit, costs.overlap, costs.delay)
    return played(plan, held, seconds, costs.link, costs.start_seconds)


class _PlayState:
    """The state of one play, in lists: numpy's elements are slow one by one."""

    def __init__(self, plan: Plan, costs: StepCosts) -> None:
        count = len(plan)
        self.start, self.issued = [0.0] * count, [0.0] * count
        self.left, self.finish = [0.0] * count, [0.0] * count
        self.waited_for = [-1] * count
        self.unfinished = count
        self._issue, self._transit, self._overlap = costs.issue.tolist(), costs.transit.tolist(), costs.overlap.tolist()
        self._delay, self._begin = costs.delay.tolist(), costs.start_seconds
        held = shares(plan, costs.pool, costs.share, costs.capacity)
        self._queue, self._units, self._crew = held.queue.tolist(), held.units.tolist(), held.crew.tolist()
        self._free, self._busy = held.capacity.tolist(), set[int]()
        self._aside: dict[int, list[int]] = defaultdict(list)
        links = plan.rank * (int(costs.link.max(initial=0)) + 1) + costs.link
        self._link = np.where(costs.link >= 0, links, -1).tolist()
        self._free_at: dict[int, float] = defaultdict(float)
        self._step, self._place = (column.tolist() for column in priority_order(plan))
        gate, self._opens = gates(plan)
        launches = plan.next_launches()
        self._launch = plan.launch.tolist() if launches else []
        self._unissued = np.bincount(plan.launch).tolist() if launches else []
        self._next_gates = _next_gates(launches, self._launch, gate)
        self._missing = wait_counts(plan, gate, launches).tolist()
        self._followers = _by_step(*followers(plan, gate))
        self._ready = self._first_ready(gate)
        self._dealer: UnitDealer | None = None
        if (grids := costs.grids) is not None:
            self._dealer = UnitDealer(grids, held.queue, plan.launches.priority[plan.launch], costs.issue, plan.rank)
            self._units = np.where(grids.blocks > 0, 0, held.units).tolist()  # blocks give their units back themselves

    def run(self) -> None:
        """Handle all events of one moment before queues start steps, so that they choose among all that are ready."""
        events: list[Event] = []
        touched, now = list(range(len(self._ready))), self._begin
        finish, followers = self.finish, self._followers
        while True:
            for queue in touched:
                if self._free[queue] and (self._ready[queue] or self._dealer):
                    self._choose(queue, now, events)
            if not events:
                return
            now, touched = events[0][0], []
            while events and events[0][0] == now:
                _, step, change = heappop(events)
                if change == LAUNCH_BEHIND:
                    self._open(self._next_gates[self._launch[step]], step, touched)
                    continue
                if change < 0 and not self._ends(step, -change, now, events, touched):
                    continue
                if change <= 0:
                    visible = self._leave(step, now, events, touched)
                    if visible > now:
                        heappush(events, (visible, step, 1))
                        continue
                finish[step] = now
                self.unfinished -= 1
                if gates := followers[step]:
                    self._open(gates, step, touched)

    def _choose(self, queue: int, now: float, events: list[Event]) -> None:
        """Start the first steps of a queue as long as their shares are free; set puts aside whose crew is busy."""
        heads, free = self._ready[queue], self._free[queue]
        if self._dealer and queue in self._dealer.queues:
            self._free[queue], begun = self._dealer.deal(queue, free, heads, self._step, now, events)
            for step in begun:
                self.start[step] = now
            return
        while heads and free:
            step = self._step[heads[0]]
            crew, units = self._crew[step], self._units[step]
            if crew in self._busy:
                heappush(self._aside[crew], heappop(heads))
                continue
            if units > free:
                break
            heappop(heads)
            free -= units
            if crew >= 0:
                self._busy.add(crew)
            self.start[step] = now
            if self._dealer:
                self._dealer.begins(step)
            heappush(events, (now + self._issue[step], step, 0))
        self._free[queue] = free

    def _ends(self, step: int, units: int, now: float, events: list[Event], touched: list[int]) -> bool:
        """End blocks of *step* on *units* units; return whether they were its last."""
        assert self._dealer is not None
        queue = self._queue[step]
        if returned := self._dealer.end(step, units, now, events):
            self._free[queue] += returned
            touched.append(queue)
        return self._dealer.is_done(step)

    def _leave(self, step: int, now: float, events: list[Event], touched: list[int]) -> float:
        """Give the step's share back at *now* and queue its bytes for the link; return when others see it."""
        self.issued[step] = left = now
        queue, crew, link = self._queue[step], self._crew[step], self._link[step]
        self._free[queue] += self._units[step]
        touched.append(queue)
        if crew >= 0:
            self._busy.remove(crew)
            if self._aside[crew]:
                heappush(self._ready[queue], heappop(self._aside[crew]))
        if self._dealer:
            self._dealer.leaves(step)
        if self._next_gates:
            self._count(step, now, events, touched)
        if link >= 0:
            free_at = self._free_at[link]
            ready = now - self._overlap[step]
            self._free_at[link] = left = (ready if ready > free_at else free_at) + self._transit[step]
        self.left[step] = left
        return left + self._delay[step]

    def _count(self, step: int, now: float, events: list[Event], touched: list[int]) -> None:
        """Count *step* as issued; after the last one of its launch, the next is ready, at once or a gap later."""
        launch = self._launch[step]
        self._unissued[launch] -= 1
        if self._unissued[launch] or launch not in self._next_gates:
            return
        if self._dealer and self._dealer.gap_seconds:
            heappush(events, (now + self._dealer.gap_seconds, step, LAUNCH_BEHIND))
        else:
            self._open(self._next_gates[launch], step, touched)

    def _open(self, gates: Sequence[int], step: int, touched: list[int]) -> None:
        """Note that each of *gates* has one thing less to wait for since *step*."""
        missing = self._missing
        for gate in gates:
            missing[gate] -= 1
            if not missing[gate]:
                for opened in self._opens.get(gate) or (gate,):
                    self.waited_for[opened] = step
                    queue = self._queue[opened]
                    heappush(self._ready[queue], self._place[opened])
                    touched.append(queue)

    def _first_ready(self, gate: Ints) -> list[list[int]]:
        """By queue, the places of the steps that are ready at the start."""
        ready: list[list[int]] = [[] for _ in self._free]
        for step in np.flatnonzero(np.array(self._missing, dtype=np.int64)[gate] == 0).tolist():
            ready[self._queue[step]].append(self._place[step])
        for heads in ready:
            heapify(heads)
        return ready


def _next_gates(launches: Mapping[int, int], launch: Sequence[int], gate: Ints) -> dict[int, list[int]]:
    """By launch, the gates of the steps of the next launch on its stream. *launch* is by step."""
    of_launch: dict[int, list[int]] = {after: [] for after in launches.values()}
    for step, each in enumerate(launch):
        if each in of_launch:
            of_launch[each].append(int(gate[step]))
    return {before: of_launch[after] for before, after in launches.items()}


def _by_step(bounds: Ints, flat: Ints) -> list[list[int]]:
    """The rows of *flat* between *bounds*, as lists."""
    start, values = bounds.tolist(), flat.tolist()
    return [values[first:stop] for first, stop in pairwise(start)]


def spans(plan: Plan, played: PlayedTimes, costs: StepCosts) -> tuple[Span, ...]:
    """The spans that a timeline draws: a step on its pool, and a put on its link while its bytes leave.

    Two kinds of puts are drawn on the link alone, as in measured spans: those that workgroups of their own move, and
    those whose bytes are in place already.
    """
    drawn = np.where(has_crew(plan, costs.pool, costs.share), Pool.LINK, costs.pool)
    if costs.grids is not None:  # puts hold SMs, but are drawn on their link
        drawn = np.where(costs.grids.blocks == 0, drawn, np.where(plan.kind == Kind.PUT, Pool.LINK, plan.pool))
    kinds, pools = _KINDS[plan.kind].tolist(), _POOLS[drawn].tolist()
    rank = plan.rank.tolist()
    name = [f"{r}/{k}/{p}/{i}" for r, k, p, i in
            zip(rank, kinds, plan.peer.tolist(), plan.index.tolist(), strict=True)]  # fmt: skip
    why = [name[step] if step >= 0 else None for step in played.waited_for.tolist()]
    of_step = zip(name, rank, kinds, pools, why, plan.stream.tolist(), plan.problem_of_call, strict=True)
    link = _LINKS[np.minimum(costs.level, len(LINK_NAMES) - 1)].tolist()
    times = zip(played.start.tolist(), played.issued.tolist(), played.left.tolist(), costs.transit.tolist(),
                plan.in_place.tolist(), link, strict=True)  # fmt: skip
    drawn_spans = []
    for (step, step_rank, kind, pool, cause, *stream_and_problem), (
        start,
        issued,
        left,
        transit,
        in_place,
        wire,
    ) in zip(of_step, times, strict=True):
        if not (transit and in_place):
            drawn_spans.append(Span(step, step_rank, kind, pool, start, issued, cause, 0.0, (), *stream_and_problem))
        if transit:
            drawn_spans.append(
                Span(step, step_rank, kind, wire, left - transit, left, cause, 0.0, (), *stream_and_problem)
            )
    return tuple(drawn_spans)


_KINDS = kind_names()
_POOLS = np.array([pool.word for pool in Pool], dtype=object)
_LINKS = np.array(LINK_NAMES, dtype=object)
"""Names of kinds, pools and links, by number."""
