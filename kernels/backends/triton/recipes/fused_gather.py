"""A pooled lookup, fused: a warp sums up a vector and stores it straight into the output of the sample's owner."""

from __future__ import annotations

from typing import Any

from kernels.axes import tile
from kernels.backends.triton import limits
from kernels.backends.triton.recipes.fused import OneKernel, kinds
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Schedule
from kernels.schemes import hints
from kernels.schemes.base import num_tiles


def _facts(problem: Problem, schedule: Schedule, alone: bool) -> tuple[str, tuple[Any, ...]]:
    """What its walk through a tile is made of."""
    operator, size = OPERATORS[problem.operator], tile(schedule["tile"])
    dim, tables, world = problem["dim"], problem["tables_per_rank"], problem.world
    chunk, columns = operator.chunk_rows(problem), operator.extent(problem).columns
    even = chunk % size.m == 0 and tables % max(1, size.n // dim) == 0
    rows, width = (problem["batch"], columns) if alone else (chunk, world * columns)
    numbers = num_tiles(problem, str(size)), rows, problem["rows"], tables, width
    return "lookup", (world, dim, problem["pooling"], even, hints.eviction(schedule), hints.modifier(schedule),
                      *kinds(*numbers))  # fmt: skip


KERNEL = OneKernel(refusal=limits.of_tile, facts=_facts,
                   module="kernels.backends.triton.kernels.embedding")  # fmt: skip
