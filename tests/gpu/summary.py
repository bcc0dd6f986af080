"""Recordings of GPUs as the table of README: `python -m tests.gpu.summary RECORDING ...`, a row a problem.

Microseconds of one call, by world. Compute alone: the faster of cuBLAS and our kernel. Sequential and fused: the best
schedules of the recordings, the slowest rank's median, with the tenth and nine tenths of its samples.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ORDER = ("gemv_all_reduce", "embedding_all_to_all", "gemm_all_to_all", "all_gather_gemm", "all_to_all_gemm",
         "gemm_reduce_scatter", "gemm_all_reduce")  # fmt: skip
HIDDEN = ("rows",)
"""Sizes that all rows share."""
Row = dict[str, Any]


def read(paths: Sequence[Path]) -> list[Row]:
    """All lines of *paths*."""
    return [json.loads(line) for path in paths for line in path.read_text().splitlines() if line]


def problem_of(row: Row) -> str:
    """Operator and sizes, as the table's first column."""
    sizes = ", ".join(str(value) for name, value in row["shape"].items() if name not in HIDDEN)
    return f"`{row['operator']}` {sizes}"


def fastest(rows: Iterable[Row], part: str, schemes: Sequence[str]) -> Row | None:
    """The fastest row of *part* among *schemes*."""
    found = [row for row in rows if row["part"] == part and row["scheme"] in schemes and row["time_s"]]
    return min(found, key=lambda row: float(row["time_s"]), default=None)


def cells(rows: Sequence[Row]) -> list[str]:
    """Compute alone, best sequential with its collective, best fused, their ratio: of one problem in one world."""
    alone = fastest(rows, "compute", ("sequential", "fused"))
    baseline, fused = fastest(rows, "whole", ("sequential", "decomposed")), fastest(rows, "whole", ("fused",))
    if not (alone and baseline and fused):
        return ["–"] * 4
    how = baseline["axes"].get("collective") or baseline["scheme"]
    return [
        number(alone["time_s"]),
        f"{spread(baseline)}, {'NCCL' if how == 'library' else how}",
        spread(fused),
        f"{fused['time_s'] / baseline['time_s']:.2f}",
    ]


def spread(row: Row) -> str:
    return f"{number(row['time_s'])} ({number(row['low_s'])} to {number(row['high_s'])})"


def number(seconds: float) -> str:
    """Microseconds with three digits."""
    micro = seconds * 1e6
    return f"{micro:.0f}" if micro >= 100 else f"{micro:.1f}"


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of Markdown."""
    worlds = sorted({row["world"] for row in rows})
    titles = ("compute alone", "best sequential", "fused", "ratio")
    heads = [f"{world} GPUs: {title}" if title == titles[0] else title for world in worlds for title in titles]
    lines = [f"| operator and shape | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for problem in sorted({problem_of(row): None for row in rows}, key=lambda name: ORDER.index(name.split("`")[1])):
        mine = [row for row in rows if problem_of(row) == problem]
        if fastest(mine, "whole", ("sequential", "decomposed")) is None:
            continue  # a probe of the wire, no problem of its own
        found = [cell for world in worlds for cell in cells([row for row in mine if row["world"] == world])]
        lines.append(f"| {problem} | {' | '.join(found)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(read([Path(name) for name in sys.argv[1:]]))))
