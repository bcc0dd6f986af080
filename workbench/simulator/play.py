"""A Plan played on lanes: a heap of events gives every step its start and end, and every rank its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from kernels.outcome import Span
from kernels.plan import Kind, Plan, Pool
from workbench.simulator.cost import StepCosts

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Played:
    """When everything happened, in seconds from the common start; columns by step."""

    start: Floats
    """The step takes its lane."""
    issued: Floats
    """It gives its lane back."""
    left: Floats
    """Its last byte has left; `issued` for steps that send nothing."""
    finish: Floats
    """Those who wait for it may go on."""
    waited_for: NDArray[np.int64]
    """The step whose finish made it ready; -1 for none."""
    rank_end: Floats
    """By rank: its own steps and all arrivals into its memory."""

    @property
    def time_s(self) -> float:
        """The slowest rank's end."""
        return float(self.rank_end.max(initial=0.0))


def play(plan: Plan, costs: StepCosts) -> Played:
    """On every rank and lane, whenever it is free, of the steps that are ready the one with the lowest turn runs."""
    stage = _Stage(plan, costs)
    stage.run()
    assert stage.unfinished == 0, f"{stage.unfinished} of {len(plan)} steps of {plan.schedule} wait for each other"
    issued, finish = np.array(stage.issued), np.array(stage.finish)
    ends = np.full(plan.problem.world, costs.start_seconds)
    if len(plan):
        np.maximum.at(ends, plan.rank, issued)
        lands = np.where((plan.kind == Kind.PUT), plan.peer, plan.rank)
        np.maximum.at(ends, lands, finish)
    return Played(start=np.array(stage.start), issued=issued, left=np.array(stage.left), finish=finish,
                  waited_for=np.array(stage.waited_for, dtype=np.int64), rank_end=ends)  # fmt: skip


class _Stage:
    """The state of one play, in lists: numpy's elements are slow one by one."""

    def __init__(self, plan: Plan, costs: StepCosts) -> None:
        count = len(plan)
        self.start, self.issued = [0.0] * count, [0.0] * count
        self.left, self.finish = [0.0] * count, [0.0] * count
        self.waited_for = [-1] * count
        self.unfinished = count
        self._issue, self._transit = costs.issue.tolist(), costs.transit.tolist()
        self._delay, self._begin = costs.delay.tolist(), costs.start_seconds
        self._lane = (plan.rank * len(Pool) + costs.lane).tolist()
        links = plan.rank * (int(costs.link.max(initial=0)) + 1) + costs.link
        self._link = np.where(costs.link >= 0, links, -1).tolist()
        self._turn = plan.turn.tolist()
        gate, self._opens = _gates(plan)
        self._gate = gate.tolist()
        self._missing = np.bincount(gate, np.diff(plan.after_start), minlength=count).astype(np.int64).tolist()
        self._followers = _followers(plan)

    def run(self) -> None:
        """Handles all events of one moment before lanes choose, so that they choose among all that are ready."""
        lanes, busy = self._first_queues()
        free_at: dict[int, float] = {}
        events: list[tuple[float, int, int]] = []
        touched, now = list(lanes), self._begin
        while True:
            for lane in touched:
                queue = lanes[lane]
                if queue and lane not in busy:
                    step = heappop(queue)[1]
                    busy.add(lane)
                    self.start[step] = now
                    heappush(events, (now + self._issue[step], step, 0))
            if not events:
                return
            now, touched = events[0][0], []
            while events and events[0][0] == now:
                _, step, seen = heappop(events)
                if not seen:
                    lane = self._lane[step]
                    busy.discard(lane)
                    touched.append(lane)
                    visible = self._leave(step, now, free_at)
                    if visible > now:
                        heappush(events, (visible, step, 1))
                        continue
                self._finished(step, now, lanes, touched)

    def _leave(self, step: int, now: float, free_at: dict[int, float]) -> float:
        """The step gives its lane back at *now*; when others see it, after its bytes queued for the link."""
        self.issued[step] = left = now
        link = self._link[step]
        if link >= 0:
            free_at[link] = left = max(now, free_at.get(link, 0.0)) + self._transit[step]
        self.left[step] = left
        return left + self._delay[step]

    def _finished(self, step: int, now: float, lanes: dict[int, list[tuple[int, int]]], touched: list[int]) -> None:
        self.finish[step] = now
        self.unfinished -= 1
        missing, waited_for = self._missing, self.waited_for
        for gate in self._followers[step]:
            missing[gate] -= 1
            if not missing[gate]:
                for opened in self._opens.get(gate, (gate,)):
                    waited_for[opened] = step
                    lane = self._lane[opened]
                    heappush(lanes[lane], (self._turn[opened], opened))
                    touched.append(lane)

    def _first_queues(self) -> tuple[dict[int, list[tuple[int, int]]], set[int]]:
        """What is ready at the start, by lane."""
        lanes: dict[int, list[tuple[int, int]]] = {lane: [] for lane in self._lane}
        for step, gate in enumerate(self._gate):
            if not self._missing[gate]:
                lanes[self._lane[step]].append((self._turn[step], step))
        for queue in lanes.values():
            heapify(queue)
        return lanes, set()


def _gates(plan: Plan) -> tuple[NDArray[np.int64], dict[int, Sequence[int]]]:
    """A step waits at its own gate; a collective at that of rank 0's, which opens once it is ready on all ranks."""
    gate = np.arange(len(plan))
    calls = np.flatnonzero(plan.kind == Kind.COLLECTIVE)
    opens: dict[int, list[int]] = {}
    first: dict[int, int] = {}
    for step, number in zip(calls.tolist(), plan.index[calls].tolist(), strict=True):
        gate[step] = first.setdefault(number, step)
        opens.setdefault(int(gate[step]), []).append(step)
    return gate, dict(opens)


def _followers(plan: Plan) -> list[list[int]]:
    """By step: the gates at which somebody waits for it."""
    gate, _ = _gates(plan)
    waiting = np.repeat(gate, np.diff(plan.after_start))
    order = np.argsort(plan.after, kind="stable")
    bounds = np.searchsorted(plan.after[order], np.arange(len(plan) + 1)).tolist()
    flat = waiting[order].tolist()
    return [flat[bounds[step] : bounds[step + 1]] for step in range(len(plan))]


def spans(plan: Plan, played: Played, costs: StepCosts) -> tuple[Span, ...]:
    """What the timeline draws: a step on its lane, and a put on its link while its bytes leave.

    A put whose bytes are in place already does nothing else worth drawing; measured spans leave it out, too.
    """
    words = [Kind(kind).word for kind in range(len(Kind))]
    lanes = [Pool(lane).word for lane in range(len(Pool))]
    rank, kind = plan.rank.tolist(), plan.kind.tolist()
    name = [f"{r}/{words[k]}/{p}/{i}" for r, k, p, i in
            zip(rank, kind, plan.peer.tolist(), plan.index.tolist(), strict=True)]  # fmt: skip
    start, issued, left = played.start.tolist(), played.issued.tolist(), played.left.tolist()
    waited, transit, in_place = played.waited_for.tolist(), costs.transit.tolist(), plan.in_place.tolist()
    made = []
    for step, lane in enumerate(costs.lane.tolist()):
        why = name[waited[step]] if waited[step] >= 0 else None
        if not (transit[step] and in_place[step]):
            made.append(Span(name[step], rank[step], words[kind[step]], lanes[lane], start[step], issued[step], why))
        if transit[step]:
            begin = left[step] - transit[step]
            made.append(Span(name[step], rank[step], words[kind[step]], "link", begin, left[step], why))
    return tuple(made)
