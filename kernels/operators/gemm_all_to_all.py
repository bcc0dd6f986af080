"""Expert GEMM on this rank, then the all-to-all that takes each row back to its token's rank."""

from __future__ import annotations

from kernels.operators import gemm
from kernels.operators.base import Flow, Sizes
from kernels.problem import Problem


def _local(problem: Problem) -> Sizes:
    """Rows m are the tokens routed to this rank's expert, m/world from each rank; they go back to those ranks."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"tokens": (m, k), "expert": (k, n), "output": (m, n)}


def _whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"tokens": (w * m, k), "experts": (w, k, n), "output": (w * m, n)}


OPERATOR = gemm.operator(
    name="gemm_all_to_all",
    title="GEMM -> all-to-all",
    words="expert GEMM, then tokens go home",
    occurs="MoE combine",
    source="arXiv:2305.06942",
    flow=Flow.SEND,
    collective="all_to_all",
    local=_local,
    whole=_whole,
)
