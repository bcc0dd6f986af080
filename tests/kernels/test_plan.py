"""A Planner's steps become columns, without loops; a Plan answers who waits and who goes first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import plan
from kernels.operators import problem
from kernels.plan import COLUMNS, Kind, Plan, Planner, Pool, Step, Tiles
from kernels.schedule import Schedule, tile
from kernels.schemes.base import ChunkBlocks, cut

# A Planner's steps become columns; a Plan answers who waits, who goes first, and what belongs to a part.


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


# Columns without loops are what loops would make of them.

NUMBERS = st.lists(st.integers(0, 6), max_size=30)


def column(numbers: list[int]) -> plan.Ints:
    return np.array(numbers, dtype=np.int64)


@given(NUMBERS)
def test_parts_laid_end_to_end_begin_where_the_one_before_ends(counts: list[int]) -> None:
    assert plan.bounds(column(counts)).tolist() == [sum(counts[:n]) for n in range(len(counts) + 1)]
    assert plan.inside(column(counts)).tolist() == [place for count in counts for place in range(count)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=20))
def test_ranges_are_laid_end_to_end(parts: list[tuple[int, int]]) -> None:
    start = column([begin for begin, _ in parts])
    stop = start + column([length for _, length in parts])
    assert plan.laid(start, stop).tolist() == [n for begin, length in parts for n in range(begin, begin + length)]


@given(NUMBERS)
def test_the_nth_of_its_kind_counts_equal_entries_before_it(key: list[int]) -> None:
    assert plan.nth(column(key)).tolist() == [key[:place].count(each) for place, each in enumerate(key)]


@given(NUMBERS)
def test_the_one_before_is_the_last_equal_entry(key: list[int]) -> None:
    expected = [max((n for n in range(place) if key[n] == each), default=-1) for place, each in enumerate(key)]
    assert plan.before(column(key)).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), max_size=30))
def test_pairs_are_found_by_step_in_their_order(pairs: list[tuple[int, int]]) -> None:
    waiting, needed = column([step for step, _ in pairs]), column([other for _, other in pairs])
    start, flat = plan.by_step(waiting, needed, 7)
    for step in range(7):
        assert flat[start[step] : start[step + 1]].tolist() == [other for each, other in pairs if each == step]
    once = plan.distinct(waiting, needed)
    assert list(zip(*(side.tolist() for side in once), strict=True)) == sorted(set(pairs))


def test_some_ranges_are_those_at_their_places_in_any_shape() -> None:
    start, stop = plan.some((column([0, 5, 9]), column([5, 9, 10])), np.array([[2], [0]]))
    assert (start.tolist(), stop.tolist()) == ([[9], [0]], [[10], [5]])
