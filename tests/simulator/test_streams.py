"""Shares, streams and priorities as play honours them, and what holds at every moment of any Plan."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from hypothesis import given, settings

from kernels.plan import ANY_STREAM, EVERYTHING, Kind, Plan, Pool
from tests.simulator.streams import Launch, Work, costs_of, plan_of, plans
from workbench.simulator.play import PlayedTimes, PoolShares, play, shares, spans

TWO_STREAMS = (Launch(stream=0), Launch(stream=1))


def starts(*works: Work, launches: Sequence[Launch] = TWO_STREAMS) -> list[float]:
    plan = plan_of(works, launches)
    return play(plan, costs_of(plan, works)).start.tolist()


def test_two_streams_run_together_as_far_as_their_shares_fit() -> None:
    assert starts(Work(5, share=90), Work(5, 1, share=42)) == [0, 0]
    assert starts(Work(5, share=90), Work(5, 1, share=60)) == [0, 5]


def test_the_higher_priority_goes_first_when_both_are_ready() -> None:
    works = Work(5, share=90), Work(3, 1, share=60)
    assert starts(*works, launches=(Launch(stream=0), Launch(stream=1, priority=1))) == [3, 0]
    assert starts(*works, launches=(Launch(stream=0, priority=-1), Launch(stream=1))) == [3, 0]


def test_nothing_that_runs_is_interrupted_however_low_its_priority() -> None:
    launches = Launch(stream=0), Launch(stream=1, priority=5), Launch(stream=2)
    works = Work(5), Work(1, 1, after=(2,)), Work(2, 2, pool=Pool.LIBRARY, kind=Kind.COMPUTE)
    assert starts(*works, launches=launches) == [0, 5, 0]


def test_nobody_overtakes_the_first_of_the_queue_though_its_share_would_fit() -> None:
    launches = Launch(stream=0), Launch(stream=1, priority=1), Launch(stream=2)
    works = Work(5, share=90), Work(1, 1, share=60, after=(3,)), Work(1, 2, share=10, after=(3,)), Work(1, 2, share=10)
    assert starts(*works, launches=launches) == [0, 5, 5, 0]


def test_a_launch_begins_when_the_one_before_it_on_its_stream_was_issued_even_if_nothing_else_is_waited_for() -> None:
    launches = Launch(), Launch(), Launch(stream=1)
    works = Work(2, share=10), Work(3, share=10), Work(1, 1, share=10), Work(1, 2, share=10)
    assert starts(*works, launches=launches) == [0, 0, 3, 0]
    assert starts(*works, launches=[*launches[:1], Launch(ANY_STREAM), launches[2]]) == [0, 0, 0, 0]
    assert starts(*works, launches=[*launches[:1], Launch(rank=1), launches[2]]) == [0, 0, 0, 0]


def test_a_launch_whose_steps_are_all_left_out_holds_nobody_up() -> None:
    assert starts(Work(2, 0), Work(2, 2), launches=(Launch(), Launch(), Launch())) == [0, 2]


def test_a_launch_waits_for_its_turn_and_says_for_whom() -> None:
    works = Work(2, share=10), Work(3, share=10), Work(1, 1, share=10)
    plan = plan_of(works, (Launch(), Launch()))
    assert play(plan, costs_of(plan, works)).waited_for.tolist() == [-1, -1, 1]


def test_several_copies_are_under_way_as_there_are_engines() -> None:
    copy = Work(2, share=1, kind=Kind.PUT, pool=Pool.COPY_ENGINE)
    assert starts(*[copy] * 5) == [0, 0, 0, 2, 2]
    assert starts(*[copy._replace(share=EVERYTHING)] * 3) == [0, 2, 4]


def test_the_sms_that_a_kernel_keeps_for_its_puts_move_one_after_another_beside_its_computation() -> None:
    put = Work(1, share=16, kind=Kind.PUT)
    assert starts(put, put, put, Work(2), Work(2), launches=[Launch()]) == [0, 1, 2, 0, 2]
    assert starts(put, put, put, launches=[Launch()]) == [0, 1, 2]


def test_of_what_one_crew_moves_the_lowest_turn_goes_first() -> None:
    put = Work(2, share=16, kind=Kind.PUT)
    works = put, put._replace(after=(3,)), put, Work(1, pool=Pool.LIBRARY)
    assert starts(*works, launches=[Launch()]) == [0, 2, 4, 0]


def test_spans_say_the_stream_and_puts_of_a_crew_are_drawn_on_the_link() -> None:
    works = Work(2), Work(3, 1, share=42), Work(1, 1, share=16, kind=Kind.PUT, transit=4)
    plan = plan_of(works, TWO_STREAMS)
    costs = costs_of(plan, works)
    drawn = spans(plan, play(plan, costs), costs)
    assert [(span.pool, span.stream, span.start_s, span.stop_s) for span in drawn] == [
        ("compute", 0, 0, 2),
        ("compute", 1, 1, 4),
        ("link", 1, 0, 1),
        ("link", 1, 1, 5),
    ]


@settings(max_examples=300)
@given(plans())
def test_at_every_moment_shares_fit_work_is_conserved_and_nothing_begins_too_early(
    made: tuple[Plan, list[Work]],
) -> None:
    plan, works = made
    costs = costs_of(plan, works)
    played, held = play(plan, costs), shares(plan, costs.pool, costs.share, costs.capacity)
    assert (played.issued - played.start).tolist() == [work.seconds for work in works]
    ready = ready_at(plan, played)
    assert (played.start >= ready).all()
    for moment in np.unique(np.concatenate([played.start, played.issued, ready])):
        running = (played.start <= moment) & (moment < played.issued)
        in_use = np.bincount(held.queue[running], held.units[running], minlength=len(held.capacity))
        assert (in_use <= held.capacity).all()
        crews = held.crew[running & (held.crew >= 0)]
        assert len(set(crews.tolist())) == len(crews)
        for first in heads(
            plan, held, np.flatnonzero((ready <= moment) & (played.start > moment)), set(crews.tolist())
        ):
            assert in_use[held.queue[first]] + held.units[first] > held.capacity[held.queue[first]]


def ready_at(plan: Plan, played: PlayedTimes) -> np.ndarray:
    """When each step has all that it waits for: finished steps, and the launch before its own."""
    ready = np.array([played.finish[plan.waits_for(step)].max(initial=0.0) for step in range(len(plan))])
    ordered = [launch for launch in np.unique(plan.launch) if plan.launches.stream[launch] != ANY_STREAM]
    by_stream = sorted(ordered, key=lambda at: (plan.launches.rank[at], plan.launches.stream[at], at))
    for before, after in pairwise(by_stream):
        if plan.launches.rank[before] == plan.launches.rank[after] and (
            plan.launches.stream[before] == plan.launches.stream[after]
        ):
            of_after = plan.launch == after
            ready[of_after] = np.maximum(ready[of_after], played.issued[plan.launch == before].max())
    return ready


def heads(plan: Plan, held: PoolShares, waiting: np.ndarray, busy: set[int]) -> list[int]:
    """The first of each queue among the steps *waiting*, but for those whose crew is *busy*."""
    able = [step for step in waiting.tolist() if held.crew[step] not in busy]
    order = sorted(able, key=lambda step: (-plan.launches.priority[plan.launch[step]], plan.turn[step]))
    first: dict[int, int] = {}
    for step in order:
        first.setdefault(int(held.queue[step]), step)
    return list(first.values())
