"""Pooled lookup whose sums leave for the samples' owners: what `embedding` is called with."""

from __future__ import annotations

from typing import Any

import torch

from kernels.axes import tile
from kernels.backends.triton.context import Context
from kernels.backends.triton.kernels.embedding import embedding
from kernels.backends.triton.launch import Kernel
from kernels.backends.triton.send import TRITON_DTYPES, tile_table
from kernels.backends.triton.tiles import walk
from kernels.operators import OPERATORS
from kernels.reference import Operands


def kernel(context: Context, operands: Operands, *, alone: bool = False) -> Kernel:
    """`embedding` for one trial; *alone*: the lookup into `context.local`, nothing sent or awaited."""
    problem, schedule = context.problem, context.plan.schedule
    tables, indices = operands["tables"], operands["indices"]
    walked = walk(problem, tile(schedule["tile"]))
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
