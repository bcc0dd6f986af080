"""The all-gather of row-sharded activations, then a GEMM over all rows."""

from __future__ import annotations

from typing import Any

from kernels.operators import gemm
from kernels.operators.base import Flow, Shape, Sizes
from kernels.problem import Problem


def _local(problem: Problem) -> Sizes:
    """Rank p holds row chunk p of A; n is this rank's share of the columns."""
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"shard": (m // w, k), "b": (k, n), "output": (m, n)}


def _whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, k), "b": (k, w * n), "output": (m, w * n)}


def _sizes(shard: Shape, b: Shape, world: int) -> dict[str, Any]:
    return {"m": world * shard[0], "n": b[1], "k": shard[1]}


OPERATOR = gemm.operator(
    name="all_gather_gemm",
    title="all-gather -> GEMM",
    words="gather the sharded activations, then GEMM",
    occurs="sequence and tensor parallel, FSDP",
    source="arXiv:2512.10236",
    flow=Flow.RECEIVE,
    collective="all_gather",
    local=_local,
    first_words="[m/world, k]",
    sizes=_sizes,
    whole=_whole,
)
