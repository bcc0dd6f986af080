"""Columns without loops are what loops would make of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernels import plan

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
