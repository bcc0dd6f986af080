"""The GEMV operator of a decode step: a row-parallel product with a few tokens, then the sum over ranks."""

from __future__ import annotations

from typing import Any

from kernels.operators.base import Extent, Flow, Key, Operator, ResultLayout, Shape, Sizes
from kernels.problem import Problem

MAX_TOKENS = 8


def _extent(problem: Problem) -> Extent:
    return Extent(problem["n"], problem["tokens"], problem["k"] // problem.world)


def _flops(problem: Problem) -> int:
    return 2 * problem["n"] * problem["k"] // problem.world * problem["tokens"]


def _memory_bytes(problem: Problem) -> int:
    n, k, tokens = problem["n"], problem["k"] // problem.world, problem["tokens"]
    return (n * k + k * tokens + n * tokens) * problem.itemsize


def _local(problem: Problem) -> Sizes:
    """Shapes on rank p, which holds share p of the contraction, sums row chunk p of the output and sends it to all."""
    n, k, tokens = problem["n"], problem["k"] // problem.world, problem["tokens"]
    return {"weights": (n, k), "activations": (k, tokens), "output": (n, tokens)}


def _whole(problem: Problem) -> Sizes:
    n, k, tokens = problem["n"], problem["k"], problem["tokens"]
    return {"weights": (n, k), "activations": (k, tokens), "output": (n, tokens)}


def _sizes(weights: Shape, activations: Shape, world: int) -> dict[str, Any]:
    return {"n": weights[0], "k": world * weights[1], "tokens": activations[1]}


OPERATOR = Operator(
    name="gemv_all_reduce",
    title="GEMV -> all-reduce",
    words="matrix times a few tokens, then everybody gets the sum",
    occurs="transformer decode",
    source="arXiv:2305.06942",
    flow=Flow.BROADCAST,
    collective="all_reduce",
    work="gemv",
    reduces=True,
    layout=ResultLayout.WHOLE,
    keys=(
        Key(name="n", doc="output rows, global", shared=True),
        Key(name="k", doc="contraction, global; each rank has k/world of it", shared=True),
        Key(
            name="tokens",
            doc=f"columns: tokens decoded together, 1 to {MAX_TOKENS}",
            most=MAX_TOKENS,
            beyond="gemm_all_reduce for more",
        ),
    ),
    splits={"rows": "rows"},
    tile_means="block_m output rows x block_n tokens; block_k of the contraction at once (GPU tiles only)",
    extent=_extent,
    flops=_flops,
    memory_bytes=_memory_bytes,
    local=_local,
    operand_shapes=("[n, k/world]", "[k/world, tokens]"),
    sizes=_sizes,
    whole=_whole,
)
