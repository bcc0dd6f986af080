"""What every step of a Plan costs: columns of seconds, and the pools that steps hold meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kernels import ranges
from kernels.fabric import Fabric
from kernels.machine import Machine
from kernels.operators import Flow, operator
from kernels.plan import EVERYTHING, Kind, Plan, Pool
from kernels.schemes import library, packets
from workbench.simulator.price import messages, shared
from workbench.simulator.price.collectives import call_seconds
from workbench.simulator.price.computing import compute_seconds, computes_in_one_launch, one_kernel
from workbench.simulator.price.costs import StepCosts
from workbench.simulator.price.launches import start_seconds, step_overhead
from workbench.simulator.price.memory import unpacks
from workbench.simulator.price.rates import work_seconds
from workbench.simulator.price.routes import Routes, routes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


_IS_WORK = np.array([kind in (Kind.COMPUTE, Kind.REDUCE, Kind.COPY) for kind in Kind])
_MOVES = np.array([kind in (Kind.PUT, Kind.PULL) for kind in Kind])
"""By kind: what a rank does by itself, and what crosses a link."""


def step_costs(plan: Plan, machine: Machine, fabric: Fabric) -> StepCosts:
    """The costs of *plan*. *fabric* must be resolved."""
    carried_out, count = library.carried_out(plan.schedule), len(plan)
    plan = plan if carried_out is plan.schedule else replace(plan, schedule=carried_out)
    issue, transit, delay = _own_seconds(plan, machine, fabric), np.zeros(count), np.zeros(count)
    link = np.full(count, -1, dtype=np.int64)
    ways, together = routes(plan.problem.world, machine, fabric), one_kernel(plan)
    moves, sent = _MOVES[plan.kind], packets.are_sent(plan.problem, plan.schedule)
    waits = _waits_in_kernels(plan)
    puts = messages.Puts(plan.pool[moves], plan.share[moves], plan.in_place[moves] == 1, sent, waits)
    issue[moves] = messages.issue_seconds(machine, plan.problem.dtype, plan.num_bytes[moves], puts,
                                          one_kernel=together)  # fmt: skip
    fetched = plan.kind[moves] == Kind.PULL
    source, peer = plan.rank[moves], plan.peer[moves]
    route = ways.between(np.where(fetched, peer, source), np.where(fetched, source, peer))
    link[moves] = route.number
    level = np.where(link >= 0, ways.levels(link), 0)
    puts_seconds = messages.sent_byte_seconds if (plan.kind == Kind.COMPUTE).any() else messages.put_byte_seconds
    measured = puts_seconds(plan.problem, machine, fabric, dict(plan.schedule.axes))
    transit[moves] = messages.transit_seconds(route, plan.num_bytes[moves], measured)
    hides = (plan.pool[moves] == Pool.COPY_ENGINE) & (not waits)
    delay[moves] = messages.delay_seconds(machine, route, packets=sent, hides=hides)
    ahead = np.zeros(count)
    ahead[moves] = messages.held_seconds(machine, puts, transit[moves])
    issue += ahead
    calls = plan.kind == Kind.COLLECTIVE
    issue[calls] = _call_seconds(plan, machine, ways, calls)
    start = start_seconds(machine, one_kernel=together, collective=plan.schedule.get("collective"),
                          communicates=bool((plan.kind != Kind.COMPUTE).any()), packets=sent)  # fmt: skip
    by_thread = moves & messages.computes_too(machine, plan.pool, plan.share)
    costs = StepCosts(pool=np.where(by_thread, Pool.COMPUTE, plan.pool),
                     share=np.where(by_thread, EVERYTHING, plan.share),
                     capacity=np.tile(capacities(machine), (plan.problem.world, 1)), issue=issue, link=link,
                     level=level, transit=transit, ahead=ahead, delay=delay, start_seconds=start)  # fmt: skip
    return shared.dealt(plan, machine, fabric, costs) if shared.are_dealt(plan, machine) else costs


def _waits_in_kernels(plan: Plan) -> bool:
    """Whether copies wait for pieces of one launch that has not ended: in a kernel, since no event tells of them."""
    sends = operator(plan.problem.operator).flow is not Flow.RECEIVE
    return computes_in_one_launch(plan) and sends and bool((plan.kind == Kind.COMPUTE).any())


def capacities(machine: Machine) -> Ints:
    """Units by pool: SMs or a CPU rank's one thread, copy engines, who drives the link, the library."""
    units = np.ones(len(Pool), dtype=np.int64)
    units[Pool.COMPUTE] = machine.device.slots
    units[Pool.COPY_ENGINE] = max(1, machine.device.copy_engines)
    return units


def _own_seconds(plan: Plan, machine: Machine, fabric: Fabric) -> Floats:
    """Of the steps that a rank does by itself, for nobody else: their work and what lies beside it."""
    seconds, dtype = compute_seconds(plan, machine, fabric), plan.problem.dtype
    for kind, work in ((Kind.REDUCE, "reduce"), (Kind.COPY, "copy")):
        steps = plan.kind == kind
        seconds[steps] = work_seconds(machine, work, dtype, plan.num_bytes[steps])
    works = _IS_WORK[plan.kind]
    seconds[works] += step_overhead(machine, one_kernel=one_kernel(plan))
    if computes_in_one_launch(plan):  # only the first step of a launch waits for it to begin
        begun = (plan.kind == Kind.COMPUTE) & (ranges.nth(plan.launch) > 0)
        seconds[begun] -= step_overhead(machine, one_kernel=False) - step_overhead(machine, one_kernel=True)
    calls = bool((plan.kind == Kind.COLLECTIVE).any())
    if calls and not unpacks(machine, plan.problem, in_pieces=plan.schedule.get("pieces") is not None):
        seconds[plan.kind == Kind.COPY] = 0.0
    return seconds


def _call_seconds(plan: Plan, machine: Machine, ways: Routes, calls: NDArray[np.bool_]) -> Floats:
    """Of collectives, by the most bytes that any rank sends in the call with the same number."""
    index = plan.index[calls]
    most = np.zeros(int(index.max(initial=-1)) + 1)
    np.maximum.at(most, index, plan.num_bytes[calls])
    name = operator(plan.problem.operator).collective
    return call_seconds(machine, ways, name, most[index], plan.schedule.get("collective"))
