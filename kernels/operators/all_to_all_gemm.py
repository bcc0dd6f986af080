"""The all-to-all that brings tokens to this rank's expert, then its GEMM."""

from __future__ import annotations

from kernels.operators import gemm
from kernels.operators.base import Flow, Sizes
from kernels.problem import Problem


def _local(problem: Problem) -> Sizes:
    """Rows m are the tokens this rank's expert works on, m/world of them from each rank."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"tokens": (m, k), "expert": (k, n), "output": (m, n)}


def _whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"tokens": (w * m, k), "experts": (w, k, n), "output": (w * m, n)}


OPERATOR = gemm.operator(
    name="all_to_all_gemm",
    title="all-to-all -> GEMM",
    words="tokens go to their experts, then GEMM",
    occurs="MoE dispatch",
    source="arXiv:2512.10236",
    flow=Flow.RECEIVE,
    collective="all_to_all",
    local=_local,
    whole=_whole,
)
