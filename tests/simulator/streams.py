"""Small Plans of one's own for the tests of play: steps with a share of a pool, in launches on streams."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from kernels.operators import problem
from kernels.plan import ANY_STREAM, EVERYTHING, Kind, Launches, Plan, Planner, Pool, Step
from kernels.schedule import Schedule
from workbench.simulator.price.costs import StepCosts

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
        peer = 1 - rank if work.kind == Kind.PUT else -1
        planner.add(Step(rank, work.kind, work.pool, peer, work.share), work.after)
    zeros = np.zeros(len(launches), dtype=np.int64)
    of_launch = {"rank": [each.rank for each in launches], "stream": [each.stream for each in launches],
                 "priority": [each.priority for each in launches]}  # fmt: skip
    columns = {name: np.array(values, dtype=np.int64) for name, values in of_launch.items()}
    rows = Launches(**columns, name=("kernel",) * len(launches), resident_blocks=zeros, grid=zeros,
                    micro_batch=zeros, place=zeros)  # fmt: skip
    return replace(planner.plan(), launches=rows, launch=np.array([work.launch for work in works], dtype=np.int64))


def capacity(world: int = 2) -> np.ndarray:
    """Of each rank: SMs, copy engines, one egress link, the library."""
    return np.tile([SMS, ENGINES, 1, 1], (world, 1))


def costs_of(plan: Plan, works: Sequence[Work]) -> StepCosts:
    """What *works* say; all puts of a rank leave by its one link."""
    return StepCosts(pool=plan.pool, share=plan.share, capacity=capacity(), link=np.where(plan.kind == Kind.PUT, 0, -1),
                     level=np.zeros(len(plan), dtype=np.int64), overlap=np.zeros(len(works)),
                     issue=np.array([work.seconds for work in works], dtype=float),
                     transit=np.array([work.transit for work in works], dtype=float),
                     delay=np.zeros(len(plan)), start_seconds=0.0)  # fmt: skip


HELD = ((Kind.COMPUTE, Pool.COMPUTE), *((Kind.PUT, pool) for pool in (Pool.COMPUTE, Pool.COPY_ENGINE, Pool.LINK)))
"""Kinds of the steps that are drawn, and whose units they hold."""


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, list[Work]]:
    """Steps of two ranks in up to eight launches, whose later steps wait for earlier ones."""
    count = draw(st.integers(1, 8))
    launches = [
        Launch(draw(st.integers(ANY_STREAM, 2)), draw(st.integers(-1, 1)), draw(st.integers(0, 1)))
        for _ in range(count)
    ]
    works = []
    for number in range(draw(st.integers(1, 24))):
        kind, pool = draw(st.sampled_from(HELD))
        most = int(capacity()[0, pool])
        # a launch waits for earlier launches of its stream: a step that they wait for must not be in a later one
        launch = draw(st.integers(works[-1].launch if works else 0, count - 1))
        after = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        share = draw(st.one_of(st.just(EVERYTHING), st.integers(1, most)))
        seconds, transit = draw(st.integers(0, 5)), draw(st.integers(0, 4)) if kind is Kind.PUT else 0
        works.append(Work(seconds, launch, share, kind, pool, tuple(sorted(after)), transit))
    return plan_of(works, launches), works
