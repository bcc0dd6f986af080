"""The five GEMM operators: C[m, n] = A[m, k] B[k, n] on each rank, before or after a collective over chunks of rows."""

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


def _extent(problem: Problem) -> Extent:
    return Extent(problem["m"], problem["n"], problem["k"])


def _flops(problem: Problem) -> int:
    """A multiplication and an addition for each of m x n x k."""
    return 2 * problem["m"] * problem["n"] * problem["k"]


def _memory_bytes(problem: Problem) -> int:
    """Bytes of A and B, which are read once, and of C, which is written once."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return (m * k + k * n + m * n) * problem.itemsize


def _sizes(first: Shape, second: Shape, world: int) -> Mapping[str, Any]:
    return {"m": first[0], "n": second[1], "k": first[1]}


def _sizes_by_shard(shard: Shape, b: Shape, world: int) -> Mapping[str, Any]:
    return {"m": world * shard[0], "n": b[1], "k": shard[1]}


def _expert(problem: Problem) -> Sizes:
    """Shapes on one rank: rows m are the tokens of this rank's expert, m/world of them from each rank."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"tokens": (m, k), "expert": (k, n), "output": (m, n)}


def _all_experts(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"tokens": (w * m, k), "experts": (w, k, n), "output": (w * m, n)}


def _shard(problem: Problem) -> Sizes:
    """Shapes on rank p, which holds row chunk p of A; n is its share of the columns."""
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"shard": (m // w, k), "b": (k, n), "output": (m, n)}


def _all_columns(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, k), "b": (k, w * n), "output": (m, w * n)}


def _partial_sum(problem: Problem) -> Sizes:
    """Shapes on rank p, whose share of the contraction is k; it sums row chunk p and sends the sum to all ranks."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    return {"a": (m, k), "b": (k, n), "output": (m, n)}


def _scattered_sum(problem: Problem) -> Sizes:
    """Shapes on rank p, which keeps row chunk p of the sum."""
    return {**_partial_sum(problem), "output": (problem["m"] // problem.world, problem["n"])}


def _whole_sum(problem: Problem) -> Sizes:
    m, n, k, w = problem["m"], problem["n"], problem["k"], problem.world
    return {"a": (m, w * k), "b": (w * k, n), "output": (m, n)}


def _operator(
    flow: Flow, collective: str, local: Callable[[Problem], Sizes], whole: Callable[[Problem], Sizes], **texts: str
) -> Operator:
    """A GEMM operator; *texts* are its name, title, words, occurs and source.

    Incoming data can be cut by rows and contraction, outgoing data by rows and columns.
    """
    directions = ("rows", "contraction", "rows_and_contraction") if flow is Flow.RECEIVE else ("rows", "columns")
    reduces, gathers = collective in ("reduce_scatter", "all_reduce"), collective == "all_gather"
    return Operator(
        **texts,
        flow=flow,
        collective=collective,
        work="gemm",
        reduces=reduces,
        layout=ResultLayout.ROWS if flow is Flow.SEND and not reduces else ResultLayout.WHOLE,
        keys=KEYS,
        splits={direction: direction for direction in directions},
        tile_means=TILE_MEANS,
        extent=_extent,
        flops=_flops,
        memory_bytes=_memory_bytes,
        local=local,
        operand_shapes=("[m/world, k]" if gathers else "[m, k]", "[k, n]"),
        sizes=_sizes_by_shard if gathers else _sizes,
        whole=whole,
    )


OPERATORS = (
    _operator(Flow.SEND, "all_to_all", _expert, _all_experts, name="gemm_all_to_all", title="GEMM -> all-to-all",
              words="expert GEMM, then tokens go home", occurs="MoE combine", source="arXiv:2305.06942"),
    _operator(Flow.RECEIVE, "all_gather", _shard, _all_columns, name="all_gather_gemm", title="all-gather -> GEMM",
              words="gather the sharded activations, then GEMM", occurs="sequence and tensor parallel, FSDP",
              source="arXiv:2512.10236"),
    _operator(Flow.RECEIVE, "all_to_all", _expert, _all_experts, name="all_to_all_gemm", title="all-to-all -> GEMM",
              words="tokens go to their experts, then GEMM", occurs="MoE dispatch", source="arXiv:2512.10236"),
    _operator(Flow.SEND, "reduce_scatter", _scattered_sum, _whole_sum, name="gemm_reduce_scatter",
              title="GEMM -> reduce-scatter", words="GEMM, then partial sums go to their owners",
              occurs="tensor parallel", source="arXiv:2512.10236"),
    _operator(Flow.BROADCAST, "all_reduce", _partial_sum, _whole_sum, name="gemm_all_reduce",
              title="GEMM -> all-reduce", words="GEMM, then everybody gets the sum",
              occurs="tensor and data parallel training", source="arXiv:2606.09200"),
)  # fmt: skip
