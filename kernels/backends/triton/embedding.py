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
from kernels.schemes.base import above

VECTOR_BYTES = 16
"""What a thread loads and stores at once."""
LOADS_MOST = 32
"""Vectors of one thread on their way at once: half of its registers."""
WARPS = 4
"""Of schedules that name none: of the sequential lookup, which has the whole GPU to itself."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How a tile lies on the threads of a block."""

    tables: int
    """Whole tables side by side, or 1 where a tile is a part of one."""
    pairs: int
    """Samples times tables."""
    lanes: int
    width: int
    """Elements of a vector, `lanes` times `width` of which are computed at once."""
    unroll: int
    """Lookups of each pair that are on their way at once."""
    warps: int
    even: bool
    """Whether nothing has to be masked."""


def walk(problem: Problem, size: Tile, warps: int) -> Walk:
    """How tiles of *size* are walked by blocks of at most *warps* warps; Refusal where they cannot be."""
    dim, count, pooling = problem["dim"], problem["tables_per_rank"], problem["pooling"]
    tables = max(1, size.n // dim)
    whole = size.n % dim == 0 and _is_power(tables)
    if not (whole or (_is_power(size.n) and dim % size.n == 0)) or not _is_power(size.m):
        raise Refusal(
            f"tile = {size} was asked for, but a block computes a power of two of samples, by whole vectors of dim = "
            f"{dim} (a power of two of tables) or by a power of two that divides {dim}. "
            f"Accepted: {Tile(_power_below(size.m), max(1, _power_below(tables)) * dim, size.k)}."
        )
    elements = above(min(size.n, dim))
    width = min(elements, VECTOR_BYTES // problem.itemsize)
    pairs, lanes = size.m * tables, elements // width
    unroll = _power_below(min(size.k, above(pooling)))
    warps = min(warps, max(1, pairs * lanes // 32))  # the sum over lookups stays inside a thread
    loads = unroll * pairs * lanes // (32 * warps)
    if loads > LOADS_MOST:
        raise Refusal(
            f"tile = {size} was asked for, for which each of {32 * warps} threads would have {loads} vectors of "
            f"{VECTOR_BYTES} bytes on their way at once: {loads} > {LOADS_MOST}. Accepted: a smaller tile, more warps."
        )
    chunk = OPERATORS[problem.operator].chunk_rows(problem)
    even = chunk % size.m == 0 and count % tables == 0 and pooling % unroll == 0 and dim % elements == 0
    return Walk(tables, pairs, lanes, width, unroll, warps, even)


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """`embedding` for one trial; *alone*: the lookup into `context.local`, nothing sent or awaited."""
    problem, schedule = context.problem, context.plan.schedule
    tables, indices = operands["tables"], operands["indices"]
    walked = walk(problem, tile(schedule["tile"]), int(schedule.get("num_warps", WARPS) or WARPS))
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
            "LANES": walked.lanes, "WIDTH": walked.width, "POOLING": problem["pooling"], "UNROLL": walked.unroll,
            "DTYPE": TRITON_DTYPES[problem.dtype], "EVEN": walked.even, "COMPUTE_ONLY": alone,
            "ROWS_CACHE": "", "INDICES_CACHE": "evict_first", "STORE_CACHE": "",
        },
        num_warps=walked.warps,
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
