"""How many calls a graph has: as many as fill some milliseconds, or as the protocol says, all operands in turn."""

from dataclasses import replace

import pytest

from kernels.backends.triton.graph import CALLS_MOST, turns
from kernels.protocol import PROTOCOLS


@pytest.mark.parametrize(("typical_s", "count"), [(1e-6, CALLS_MOST // 8 * 8), (3e-4, 8), (1.0, 8)])
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
