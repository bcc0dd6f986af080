"""Row-parallel GEMM, then the all-reduce of its partial sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernels.operators.base import Extent, Flow, Key, Operator, ResultLayout, Shape, Sizes
from kernels.problem import Problem

# What the five GEMM operators share: C[m, n] = A[m, k] B[k, n] on one rank, rows cut into one chunk per rank.

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
        operand_shapes=(first_words, "[k, n]"),
        sizes=sizes,
        whole=whole,
    )


# Expert GEMM on this rank, then the all-to-all that takes each row back to its token's rank.


def _gemm_all_to_all_local(problem: Problem) -> Sizes:
    """Rows m are the tokens routed to this rank's expert, m/world from each rank; they go back to those ranks."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"tokens": (m, k), "expert": (k, n), "output": (m, n)}


def _gemm_all_to_all_whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"tokens": (w * m, k), "experts": (w, k, n), "output": (w * m, n)}


GEMM_ALL_TO_ALL_OPERATOR = operator(
    name="gemm_all_to_all",
    title="GEMM -> all-to-all",
    words="expert GEMM, then tokens go home",
    occurs="MoE combine",
    source="arXiv:2305.06942",
    flow=Flow.SEND,
    collective="all_to_all",
    local=_gemm_all_to_all_local,
    whole=_gemm_all_to_all_whole,
)


# The all-gather of row-sharded activations, then a GEMM over all rows.


def _all_gather_gemm_local(problem: Problem) -> Sizes:
    """Rank p holds row chunk p of A; n is this rank's share of the columns."""
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"shard": (m // w, k), "b": (k, n), "output": (m, n)}


def _all_gather_gemm_whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, k), "b": (k, w * n), "output": (m, w * n)}


def _sizes(shard: Shape, b: Shape, world: int) -> dict[str, Any]:
    return {"m": world * shard[0], "n": b[1], "k": shard[1]}


ALL_GATHER_GEMM_OPERATOR = operator(
    name="all_gather_gemm",
    title="all-gather -> GEMM",
    words="gather the sharded activations, then GEMM",
    occurs="sequence and tensor parallel, FSDP",
    source="arXiv:2512.10236",
    flow=Flow.RECEIVE,
    collective="all_gather",
    local=_all_gather_gemm_local,
    first_words="[m/world, k]",
    sizes=_sizes,
    whole=_all_gather_gemm_whole,
)


# The all-to-all that brings tokens to this rank's expert, then its GEMM.


def _all_to_all_gemm_local(problem: Problem) -> Sizes:
    """Rows m are the tokens this rank's expert works on, m/world of them from each rank."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"tokens": (m, k), "expert": (k, n), "output": (m, n)}


def _all_to_all_gemm_whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"tokens": (w * m, k), "experts": (w, k, n), "output": (w * m, n)}


ALL_TO_ALL_GEMM_OPERATOR = operator(
    name="all_to_all_gemm",
    title="all-to-all -> GEMM",
    words="tokens go to their experts, then GEMM",
    occurs="MoE dispatch",
    source="arXiv:2512.10236",
    flow=Flow.RECEIVE,
    collective="all_to_all",
    local=_all_to_all_gemm_local,
    whole=_all_to_all_gemm_whole,
)


# Row-parallel GEMM, then the reduce-scatter of its partial sums.


def _gemm_reduce_scatter_local(problem: Problem) -> Sizes:
    """k is this rank's share of the contraction; the sum's row chunk p goes to rank p."""
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, k), "b": (k, n), "output": (m // w, n)}


def _gemm_reduce_scatter_whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, w * k), "b": (w * k, n), "output": (m, n)}


GEMM_REDUCE_SCATTER_OPERATOR = operator(
    name="gemm_reduce_scatter",
    title="GEMM -> reduce-scatter",
    words="GEMM, then partial sums go to their owners",
    occurs="tensor parallel",
    source="arXiv:2512.10236",
    flow=Flow.SEND,
    collective="reduce_scatter",
    local=_gemm_reduce_scatter_local,
    whole=_gemm_reduce_scatter_whole,
)


# Row-parallel GEMM, then the all-reduce of its partial sums.


def _local(problem: Problem) -> Sizes:
    """k is this rank's share of the contraction; rank p sums row chunk p and gives it to all."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"a": (m, k), "b": (k, n), "output": (m, n)}


def _whole(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, w * k), "b": (w * k, n), "output": (m, n)}


OPERATOR = operator(
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
