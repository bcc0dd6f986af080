"""`workbench benchmark`: the overhead and the performance of the workbench on this computer, as numbers with targets.

Ratios of times are checked here and never in tests: on a busy computer a number may miss its target without anything
being wrong. Each is a median with its spread, and the summary says how busy the computer was.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.outcome import Measurement, Sample
from kernels.schedule import Refusal
from kernels.schemes import PLANS
from kernels.trial import Trial
from workbench.cli import (
    benchmark_parts,
)
from workbench.cli.benchmark_parts import BenchmarkSetting, Effort, Row, small, spread, typical
from workbench.results import metrics
from workbench.results.provenance import provenance
from workbench.results.store import Store
from workbench.simulator.predict import predict

# How fast results are stored and put on a chart: the two things that this process does with every sample.

REPEATS = 15
ROWS = 20
"""Number of rows appended at once."""


def inserts(setting: BenchmarkSetting) -> Iterator[Row]:
    """Times the storing of outcomes with their samples, one transaction each, as a run does it."""
    trial = small(setting.machine)
    outcome, samples = _measured(trial, setting)
    with tempfile.TemporaryDirectory(dir=setting.folder) as folder, Store(Path(folder) / "store.sqlite") as store:
        run, seconds = store.begin_run({}, {}), []
        row = metrics.row_of(outcome, run, setting.machine)
        for _ in range(setting.effort.outcomes):
            began = time.perf_counter()
            store.add_outcome(run, outcome, row, samples=samples)
            seconds.append(time.perf_counter() - began)
    rates = [1 / each for each in seconds]
    how = f"An outcome with {len(samples)} samples and {len(outcome.spans)} spans, one transaction each, on your disk."
    total = len(seconds) / sum(seconds)
    yield Row(name="store_outcomes", value=total, unit="1/s", spread=spread(rates), n=len(rates), how=how)
    yield Row(name="store_samples", value=total * len(samples), unit="1/s", n=len(rates) * len(samples), how=how)


def _measured(trial: Trial, setting: BenchmarkSetting) -> tuple[Measurement, list[Sample]]:
    """An invented measurement of *trial*, and its samples."""
    PLANS.clear()
    ranks = range(trial.world)
    samples = [Sample(trial.key, rank, index, 1e-3, time.time()) for index in range(REPEATS) for rank in ranks]
    by_rank: Sequence[tuple[float, ...]] = [(1e-3,) * REPEATS for _ in ranks]
    spans = predict(trial, setting.machine).spans
    return Measurement(trial=trial, samples=tuple(by_rank), correct=True, max_relative_error=0.0, spans=spans), samples


def appends(setting: BenchmarkSetting) -> Iterator[Row]:
    """Times the appending of rows to a live chart that has a thousand already."""
    from workbench.charts import trials
    from workbench.widgets import live_chart

    chart = live_chart.LiveChart(trials.live())
    records = trials.rows([metrics.row_of(_measured(small(setting.machine), setting)[0], "", setting.machine)]) * ROWS
    rows = records[:ROWS]
    for _ in range(1000 // len(rows)):
        chart.append(trials.DATASET, rows)
    seconds = []
    for _ in range(setting.effort.appends):
        time.sleep(2 * live_chart.MESSAGE_INTERVAL_S)  # so that each append is sent at once, as a message of its own
        began = time.perf_counter()
        chart.append(trials.DATASET, rows)
        seconds.append(time.perf_counter() - began)
    chart.close()
    how = f"{len(rows)} rows appended to a live chart of 1,000 and sent, in Python; no browser draws them."
    yield typical("chart_append", seconds, "s", how)


# The table of benchmarks, and the function that runs them.

if TYPE_CHECKING:
    from cluster.client import Cluster

__all__ = ["BENCHMARKS", "Effort", "benchmark"]

BENCHMARKS: dict[str, Callable[[BenchmarkSetting], Iterator[Row]]] = {
    "play": benchmark_parts.plays,
    "grid": benchmark_parts.points,
    "store": inserts,
    "chart": appends,
    "gang": benchmark_parts.gangs,
    "overhead": benchmark_parts.overhead,
    "latency": benchmark_parts.latency,
    "overlap": benchmark_parts.schemes,
    "pieces": benchmark_parts.pieces,
    "world_4": benchmark_parts.world_4,
    "fairness": benchmark_parts.fairness,
}
"""Benchmarks by name, in the order of running: those that need no cluster first."""

_log = logging.getLogger(__name__)


def benchmark(
    only: Sequence[str] | None = None, cluster: Cluster | None = None, *, effort: Effort | None = None
) -> dict[str, Any]:
    """Runs the benchmarks *only*, or all, on *cluster* or a private one of this host; returns rows and a summary.

    Takes about two minutes. A benchmark that cannot be run becomes a row without a value; the others still run.
    """
    chosen = list(BENCHMARKS) if only is None else list(only)
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        raise Refusal(f"There is no benchmark {unknown[0]!r}. Accepted: {', '.join(BENCHMARKS)}.")
    load = _load()
    rows: list[Row] = []
    with BenchmarkSetting(effort or Effort(), cluster) as setting:
        is_stopped = False
        try:
            for name in chosen:
                _log.info("benchmark %s", name)
                rows += _rows(name, setting)
        except KeyboardInterrupt:  # rows so far are reported
            is_stopped = True
        machine = setting.machine
    with_target = [row for row in rows if row.target is not None]
    return {
        "rows": [row.to_json() for row in rows],
        "summary": {
            "targets": len(with_target), "met": sum(row.met is True for row in with_target),
            "missed": [row.name for row in with_target if not row.met],
            "failed": [row.name for row in rows if row.value is None], "stopped": is_stopped,
            "cluster": cluster.address if cluster is not None else "private", "calibrated": machine.calibrated,
            "load_before": load, "load_after": _load(), "provenance": provenance(machine),
            "note": "Medians. Where others compute on this computer at the same time, times grow and spreads widen.",
        },
    }  # fmt: skip


def _rows(name: str, setting: BenchmarkSetting) -> list[Row]:
    try:
        return list(BENCHMARKS[name](setting))
    except (ValueError, OSError, RuntimeError) as error:  # a refusal, no rank, no cluster
        return [Row(name=name, value=None, unit="", how=f"It did not run: {error}")]


def _load() -> float | None:
    """The average number of processes that wanted a core during the last minute."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
