"""How well the simulator predicts what was measured here: every stored measurement beside today's estimate of it."""

from __future__ import annotations

from statistics import median
from typing import Any

from kernels.schedule import Refusal
from workbench import machines
from workbench.simulator.predict import predict
from workbench.store import Store

CLOSE = 0.15
"""An estimate is close when it is within this share of the measured time."""


def validate(store: Store, runs: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One row per measured trial of *runs* (its newest measurement), and how far the estimates are off in all."""
    newest: dict[str, tuple[dict[str, Any], Any]] = {}
    for run in runs:
        trials = store.trials(run)
        for row in store.rows(run):
            if row["outcome"] == "measurement" and row["source"] == "measured":
                newest[row["key"]] = (row, trials[row["key"]])
    rows = []
    for row, trial in newest.values():
        try:
            estimate = predict(trial, machines.machine(trial.machine), with_spans=False)
        except Refusal:
            continue
        keys = ("key", "run", "operator", "shape", "dtype", "world", "scheme", "axes", "part", "machine", "fabric")
        rows.append({
            **{key: row[key] for key in keys}, "measured_s": row["time_s"], "estimated_s": estimate.time_s,
            "low_s": estimate.low_s, "high_s": estimate.high_s, "calibrated": estimate.calibrated,
            "error": estimate.time_s / row["time_s"] - 1,
        })  # fmt: skip
    return rows, _summary(rows)


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    if not rows:
        return {"count": 0}
    errors = [abs(row["error"]) for row in rows]
    inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows)
    worst = max(rows, key=lambda row: abs(row["error"]))
    return {
        "count": len(rows),
        "median_absolute_error": median(errors),
        "median_error": median(row["error"] for row in rows),
        "within_15_percent": sum(error <= CLOSE for error in errors) / len(rows),
        "inside_interval": inside / len(rows),
        "worst_error": worst["error"],
        "worst_key": worst["key"],
        "calibrated": all(row["calibrated"] for row in rows),
    }
