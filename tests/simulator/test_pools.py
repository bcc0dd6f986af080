"""Shares become units of pools: stated ones, everything that they leave, and puts that one crew moves."""

import numpy as np
import pytest

from kernels.plan import EVERYTHING, Kind, Pool
from tests.simulator.streams import SMS, Launch, Work, capacity, plan_of
from workbench.simulator.play import PoolShares, shares


def held(*works: Work, launches: tuple[Launch, ...] = (Launch(),), units: np.ndarray | None = None) -> PoolShares:
    plan = plan_of(works, launches)
    return shares(plan, plan.pool, plan.share, capacity() if units is None else units)


def test_everything_is_the_whole_pool_where_nobody_states_a_share() -> None:
    assert held(Work(1), Work(1)).units.tolist() == [SMS, SMS]


def test_everything_is_what_the_largest_stated_share_leaves_whoever_runs() -> None:
    assert held(Work(1, share=16), Work(1), Work(1, share=8)).units.tolist() == [16, SMS - 16, 8]


def test_where_stated_shares_leave_nothing_everything_is_the_whole_pool() -> None:
    assert held(Work(1, share=SMS), Work(1)).units.tolist() == [SMS, SMS]


def test_ranks_and_pools_have_queues_of_their_own() -> None:
    launches = (Launch(), Launch(rank=1))
    works = [Work(1, launch, pool=pool) for launch in (0, 1) for pool in (Pool.COMPUTE, Pool.COPY_ENGINE)]
    of_steps = held(*works, launches=launches)
    assert len(set(of_steps.queue.tolist())) == 4
    assert of_steps.capacity[of_steps.queue].tolist() == of_steps.units.tolist() == [SMS, 3, SMS, 3]


def test_puts_that_a_launch_keeps_sms_for_have_one_crew() -> None:
    launches = (Launch(), Launch(stream=1))
    put = Work(1, share=16, kind=Kind.PUT)
    by_engine = put._replace(pool=Pool.COPY_ENGINE, share=1)
    of_steps = held(put, put, put._replace(launch=1), by_engine, Work(1, share=16), put._replace(share=EVERYTHING),
                    launches=launches)  # fmt: skip
    assert of_steps.crew.tolist() == [0, 0, 1, -1, -1, -1]


def test_a_share_larger_than_its_pool_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="0/compute/-1/1 holds 133 units of a pool of 132"):
        held(Work(1, share=16), Work(1, share=SMS + 1))
