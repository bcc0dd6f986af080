"""How fast a collective is, as nccl-tests counts it."""

from __future__ import annotations

from kernels.operators import OPERATORS
from kernels.problem import Problem


def algbw(problem: Problem, comm_s: float) -> float:
    """Bytes of the collective's buffer per second, as nccl-tests counts them."""
    return _buffer_bytes(problem) / comm_s


def busbw(problem: Problem, comm_s: float) -> float:
    """algbw times nccl-tests' factor: what one link direction carries, whatever the world."""
    world = problem.world
    share = 2 if OPERATORS[problem.operator].collective == "all_reduce" else 1
    return algbw(problem, comm_s) * share * (world - 1) / world


def _buffer_bytes(problem: Problem) -> int:
    """nccl-tests' size: the larger of what a rank puts in and gets out."""
    operator = OPERATORS[problem.operator]
    extent = operator.extent(problem)
    width = extent.contraction if operator.flow == "receive -> compute" else extent.columns
    return extent.rows * width * problem.itemsize
