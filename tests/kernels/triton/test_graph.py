"""How many calls a graph has: as many as fill some milliseconds, or as the protocol says, all operands in turn."""

from dataclasses import replace

import pytest

from kernels.backends.triton.timing import CALLS_MOST, turns
from kernels.trial import PROTOCOLS


@pytest.mark.parametrize(("typical_s", "count"), [(1e-6, CALLS_MOST // 8 * 8), (3e-4, 8), (5e-4, 8)])
def test_an_open_number_of_calls_fills_some_milliseconds_and_takes_all_operands_alike(
    typical_s: float, count: int
) -> None:
    (numbers,) = turns(PROTOCOLS["default"], 8, typical_s)
    assert numbers == [number % 8 for number in range(count)]


def test_eager_calls_are_as_many_as_there_are_operands() -> None:
    assert turns(replace(PROTOCOLS["default"], cuda_graph=False), 3, 1e-6) == [[0, 1, 2]]


def test_one_call_a_graph_takes_the_operands_graph_by_graph() -> None:
    assert turns(PROTOCOLS["latency"], 4, 1e-6) == [[0], [1], [2], [3]]
    assert turns(replace(PROTOCOLS["default"], calls_per_graph=4), 6, 1e-6) == [
        [0, 1, 2, 3], [4, 5, 0, 1], [2, 3, 4, 5],
    ]  # fmt: skip


def test_many_sets_of_operands_make_a_graph_longer() -> None:
    (numbers,) = turns(PROTOCOLS["default"], 64, 1e-5)
    assert numbers == list(range(64))


def test_calls_that_are_long_share_their_operands_among_graphs() -> None:
    assert turns(PROTOCOLS["default"], 4, 1.1e-3) == [[0, 1, 2, 3]]
    assert turns(PROTOCOLS["default"], 4, 1.2e-3) == [[0, 1], [2, 3]]
    assert turns(PROTOCOLS["default"], 4, 4e-3) == [[0], [1], [2], [3]]
    assert turns(PROTOCOLS["default"], 8, 1.4e-3) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("name", ["default", "latency"])
@pytest.mark.parametrize("sets", [4, 8, 64])
@pytest.mark.parametrize("typical_s", [1e-6, 1e-4, 1e-2])
def test_the_last_call_of_all_takes_the_last_set_of_operands(name: str, sets: int, typical_s: float) -> None:
    graphs = turns(PROTOCOLS[name], sets, typical_s)
    assert graphs[-1][-1] == sets - 1
    assert {number for graph in graphs for number in graph} == set(range(sets))
