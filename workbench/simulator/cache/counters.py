"""A GPU's counters: the metrics that ncu collects. Only the standard library, since GPU hosts have little else."""

from __future__ import annotations

from collections.abc import Mapping

TEX = "lts__t_sectors_srcunit_tex_op_read"
FABRIC = "lts__t_sectors_srcunit_ltcfabric"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
REQUESTED, HIT, MISSED = f"{TEX}.sum", f"{TEX}_lookup_hit.sum", f"{TEX}_lookup_miss.sum"
SECONDS = "gpu__time_duration.sum"
NEEDED = (READ, WRITTEN, SECONDS)
TEX_ONLY = (*NEEDED, HIT, MISSED)
METRICS = (*TEX_ONLY, REQUESTED, f"{FABRIC}.sum", f"{FABRIC}_lookup_hit.sum", f"{FABRIC}_lookup_miss.sum")
"""All metrics. lts__t_sectors_op_read is not among them: it counts reads of the other partition twice."""
PROGRAMS = "programs"
"""Key of the number of launched programs in our rows of metrics."""


def hit_rate(metrics: Mapping[str, float]) -> float | None:
    """L2 hit rate of the tex units' reads, or None if the counters are absent."""
    if HIT not in metrics or MISSED not in metrics:
        return None
    looked_up = metrics[HIT] + metrics[MISSED]
    return metrics[HIT] / looked_up if looked_up else None
