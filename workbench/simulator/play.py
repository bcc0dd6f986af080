"""A Plan played on pools: a heap of events gives every step its start and end, and every rank its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kernels.fabric import LINK_WORDS
from kernels.outcome import Span
from kernels.plan import Kind, Plan, Pool
from workbench.simulator import waits
from workbench.simulator.dealer import Dealer, Event
from workbench.simulator.pools import has_crew, shares
from workbench.simulator.price.costs import StepCosts

if TYPE_CHECKING:
    from workbench.simulator.large import Ended

COMPILED_FROM = 2_000
"""Steps from which a Plan is worth compiled code. Both ways give the same numbers, to the last bit."""

LAUNCH_BEHIND = 2
"""What an Event says where no step ends."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Played:
    """When everything happened, in seconds from the common start; columns by step."""

    start: Floats
    """The step takes its share of its pool."""
    issued: Floats
    """It gives its share back."""
    left: Floats
    """Its last byte has left; `issued` for steps that send nothing."""
    finish: Floats
    """Those who wait for it may go on."""
    waited_for: Ints
    """The step that made it ready: whose finish was the last it waited for, or who was the last to be issued of the
    launch before its own on its stream; -1 for none."""
    rank_end: Floats
    """By rank: its own steps and all arrivals into its memory."""

    @property
    def time_s(self) -> float:
        """The slowest rank's end."""
        return float(self.rank_end.max(initial=0.0))


def play(plan: Plan, costs: StepCosts, *, compiled: bool | None = None) -> Played:
    """Plays *plan*: whenever units of a pool are free, the first of the steps that are ready for it takes its share.

    First is who belongs to the launch with the highest priority, and of those who has the lowest turn. It waits until
    its whole share is free, and nobody overtakes it meanwhile; nothing that runs is interrupted. A launch on a stream
    begins when all steps of the one before it there have been issued.

    *compiled*: by numba, which is worth its start for large Plans; None: as the Plan's size suggests.
    """
    by_numba = costs.grids is None and (len(plan) >= COMPILED_FROM if compiled is None else compiled)
    stage, unfinished = (_by_compiled if by_numba else _plainly)(plan, costs)
    assert unfinished == 0, f"{unfinished} of {len(plan)} steps of {plan.schedule} wait for each other"
    issued, finish = np.asarray(stage.issued), np.asarray(stage.finish)
    ends = np.full(plan.problem.world, costs.start_seconds)
    if len(plan):
        np.maximum.at(ends, plan.rank, issued)
        lands = np.where((plan.kind == Kind.PUT), plan.peer, plan.rank)
        np.maximum.at(ends, lands, finish)
    return Played(start=np.asarray(stage.start), issued=issued, left=np.asarray(stage.left), finish=finish,
                  waited_for=np.asarray(stage.waited_for, dtype=np.int64), rank_end=ends)  # fmt: skip


def _plainly(plan: Plan, costs: StepCosts) -> tuple[_Stage, int]:
    stage = _Stage(plan, costs)
    stage.run()
    return stage, stage.unfinished


def _by_compiled(plan: Plan, costs: StepCosts) -> tuple[Ended, int]:
    from workbench.simulator.large import played  # numba takes half a second: Plans that are small go without

    held = shares(plan, costs.pool, costs.share, costs.capacity)
    seconds = (costs.issue, costs.transit, costs.ahead, costs.delay)
    return played(plan, held, seconds, costs.link, costs.start_seconds)


class _Stage:
    """The state of one play, in lists: numpy's elements are slow one by one."""

    def __init__(self, plan: Plan, costs: StepCosts) -> None:
        count = len(plan)
        self.start, self.issued = [0.0] * count, [0.0] * count
        self.left, self.finish = [0.0] * count, [0.0] * count
        self.waited_for = [-1] * count
        self.unfinished = count
        self._issue, self._transit, self._ahead = costs.issue.tolist(), costs.transit.tolist(), costs.ahead.tolist()
        self._delay, self._begin = costs.delay.tolist(), costs.start_seconds
        held = shares(plan, costs.pool, costs.share, costs.capacity)
        self._queue, self._units, self._crew = held.queue.tolist(), held.units.tolist(), held.crew.tolist()
        self._free, self._busy = held.capacity.tolist(), set[int]()
        self._aside: dict[int, list[int]] = defaultdict(list)
        links = plan.rank * (int(costs.link.max(initial=0)) + 1) + costs.link
        self._link = np.where(costs.link >= 0, links, -1).tolist()
        self._free_at: dict[int, float] = defaultdict(float)
        self._step, self._place = (column.tolist() for column in waits.order(plan))
        gate, self._opens = waits.gates(plan)
        launches = plan.next_launches()
        self._launch = plan.launch.tolist() if launches else []
        self._unissued = np.bincount(plan.launch).tolist() if launches else []
        self._behind = _behind(launches, self._launch, gate)
        self._missing = waits.missing(plan, gate, launches).tolist()
        self._followers = _by_step(*waits.followers(plan, gate))
        self._ready = self._first_ready(gate)
        self._dealer: Dealer | None = None
        if (grids := costs.grids) is not None:
            self._dealer = Dealer(grids, held.queue, plan.launches.priority[plan.launch], costs.issue, plan.rank)
            self._units = np.where(grids.blocks > 0, 0, held.units).tolist()  # which their blocks give back

    def run(self) -> None:
        """Handles all events of one moment before pools choose, so that they choose among all that are ready."""
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
                _, step, seen = heappop(events)
                if seen == LAUNCH_BEHIND:
                    self._open(self._behind[self._launch[step]], step, touched)
                    continue
                if seen < 0 and not self._ends(step, -seen, now, events, touched):
                    continue
                if seen <= 0:
                    visible = self._leave(step, now, events, touched)
                    if visible > now:
                        heappush(events, (visible, step, 1))
                        continue
                finish[step] = now
                self.unfinished -= 1
                if gates := followers[step]:
                    self._open(gates, step, touched)

    def _choose(self, queue: int, now: float, events: list[Event]) -> None:
        """Starts the first of a queue as long as its share is free; a put whose crew is busy stands aside."""
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
        """Blocks of *step* on so many *units* are at an end: whether they were its last."""
        assert self._dealer is not None
        queue = self._queue[step]
        if given := self._dealer.end(step, units, now, events):
            self._free[queue] += given
            touched.append(queue)
        return self._dealer.is_done(step)

    def _leave(self, step: int, now: float, events: list[Event], touched: list[int]) -> float:
        """The step gives its share back at *now*; when others see it, after its bytes queued for the link."""
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
        if self._behind:
            self._count(step, now, events, touched)
        if link >= 0:
            free_at = self._free_at[link]
            ready = now - self._ahead[step]
            self._free_at[link] = left = (ready if ready > free_at else free_at) + self._transit[step]
        self.left[step] = left
        return left + self._delay[step]

    def _count(self, step: int, now: float, events: list[Event], touched: list[int]) -> None:
        """With the last *step* of a launch that is issued, the launch behind it begins, or is ready a gap later."""
        launch = self._launch[step]
        self._unissued[launch] -= 1
        if self._unissued[launch] or launch not in self._behind:
            return
        if self._dealer and self._dealer.gap_seconds:
            heappush(events, (now + self._dealer.gap_seconds, step, LAUNCH_BEHIND))
        else:
            self._open(self._behind[launch], step, touched)

    def _open(self, gates: Sequence[int], step: int, touched: list[int]) -> None:
        """Each of *gates* has one thing less to wait for since *step*."""
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
        """By queue, the places of what is ready at the start."""
        ready: list[list[int]] = [[] for _ in self._free]
        for step in np.flatnonzero(np.array(self._missing, dtype=np.int64)[gate] == 0).tolist():
            ready[self._queue[step]].append(self._place[step])
        for heads in ready:
            heapify(heads)
        return ready


def _behind(launches: Mapping[int, int], launch: Sequence[int], gate: Ints) -> dict[int, list[int]]:
    """By launch: the gates of the steps of the one behind it. *launch* is by step."""
    of_launch: dict[int, list[int]] = {after: [] for after in launches.values()}
    for step, each in enumerate(launch):
        if each in of_launch:
            of_launch[each].append(int(gate[step]))
    return {before: of_launch[after] for before, after in launches.items()}


def _by_step(bounds: Ints, flat: Ints) -> list[list[int]]:
    """Rows of *flat* between *bounds*, as lists."""
    start, values = bounds.tolist(), flat.tolist()
    return [values[first:stop] for first, stop in pairwise(start)]


def spans(plan: Plan, played: Played, costs: StepCosts) -> tuple[Span, ...]:
    """What the timeline draws: a step on its pool, and a put on its link while its bytes leave.

    Puts that workgroups of their own move are drawn on the link alone. A put whose bytes are in place already does
    nothing else worth drawing; measured spans leave it out, too.
    """
    drawn = np.where(has_crew(plan, costs.pool, costs.share), Pool.LINK, costs.pool)
    if costs.grids is not None:  # they hold SMs, but are drawn as what they are
        moves = np.isin(plan.kind, (Kind.PUT, Kind.PULL))
        drawn = np.where(costs.grids.blocks == 0, drawn, np.where(moves, Pool.LINK, plan.pool))
    kinds, pools = _KINDS[plan.kind].tolist(), _POOLS[drawn].tolist()
    rank = plan.rank.tolist()
    name = [f"{r}/{k}/{p}/{i}" for r, k, p, i in
            zip(rank, kinds, plan.peer.tolist(), plan.index.tolist(), strict=True)]  # fmt: skip
    why = [name[step] if step >= 0 else None for step in played.waited_for.tolist()]
    of_step = zip(name, rank, kinds, pools, why, plan.stream.tolist(), plan.problem_of_call, strict=True)
    link = _LINKS[np.minimum(costs.level, len(LINK_WORDS) - 1)].tolist()
    times = zip(played.start.tolist(), played.issued.tolist(), played.left.tolist(), costs.transit.tolist(),
                plan.in_place.tolist(), link, strict=True)  # fmt: skip
    made = []
    for (step, on, kind, pool, cause, *where), (start, issued, left, transit, in_place, wire) in zip(
        of_step, times, strict=True
    ):
        if not (transit and in_place):
            made.append(Span(step, on, kind, pool, start, issued, cause, 0.0, (), *where))
        if transit:
            made.append(Span(step, on, kind, wire, left - transit, left, cause, 0.0, (), *where))
    return tuple(made)


_KINDS = np.array([kind.word for kind in Kind], dtype=object)
_POOLS = np.array([pool.word for pool in Pool], dtype=object)
_LINKS = np.array(LINK_WORDS, dtype=object)
"""Words by number."""
