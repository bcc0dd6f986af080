"""What the five GEMM operators share: C[m, n] = A[m, k] B[k, n] on one rank, rows cut into one chunk per rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernels.operators.base import Extent, Flow, Key, Operator, ResultLayout, Shape, Sizes
from kernels.problem import Problem

KEYS = (
    Key(name="m", doc="rows of the GEMM one rank computes", shared=True),
    Key(name="n", doc="columns of the GEMM one rank computes"),
    Key(name="k", doc="contraction of the GEMM one rank computes"),
)
TILE_MEANS = "block_m rows x block_n columns of C; block_k of the contraction at once (GPU tiles; ATen blocks k itself)"


def extent(problem: Problem) -> Extent:
    """m x n over k."""
    return Extent(problem["m"], problem["n"], problem["k"])


def flops(problem: Problem) -> int:
    """A multiplication and an addition for each of m x n x k."""
    return 2 * problem["m"] * problem["n"] * problem["k"]


def memory_bytes(problem: Problem) -> int:
    """A and B read once, C written once."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return (m * k + k * n + m * n) * problem.itemsize


def sizes(first: Shape, second: Shape, world: int) -> Mapping[str, Any]:
    """The sizes where the first operand holds all of m x k."""
    return {"m": first[0], "n": second[1], "k": first[1]}


def operator(
    *,
    flow: Flow,
    collective: str,
    local: Callable[[Problem], Sizes],
    whole: Callable[[Problem], Sizes],
    sizes: Callable[[Shape, Shape, int], Mapping[str, Any]] = sizes,
    first_words: str = "[m, k]",
    **words: str,
) -> Operator:
    """The GEMM operator with this flow and collective; *words* are its name, words, occurs and source.

    A direction can be cut where its pieces are of use alone: of what arrives its rows and its contraction, of what
    leaves its rows and its columns.
    """
    sends = flow is Flow.SEND
    reduces = collective in ("reduce_scatter", "all_reduce")
    received = {"rows": "rows", "contraction": "contraction", "rows_and_contraction": "rows_and_contraction"}
    return Operator(
        **words,
        flow=flow,
        collective=collective,
        work="gemm",
        reduces=reduces,
        layout=ResultLayout.ROWS if sends and not reduces else ResultLayout.WHOLE,
        keys=KEYS,
        splits=received if flow is Flow.RECEIVE else {"rows": "rows", "columns": "columns"},
        tile_means=TILE_MEANS,
        extent=extent,
        flops=flops,
        memory_bytes=memory_bytes,
        local=local,
        operand_words=(first_words, "[k, n]"),
        sizes=sizes,
        whole=whole,
    )
