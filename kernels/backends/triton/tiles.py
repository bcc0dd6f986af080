"""Which tiles the kernels can walk, in words alone: asked before anything is measured, and by who puts a kernel
together."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.axes import Tile
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.schedule import Refusal
from kernels.schemes.base import UNDER_WAY, above

FEWEST_K = 16
"""Of the contraction, that one instruction of the tensor cores takes."""
LANES, LANE_BYTES = 32, 16
"""Of a warp; what each of them loads at once."""
LOADS_MOST = UNDER_WAY // (LANES * LANE_BYTES)
"""Loads of one lane on their way at once."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How one warp goes through a tile of a lookup."""

    tables: int
    """Whole tables side by side, or 1 where a tile is a part of one."""
    pairs: int
    """Samples times tables, one after the other."""
    elements: int
    """Of a vector, computed at once."""
    unroll: int
    """Lookups of a pair that are on their way at once."""
    even: bool
    """Whether nothing has to be masked."""


def walk(problem: Problem, size: Tile) -> Walk:
    """How tiles of *size* are walked; Refusal where they cannot be."""
    dim, count, pooling = problem["dim"], problem["tables_per_rank"], problem["pooling"]
    tables = max(1, size.n // dim)
    if size.n % dim and (dim % size.n or not _is_power(size.n)):
        raise Refusal(
            f"tile = {size} does not fit: {size.n} columns are neither whole vectors (multiples of dim = {dim}) "
            f"nor a power of two that divides {dim}. Accepted: {Tile(size.m, tables * dim, size.k)}."
        )
    elements = above(min(size.n, dim))
    unroll = _power_below(min(size.k, above(pooling)))
    loads = unroll * max(1, elements * problem.itemsize // (LANES * LANE_BYTES))
    if loads > LOADS_MOST:
        fewer = Tile(size.m, size.n, unroll * LOADS_MOST // loads)
        accepted = f"fewer lookups at once, such as {fewer}"
        if not fewer.k:
            accepted = f"at most {UNDER_WAY // problem.itemsize} elements of a vector"
        raise Refusal(
            f"tile = {size} is too large. Each lane of a warp would wait for {loads} loads of {LANE_BYTES} bytes "
            f"at once: {loads} > {LOADS_MOST}. Accepted: {accepted}."
        )
    chunk = OPERATORS[problem.operator].chunk_rows(problem)
    even = chunk % size.m == 0 and count % tables == 0 and pooling % unroll == 0 and elements == min(size.n, dim)
    return Walk(tables, size.m * tables, elements, unroll, even)


def check(problem: Problem, size: Tile) -> None:
    """Refusal where the fused kernel of *problem* cannot walk tiles of *size*."""
    if OPERATORS[problem.operator].work == "gather":
        walk(problem, size)
    elif any(not _is_power(side) for side in (size.m, size.n, size.k)) or size.k < FEWEST_K:
        such = "16x1x512" if OPERATORS[problem.operator].work == "gemv" else "128x256x64"
        raise Refusal(
            f"tile = {size} does not run {problem.operator} on backend = triton. {size.m}, {size.n} and {size.k} must "
            f"be powers of two, and the last at least {FEWEST_K}. Accepted: values such as {such}."
        )


def _is_power(count: int) -> bool:
    return count == _power_below(count)


def _power_below(count: int) -> int:
    return 1 << (count.bit_length() - 1)
