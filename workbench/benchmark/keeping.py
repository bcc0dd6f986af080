"""How fast results are written down and put on a chart: the two things that this process does with every sample."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernels.outcome import Measurement, Sample
from kernels.schemes import PLANS
from kernels.trial import Trial
from workbench import metrics
from workbench.benchmark.rows import Row, spread, typical
from workbench.benchmark.setting import Setting, small
from workbench.simulator.predict import predict
from workbench.store import Store

REPEATS = 15
ROWS = 20
"""Appended at once."""


def inserts(setting: Setting) -> Iterator[Row]:
    """Outcomes with their samples, one transaction each, as a run writes them."""
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


def _measured(trial: Trial, setting: Setting) -> tuple[Measurement, list[Sample]]:
    """What a trial of two ranks leaves behind, made up."""
    PLANS.clear()
    ranks = range(trial.world)
    samples = [Sample(trial.key, rank, index, 1e-3, time.time()) for index in range(REPEATS) for rank in ranks]
    by_rank: Sequence[tuple[float, ...]] = [(1e-3,) * REPEATS for _ in ranks]
    spans = predict(trial, setting.machine).spans
    return Measurement(trial=trial, samples=tuple(by_rank), correct=True, max_relative_error=0.0, spans=spans), samples


def appends(setting: Setting) -> Iterator[Row]:
    """Rows into a live chart that has a thousand already."""
    from workbench.charts import trials
    from workbench.widgets import live_chart

    chart = live_chart.LiveChart(trials.live())
    records = trials.rows([metrics.row_of(_measured(small(setting.machine), setting)[0], "", setting.machine)]) * ROWS
    rows = records[:ROWS]
    for _ in range(1000 // len(rows)):
        chart.append(trials.DATASET, rows)
    seconds = []
    for _ in range(setting.effort.appends):
        time.sleep(2 * live_chart.MESSAGE_INTERVAL_S)  # so that each leaves as a message of its own, here and now
        began = time.perf_counter()
        chart.append(trials.DATASET, rows)
        seconds.append(time.perf_counter() - began)
    chart.close()
    how = f"{len(rows)} rows appended to a live chart of 1,000 and sent, in Python; no browser draws them."
    yield typical("chart_append", seconds, "s", how)
