"""The embedding operator of DLRM: pooled lookups for the global batch, then each rank gets its slice of all tables."""

from __future__ import annotations

from typing import Any

from kernels.operators.base import Extent, Flow, Key, Operator, ResultLayout, Shape, Sizes
from kernels.problem import Problem

INDEX_BYTES = 8
"""Bytes of an index, int64 as torch's embedding_bag takes it."""


def _extent(problem: Problem) -> Extent:
    return Extent(problem["batch"], problem["tables_per_rank"] * problem["dim"], problem["pooling"])


def _lookups(problem: Problem) -> int:
    return problem["batch"] * problem["tables_per_rank"] * problem["pooling"]


def _flops(problem: Problem) -> int:
    return _lookups(problem) * problem["dim"]


def _memory_bytes(problem: Problem) -> int:
    """Bytes of all looked-up rows (no reuse assumed) and indices, which are read, and of pooled vectors, written."""
    pooled = problem["batch"] * problem["tables_per_rank"] * problem["dim"] * problem.itemsize
    return _lookups(problem) * (problem["dim"] * problem.itemsize + INDEX_BYTES) + pooled


def _local(problem: Problem) -> Sizes:
    """Shapes on rank p, which owns its tables and batch slice p; its result has all ranks' tables for that slice."""
    tables, batch, world = problem["tables_per_rank"], problem["batch"], problem.world
    return {
        "tables": (tables, problem["rows"], problem["dim"]),
        "indices": (batch, tables, problem["pooling"]),
        "output": (batch // world, world * tables * problem["dim"]),
    }


def _whole(problem: Problem) -> Sizes:
    tables, batch = problem.world * problem["tables_per_rank"], problem["batch"]
    return {
        "tables": (tables, problem["rows"], problem["dim"]),
        "indices": (batch, tables, problem["pooling"]),
        "output": (batch, tables * problem["dim"]),
    }


def _sizes(tables: Shape, indices: Shape, world: int) -> dict[str, Any]:
    count, rows, dim = tables
    return {"tables_per_rank": count, "rows": rows, "dim": dim, "batch": indices[0], "pooling": indices[2]}


OPERATOR = Operator(
    name="embedding_all_to_all",
    title="embedding -> all-to-all",
    words="embedding lookup, then every rank gets its samples",
    occurs="DLRM",
    source="arXiv:2305.06942",
    flow=Flow.SEND,
    collective="all_to_all",
    work="gather",
    reduces=False,
    layout=ResultLayout.COLUMNS,
    keys=(
        Key(name="tables_per_rank", doc="embedding tables on one rank"),
        Key(name="rows", doc="rows of each table"),
        Key(name="dim", doc="width of one embedding"),
        Key(name="batch", doc="samples, global", shared=True),
        Key(name="pooling", doc="lookups summed per sample and table"),
        Key(name="indices", doc="how indices are drawn", words=("uniform", "power_law")),
    ),
    splits={"batch": "rows", "tables": "columns"},
    tile_means="block_m samples x block_n columns, a column being one element of one table's vector; block_k lookups",
    extent=_extent,
    flops=_flops,
    memory_bytes=_memory_bytes,
    local=_local,
    operand_shapes=("[tables_per_rank, rows, dim]", "[batch, tables_per_rank, pooling]"),
    sizes=_sizes,
    whole=_whole,
)
