"""Row-parallel GEMM, then the reduce-scatter of its partial sums."""

from __future__ import annotations

from kernels.operators import gemm
from kernels.operators.base import Flow, Sizes
from kernels.problem import Problem


def _local(problem: Problem) -> Sizes:
    """k is this rank's share of the contraction; the sum's row chunk p goes to rank p."""
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, k), "b": (k, n), "output": (m // w, n)}


def _whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, w * k), "b": (w * k, n), "output": (m, n)}


OPERATOR = gemm.operator(
    name="gemm_reduce_scatter",
    title="GEMM -> reduce-scatter",
    words="GEMM, then partial sums go to their owners",
    occurs="tensor parallel",
    source="arXiv:2512.10236",
    flow=Flow.SEND,
    collective="reduce_scatter",
    local=_local,
    whole=_whole,
)
