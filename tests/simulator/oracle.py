"""What `play` promises, once more as SimPy processes: one for each step, which waits, holds its share and sends.

It shares nothing with `play` but the Plan, its costs and the shares that steps hold.
"""

from collections import defaultdict
from collections.abc import Generator
from typing import Any

import numpy as np
import simpy

from kernels.plan import ANY_STREAM, Plan
from workbench.simulator.play import PoolShares, shares
from workbench.simulator.price.costs import StepCosts

LAST = 9
"""As the priority of a SimPy event: after all others of its moment."""


class Units:
    """One pool of one rank. Who asks first in order is served first, and nobody overtakes but who waits for a crew."""

    def __init__(self, env: simpy.Environment, units: int) -> None:
        self.env, self.free = env, units
        self.waiting: list[tuple[tuple[int, int], int, int, simpy.Event]] = []
        self.busy: set[int] = set()

    def ask(self, order: tuple[int, int], units: int, crew: int) -> simpy.Event:
        granted = self.env.event()
        self.waiting.append((order, units, crew, granted))
        self.wake()
        return granted

    def give_back(self, units: int, crew: int) -> None:
        self.free += units
        self.busy.discard(crew)
        self.wake()

    def wake(self) -> None:
        """Serves after all that happens in this moment."""
        later = self.env.event()
        later.callbacks.append(lambda _: self.serve())
        later._ok, later._value = True, None
        self.env.schedule(later, priority=LAST)

    def serve(self) -> None:
        for entry in sorted(self.waiting, key=lambda each: each[0]):
            _, units, crew, granted = entry
            if crew in self.busy:
                continue
            if units > self.free:
                return
            self.waiting.remove(entry)
            self.free -= units
            if crew >= 0:
                self.busy.add(crew)
            granted.succeed()


class Oracle:
    """The columns of `Played`, from an event for each thing that a step waits for."""

    def __init__(self, plan: Plan, costs: StepCosts) -> None:
        self.plan, self.costs, self.env = plan, costs, simpy.Environment()
        held: PoolShares = shares(plan, costs.pool, costs.share, costs.capacity)
        self.held, count = held, len(plan)
        self.pools = [Units(self.env, int(units)) for units in held.capacity]
        self.links: dict[tuple[int, int], simpy.Resource] = defaultdict(lambda: simpy.Resource(self.env))
        self.finished = [self.env.event() for _ in range(count)]
        self.was_issued = [self.env.event() for _ in range(count)]
        self.start, self.issued, self.left, self.finish = (np.zeros(count) for _ in range(4))
        for step in range(count):
            self.env.process(self.does(step))
        self.env.run()

    def does(self, step: int) -> Generator[Any, Any, None]:
        env, plan, costs = self.env, self.plan, self.costs
        yield env.all_of([*(self.finished[before] for before in plan.waits_for(step)), *self.launch_before(step)])
        launch = int(plan.launch[step])
        units, crew = int(self.held.units[step]), int(self.held.crew[step])
        pool = self.pools[int(self.held.queue[step])]
        yield pool.ask((-int(plan.launches.priority[launch]), int(plan.turn[step])), units, crew)
        self.start[step] = env.now
        yield env.timeout(costs.issue[step])
        self.issued[step] = self.left[step] = env.now
        pool.give_back(units, crew)
        self.was_issued[step].succeed()
        if costs.link[step] >= 0:
            with self.links[int(plan.rank[step]), int(costs.link[step])].request() as turn:
                yield turn
                yield env.timeout(costs.transit[step])
            self.left[step] = env.now
            yield env.timeout(costs.delay[step])
        self.finish[step] = env.now
        self.finished[step].succeed()

    def launch_before(self, step: int) -> list[simpy.Event]:
        """All steps of the launch before its own on its rank's stream, of those that have steps."""
        launches, own = self.plan.launches, int(self.plan.launch[step])
        same = (launches.rank == launches.rank[own]) & (launches.stream == launches.stream[own])
        earlier = [int(each) for each in np.unique(self.plan.launch) if each < own and same[each]]
        if launches.stream[own] == ANY_STREAM or not earlier:
            return []
        return [self.was_issued[each] for each in np.flatnonzero(self.plan.launch == earlier[-1])]
