"""The same question at many sizes of L2: how much a larger one would save."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from workbench.simulator.cache.hierarchy import Hierarchy
from workbench.simulator.cache.interrupts import together
from workbench.simulator.cache.study import Progress, silent
from workbench.simulator.cache.trace import LINE_BYTES

MIB = 2**20
SIZES = (8, 12, 16, 24, 32, 40, 50, 64, 80, 96, 128, 160, 192, 224, 256)
"""MiB of L2 that a sweep has; 50 is an H200's."""
Row = dict[str, Any]


def of_sizes(on: Hierarchy, sizes: Sequence[int] = SIZES) -> tuple[Hierarchy, ...]:
    """*on* with L2s of about so many MiB: the nearest size whose sets are whole."""
    a_way = LINE_BYTES * on.l2_ways * on.l2_slices
    return tuple(on.with_l2(max(1, round(size * MIB / a_way)) * a_way) for size in sizes)


def swept(
    on: Hierarchy, rows_at: Callable[[Hierarchy], list[Row]], progress: Progress = silent, sizes: Sequence[int] = SIZES
) -> list[Row]:
    """The rows of every size, each with its `l2_bytes`, two sizes at a time."""
    each = of_sizes(on, sizes)
    names = [f"L2 of {one.l2_bytes / MIB:.0f} MiB" for one in each]
    jobs = [partial(rows_at, one) for one in each]
    made = together(jobs, lambda count, at: progress(count, len(jobs), names[at]))
    return [{**row, "l2_bytes": one.l2_bytes} for one, rows in zip(each, made, strict=True) for row in rows]
