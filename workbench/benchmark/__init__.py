"""`workbench benchmark`: what the workbench costs and reaches on this computer, as numbers with targets beside them.

Ratios of times are held here and never in tests: on a busy computer a number may miss its target without anything
being wrong. Each is a median with its spread, and the summary says how busy the computer was.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernels.schedule import Refusal
from workbench.benchmark import fairness, gangs, keeping, overlap, simulating
from workbench.benchmark.rows import Row
from workbench.benchmark.setting import Effort, Setting
from workbench.provenance import provenance

if TYPE_CHECKING:
    from cluster.dispatch import Cluster

__all__ = ["BENCHMARKS", "Effort", "benchmark"]

BENCHMARKS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "play": simulating.plays,
    "grid": simulating.points,
    "store": keeping.inserts,
    "chart": keeping.appends,
    "gang": gangs.gangs,
    "overhead": gangs.overhead,
    "latency": gangs.latency,
    "overlap": overlap.schemes,
    "pieces": overlap.pieces,
    "world_4": overlap.world_4,
    "fairness": fairness.fairness,
}
"""By name, in the order in which they are run: those that need no cluster first."""

_log = logging.getLogger(__name__)


def benchmark(
    only: Sequence[str] | None = None, cluster: Cluster | None = None, *, effort: Effort | None = None
) -> dict[str, Any]:
    """Rows and a summary of the benchmarks *only*, or of all, on *cluster* or a private one of this host.

    Takes about two minutes. A benchmark that cannot be run becomes a row without a value; the others go on.
    """
    chosen = list(BENCHMARKS) if only is None else list(only)
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        raise Refusal(f"There is no benchmark {unknown[0]!r}. Accepted: {', '.join(BENCHMARKS)}.")
    load = _load()
    rows: list[Row] = []
    with Setting(effort or Effort(), cluster) as setting:
        is_stopped = False
        try:
            for name in chosen:
                _log.info("benchmark %s", name)
                rows += _rows(name, setting)
        except KeyboardInterrupt:  # what was found until now is told
            is_stopped = True
        machine = setting.machine
    held = [row for row in rows if row.target is not None]
    return {
        "rows": [row.to_json() for row in rows],
        "summary": {
            "targets": len(held), "met": sum(row.met is True for row in held),
            "missed": [row.name for row in held if not row.met],
            "failed": [row.name for row in rows if row.value is None], "stopped": is_stopped,
            "cluster": cluster.address if cluster is not None else "private", "calibrated": machine.calibrated,
            "load_before": load, "load_after": _load(), "provenance": provenance(machine),
            "note": "Medians. Where others compute on this computer at the same time, times grow and spreads widen.",
        },
    }  # fmt: skip


def _rows(name: str, setting: Setting) -> list[Row]:
    try:
        return list(BENCHMARKS[name](setting))
    except (ValueError, OSError, RuntimeError) as error:  # a sentence, no worker, no cluster
        return [Row(name=name, value=None, unit="", how=f"It did not run: {error}")]


def _load() -> float | None:
    """Processes that wanted a core during the last minute, on average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
