"""Play: pools, links, kernels of two streams that share SMs block by block, all worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings

from kernels.operators import problem
from kernels.plan import ANY_STREAM, EVERYTHING, Kind, Plan, Planner, Pool, Step
from kernels.schedule import Schedule
from tests.simulator.streams import SMS, Launch, Work, capacity, plan_of, plans
from tests.simulator.streams import costs_of as streams_costs_of
from workbench.simulator.play import PlayedTimes, PoolShares, play, shares, spans
from workbench.simulator.price.costs import Grids, StepCosts

# Pools take the lowest turn that is ready, links what is issued first; ends, waits and spans follow from it.

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


# Shares become units of pools: stated ones, everything that they leave, and puts that one crew moves.


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


# Kernels of two streams share the SMs block by block: every number here was worked out by hand.

DEALER_SMS = 132


class Grid(NamedTuple):
    """One kernel: its blocks, how many tiles they have together, and seconds of a tile; without blocks, no SM."""

    blocks: int
    tiles: int
    seconds: float
    stream: int = 0
    priority: int = 0
    after: tuple[int, ...] = ()
    resident: int = 1
    alone: float = 0.0
    """Seconds of a tile of a block that shares its SM with none; 0: as usual."""
    is_pooled: bool = False
    shared: float = 0.0
    """No pooled grid is done before."""
    room: int = 1
    """SMs that must be free before it begins."""
    packs: bool = False
    computes: bool = True
    slowdown: float = 1.0
    """A tile takes so many times as long while one of the other kind is under way."""


def columns(grids: Sequence[Grid], gap: float = 0.0) -> Grids:
    blocks, tiles, resident = (
        np.array([getattr(grid, name) for grid in grids]) for name in ("blocks", "tiles", "resident")
    )
    return Grids(blocks=blocks, tiles=tiles, resident=resident,
                 tile_seconds=np.array([grid.seconds for grid in grids]),
                 alone_seconds=np.array([grid.alone or grid.seconds for grid in grids]),
                 is_pooled=np.array([grid.is_pooled for grid in grids]),
                 shared_seconds=np.array([grid.shared for grid in grids]),
                 packs=np.array([grid.packs for grid in grids]),
                 room=np.array([grid.room for grid in grids]),
                 computes=np.array([grid.computes for grid in grids]),
                 slowdown=np.array([grid.slowdown for grid in grids]), gap_seconds=gap)  # fmt: skip


def played(*grids: Grid, gap: float = 0.0) -> PlayedTimes:
    works = [
        Work(0.0 if grid.blocks else grid.seconds, number, after=grid.after,
             pool=Pool.COMPUTE if grid.blocks else Pool.LIBRARY)
        for number, grid in enumerate(grids)
    ]  # fmt: skip
    plan = plan_of(works, [Launch(grid.stream, grid.priority) for grid in grids])
    return play(plan, replace(streams_costs_of(plan, works), grids=columns(grids, gap)))


def ends(*grids: Grid) -> list[float]:
    return played(*grids).finish.tolist()


def chain(computation: Grid, collective: Grid, problems: int) -> list[Grid]:
    """Computation i on stream 0, collective i after it on stream 2; first come, first served."""
    made: list[Grid] = []
    for number in range(problems):
        made.append(computation)
        made.append(collective._replace(stream=2, after=(2 * number,)))
    return made


@pytest.mark.parametrize(("tiles", "waves"), [(1, 1), (131, 1), (132, 1), (133, 2), (264, 2), (1024, 8)])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_kernel_alone_takes_whole_waves(tiles: int, waves: int, persistent: bool) -> None:
    assert ends(Grid(min(DEALER_SMS, tiles) if persistent else tiles, tiles, 2.0)) == [2.0 * waves]


@pytest.mark.parametrize(("left", "waves"), [(128, 8), (124, 9), (116, 9), (100, 11)])
def test_a_grid_that_leaves_sms_takes_the_waves_of_those_that_it_has(left: int, waves: int) -> None:
    """1,024 tiles: with 132 SMs 8 waves. What it leaves is somebody else's at once."""
    computation, other = Grid(left, 1024, 1.0), Grid(DEALER_SMS - left, DEALER_SMS - left, 50.0, stream=2)
    assert ends(computation, other) == [waves, 50.0]


def test_one_problem_is_a_chain() -> None:
    assert ends(*chain(Grid(512, 512, 1.0), Grid(24, 24, 7.0), 1)) == [4.0, 11.0]


def test_what_shares_nothing_takes_as_long_as_the_longer_part() -> None:
    """Half the SMs each: 8 computations of 3 s and 8 collectives of 5 s, the first of which waits for 3 s."""
    both = chain(Grid(66, 66, 3.0), Grid(66, 66, 5.0), 8)
    assert ends(*both)[-1] == 3.0 + 8 * 5.0
    assert ends(*chain(Grid(66, 66, 5.0), Grid(66, 66, 3.0), 8))[-1] == 8 * 5.0 + 3.0


def test_without_priority_a_collective_gets_sms_when_the_queued_blocks_have_gone() -> None:
    """The second computation's 300 blocks were there first: 132, 132, 36. Then 96 SMs are free, at 3 + 2."""
    first, second, call = Grid(264, 264, 1.5), Grid(300, 300, 1.0), Grid(24, 24, 9.0, stream=2, after=(0,))
    assert played(first, second, call).start.tolist() == [0.0, 3.0, 5.0]
    assert ends(first, second, call) == [3.0, 6.0, 14.0]


def test_with_priority_it_gets_them_at_the_next_boundary_and_never_before() -> None:
    """It becomes ready at 0.5, inside of the first wave of 132, which nobody interrupts: 132, 108, 60."""
    first, call = Grid(300, 300, 1.0), Grid(24, 24, 9.0, stream=2, priority=1, after=(2,))
    ready = Grid(0, 0, 0.5, stream=3)
    with_priority = played(first, call, ready)
    assert with_priority.start.tolist() == [0.0, 1.0, 0.0]
    assert with_priority.finish.tolist() == [3.0, 10.0, 0.5]
    assert played(first, call._replace(priority=0), ready).start[1] == 2.0


def test_a_persistent_grid_keeps_sms_to_its_end_whatever_the_priority() -> None:
    """The kernel's 132 blocks have 4 tiles each: a collective that is ready after 0.5 s begins after 4."""
    first, call = Grid(DEALER_SMS, 528, 1.0), Grid(24, 24, 9.0, stream=2, priority=1, after=(2,))
    assert played(first, call, Grid(0, 0, 0.5, stream=3)).start[1] == 4.0


def test_blocks_of_a_persistent_grid_that_find_no_sm_come_in_a_second_round() -> None:
    """24 SMs are taken: 108 blocks end after 4 s, the other 24 begin then, as was seen with NCCL next to our GEMM."""
    assert ends(Grid(24, 24, 20.0, stream=2), Grid(DEALER_SMS, 528, 1.0)) == [20.0, 8.0]


def test_blocks_that_take_the_next_tile_make_up_for_those_that_find_no_sm() -> None:
    """24 SMs are taken: 1,024 tiles by 108 blocks are 10 rounds, not 8, as it was seen with NCCL next to cuBLAS.

    Where they are free after 2.5 s, 24 blocks come then: they take 6 tiles each, 108 take 8, and 16 tiles are left.
    """
    gemm = Grid(DEALER_SMS, 1024, 1.0, is_pooled=True)
    assert ends(gemm) == [8.0]
    assert ends(Grid(24, 24, 20.0, stream=2), gemm) == [20.0, 10.0]
    assert ends(Grid(24, 24, 2.5, stream=2), gemm) == [2.5, 9.0]


def test_a_block_without_a_tile_leaves_its_sm() -> None:
    """In the eighth round 100 blocks have a tile, and 32 have none: a collective of 32 begins, one of 33 does not."""
    gemm, few, more = (
        Grid(DEALER_SMS, 1024, 1.0, is_pooled=True),
        Grid(32, 32, 1.0, stream=2),
        Grid(33, 33, 1.0, stream=2),
    )
    assert ends(gemm, few) == [8.0, 8.0]
    assert ends(gemm, more) == [8.0, 9.0]


def test_what_comes_in_clusters_waits_for_more_sms_and_holds_up_nobody() -> None:
    """In the eighth round 32 SMs are free, not 48: it begins when the GEMM has ended, before the one behind that."""
    gemm = Grid(DEALER_SMS, 1024, 1.0, is_pooled=True)
    clusters = Grid(24, 24, 1.0, stream=2, room=48)
    assert played(gemm, clusters, gemm, gap=0.5).start.tolist() == [0.0, 8.0, 8.5]
    assert played(gemm, clusters, Grid(8, 8, 1.0, stream=3)).start.tolist() == [0.0, 8.0, 7.0]


def test_blocks_that_come_as_sms_come_free_are_as_many_on_each_as_fit() -> None:
    """24 blocks, of which 2 fit on an SM: on 12 SMs while others compute, where they are slower, and else on 24."""
    gemm = Grid(DEALER_SMS, 1024, 1.0, is_pooled=True)
    shot = Grid(24, 24, 5.0, stream=2, resident=2, alone=3.0, packs=True, computes=False)
    assert ends(gemm, shot, Grid(110, 110, 1.0, stream=3, after=(1,))) == [8.0, 12.0, 13.0]
    assert ends(shot, Grid(108, 108, 1.0, stream=3)) == [3.0, 1.0]


def test_what_all_blocks_share_bounds_a_pooled_grid() -> None:
    """Memory gives operands in 12 s: that is 1.5 s a round of 8. On half the SMs it takes as long, now by tiles."""
    gemm = Grid(DEALER_SMS, 1056, 1.0, is_pooled=True, shared=12.0)
    assert ends(gemm) == [pytest.approx(12.0)]
    assert ends(Grid(66, 66, 20.0, stream=2), gemm)[1] == pytest.approx(16.0)


def test_a_kernel_is_ready_a_gap_behind_the_one_before_it_on_its_stream() -> None:
    """So blocks that wait take what a collective gives back, and the next collective waits for them to end."""
    first, second = Grid(24, 24, 3.0, stream=2, priority=1), Grid(24, 24, 1.0, stream=2, priority=1)
    gemm = Grid(DEALER_SMS, DEALER_SMS, 2.0)
    assert played(first, second, gemm).start.tolist() == [0.0, 3.0, 0.0]
    late = played(first, second, gemm._replace(seconds=4.0), gap=0.5)
    assert late.start.tolist() == [0.0, 4.0, 0.0]
    assert late.finish.tolist() == [3.0, 5.0, 7.0]


def test_blocks_that_share_an_sm_hold_it_until_the_last_of_them_has_gone() -> None:
    """264 blocks are resident: 300 take two rounds, and the second has 36 blocks, each on an SM of its own.

    One of 97 finds none.
    """
    computation, other = Grid(300, 300, 2.0, resident=2), Grid(96, 96, 1.0, stream=2)
    assert played(computation, other).start.tolist() == [0.0, 2.0]
    assert ends(computation, other) == [4.0, 3.0]
    assert ends(computation, other._replace(blocks=97, tiles=194)) == [4.0, 6.0]


def test_blocks_are_faster_where_they_share_an_sm_with_fewer() -> None:
    """The second round of 36 has an SM for each block: 1.25 s, not 2."""
    assert ends(Grid(300, 300, 2.0, resident=2, alone=1.25)) == [3.25]
    assert ends(Grid(264, 264, 2.0, resident=2, alone=1.25)) == [2.0]


def test_a_tile_that_begins_while_bytes_move_takes_longer() -> None:
    """Of four rounds those that begin at 0 and at 1.5 do. Copies that hold no SM begin after the first, and count."""
    gemm = Grid(100, 400, 1.0, is_pooled=True, slowdown=1.5)
    assert ends(Grid(32, 32, 2.0, stream=2, computes=False), gemm) == [2.0, 5.0]
    assert ends(Grid(0, 0, 2.0, stream=2, computes=False), gemm) == [2.0, 4.5]
    assert ends(Grid(32, 32, 2.0, stream=2), gemm) == [2.0, 4.0]


def test_what_passes_before_a_grid_begins_is_paid_once() -> None:
    works = [Work(0.5, 0)]
    plan = plan_of(works, [Launch()])
    assert play(plan, replace(streams_costs_of(plan, works), grids=columns([Grid(300, 300, 1.0)]))).time_s == 3.5


def test_a_pool_of_grids_holds_nothing_else() -> None:
    works: Sequence[Work] = [Work(1.0, 0), Work(1.0, 1, share=16, kind=Kind.PUT, pool=Pool.COMPUTE)]
    plan = plan_of(works, [Launch(), Launch(2)])
    mixed = columns([Grid(4, 4, 1.0), Grid(0, 0, 1.0)])
    with pytest.raises(AssertionError, match="grids alone"):
        play(plan, replace(streams_costs_of(plan, works), grids=mixed))


# Shares, streams and priorities as play honours them, and what holds at every moment of any Plan.

TWO_STREAMS = (Launch(stream=0), Launch(stream=1))


def starts(*works: Work, launches: Sequence[Launch] = TWO_STREAMS) -> list[float]:
    plan = plan_of(works, launches)
    return play(plan, streams_costs_of(plan, works)).start.tolist()


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
    assert play(plan, streams_costs_of(plan, works)).waited_for.tolist() == [-1, -1, 1]


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
    costs = streams_costs_of(plan, works)
    drawn = spans(plan, play(plan, costs), costs)
    assert [(span.pool, span.stream, span.start_s, span.stop_s) for span in drawn] == [
        ("compute", 0, 0, 2),
        ("compute", 1, 1, 4),
        ("link", 1, 0, 1),
        ("link", 1, 1, 5),
    ]


@pytest.mark.slow
@settings(max_examples=300)
@given(plans())
def test_at_every_moment_shares_fit_work_is_conserved_and_nothing_begins_too_early(
    made: tuple[Plan, list[Work]],
) -> None:
    plan, works = made
    costs = streams_costs_of(plan, works)
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
