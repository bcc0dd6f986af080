"""Kernels of two streams share the SMs block by block: every number here was worked out by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from kernels.plan import Kind, Pool
from tests.simulator.streams import Launch, Work, costs_of, plan_of
from workbench.simulator.play import PlayedTimes, play
from workbench.simulator.price.costs import Grids

SMS = 132


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
    return play(plan, replace(costs_of(plan, works), grids=columns(grids, gap)))


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
    assert ends(Grid(min(SMS, tiles) if persistent else tiles, tiles, 2.0)) == [2.0 * waves]


@pytest.mark.parametrize(("left", "waves"), [(128, 8), (124, 9), (116, 9), (100, 11)])
def test_a_grid_that_leaves_sms_takes_the_waves_of_those_that_it_has(left: int, waves: int) -> None:
    """1,024 tiles: with 132 SMs 8 waves. What it leaves is somebody else's at once."""
    computation, other = Grid(left, 1024, 1.0), Grid(SMS - left, SMS - left, 50.0, stream=2)
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
    first, call = Grid(SMS, 528, 1.0), Grid(24, 24, 9.0, stream=2, priority=1, after=(2,))
    assert played(first, call, Grid(0, 0, 0.5, stream=3)).start[1] == 4.0


def test_blocks_of_a_persistent_grid_that_find_no_sm_come_in_a_second_round() -> None:
    """24 SMs are taken: 108 blocks end after 4 s, the other 24 begin then, as was seen with NCCL next to our GEMM."""
    assert ends(Grid(24, 24, 20.0, stream=2), Grid(SMS, 528, 1.0)) == [20.0, 8.0]


def test_blocks_that_take_the_next_tile_make_up_for_those_that_find_no_sm() -> None:
    """24 SMs are taken: 1,024 tiles by 108 blocks are 10 rounds, not 8, as it was seen with NCCL next to cuBLAS.

    Where they are free after 2.5 s, 24 blocks come then: they take 6 tiles each, 108 take 8, and 16 tiles are left.
    """
    gemm = Grid(SMS, 1024, 1.0, is_pooled=True)
    assert ends(gemm) == [8.0]
    assert ends(Grid(24, 24, 20.0, stream=2), gemm) == [20.0, 10.0]
    assert ends(Grid(24, 24, 2.5, stream=2), gemm) == [2.5, 9.0]


def test_a_block_without_a_tile_leaves_its_sm() -> None:
    """In the eighth round 100 blocks have a tile, and 32 have none: a collective of 32 begins, one of 33 does not."""
    gemm, few, more = Grid(SMS, 1024, 1.0, is_pooled=True), Grid(32, 32, 1.0, stream=2), Grid(33, 33, 1.0, stream=2)
    assert ends(gemm, few) == [8.0, 8.0]
    assert ends(gemm, more) == [8.0, 9.0]


def test_what_comes_in_clusters_waits_for_more_sms_and_holds_up_nobody() -> None:
    """In the eighth round 32 SMs are free, not 48: it begins when the GEMM has ended, before the one behind that."""
    gemm = Grid(SMS, 1024, 1.0, is_pooled=True)
    clusters = Grid(24, 24, 1.0, stream=2, room=48)
    assert played(gemm, clusters, gemm, gap=0.5).start.tolist() == [0.0, 8.0, 8.5]
    assert played(gemm, clusters, Grid(8, 8, 1.0, stream=3)).start.tolist() == [0.0, 8.0, 7.0]


def test_blocks_that_come_as_sms_come_free_are_as_many_on_each_as_fit() -> None:
    """24 blocks, of which 2 fit on an SM: on 12 SMs while others compute, where they are slower, and else on 24."""
    gemm = Grid(SMS, 1024, 1.0, is_pooled=True)
    shot = Grid(24, 24, 5.0, stream=2, resident=2, alone=3.0, packs=True, computes=False)
    assert ends(gemm, shot, Grid(110, 110, 1.0, stream=3, after=(1,))) == [8.0, 12.0, 13.0]
    assert ends(shot, Grid(108, 108, 1.0, stream=3)) == [3.0, 1.0]


def test_what_all_blocks_share_bounds_a_pooled_grid() -> None:
    """Memory gives operands in 12 s: that is 1.5 s a round of 8. On half the SMs it takes as long, now by tiles."""
    gemm = Grid(SMS, 1056, 1.0, is_pooled=True, shared=12.0)
    assert ends(gemm) == [pytest.approx(12.0)]
    assert ends(Grid(66, 66, 20.0, stream=2), gemm)[1] == pytest.approx(16.0)


def test_a_kernel_is_ready_a_gap_behind_the_one_before_it_on_its_stream() -> None:
    """So blocks that wait take what a collective gives back, and the next collective waits for them to end."""
    first, second = Grid(24, 24, 3.0, stream=2, priority=1), Grid(24, 24, 1.0, stream=2, priority=1)
    gemm = Grid(SMS, SMS, 2.0)
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
    assert play(plan, replace(costs_of(plan, works), grids=columns([Grid(300, 300, 1.0)]))).time_s == 3.5


def test_a_pool_of_grids_holds_nothing_else() -> None:
    works: Sequence[Work] = [Work(1.0, 0), Work(1.0, 1, share=16, kind=Kind.PUT, pool=Pool.COMPUTE)]
    plan = plan_of(works, [Launch(), Launch(2)])
    mixed = columns([Grid(4, 4, 1.0), Grid(0, 0, 1.0)])
    with pytest.raises(AssertionError, match="grids alone"):
        play(plan, replace(costs_of(plan, works), grids=mixed))
