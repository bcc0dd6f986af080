"""What problems and baselines of the GPU tables are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

ORDER = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all", "all_gather_gemm", "all_to_all_gemm",
         "gemm_reduce_scatter", "gemm_all_reduce")  # fmt: skip
COLLECTIVES = {
    "library": "NCCL", "library_tuned": "NCCL tuned", "direct": "our stores", "copy_engine": "copy engines",
    "one_shot": "torch's one shot", "two_shot": "torch's two shot", "overlapped": "torch's overlapped",
}  # fmt: skip
WHO = {"library": "cuBLAS", "ours": "our kernel"}


def problem_words(row: Row) -> str:
    """Operator and sizes, as the tables' first column."""
    shape = row["shape"]
    match row["operator"]:
        case "gemv_all_reduce":
            sizes = f"{shape['n']} x {shape['k']}, {shape['tokens']} token{'s' if shape['tokens'] > 1 else ''}"
        case "embedding_all_to_all":
            indices = str(shape["indices"]).replace("_", " ")
            sizes = (
                f"{shape['tables_per_rank']} tables, batch {shape['batch']}, {shape['pooling']} lookups of "
                f"{shape['dim']}, {indices}"
            )
        case _:
            sizes = f"{shape['m']} x {shape['n']} x {shape['k']}"
    return f"`{row['operator']}` {sizes}"


def baseline_words(row: Row) -> str:
    """Who computes and who communicates; a lookup is always ours."""
    if row["scheme"] == "decomposed":
        return COLLECTIVES["overlapped"]
    collective = str(row["axes"]["collective"])
    moved = COLLECTIVES.get(collective, collective)
    if row["operator"] == "embedding_all_to_all" or collective == "overlapped":
        return moved
    return f"{WHO[str(row['axes'].get('kernel', 'library'))]} + {moved}"
