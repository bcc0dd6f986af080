"""Pooled lookup whose sums leave for the samples' owners: what `embedding` is called with, which tiles it can walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernels.axes import Tile, tile
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.embedding import embedding
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.send import TRITON_DTYPES, tile_table
from kernels.operators import OPERATORS
from kernels.problem import Problem
from kernels.reference import Operands
from kernels.schedule import Refusal
from kernels.schemes.base import UNDER_WAY, above

LANES, LANE_BYTES = 32, 16
"""Of a warp; what each of them loads at once."""
LOADS_MOST = UNDER_WAY // (LANES * LANE_BYTES)
"""Loads of one lane on their way at once."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How one warp goes through a tile."""

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
            f"tile = {size} was asked for, but a warp computes whole vectors of dim = {dim}, or a power of two that "
            f"divides {dim}: {size.n} is neither. Accepted: {Tile(size.m, tables * dim, size.k)}."
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
            f"tile = {size} was asked for, for which each lane of a warp would have {loads} loads of {LANE_BYTES} "
            f"bytes on their way at once: {loads} > {LOADS_MOST}. Accepted: {accepted}."
        )
    chunk = OPERATORS[problem.operator].chunk_rows(problem)
    even = chunk % size.m == 0 and count % tables == 0 and pooling % unroll == 0 and elements == min(size.n, dim)
    return Walk(tables, size.m * tables, elements, unroll, even)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """`embedding` for one trial; *alone*: the lookup into `context.local`, nothing sent or awaited."""
    problem, schedule = context.problem, context.plan.schedule
    tables, indices = operands["tables"], operands["indices"]
    walked = walk(problem, tile(schedule["tile"]))
    if schedule.get("num_warps", 1) != 1:
        raise Refusal(
            f"num_warps = {schedule['num_warps']} was asked for, but the lookup's blocks are one warp each, which sums "
            f"up one vector: {schedule['num_warps']} > 1. Accepted: 1."
        )
    items = tile_table(context.plan, context.rank)
    chunk = OPERATORS[problem.operator].chunk_rows(problem)
    if alone:  # as if one rank owned all samples
        items[:, 1] += items[:, 0] * chunk
        items[:, 0], chunk = 0, problem["batch"]
    return Kernel(
        function=embedding,
        arguments=(
            tables, indices, items.to(context.device), len(items), chunk, problem["rows"], problem["tables_per_rank"],
            *_places(context, alone), context.epoch, context.arrived, context.error, context.limit_ns, context.rank,
            None,
        ),
        constants={
            "WORLD": problem.world, "PAIRS": walked.pairs, "TABLES": walked.tables, "DIM": problem["dim"],
            "ELEMENTS": walked.elements, "POOLING": problem["pooling"], "UNROLL": walked.unroll,
            "DTYPE": TRITON_DTYPES[problem.dtype], "EVEN": walked.even, "COMPUTE_ONLY": alone,
            "ROWS_CACHE": "", "INDICES_CACHE": "evict_first", "STORE_CACHE": "",
        },
        num_warps=1,
        num_stages=1,
        items=len(items),
        asked=int(schedule.get("grid", 0) or 0),
        records=len(items),
    )  # fmt: skip


def _places(context: Context, alone: bool) -> tuple[Any, ...]:
    """Elements from row to row of the output, our first column there, and addresses by rank: out, credits, ends."""
    columns = OPERATORS[context.problem.operator].extent(context.problem).columns
    if alone:
        own = torch.tensor([context.local.data_ptr()], dtype=torch.int64, device=context.device)
        return columns, 0, own, own, own
    found = [context.addresses(name) for name in ("out", "credits", "done")]
    return context.world * columns, context.rank * columns, *found


def _is_power(count: int) -> bool:
    return count == _power_below(count)


def _power_below(count: int) -> int:
    return 1 << (count.bit_length() - 1)
