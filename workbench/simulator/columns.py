"""A problem whose sizes are columns: operators and prices ask it as they ask one problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from kernels.problem import Problem


class SizedByColumns:
    """Looks like a Problem, but its counts are columns."""

    def __init__(self, problem: Problem, counts: Mapping[str, NDArray[Any]]) -> None:
        self._problem, self._counts = problem, counts
        self.operator, self.world = problem.operator, problem.world
        self.dtype, self.itemsize = problem.dtype, problem.itemsize

    def __getitem__(self, key: str) -> NDArray[Any]:
        return self._counts[key]

    def word(self, key: str) -> str:
        return self._problem.word(key)
