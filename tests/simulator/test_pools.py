"""Shares become units of queues: stated ones, everything that they leave, and what is set aside."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.plan import EVERYTHING, Pool
from workbench.simulator.pools import Queues, queues

SMS = 132


def of_one_pool(*shares: int, capacity: int = SMS) -> Queues:
    """Steps of one rank that hold *shares* of its SMs."""
    zeros = np.zeros(len(shares), dtype=np.int64)
    return queues(zeros, zeros + Pool.COMPUTE, np.array(shares), np.full((1, len(Pool)), capacity))


def test_everything_is_the_whole_pool_where_nobody_states_a_share() -> None:
    queued = of_one_pool(EVERYTHING, EVERYTHING)
    assert (queued.units.tolist(), queued.aside.any()) == ([SMS, SMS], False)
    assert len(set(queued.number.tolist())) == 1


def test_stated_shares_stand_in_one_queue() -> None:
    queued = of_one_pool(90, 42, 60)
    assert (queued.units.tolist(), set(queued.capacity[queued.number].tolist())) == ([90, 42, 60], {SMS})
    assert len(set(queued.number.tolist())) == 1


def test_the_largest_stated_share_is_set_aside_beside_everything() -> None:
    queued = of_one_pool(16, EVERYTHING, 8)
    assert queued.units.tolist() == [16, SMS - 16, 8]
    assert queued.aside.tolist() == [True, False, True]
    assert queued.capacity[queued.number].tolist() == [16, SMS - 16, 16]
    assert queued.number[0] == queued.number[2] != queued.number[1]


def test_where_stated_shares_leave_nothing_everybody_takes_turns() -> None:
    queued = of_one_pool(1, EVERYTHING, capacity=1)
    assert (queued.units.tolist(), queued.aside.any()) == ([1, 1], False)
    assert len(set(queued.number.tolist())) == 1


def test_ranks_and_pools_have_queues_of_their_own() -> None:
    rank, pool = np.array([0, 0, 1, 1]), np.array([Pool.COMPUTE, Pool.COPY_ENGINE] * 2)
    queued = queues(rank, pool, np.array([EVERYTHING, 1, 5, EVERYTHING]), np.full((2, len(Pool)), 5))
    assert len(set(queued.number.tolist())) == 4
    assert queued.units.tolist() == [5, 1, 5, 5]


def test_a_share_larger_than_its_pool_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="step 1 holds 133 units of a pool of 132"):
        of_one_pool(16, 133)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=12), st.integers(7, 9))
def test_the_queues_of_a_pool_never_have_more_units_than_it(shares: list[int], capacity: int) -> None:
    queued = of_one_pool(*shares, capacity=capacity)
    used = np.unique(queued.number)
    assert queued.capacity[used].sum() <= capacity
    assert (queued.units >= 1).all()
    assert (queued.units <= queued.capacity[queued.number]).all()
