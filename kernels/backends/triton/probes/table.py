"""A row of raw results as a line for people: what was measured, how long it took, what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kernels.units import bytes_text

FACTS = ("way", "by", "collective", "pattern", "programs", "streams", "packets", "waves", "rows_under_way")


def title() -> str:
    """The head of the table."""
    return f"{'probe':64} {'measured':>11} {'low':>9} {'high':>9} {'expected':>10}  {'reached':>12}"


def line(row: Mapping[str, Any]) -> str:
    """One row."""
    words = [str(row[name]) for name in FACTS if name in row]
    if "shape" in row:
        words.append("x".join(map(str, row["shape"].values())))
    elif "bytes" in row:
        words.append(bytes_text(row["bytes"]))
    what = f"{row['probe']} {' '.join(words)}"
    if "refused" in row:
        return f"{what:64} refused: {row['refused']}"
    measured = f"{row['seconds'] * 1e6:9.3f}µs {row['low_s'] * 1e6:9.3f} {row['high_s'] * 1e6:9.3f}"
    return f"{what:64} {measured} {row['expected_s'] * 1e6:8.3f}µs  {speed(row):>12}"


def speed(row: Mapping[str, Any]) -> str:
    """What the time means: bytes or FLOP per second; nothing where a time is a time."""
    if row["probe"] == "gemm":
        return f"{row['flops'] / row['seconds'] / 1e12:.0f} TFLOP/s"
    moved = row.get("wire_bytes", row.get("bytes"))
    return f"{moved / row['seconds'] / 1e9:.0f} GB/s" if moved else ""


def bounds(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Each pooled lookup beside the faster read-only gather of the same indices, which bounds it."""
    least: dict[str, float] = {}
    ours: dict[str, float] = {}
    for row in rows:
        if row["probe"] != "gather" or "refused" in row:
            continue
        what = f"{row['dtype']} {' '.join(f'{key}={size}' for key, size in row['shape'].items())}"
        if row["by"] == "read_only":
            least[what] = min(row["seconds"], least.get(what, row["seconds"]))
        else:
            ours[what] = row["seconds"]
    for what in least.keys() & ours.keys():
        mine_us, rows_us = ours[what] * 1e6, least[what] * 1e6
        yield f"lookup {what}: {mine_us:.1f} µs, rows alone {rows_us:.1f} µs: {rows_us / mine_us:.0%} of the bound"
