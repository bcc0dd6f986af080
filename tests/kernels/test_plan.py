"""A Planner's steps become columns; a Plan answers who waits, who goes first, and what belongs to a part."""

import numpy as np
import pytest

from kernels.operators import problem
from kernels.plan import COLUMNS, Kind, Plan, Planner, Pool, Step, Tiles
from kernels.schedule import Schedule, tile
from kernels.schemes.base import ChunkBlocks, cut


@pytest.fixture
def small() -> Plan:
    """Rank 0 computes two tiles one by one and sends them; rank 1 sums each."""
    asked = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)
    tiles = cut(ChunkBlocks.of(1, (0, 4), (0, 4)), tile("2x4x2")).tiles
    planner = Planner(asked, Schedule("fused", (("tile", "2x4x2"),)), [tiles, tiles])
    for number in range(2):
        at = (number, number + 1)
        made = planner.add(Step(0, Kind.COMPUTE, Pool.COMPUTE, tiles=at, k=(0, 2)))
        sent = planner.add(Step(0, Kind.PUT, Pool.LINK, 1, tiles=at, num_bytes=32), [made])
        planner.add(Step(1, Kind.REDUCE, Pool.COMPUTE, tiles=at, num_bytes=96), [sent])
    return planner.plan()


def test_every_column_has_one_entry_per_step(small: Plan) -> None:
    assert {len(getattr(small, name)) for name in COLUMNS} == {len(small)} == {6}


def test_a_step_waits_for_what_it_was_added_after(small: Plan) -> None:
    assert [small.waits_for(step).tolist() for step in range(6)] == [[], [0], [1], [], [3], [4]]


def test_an_address_names_rank_kind_peer_and_the_number_among_them(small: Plan) -> None:
    assert [small.address(step) for step in range(6)] == [
        "0/compute/-1/0",
        "0/put/1/0",
        "1/reduce/-1/0",
        "0/compute/-1/1",
        "0/put/1/1",
        "1/reduce/-1/1",
    ]


def test_what_feeds_peers_goes_before_computation(small: Plan) -> None:
    turns = small.turn.tolist()
    assert max(turns[step] for step in (1, 2, 4, 5)) < min(turns[step] for step in (0, 3))
    assert turns[1] < turns[4]
    assert turns[0] < turns[3]


def test_arrivals_are_the_puts_into_a_ranks_memory(small: Plan) -> None:
    assert small.arrivals(1).tolist() == [1, 4]
    assert small.arrivals(0).tolist() == []


def test_wire_bytes_are_those_that_leave(small: Plan) -> None:
    assert (small.wire_bytes(0), small.wire_bytes(1)) == (64, 0)


def test_a_part_keeps_the_waits_among_its_own_steps(small: Plan) -> None:
    rest = small.part("communication")
    assert [Kind(kind).word for kind in rest.kind] == ["put", "reduce", "put", "reduce"]
    assert [rest.waits_for(step).tolist() for step in range(4)] == [[], [0], [], [2]]
    assert small.part("compute").after.tolist() == []
    assert small.part("whole") is small


def test_a_plan_without_steps_has_columns_of_no_length() -> None:
    asked = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)
    empty = Planner(asked, Schedule("fused"), []).plan()
    assert len(empty) == len(empty.turn) == len(empty.part("compute")) == 0


def test_the_last_tiles_of_a_block_are_cut_to_it() -> None:
    made = cut(ChunkBlocks.of([0, 2], (np.array([0, 1]), np.array([5, 3])), (0, 3)), tile("4x2x1"))
    assert made.bounds.tolist() == [0, 4, 6]
    assert made.tiles.chunk.tolist() == [0, 0, 0, 0, 2, 2]
    assert made.tiles.row_stop.tolist() == [4, 4, 5, 5, 3, 3]
    assert made.tiles.col_stop.tolist() == [2, 3, 2, 3, 2, 3]
    assert made.tiles.areas().tolist() == [8, 4, 2, 1, 4, 2]


def test_tiles_know_how_many_they_are() -> None:
    assert (
        len(Tiles(*[made := cut(ChunkBlocks.of(0, (0, 4), (0, 4)), tile("2x2x1")).tiles.chunk] * 5)) == len(made) == 4
    )


def test_steps_added_at_once_have_numbers_in_their_shape_and_wait_for_those_beside_them() -> None:
    asked = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)
    planner, rank = Planner(asked, Schedule("fused"), []), np.arange(2)
    computed = planner.add(Step(rank[:, None], Kind.COMPUTE, Pool.COMPUTE, k=(0, np.array([1, 2, 3]))))
    sent = planner.add(Step(rank, Kind.PUT, Pool.LINK, 1 - rank, num_bytes=8), computed[:, :2])
    assert (computed.tolist(), sent.tolist()) == ([[0, 1, 2], [3, 4, 5]], [6, 7])
    planner.wait(computed[:, 2], np.where(rank == 0, sent[::-1], -1))
    plan = planner.plan()
    assert plan.k_stop.tolist() == [1, 2, 3, 1, 2, 3, 0, 0]
    assert [plan.waits_for(step).tolist() for step in (2, 5, 6, 7)] == [[7], [], [0, 1], [3, 4]]


def test_followers_come_right_behind_their_leaders_and_keep_their_waits() -> None:
    asked = problem("gemm_all_to_all", {"m": 8, "n": 4, "k": 2}, world=2)
    planner = Planner(asked, Schedule("fused"), [])
    summed = planner.add(Step(np.zeros(2, dtype=np.int64), Kind.REDUCE, Pool.COMPUTE))
    told = planner.add(Step(0, Kind.PUT, Pool.LINK, np.array([1, 1])), summed[:, None])
    planner.follow(told, summed)
    plan = planner.plan()
    assert [plan.address(step) for step in range(4)] == ["0/reduce/-1/0", "0/put/1/0", "0/reduce/-1/1", "0/put/1/1"]
    assert [plan.waits_for(step).tolist() for step in range(4)] == [[], [0], [], [2]]
