"""Small Plans of one's own for the tests of play: steps with a share of a pool, in launches on streams."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernels.operators import problem
from kernels.plan import EVERYTHING, Kind, Launches, Plan, Planner, Pool, Step
from kernels.schedule import Schedule
from workbench.simulator.price.steps import StepCosts

ASKED = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)
SMS, ENGINES = 132, 3


class Launch(NamedTuple):
    """One kernel or call of a rank."""

    stream: int = 0
    priority: int = 0
    rank: int = 0


class Work(NamedTuple):
    """One step, and what it costs."""

    seconds: float
    launch: int = 0
    share: int = EVERYTHING
    kind: Kind = Kind.COMPUTE
    pool: Pool = Pool.COMPUTE
    after: tuple[int, ...] = ()
    transit: float = 0.0


def plan_of(works: Sequence[Work], launches: Sequence[Launch] = (Launch(),)) -> Plan:
    """The steps *works*, in this order. A put is for the other rank."""
    planner = Planner(ASKED, Schedule("fused"), [])
    for work in works:
        rank = launches[work.launch].rank
        peer = 1 - rank if work.kind in (Kind.PUT, Kind.PULL) else -1
        planner.add(Step(rank, work.kind, work.pool, peer, work.share), work.after)
    zeros = np.zeros(len(launches), dtype=np.int64)
    of_launch = {"rank": [each.rank for each in launches], "stream": [each.stream for each in launches],
                 "priority": [each.priority for each in launches]}  # fmt: skip
    columns = {name: np.array(values, dtype=np.int64) for name, values in of_launch.items()}
    rows = Launches(**columns, name=("kernel",) * len(launches), resident_blocks=zeros, grid=zeros)
    return replace(planner.plan(), launches=rows, launch=np.array([work.launch for work in works], dtype=np.int64))


def capacity(world: int = 2) -> np.ndarray:
    """Of each rank: SMs, copy engines, one egress link, the library."""
    return np.tile([SMS, ENGINES, 1, 1], (world, 1))


def costs_of(plan: Plan, works: Sequence[Work]) -> StepCosts:
    """What *works* say; all puts of a rank leave by its one link."""
    moves = np.isin(plan.kind, (Kind.PUT, Kind.PULL))
    return StepCosts(pool=plan.pool, share=plan.share, capacity=capacity(), link=np.where(moves, 0, -1),
                     level=np.zeros(len(plan), dtype=np.int64), ahead=np.zeros(len(works)),
                     issue=np.array([work.seconds for work in works], dtype=float),
                     transit=np.array([work.transit for work in works], dtype=float),
                     delay=np.zeros(len(plan)), start_seconds=0.0)  # fmt: skip
