"""Row-parallel GEMM, then the all-reduce of its partial sums."""

from __future__ import annotations

from kernels.operators import gemm
from kernels.operators.base import Flow, Sizes
from kernels.problem import Problem


def _local(problem: Problem) -> Sizes:
    """k is this rank's share of the contraction; rank p sums row chunk p and gives it to all."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"a": (m, k), "b": (k, n), "output": (m, n)}


def _whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, w * k), "b": (w * k, n), "output": (m, n)}


OPERATOR = gemm.operator(
    name="gemm_all_reduce",
    title="GEMM -> all-reduce",
    words="GEMM, then everybody gets the sum",
    occurs="tensor and data parallel training",
    source="arXiv:2606.09200",
    flow=Flow.BROADCAST,
    collective="all_reduce",
    local=_local,
    whole=_whole,
)
