"""Pools take the lowest turn that is ready, links what is issued first; ends, waits and spans follow from it."""

from dataclasses import replace

import numpy as np
import pytest

from kernels.operators import problem
from kernels.plan import Kind, Plan, Planner, Pool, Step
from kernels.schedule import Schedule
from workbench.simulator.play import play, spans
from workbench.simulator.price.costs import StepCosts

ASKED = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)


def planner() -> Planner:
    return Planner(ASKED, Schedule("fused"), [])


def costs_of(plan: Plan, issue: list[float], transit: list[float] | None = None, delay: float = 0.0) -> StepCosts:
    """Costs by step on pools of one unit; puts are issued on COMPUTE and share link 0."""
    moves = plan.kind == Kind.PUT
    pool = np.where(plan.kind == Kind.COLLECTIVE, Pool.LIBRARY, Pool.COMPUTE)
    return StepCosts(pool=pool, share=plan.share, capacity=np.ones((2, len(Pool)), dtype=np.int64),
                     overlap=np.zeros(len(plan)), level=np.zeros(len(plan), dtype=np.int64),
                     issue=np.array(issue, dtype=float), link=np.where(moves, 0, -1),
                     transit=np.array(transit or [0.0] * len(plan), dtype=float), delay=delay * moves,
                     start_seconds=0.0)  # fmt: skip


def test_steps_of_one_rank_follow_each_other_and_ranks_run_beside() -> None:
    made = planner()
    for rank in (0, 0, 1):
        made.add(Step(rank, Kind.COMPUTE, Pool.COMPUTE))
    plan = made.plan()
    played = play(plan, costs_of(plan, [3, 4, 5]))
    assert played.start.tolist() == [0, 3, 0]
    assert played.finish.tolist() == [3, 7, 5]
    assert played.rank_end.tolist() == [7, 5]
    assert played.time_s == 7


def test_of_the_ready_the_lowest_turn_goes_first_and_nothing_is_interrupted() -> None:
    """The put becomes ready while the second computation runs, and then goes before the third."""
    made = planner()
    first = made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
    made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
    made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
    came = made.add(Step(1, Kind.PUT, Pool.LINK, peer=0))
    summed = made.add(Step(0, Kind.REDUCE, Pool.COMPUTE), [first, came])
    plan = made.plan()
    played = play(plan, costs_of(plan, [2, 2, 2, 1, 1], [0, 0, 0, 2, 0]))
    assert played.finish[came] == 3
    assert played.start.tolist() == [0, 2, 5, 0, 4]
    assert played.waited_for[summed] == came


def test_what_is_ready_at_the_same_moment_is_chosen_among_together() -> None:
    made = planner()
    compute = made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
    later = made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
    sent = made.add(Step(0, Kind.PUT, Pool.LINK, peer=1), [compute])
    plan = made.plan()
    played = play(plan, costs_of(plan, [2, 2, 1]))
    assert (played.start[sent], played.start[later]) == (2, 3)


def test_a_link_carries_messages_in_the_order_in_which_they_are_issued() -> None:
    made = planner()
    for _ in range(3):
        made.add(Step(0, Kind.PUT, Pool.LINK, peer=1))
    plan = made.plan()
    played = play(plan, costs_of(plan, [1, 1, 1], [5, 1, 1], delay=10.0))
    assert played.issued.tolist() == [1, 2, 3]
    assert played.left.tolist() == [6, 7, 8]
    assert played.finish.tolist() == [16, 17, 18]
    assert played.rank_end.tolist() == [3, 18]


def test_a_collective_begins_when_all_ranks_are_ready_for_it() -> None:
    made = planner()
    slow = made.add(Step(1, Kind.COMPUTE, Pool.COMPUTE))
    calls = [made.add(Step(0, Kind.COLLECTIVE, Pool.LIBRARY)), made.add(Step(1, Kind.COLLECTIVE, Pool.LIBRARY), [slow])]
    plan = made.plan()
    played = play(plan, costs_of(plan, [4, 2, 2]))
    assert played.start[calls].tolist() == [4, 4]
    assert played.waited_for[calls].tolist() == [slow, slow]


def test_nothing_begins_before_the_start() -> None:
    made = planner()
    made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
    plan = made.plan()
    played = play(plan, replace(costs_of(plan, [1]), start_seconds=0.5))
    assert (played.start[0], played.rank_end.tolist()) == (0.5, [1.5, 0.5])


def test_a_plan_without_steps_takes_only_its_start() -> None:
    plan = planner().plan()
    assert play(plan, replace(costs_of(plan, []), start_seconds=0.25)).time_s == 0.25


def test_steps_that_wait_for_each_other_are_our_mistake() -> None:
    made = planner()
    made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE), [1])
    made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE), [0])
    plan = made.plan()
    with pytest.raises(AssertionError, match="2 of 2 steps"):
        play(plan, costs_of(plan, [1, 1]))


def test_the_same_plan_is_played_the_same_way_again() -> None:
    made = planner()
    last: list[int] = []
    for number in range(60):
        last = [made.add(Step(number % 2, Kind.COMPUTE, Pool.COMPUTE), last if number % 3 else [])]
        made.add(Step(number % 2, Kind.PUT, Pool.LINK, peer=1 - number % 2), last)
    plan = made.plan()
    costs = costs_of(plan, [1 + n % 7 for n in range(120)], [n % 5 for n in range(120)])
    assert play(plan, costs).finish.tolist() == play(plan, costs).finish.tolist()


def test_spans_carry_the_steps_address_its_pool_and_what_it_waited_for() -> None:
    made = planner()
    computed = made.add(Step(0, Kind.COMPUTE, Pool.COMPUTE))
    made.add(Step(0, Kind.PUT, Pool.LINK, peer=1, num_bytes=8), [computed])
    plan = made.plan()
    costs = costs_of(plan, [2, 1], [0, 4])
    drawn = spans(plan, play(plan, costs), costs)
    assert [(s.step, s.pool, s.start_s, s.stop_s, s.waited_for) for s in drawn] == [
        ("0/compute/-1/0", "compute", 0, 2, None),
        ("0/put/1/0", "compute", 2, 3, "0/compute/-1/0"),
        ("0/put/1/0", "link", 3, 7, "0/compute/-1/0"),
    ]  # fmt: skip
    assert {type(s.start_s) for s in drawn} == {float}


def test_a_put_in_place_is_drawn_on_its_link_alone() -> None:
    made = planner()
    made.add(Step(0, Kind.PUT, Pool.LINK, peer=1, num_bytes=8, in_place=True))
    plan = made.plan()
    costs = costs_of(plan, [1], [4])
    assert [s.pool for s in spans(plan, play(plan, costs), costs)] == ["link"]
