"""How well the simulator predicts what was measured here: every stored measurement beside today's estimate of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from kernels.machine import Machine
from kernels.outcome import row as row_of
from kernels.schedule import Refusal
from kernels.trial import Trial
from workbench import machines, recordings
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
    rows = _estimated(newest.values(), None)
    return rows, _summary(rows)


def validate_recordings(
    names: Iterable[str], machine: Machine | None = None
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """As `validate`, of recordings; by *machine*, or by the one that each trial names."""
    found = [one.measurement for name in names for one in recordings.recordings(name)]
    rows = _estimated([(row_of(one), one.trial) for one in found], machine)
    return rows, _summary(rows)


def by_kind(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Ratios of estimated to measured times by operator, scheme and part: how many, the middle, the extremes."""
    kinds: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        how = str(row["axes"].get("collective", "")) if row["scheme"] == "sequential" else ""
        kinds.setdefault((row["operator"], row["scheme"], how, row["part"]), []).append(1 + row["error"])
    names = ("operator", "scheme", "collective", "part")
    return [{**dict(zip(names, kind, strict=True)), "count": len(ratios), "ratio": median(ratios),
             "lowest": min(ratios), "highest": max(ratios)} for kind, ratios in sorted(kinds.items())]  # fmt: skip


def _estimated(measured: Iterable[tuple[Mapping[str, Any], Trial]], machine: Machine | None) -> list[dict[str, Any]]:
    rows = []
    for row, trial in measured:
        try:
            estimate = predict(trial, machine or machines.machine(trial.machine), with_spans=False)
        except Refusal:
            continue
        keys = ("key", "run", "operator", "shape", "dtype", "world", "scheme", "axes", "part", "machine", "fabric")
        rows.append({
            **{key: row[key] for key in keys}, "measured_s": row["time_s"], "estimated_s": estimate.time_s,
            "low_s": estimate.low_s, "high_s": estimate.high_s, "calibrated": estimate.calibrated,
            "error": estimate.time_s / row["time_s"] - 1,
        })  # fmt: skip
    return rows


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
